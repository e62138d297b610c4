#include "parser/rows/row_columns.h"

#include "core/json/json.h"
#include "core/utf8.h"

#include <stdlib.h>
#include <string.h>

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
    size_t len;
    td_buffer_puts(columns, columns->len == 0 ? "[]" : "]");
    td_buffer_putc(columns, '\0');
    if (columns->failed) {
        td_buffer_fini(columns);
        return td_error_no_memory(err);
    }
    index->columns = td_buffer_release(columns, &len);
    return true;
}

bool td_row_columns_reason(struct td_row_index *index, const char *reason, struct td_error *err)
{
    size_t bytes = strlen(reason) + 1;
    index->reason = malloc(bytes);
    if (index->reason == NULL)
        return td_error_no_memory(err);
    memcpy(index->reason, reason, bytes);
    return true;
}
