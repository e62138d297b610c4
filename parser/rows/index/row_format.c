#include "parser/rows/index/row_format.h"

#include "core/json/json.h"
#include "core/utf8.h"
#include "parser/rows/index/row_memory.h"

#include <stdlib.h>

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

static void write_name(struct td_buffer *columns, struct td_text name)
{
    if (td_utf8_valid(name.p, name.len)) {
        td_json_write_string(columns, name);
        return;
    }
    size_t capacity = 4 * name.len + 1; /* \xNN for each byte */
    char *escaped = malloc(capacity);
    if (escaped == NULL) {
        columns->failed = true;
        return;
    }
    td_utf8_escape(name, escaped, capacity);
    td_json_write_cstring(columns, escaped);
    free(escaped);
}

void td_row_columns_add(struct td_buffer *columns, struct td_text name, const char *type, const uint64_t *shape,
                        uint32_t rank)
{
    td_buffer_puts(columns, columns->len == 0 ? "[{\"name\":" : ",{\"name\":");
    write_name(columns, name);
    if (type != NULL) {
        td_buffer_puts(columns, ",\"type\":");
        td_json_write_cstring(columns, type);
    }
    if (shape != NULL) {
        td_buffer_puts(columns, ",\"shape\":[");
        for (uint32_t d = 0; d < rank; d++) {
            td_buffer_puts(columns, d > 0 ? "," : "");
            td_buffer_u64(columns, shape[d]);
        }
        td_buffer_putc(columns, ']');
    }
    td_buffer_putc(columns, '}');
}

bool td_row_columns_end(struct td_buffer *columns, struct td_row_index *index, struct td_error *err)
{
    td_buffer_puts(columns, columns->len == 0 ? "[]" : "]");
    index->columns = td_buffer_release_string(columns);
    return index->columns != NULL || td_error_no_memory(err);
}

bool td_row_index_set_reason(struct td_row_index *index, const char *reason, struct td_error *err)
{
    index->reason = td_row_memory_copy(reason);
    return index->reason != NULL || td_error_no_memory(err);
}
