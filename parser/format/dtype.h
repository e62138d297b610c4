/* Element types: the names that manifests show, and the sizes that shapes are checked against. Pure. */
#ifndef TD_PARSER_FORMAT_DTYPE_H
#define TD_PARSER_FORMAT_DTYPE_H

#include "core/swap.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One entry per type. Block types (GGUF) store block_elems elements in block_bytes. Plain types have block_elems 1, and
 * block_bytes is their size. Types below a byte (F4, F6_*) use the smallest block of whole bytes; the reference
 * (safetensors tensor.rs) requires elems * bits % 8 == 0, which is the same condition. */
struct td_dtype {
    const char *name; /* as safetensors spells it ("BF16", "F8_E4M3"); other types as their source does */
    uint16_t block_elems;
    uint16_t block_bytes; /* 0: elements of no fixed size (STRING, OBJECT), whose bytes are never served */
};

enum { TD_DTYPE_COUNT = 74 };

/* Returns the entry with this name, or NULL. Names are case-sensitive, as in the formats. The pointer is static. */
const struct td_dtype *td_dtype_find(struct td_text name);

/* Returns whether safetensors has this type. */
bool td_dtype_is_safetensors(const struct td_dtype *dtype);

/* Returns the i-th entry, or NULL past the last. */
const struct td_dtype *td_dtype_at(size_t i);

/* Returns the number of an entry, below TD_DTYPE_COUNT: td_dtype_at is the inverse. The types of safetensors come
 * first, in the order in which the reference (safetensors tensor.rs) declares them: by size but for BOOL, which
 * precedes the types below a byte. Its serializer sorts tensors by falling numbers, so that each begins at a multiple
 * of its element's size. */
size_t td_dtype_number(const struct td_dtype *dtype);

/* Computes the bytes of elems elements. Returns false on overflow, or when elems does not fill whole blocks. */
bool td_dtype_nbytes(const struct td_dtype *dtype, uint64_t elems, uint64_t *nbytes);

/* Sets *swap to the bytes of a block that change places when the block is stored big-endian. Returns false where that
 * is unknown: among GGUF's block types, only those that gguf-py's gguf_convert_endian.py converts are known. */
bool td_dtype_swap(const struct td_dtype *dtype, struct td_swap *swap);

#endif
