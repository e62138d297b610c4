/* Element types: the names that manifests show and the sizes that shapes are checked against. */
#ifndef TD_PARSER_DTYPE_H
#define TD_PARSER_DTYPE_H

#include "core/swap.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One entry per type. Block types (GGUF) store block_elems elements in block_bytes; plain types have
 * block_elems 1 and block_bytes = size, except that sub-byte types (F4, F6_*) use the smallest block that is
 * whole bytes: the reference (safetensors tensor.rs) requires elems * bits % 8 == 0, which is the same
 * condition. */
struct td_dtype {
    const char *name; /* safetensors' spelling: "BF16", "F8_E4M3"; else the source's */
    uint16_t block_elems;
    uint16_t block_bytes; /* 0: elements of no fixed size (STRING, OBJECT); never addressable */
};

/* The entry with this name, or NULL. Names are case-sensitive, as in the formats. The pointer is static. */
const struct td_dtype *td_dtype_find(struct td_text name);

/* Whether safetensors has this type. */
bool td_dtype_is_safetensors(const struct td_dtype *dtype);

/* The i-th entry for listing, NULL past the last. */
const struct td_dtype *td_dtype_at(size_t i);

/* Bytes of elems elements; false on overflow or when elems does not fill whole blocks. */
bool td_dtype_nbytes(const struct td_dtype *dtype, uint64_t elems, uint64_t *nbytes);

/* Which bytes of a block change places when it is stored big-endian; false where that is not known: of GGUF's blocks it
 * is known of those that gguf-py's gguf_convert_endian.py converts. */
bool td_dtype_swap(const struct td_dtype *dtype, struct td_swap *swap);

#endif
