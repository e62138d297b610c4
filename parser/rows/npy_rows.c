#include "parser/rows/npy_rows.h"

#include "parser/npy.h"
#include "parser/rows/index/row_format.h"

#include <stdio.h>
#include <string.h>

/* Types of the array protocol without their byte order. */
static const struct {
    const char *dtype, *code;
} codes[] = {{"BOOL", "b1"},  {"I8", "i1"},  {"I16", "i2"},   {"I32", "i4"},  {"I64", "i8"}, {"U8", "u1"},
             {"U16", "u2"},   {"U32", "u4"}, {"U64", "u8"},   {"F16", "f2"},  {"F32", "f4"}, {"F64", "f8"},
             {"F128", "f16"}, {"C64", "c8"}, {"C128", "c16"}, {"C256", "c32"}};

enum { TYPE_BYTES = 16 }; /* of a type's text with its NUL */

static void write_type(const struct td_tensor *tensor, char type[TYPE_BYTES])
{
    char order = tensor->dtype->block_bytes == 1 ? '|' : tensor->big_endian ? '>' : '<';
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strcmp(codes[i].dtype, tensor->dtype->name) == 0) {
            (void)snprintf(type, TYPE_BYTES, "%c%s", order, codes[i].code);
            return;
        }
    (void)snprintf(type, TYPE_BYTES, "%s", tensor->dtype->name);
}

static bool set_columns(const struct td_tensor *tensor, struct td_row_index *out, struct td_error *err)
{
    struct td_buffer columns;
    char type[TYPE_BYTES];
    write_type(tensor, type);
    td_buffer_init(&columns);
    td_row_columns_add(&columns, TD_TEXT("array"), type, tensor->shape + 1, tensor->rank - 1);
    return td_row_columns_end(&columns, out, err);
}

/* Sets out->reason when single rows cannot be answered. */
static bool set_reason(const struct td_tensor *tensor, struct td_row_index *out, struct td_error *err)
{
    const char *what = tensor->strides != NULL ? "in Fortran order" : tensor->reason;
    if (what == NULL)
        return true;
    char reason[80];
    (void)snprintf(reason, sizeof reason, "its array is %s; only rows of numbers in C order are answered", what);
    return td_row_index_set_reason(out, reason, err);
}

static bool set_index(const struct td_tensor *tensor, struct td_row_index *out, struct td_error *err)
{
    if (strcmp(tensor->dtype->name, "OBJECT") == 0)
        return td_error_at(err, TD_INVALID_ARGUMENT, 0, "npy array of objects: its rows are in a pickle");
    if (tensor->rank == 0)
        return td_error_at(err, TD_INVALID_ARGUMENT, 0, "npy array without dimensions: it has no rows");
    out->layout = TD_ROWS_EVEN;
    out->row_count = tensor->shape[0];
    out->params[0] = tensor->offset;
    out->params[1] = out->row_count == 0 ? 0 : tensor->nbytes / out->row_count;
    return set_reason(tensor, out, err) && set_columns(tensor, out, err);
}

static bool index_npy(const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    struct td_manifest manifest;
    td_manifest_init(&manifest, build->limits->max_memory_bytes);
    bool ok = td_format_npy.parse(&build->files->data, build->limits, &manifest, err) &&
              set_index(&manifest.tensors[0], out, err);
    td_manifest_fini(&manifest);
    return ok;
}

static const char *const extensions[] = {".npy", NULL};

const struct td_row_format td_row_format_npy = {
    .name = "npy", .extensions = extensions, .row_type = "application/octet-stream", .build = index_npy};
