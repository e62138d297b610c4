/* An archive that is being read. Only for parser/zip, whose files have these parts:
 *
 *   zip_directory  the end records, found from the end of the file, and the central directory
 *   zip_unpack     the members' bytes
 *   zip            local headers, descriptors, and the check that the members fill the archive; names; PyTorch's rules
 *
 * Offsets of fields are those of APPNOTE 4.3: local header 4.3.7, descriptor 4.3.9, central header 4.3.12, zip64
 * records 4.3.14 and 4.3.15, end record 4.3.16, zip64 extra field 4.5.3. A function that returns false has set r->err,
 * unless its comment says otherwise. */
#ifndef TD_PARSER_ZIP_ZIP_READER_H
#define TD_PARSER_ZIP_ZIP_READER_H

#include "core/arena.h"
#include "core/error.h"
#include "core/input.h"
#include "parser/format/limits.h"
#include "parser/format/names.h"
#include "parser/zip/zip_entry.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TD_ZIP_LOCAL_SIGNATURE UINT32_C(0x04034b50)

enum { TD_ZIP_LOCAL_BYTES = 30 };

enum {
    TD_ZIP_FLAG_ENCRYPTED = 0x1,
    TD_ZIP_FLAG_DESCRIPTOR = 0x8,
    TD_ZIP_FLAG_PATCHED = 0x20,
    TD_ZIP_FLAG_STRONG_ENCRYPTION = 0x40,
    TD_ZIP_FLAG_MASKED = 0x2000,
    TD_ZIP_FLAGS_REFUSED =
        TD_ZIP_FLAG_ENCRYPTED | TD_ZIP_FLAG_PATCHED | TD_ZIP_FLAG_STRONG_ENCRYPTION | TD_ZIP_FLAG_MASKED,
};

struct td_zip_reader {
    const struct td_input *input;
    const struct td_limits *limits;
    struct td_arena *arena;
    struct td_error *err;
    bool as_torch;                                 /* by the rules of td_zip_read_torch */
    uint64_t directory_at, directory_bytes, count; /* from the end records */
    struct td_zip_entry *entries;                  /* in the arena */
    /* Scratch, which td_zip_read frees. */
    uint8_t *directory;
    struct td_order *order; /* by header_at; index of the entry */
    uint64_t *central_at;   /* for each entry, where its record begins in `directory` */
    uint8_t near[512];      /* the bytes that were last read between members */
    uint64_t near_at;
    size_t near_bytes;
    uint8_t *local; /* room for a local header with the longest name */
    size_t longest_name;
    uint64_t local_bytes; /* bytes of local headers read so far */
};

/* Reports that memory is short. Returns false. */
static inline bool td_zip_no_memory(const struct td_zip_reader *r)
{
    (void)td_error_set(r->err, TD_RESOURCE_EXHAUSTED,
                       "out of memory: the zip directory needs more than one file's limit, or than there is");
    return false;
}

#endif
