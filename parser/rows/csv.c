#include "parser/rows/csv.h"

#include "core/text.h"
#include "parser/rows/row_columns.h"
#include "parser/rows/text_rows.h"

#include <inttypes.h>
#include <stdlib.h>

struct td_text td_csv_take_field(char **rest, const char *end, char delimiter)
{
    char *at = *rest, *out = *rest;
    struct td_text field = {.p = out};
    bool is_quoted = at < end && *at == '"';
    if (is_quoted)
        at++;
    while (at < end && (is_quoted || *at != delimiter)) {
        if (is_quoted && *at == '"') {
            at++;
            if (at == end || *at != '"') {
                is_quoted = false;
                continue;
            }
        }
        *out++ = *at++;
    }
    *rest = at < end ? at + 1 : NULL;
    field.len = (size_t)(out - field.p);
    return field;
}

/* Sets out->columns to the fields in header[0, len), whose bytes it changes. */
static bool set_columns(struct td_row_index *out, char *header, size_t len, char delimiter,
                        const struct td_limits *limits, struct td_error *err)
{
    struct td_buffer columns;
    td_buffer_init(&columns);
    for (char *rest = header; rest != NULL && !columns.failed;) {
        td_row_columns_add(&columns, td_csv_take_field(&rest, header + len, delimiter), NULL, NULL, 0);
        if (limits->max_memory_bytes > 0 && columns.capacity > limits->max_memory_bytes) {
            td_buffer_fini(&columns);
            return td_error_set(err, TD_RESOURCE_EXHAUSTED, "its columns would take more than %zu bytes of memory",
                                limits->max_memory_bytes);
        }
    }
    return td_row_columns_end(&columns, out, err);
}

static bool index_csv(const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    char delimiter = td_has_extension_any_case(build->name, ".tsv") ? '\t' : ',';
    struct td_line_indexer indexer = {.index.delimiter = (uint8_t)delimiter, .wants_header = true};
    if (!td_text_rows_build(&indexer, build, out, err))
        return false;
    struct td_row header = indexer.header;
    if (header.bytes == 0)
        return true;
    if (header.bytes > TD_CSV_HEADER_BYTES)
        return td_error_at(err, TD_INVALID_ARGUMENT, header.offset,
                           "its first line, the header, has %" PRIu64 " bytes; at most %d are read", header.bytes,
                           TD_CSV_HEADER_BYTES);
    uint8_t *bytes = td_input_load(&build->files->data, header.offset, header.bytes, TD_CSV_HEADER_BYTES, err);
    bool ok = bytes != NULL && set_columns(out, (char *)bytes, (size_t)header.bytes, delimiter, build->limits, err);
    free(bytes);
    return ok;
}

static const char *const extensions[] = {".csv", ".tsv", NULL};

const struct td_row_format td_row_format_csv = {
    .name = "csv", .extensions = extensions, .row_type = "text/csv", .is_text = true, .build = index_csv};
