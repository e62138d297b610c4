#include "parser/rows/index/row_format.h"

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
