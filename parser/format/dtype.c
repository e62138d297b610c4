#include "parser/format/dtype.h"

#include "core/checked.h"

#include <string.h>

enum { SAFETENSORS_COUNT = 22 };

static const struct td_dtype dtypes[] = {
    /* huggingface/safetensors tensor.rs: enum Dtype in its order, which is that of td_dtype_number; Dtype::bitsize */
    {"BOOL", 1, 1},
    {"F4", 2, 1},
    {"F6_E2M3", 4, 3},
    {"F6_E3M2", 4, 3},
    {"U8", 1, 1},
    {"I8", 1, 1},
    {"F8_E5M2", 1, 1},
    {"F8_E4M3", 1, 1},
    {"F8_E8M0", 1, 1},
    {"F8_E4M3FNUZ", 1, 1},
    {"F8_E5M2FNUZ", 1, 1},
    {"I16", 1, 2},
    {"U16", 1, 2},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"I32", 1, 4},
    {"U32", 1, 4},
    {"F32", 1, 4},
    {"C64", 1, 8},
    {"F64", 1, 8},
    {"I64", 1, 8},
    {"U64", 1, 8},
    /* torch: c10/core/ScalarType.h. An element of QUINT4x2 or F4_X2 is a byte that holds two values. */
    {"C32", 1, 4},
    {"C128", 1, 16},
    {"QINT8", 1, 1},
    {"QUINT8", 1, 1},
    {"QINT32", 1, 4},
    {"QUINT4x2", 1, 1},
    {"QUINT2x4", 1, 1},
    {"F4_E2M1_X2", 1, 1},
    {"BITS1x8", 1, 1},
    {"BITS2x4", 1, 1},
    {"BITS4x2", 1, 1},
    {"BITS8", 1, 1},
    {"BITS16", 1, 2},
    /* ONNX's own: 2 or 4 elements in a byte, the first in the lowest bits */
    {"U4", 2, 1},
    {"I4", 2, 1},
    {"U2", 4, 1},
    {"I2", 4, 1},
    /* NumPy's and HDF5's own */
    {"F128", 1, 16}, /* long double, padded */
    {"C256", 1, 32},
    {"STRING", 1, 0},
    {"OBJECT", 1, 0},
    {"COMPOUND", 1, 0},
    {"OPAQUE", 1, 0},
    {"DATETIME64", 1, 8},
    {"TIMEDELTA64", 1, 8},
    /* ggml.h, ggml-common.h: block sizes */
    {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},
    {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},
    {"Q8_0", 32, 34},
    {"Q8_1", 32, 36},
    {"Q2_K", 256, 84},
    {"Q3_K", 256, 110},
    {"Q4_K", 256, 144},
    {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},
    {"Q8_K", 256, 292},
    {"IQ2_XXS", 256, 66},
    {"IQ2_XS", 256, 74},
    {"IQ3_XXS", 256, 98},
    {"IQ1_S", 256, 50},
    {"IQ4_NL", 32, 18},
    {"IQ3_S", 256, 110},
    {"IQ2_S", 256, 82},
    {"IQ4_XS", 256, 136},
    {"IQ1_M", 256, 56},
    {"TQ1_0", 256, 54},
    {"TQ2_0", 256, 66},
    {"MXFP4", 32, 17},
    {"NVFP4", 64, 36},
    {"Q1_0", 128, 18},
    {"Q2_0", 64, 18},
};

_Static_assert(sizeof dtypes / sizeof *dtypes == TD_DTYPE_COUNT, "TD_DTYPE_COUNT is the number of types");

bool td_dtype_is_safetensors(const struct td_dtype *dtype)
{
    return dtype - dtypes < SAFETENSORS_COUNT;
}

const struct td_dtype *td_dtype_find(struct td_text name)
{
    for (size_t i = 0; i < TD_DTYPE_COUNT; i++)
        if (td_text_equals(name, dtypes[i].name))
            return &dtypes[i];
    return NULL;
}

const struct td_dtype *td_dtype_at(size_t i)
{
    return i < TD_DTYPE_COUNT ? &dtypes[i] : NULL;
}

size_t td_dtype_number(const struct td_dtype *dtype)
{
    return (size_t)(dtype - dtypes);
}

bool td_dtype_nbytes(const struct td_dtype *dtype, uint64_t elems, uint64_t *nbytes)
{
    if (elems % dtype->block_elems != 0)
        return false;
    return td_mul_u64(elems / dtype->block_elems, dtype->block_bytes, nbytes);
}

bool td_dtype_swap(const struct td_dtype *dtype, struct td_swap *swap)
{
    /* Blocks and pairs: place, width and number of the parts that are wider than a byte. */
    static const struct {
        const char *name;
        uint16_t off, width, count;
    } known[] = {
        {"C32", 0, 2, 2},  {"C64", 0, 4, 2},  {"C128", 0, 8, 2},   {"C256", 0, 16, 2}, {"Q4_0", 0, 2, 1},
        {"Q8_0", 0, 2, 1}, {"Q4_K", 0, 2, 2}, {"Q6_K", 208, 2, 1}, {"MXFP4", 0, 1, 1}, {"NVFP4", 0, 1, 1},
    };
    *swap = (struct td_swap){.block_bytes = dtype->block_bytes, .width = dtype->block_bytes, .count = 1};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, dtype->name) == 0) {
            swap->off = known[i].off;
            swap->width = known[i].width;
            swap->count = known[i].count;
            return true;
        }
    return dtype->block_elems == 1 && dtype->block_bytes > 0;
}
