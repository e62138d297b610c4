#include "rank/npy_header.h"

#include <string.h>

/* NumPy's words for types of elements. */
static const struct {
    const char *dtype, *descr;
} npy_types[] = {
    {"BOOL", "|b1"}, {"U8", "|u1"},  {"I8", "|i1"},  {"U16", "<u2"}, {"I16", "<i2"}, {"F16", "<f2"}, {"U32", "<u4"},
    {"I32", "<i4"},  {"F32", "<f4"}, {"U64", "<u8"}, {"I64", "<i8"}, {"F64", "<f8"}, {"C64", "<c8"}, {"C128", "<c16"},
};

static const char *descr_of(const struct td_dtype *dtype)
{
    for (size_t i = 0; i < sizeof npy_types / sizeof *npy_types; i++)
        if (strcmp(npy_types[i].dtype, dtype->name) == 0)
            return npy_types[i].descr;
    return NULL;
}

bool td_npy_has_type(const struct td_dtype *dtype)
{
    return descr_of(dtype) != NULL;
}

bool td_npy_write_header(struct td_buffer *out, const struct td_dtype *dtype, uint32_t rank, const uint64_t *shape,
                         struct td_error *err)
{
    enum { PREFIX_BYTES = 10, ALIGNMENT = 64 };
    const char *descr = descr_of(dtype);
    size_t begin = out->len;
    if (descr == NULL)
        return td_error_set(err, TD_INVALID_ARGUMENT, "NumPy has no type %s: format=npy cannot express it; %s",
                            dtype->name, td_dtype_is_safetensors(dtype) ? "raw and safetensors can" : "raw can");
    td_buffer_append(out, "\x93NUMPY\x01\x00\x00\x00", PREFIX_BYTES);
    td_buffer_printf(out, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (uint32_t i = 0; i < rank; i++) {
        td_buffer_u64(out, shape[i]);
        td_buffer_puts(out, i + 1 < rank ? ", " : rank == 1 ? "," : "");
    }
    td_buffer_puts(out, "), }");
    while ((out->len - begin + 1) % ALIGNMENT != 0 && !out->failed)
        td_buffer_putc(out, ' ');
    td_buffer_putc(out, '\n');
    if (out->failed)
        return td_error_no_memory(err);
    size_t len = out->len - begin - PREFIX_BYTES; /* 64 dimensions of 20 digits: below 2^16 */
    out->data[begin + 8] = (char)(len & 0xFF);
    out->data[begin + 9] = (char)(len >> 8);
    return true;
}
