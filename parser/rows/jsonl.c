#include "parser/rows/jsonl.h"

#include "parser/rows/text_rows.h"

static bool build(const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    struct td_line_indexer indexer = {0};
    return td_text_rows_build(&indexer, build, out, err);
}

static const char *const extensions[] = {".jsonl", ".ndjson", NULL};

const struct td_row_format td_row_format_jsonl = {
    .name = "jsonl", .extensions = extensions, .row_type = "application/json", .is_text = true, .build = build};
