/* Zip archives, strictly: what checkpoints use (stored and deflated members, zip64, data descriptors) and nothing
 * else. The central directory is what counts, since PyTorch leaves sizes and CRC of its local headers at 0; a local
 * header must agree wherever it says anything. The members, each with its header and descriptor, must fill the archive
 * from its first byte to the central directory, so no two readers can find different ones. Source: PKWARE APPNOTE
 * 6.3.9; what real writers do: Python's zipfile, PyTorch's caffe2/serialize/inline_container.cc with miniz. */
#ifndef TD_PARSER_ZIP_H
#define TD_PARSER_ZIP_H

#include "core/arena.h"
#include "core/input.h"
#include "core/text.h"
#include "parser/limits.h"
#include "parser/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_zip_entry {
    const char *name; /* UTF-8, relative, no "..", no NUL; in the arena */
    uint32_t name_len;
    bool deflated;
    uint32_t crc32;        /* of the unpacked bytes; 0 where the writer left it out (torch can) */
    uint64_t offset;       /* of the member's data, from the start of the archive */
    uint64_t stored_bytes; /* there */
    uint64_t size_bytes;   /* unpacked; equal to stored_bytes when stored */
    uint64_t header_at;    /* of its local header: for error positions */
};

struct td_zip {
    struct td_zip_entry *entries; /* files only, in the order of the central directory; in the arena */
    size_t count;
    struct td_zip_entry **by_name; /* the same, sorted by name (byte order); names unique */
};

/* Reads and checks the directory and every local header. All that stays comes from the arena, whose limit bounds it
 * together with what is needed meanwhile; a limit of the arena is left as it was.
 * Errors: TD_INVALID_ARGUMENT with the position, TD_RESOURCE_EXHAUSTED, and the input's. */
bool td_zip_read(struct td_zip *zip, const struct td_input *input, const struct td_limits *limits,
                 struct td_arena *arena, struct td_error *err);

/* The member with exactly this name, or NULL. */
const struct td_zip_entry *td_zip_find(const struct td_zip *zip, struct td_text name);

/* For PyTorch, whose reader looks members up without regard to case: refuses two names that differ in the case of
 * ASCII letters only. */
bool td_zip_check_case(const struct td_zip *zip, struct td_error *err);

/* For PyTorch, whose members all lie in one folder, named after the file or "archive": *root_len is the length of that
 * folder's name with its slash, in every name. Refuses a member that lies outside of the first one's. */
bool td_zip_check_root(const struct td_zip *zip, size_t *root_len, struct td_error *err);

/* A member's bytes, unpacked where it is deflated, in memory of its own (free()); NULL on failure. At most
 * limit_bytes, refused before anything is allocated; a member that unpacks to another size than it says is refused, or,
 * if it is deflated and its CRC is not 0, to bytes of another CRC. The CRC of stored bytes is not looked at. */
uint8_t *td_zip_load(const struct td_input *input, const struct td_zip_entry *entry, uint64_t limit_bytes,
                     struct td_error *err);

/* The first len bytes of a member, unpacked where it is deflated, to out; len is at most its size_bytes. No more than
 * that is unpacked, so nothing can be said of the rest. */
bool td_zip_load_head(const struct td_input *input, const struct td_zip_entry *entry, void *out, size_t len,
                      struct td_error *err);

/* How the bytes of a deflated member come out of the archive: *coding, one of the manifest's; or *reason, unless there
 * is one, when it unpacks to more than is unpacked for an answer. False: out of memory. */
bool td_zip_set_coding(struct td_manifest *manifest, const struct td_zip_entry *entry, const struct td_coding **coding,
                       const char **reason);

#endif
