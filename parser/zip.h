/* Zip archives, strictly: what checkpoints use (stored and deflated members, zip64, data descriptors) and nothing
 * else. The central directory is what counts, since PyTorch leaves sizes and CRC of its local headers at 0; a local
 * header must agree wherever it says anything. Source: PKWARE APPNOTE 6.3.9. */
#ifndef TD_PARSER_ZIP_H
#define TD_PARSER_ZIP_H

#include "core/arena.h"
#include "core/input.h"
#include "parser/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_zip_entry {
    const char *name; /* UTF-8, relative, no "..", no NUL; in the arena */
    uint32_t name_len;
    bool deflated;
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

/* Reads and checks the directory and every local header. All memory comes from the arena, whose limit bounds it.
 * Errors: TD_INVALID_ARGUMENT with the position, TD_RESOURCE_EXHAUSTED, and the input's. */
bool td_zip_read(struct td_zip *zip, const struct td_input *input, const struct td_limits *limits,
                 struct td_arena *arena, struct td_error *err);

/* The member with exactly this name, or NULL. */
const struct td_zip_entry *td_zip_find(const struct td_zip *zip, const char *name, size_t len);

/* A member's bytes, unpacked where it is deflated, in memory of its own (free()); NULL on failure. At most
 * limit_bytes, refused before anything is allocated; a member that unpacks to another size than it says is refused. */
uint8_t *td_zip_load(const struct td_input *input, const struct td_zip_entry *entry, uint64_t limit_bytes,
                     struct td_error *err);

#endif
