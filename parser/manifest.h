/* A manifest: what a parser found in one file. Everything in it is copied into its arena, nothing points into
 * the file, so it outlives the file and is safe to share between threads once parsing has ended. */
#ifndef TD_PARSER_MANIFEST_H
#define TD_PARSER_MANIFEST_H

#include "core/arena.h"
#include "core/error.h"
#include "parser/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_MAX_RANK = 64 }; /* dimensions of a tensor: torch's and NumPy's own limit */

struct td_tensor {
    const char *name; /* UTF-8, NUL-terminated, no NUL inside */
    uint32_t name_len;
    uint32_t rank;
    const struct td_dtype *dtype;
    const uint64_t *shape; /* rank sizes, outermost first, elements; NULL when rank is 0 */
    uint64_t nbytes;
    uint64_t offset; /* of the first byte, from the start of the file */
};

struct td_metadata {
    const char *key;   /* UTF-8 */
    const char *value; /* a JSON value, already serialised: "\"pt\"" */
};

struct td_manifest {
    struct td_arena arena;     /* owns all that follows */
    const char *format;        /* static: "safetensors" */
    struct td_tensor *tensors; /* sorted by name (byte order), names unique */
    size_t tensor_count;
    struct td_metadata *metadata; /* in the file's order */
    size_t metadata_count;
    uint64_t total_bytes; /* sum of nbytes */
};

/* Limits on what one file may make us hold; every member has a default in td_limits_default. */
struct td_limits {
    uint64_t max_header_bytes; /* safetensors: N */
    size_t max_memory_bytes;   /* arena and scratch of one parse */
};

struct td_limits td_limits_default(void);

/* Empties a manifest for use by a parser; memory_bytes bounds its arena (0 = none). */
void td_manifest_init(struct td_manifest *manifest, size_t memory_bytes);
void td_manifest_fini(struct td_manifest *manifest);

/* Sorts the tensors by name and requires names to be unique and the total to fit 64 bits. Every parser ends
 * with it. On failure *err names the duplicate. */
bool td_manifest_finish(struct td_manifest *manifest, struct td_error *err);

/* The tensor with this name, or NULL. Binary search. */
const struct td_tensor *td_manifest_find(const struct td_manifest *manifest, const char *name, size_t len);

/* Byte order of two names, the order of every listing: <0, 0, >0. */
int td_name_compare(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
