/* What a file of JSON holds, by its first bytes: whether its lines are rows, as in JSON Lines. Names do not tell: many
 * data sets have JSON Lines in files called NAME.json. */
#ifndef TD_PARSER_ROWS_JSON_SHAPE_H
#define TD_PARSER_ROWS_JSON_SHAPE_H

#include "core/error.h"
#include "core/input.h"
#include "core/text.h"

#include <stdbool.h>

enum td_json_shape {
    TD_JSON_SHAPE_NONE,     /* of a file that is not looked at */
    TD_JSON_SHAPE_UNREAD,   /* of a file that is to be looked at */
    TD_JSON_SHAPE_EMPTY,    /* nothing but blanks */
    TD_JSON_SHAPE_LINES,    /* at least two lines, of which the first is an object and the second begins as one */
    TD_JSON_SHAPE_ONE_LINE, /* one line, which is an object; or one that is longer than the bytes that were looked at */
    TD_JSON_SHAPE_CR_LINES, /* as LINES, but CR alone ends the first line */
    TD_JSON_SHAPE_ARRAY,    /* an array: begins with '[' */
    TD_JSON_SHAPE_OBJECT,   /* an object over several lines */
    TD_JSON_SHAPE_OTHER     /* another value, or no JSON */
};

/* Most bytes at the beginning of a file that td_json_shape_read looks at. */
enum { TD_JSON_SHAPE_BYTES = 64 * 1024 };

/* Returns the shape of a text, of which `text` is the beginning; is_whole: nothing follows. A byte order mark and
 * blanks before the first value are skipped. Of the text only brackets and quotes are looked at: whether it is JSON is
 * not checked. */
enum td_json_shape td_json_shape_of(struct td_text text, bool is_whole);

/* Sets *out to the shape of a file. Errors: TD_RESOURCE_EXHAUSTED, and those of the input. */
bool td_json_shape_read(const struct td_input *input, enum td_json_shape *out, struct td_error *err);

/* Returns whether the lines of such a file are rows. */
bool td_json_shape_has_lines(enum td_json_shape shape);

/* Returns why a file of a shape without rows has none, a static text for people. */
const char *td_json_shape_reason(enum td_json_shape shape);

#endif
