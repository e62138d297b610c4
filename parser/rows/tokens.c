#include "parser/rows/tokens.h"

#include "core/digits.h"
#include "core/text.h"
#include "parser/rows/index/row_format.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t bytes;
} types[] = {{"uint8", 1},  {"int8", 1},  {"uint16", 2},  {"int16", 2},    {"uint32", 4},  {"int32", 4},
             {"uint64", 8}, {"int64", 8}, {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}};

/* Reads COUNT after the x, or nothing. */
static bool read_count(struct td_text rest, struct td_tokens *tokens)
{
    tokens->count = 1;
    tokens->has_count = rest.len > 0;
    return rest.len == 0 ||
           (td_text_take_char(&rest, 'x') &&
            td_number_read_strict(rest, (uint64_t)INT64_MAX / tokens->item_bytes, &tokens->count) && tokens->count > 0);
}

bool td_tokens_name(const char *file_name, struct td_tokens *tokens)
{
    if (!td_has_extension(file_name, ".bin"))
        return false;
    struct td_text name = td_text_n(file_name, strlen(file_name) - strlen(".bin"));
    struct td_text word = td_text_take_last(&name, '.');
    if (name.len == 0) /* no dot, or no NAME before it */
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct td_text type = td_text_of(types[i].name);
        *tokens = (struct td_tokens){.type = types[i].name, .item_bytes = types[i].bytes};
        if (td_text_begins(word, type) && read_count(td_text_skip(word, type.len), tokens))
            return true;
    }
    return false;
}

static bool index_tokens(const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    struct td_tokens tokens;
    struct td_buffer columns;
    uint64_t size = build->files->data.size_bytes;
    if (!td_tokens_name(build->name, &tokens))
        return td_error_set(err, TD_INVALID_ARGUMENT, "\"%s\" is no name of tokens, such as train.uint16x1024.bin",
                            build->name);
    uint64_t row_bytes = tokens.count * tokens.item_bytes;
    if (size % row_bytes != 0)
        return td_error_at(err, TD_INVALID_ARGUMENT, size - size % row_bytes,
                           "its size of %" PRIu64 " bytes is no multiple of a row, %" PRIu64 " bytes of %s", size,
                           row_bytes, tokens.type);
    out->layout = TD_ROWS_EVEN;
    out->row_count = size / row_bytes;
    out->params[1] = row_bytes;
    td_buffer_init(&columns);
    td_row_columns_add(&columns, TD_TEXT("tokens"), tokens.type, tokens.has_count ? &tokens.count : NULL, 1);
    return td_row_columns_end(&columns, out, err);
}

static const char *const extensions[] = {NULL};

const struct td_row_format td_row_format_tokens = {
    .name = "tokens", .extensions = extensions, .row_type = "application/octet-stream", .build = index_tokens};
