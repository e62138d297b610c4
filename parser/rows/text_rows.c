#include "parser/rows/text_rows.h"

#include "parser/rows/index/line_index.h"
#include "parser/rows/index/row_format.h"
#include "parser/rows/json_shape.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The kernel copies a third faster into a buffer that begins with a page. */
enum { READ_BYTES = 1024 * 1024, PAGE_BYTES = 4096 };

static uint64_t memory_bytes(const struct td_line_index *index)
{
    return index->step_capacity * sizeof *index->steps + index->extra_capacity * sizeof *index->extras;
}

static bool read_all(struct td_line_indexer *indexer, const struct td_row_build *build, uint8_t *buffer,
                     struct td_error *err)
{
    const struct td_input *data = &build->files->data;
    for (uint64_t at = 0, part; at < data->size_bytes; at += part) {
        part = data->size_bytes - at < READ_BYTES ? data->size_bytes - at : READ_BYTES;
        if (!td_row_build_goes_on(build, at, err) || !td_input_read(data, at, buffer, (size_t)part, err) ||
            !td_line_indexer_add(indexer, buffer, (size_t)part, err))
            return false;
        size_t most = build->limits->max_memory_bytes;
        if (most > 0 && memory_bytes(&indexer->index) > most)
            return td_error_set(err, TD_RESOURCE_EXHAUSTED, "its index would take more than %zu bytes of memory", most);
    }
    return true;
}

/* Moves the places to the words of *out. */
static bool set_words(struct td_line_index *index, struct td_row_index *out, struct td_error *err)
{
    size_t extra_words = 2 * index->extra_count, count = index->step_count + extra_words;
    out->layout = TD_ROWS_LINES;
    out->params[2] = index->delimiter;
    if (index->step_count == 0) {
        out->params[0] = index->has_gaps ? 0 : 1;
        return true;
    }
    uint64_t *words = realloc(index->steps, count * sizeof *words);
    if (words == NULL)
        return td_error_no_memory(err);
    index->steps = NULL; /* moved */
    if (extra_words > 0)
        memcpy(words + index->step_count, index->extras, extra_words * sizeof *words);
    out->row_count = index->row_count;
    out->params[0] = index->has_gaps ? 0 : 1;
    out->params[1] = words[0];
    out->params[3] = index->step_count;
    out->words = words;
    out->word_count = count;
    return true;
}

/* Reads the whole data file of a build through the indexer, and makes *out an index of layout TD_ROWS_LINES. Frees what
 * the indexer has made; indexer->header stays. Errors as `build` of td_row_format. */
static bool index_lines(struct td_line_indexer *indexer, const struct td_row_build *build, struct td_row_index *out,
                        struct td_error *err)
{
    struct td_line_index index;
    uint8_t *buffer = aligned_alloc(PAGE_BYTES, READ_BYTES);
    if (buffer == NULL)
        return td_error_no_memory(err); /* the indexer has made nothing */
    bool ok = read_all(indexer, build, buffer, err) && td_line_indexer_finish(indexer, &index, err);
    free(buffer);
    if (!ok) {
        td_line_index_fini(&indexer->index);
        return false;
    }
    bool made = set_words(&index, out, err);
    td_line_index_fini(&index);
    return made;
}

/* ---- JSON Lines ---- */

/* Refuses a file whose lines end with CR alone: it would be one row. */
static bool check_line_ends(const struct td_row_build *build, struct td_error *err)
{
    enum td_json_shape shape;
    return td_json_shape_read(&build->files->data, &shape, err) &&
           (shape != TD_JSON_SHAPE_CR_LINES ||
            td_error_set(err, TD_INVALID_ARGUMENT, "%s", td_json_shape_reason(shape)));
}

static bool index_jsonl(const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    struct td_line_indexer indexer = {0};
    return index_lines(&indexer, build, out, err) && (out->row_count > 1 || check_line_ends(build, err));
}

static const char *const jsonl_extensions[] = {".jsonl", ".ndjson", NULL};

const struct td_row_format td_row_format_jsonl = {.name = "jsonl",
                                                  .extensions = jsonl_extensions,
                                                  .row_type = "application/json",
                                                  .is_text = true,
                                                  .build = index_jsonl};

/* ---- CSV ---- */

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
    if (!index_lines(&indexer, build, out, err))
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

static const char *const csv_extensions[] = {".csv", ".tsv", NULL};

const struct td_row_format td_row_format_csv = {
    .name = "csv", .extensions = csv_extensions, .row_type = "text/csv", .is_text = true, .build = index_csv};
