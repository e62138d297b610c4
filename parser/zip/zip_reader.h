/* Within parser/zip*.c only: an archive that is being read, and what its structures are read with.
 *
 *   zip_end.c        the end records, found from the end of the file
 *   zip_directory.c  the central directory
 *   zip_local.c      local headers, descriptors, and that the members fill the archive
 *   zip_unpack.c     members' bytes
 *   zip.c            all of it in turn; names; PyTorch's rules
 *
 * Offsets of fields are those of APPNOTE 4.3: local header 4.3.7, descriptor 4.3.9, central header 4.3.12, zip64
 * records 4.3.14 and 4.3.15, end record 4.3.16, zip64 extra field 4.5.3. Functions that return false have reported why.
 */
#ifndef TD_PARSER_ZIP_READER_H
#define TD_PARSER_ZIP_READER_H

#include "parser/names.h"
#include "parser/zip/zip.h"

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
    /* as the end records say */
    uint64_t directory_at, directory_bytes, count;
    /* scratch */
    uint8_t *directory;
    struct td_order *order; /* by header_at; index of the entry */
    uint64_t *central_at;   /* of an entry's record, within directory */
    uint8_t near[512];      /* what was read last of what lies between members */
    uint64_t near_at;
    size_t near_bytes;
    uint8_t *local; /* room for a local header with the longest name */
    size_t longest_name;
    uint64_t local_bytes; /* of local headers read so far */
    struct td_zip_entry *entries;
};

/* What of a member is said outside its entry. */
struct td_zip_central {
    uint16_t version; /* needed to extract */
    uint16_t flags;
    uint16_t method;
    uint32_t crc32;
    uint16_t name_len;
    uint16_t extra_len;
    uint16_t comment_len;
};

/* Says that memory is short. Always false. */
bool td_zip_no_memory(const struct td_zip_reader *r);

/* Finds the end records: directory_at, directory_bytes and count. */
bool td_zip_find_end(struct td_zip_reader *r);

/* Takes the directory, which is loaded, apart: entries without their offsets, order, central_at and longest_name. */
bool td_zip_read_directory(struct td_zip_reader *r);

/* The fixed part of a record of the directory. */
struct td_zip_central td_zip_load_central(const uint8_t *p);

/* The zip64 field of extra[0..len): *data and its length, NULL when there is none. As in Python's zipfile, fewer than
 * four bytes at the end are padding. False, unreported: fields run past the end, or it is there twice. */
bool td_zip_find_extra64(const uint8_t *extra, size_t len, const uint8_t **data, size_t *data_len);

/* Takes the next eight bytes of a zip64 field for a value that did not fit into 32 bits. Without such a field the
 * value is meant as it stands. False, unreported: the field is too short. */
bool td_zip_widen(uint64_t *value, const uint8_t **data, size_t *len);

/* Reads the local headers, which gives the entries their offsets: in their order the members fill the archive up to the
 * directory. */
bool td_zip_place_members(struct td_zip_reader *r);

#endif
