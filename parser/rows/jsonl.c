#include "parser/rows/jsonl.h"

#include "parser/rows/json_shape.h"
#include "parser/rows/text_rows.h"

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
    return td_text_rows_build(&indexer, build, out, err) && (out->row_count > 1 || check_line_ends(build, err));
}

static const char *const extensions[] = {".jsonl", ".ndjson", NULL};

const struct td_row_format td_row_format_jsonl = {
    .name = "jsonl", .extensions = extensions, .row_type = "application/json", .is_text = true, .build = index_jsonl};
