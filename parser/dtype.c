#include "parser/dtype.h"

#include "core/checked.h"

#include <string.h>

/* huggingface/safetensors tensor.rs, Dtype::bitsize. By size, as formats list them. */
static const struct td_dtype dtypes[] = {
    {"F4", 2, 1},          {"F6_E2M3", 4, 3}, {"F6_E3M2", 4, 3}, {"BOOL", 1, 1},    {"U8", 1, 1},
    {"I8", 1, 1},          {"F8_E5M2", 1, 1}, {"F8_E4M3", 1, 1}, {"F8_E8M0", 1, 1}, {"F8_E4M3FNUZ", 1, 1},
    {"F8_E5M2FNUZ", 1, 1}, {"I16", 1, 2},     {"U16", 1, 2},     {"F16", 1, 2},     {"BF16", 1, 2},
    {"I32", 1, 4},         {"U32", 1, 4},     {"F32", 1, 4},     {"C64", 1, 8},     {"F64", 1, 8},
    {"I64", 1, 8},         {"U64", 1, 8},
};

enum { DTYPE_COUNT = sizeof dtypes / sizeof *dtypes };

const struct td_dtype *td_dtype_find(const char *name, size_t len)
{
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        if (strlen(dtypes[i].name) == len && memcmp(dtypes[i].name, name, len) == 0)
            return &dtypes[i];
    return NULL;
}

const struct td_dtype *td_dtype_at(size_t i)
{
    return i < DTYPE_COUNT ? &dtypes[i] : NULL;
}

bool td_dtype_nbytes(const struct td_dtype *dtype, uint64_t elems, uint64_t *nbytes)
{
    if (elems % dtype->block_elems != 0)
        return false;
    return td_mul_u64(elems / dtype->block_elems, dtype->block_bytes, nbytes);
}
