#include "parser/rows/json_shape.h"

#include "core/json/json.h"

#include <stdlib.h>
#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static struct td_text skip_blanks(struct td_text text)
{
    size_t at = 0;
    while (at < text.len && is_blank(text.p[at]))
        at++;
    return td_text_skip(text, at);
}

/* Returns the shape of a text that begins with a complete object of `len` bytes without a line end. is_whole: nothing
 * follows the text. */
static enum td_json_shape shape_behind(struct td_text text, size_t len, bool is_whole)
{
    struct td_text rest = td_text_skip(text, len);
    struct td_text next = skip_blanks(rest);
    size_t gap = rest.len - next.len;
    bool has_line_feed = gap > 0 && memchr(rest.p, '\n', gap) != NULL;
    bool has_return = gap > 0 && memchr(rest.p, '\r', gap) != NULL;
    if (next.len == 0) /* a file that is longer than the text has further lines, unless they are blank */
        return is_whole || !has_line_feed ? TD_JSON_SHAPE_ONE_LINE : TD_JSON_SHAPE_LINES;
    if (next.p[0] != '{' || (!has_line_feed && !has_return))
        return TD_JSON_SHAPE_OTHER;
    return has_line_feed ? TD_JSON_SHAPE_LINES : TD_JSON_SHAPE_CR_LINES;
}

enum td_json_shape td_json_shape_of(struct td_text text, bool is_whole)
{
    static const char mark[] = "\xef\xbb\xbf";
    text = skip_blanks(td_text_begins(text, TD_TEXT(mark)) ? td_text_skip(text, sizeof mark - 1) : text);
    if (text.len == 0)
        return is_whole ? TD_JSON_SHAPE_EMPTY : TD_JSON_SHAPE_OTHER;
    if (text.p[0] != '{')
        return text.p[0] == '[' ? TD_JSON_SHAPE_ARRAY : TD_JSON_SHAPE_OTHER;
    size_t len = td_json_value_len(text);
    bool in_one_line = memchr(text.p, '\n', len == 0 ? text.len : len) == NULL;
    if (!in_one_line)
        return TD_JSON_SHAPE_OBJECT;
    if (len == 0)
        return is_whole ? TD_JSON_SHAPE_OTHER : TD_JSON_SHAPE_ONE_LINE;
    return shape_behind(text, len, is_whole);
}

bool td_json_shape_read(const struct td_input *input, enum td_json_shape *out, struct td_error *err)
{
    uint64_t len = input->size_bytes < TD_JSON_SHAPE_BYTES ? input->size_bytes : TD_JSON_SHAPE_BYTES;
    char *bytes = (char *)td_input_load(input, 0, len, TD_JSON_SHAPE_BYTES, err);
    if (bytes == NULL)
        return false;
    *out = td_json_shape_of(td_text_n(bytes, (size_t)len), len == input->size_bytes);
    free(bytes);
    return true;
}

bool td_json_shape_has_lines(enum td_json_shape shape)
{
    return shape == TD_JSON_SHAPE_EMPTY || shape == TD_JSON_SHAPE_LINES || shape == TD_JSON_SHAPE_ONE_LINE;
}

const char *td_json_shape_reason(enum td_json_shape shape)
{
    switch (shape) {
    case TD_JSON_SHAPE_CR_LINES:
        return "its lines end with CR alone, and those of JSON Lines with LF";
    case TD_JSON_SHAPE_ARRAY:
        return "it holds one JSON array, and not one JSON object in each line (JSON Lines)";
    case TD_JSON_SHAPE_OBJECT:
        return "it holds one JSON object over several lines, and not one in each line (JSON Lines)";
    default:
        return "it does not hold one JSON object in each line (JSON Lines)";
    }
}
