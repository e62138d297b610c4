#include "core/extension.h"
#include "parser/rows/arrow/arrow.h"
#include "parser/rows/csv.h"
#include "parser/rows/jsonl.h"
#include "parser/rows/litdata.h"
#include "parser/rows/mds.h"
#include "parser/rows/megatron.h"
#include "parser/rows/npy_rows.h"
#include "parser/rows/parquet.h"
#include "parser/rows/row_format.h"
#include "parser/rows/tokens.h"
#include "parser/rows/webdataset.h"

#include <string.h>

static const struct td_row_format *const formats[] = {
    &td_row_format_arrow,  &td_row_format_csv,        &td_row_format_jsonl, &td_row_format_litdata,
    &td_row_format_mds,    &td_row_format_megatron,   &td_row_format_npy,   &td_row_format_parquet,
    &td_row_format_tokens, &td_row_format_webdataset,
};

enum { FORMATS = sizeof formats / sizeof *formats };

const struct td_row_format *td_row_format_at(size_t i)
{
    return i < FORMATS ? formats[i] : NULL;
}

const struct td_row_format *td_row_format_named(struct td_text name)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (td_text_equals(name, formats[i]->name))
            return formats[i];
    return NULL;
}

const struct td_row_format *td_row_format_of(const char *file_name)
{
    for (size_t i = 0; i < FORMATS; i++)
        for (const char *const *extension = formats[i]->extensions; *extension != NULL; extension++)
            if (td_has_extension_any_case(file_name, *extension))
                return formats[i];
    return NULL;
}

bool td_row_index_build(const struct td_row_format *format, const struct td_row_build *build, struct td_row_index *out,
                        struct td_error *err)
{
    *out = (struct td_row_index){
        .format = format, .data_bytes = build->files->data.size_bytes, .table_bytes = build->files->table.size_bytes};
    if (format->build(build, out, err))
        return true;
    td_row_index_fini(out);
    return false;
}

bool td_row_build_goes_on(const struct td_row_build *build, uint64_t done_bytes, struct td_error *err)
{
    if (build->done_bytes != NULL)
        atomic_store_explicit(build->done_bytes, done_bytes, memory_order_relaxed);
    return build->stop == NULL || !atomic_load_explicit(build->stop, memory_order_relaxed) ||
           td_error_set(err, TD_UNAVAILABLE, "stopped");
}
