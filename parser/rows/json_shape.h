/* Decides by the first bytes of a JSON file whether its lines are rows, as in JSON Lines. The name does not show it:
 * many datasets have JSON Lines in files called NAME.json. */
#ifndef TD_PARSER_ROWS_JSON_SHAPE_H
#define TD_PARSER_ROWS_JSON_SHAPE_H

#include "core/error.h"
#include "core/input.h"
#include "core/text.h"

#include <stdbool.h>

enum td_json_shape {
    TD_JSON_SHAPE_NONE,     /* the file need not be read */
    TD_JSON_SHAPE_UNREAD,   /* the file has not been read yet */
    TD_JSON_SHAPE_EMPTY,    /* nothing but blanks */
    TD_JSON_SHAPE_LINES,    /* at least two lines: the first is an object, the second begins with '{' */
    TD_JSON_SHAPE_ONE_LINE, /* one line that is an object, or a line that is longer than the bytes that were read */
    TD_JSON_SHAPE_CR_LINES, /* as LINES, but CR alone ends the first line */
    TD_JSON_SHAPE_ARRAY,    /* an array: begins with '[' */
    TD_JSON_SHAPE_OBJECT,   /* an object over several lines */
    TD_JSON_SHAPE_OTHER     /* another value, or no JSON */
};

/* td_json_shape_read reads at most this many bytes of a file. */
enum { TD_JSON_SHAPE_BYTES = 64 * 1024 };

/* Returns the shape of a file that begins with `text`; is_whole: the file ends there. Skips a byte order mark and
 * blanks before the first value. Looks at brackets and quotes only, so it does not check that the text is JSON. */
enum td_json_shape td_json_shape_of(struct td_text text, bool is_whole);

/* Sets *out to the shape of a file. Errors: TD_RESOURCE_EXHAUSTED, and those of the input. */
bool td_json_shape_read(const struct td_input *input, enum td_json_shape *out, struct td_error *err);

/* Returns whether the lines of such a file are rows. */
bool td_json_shape_has_lines(enum td_json_shape shape);

/* Returns why a file of this shape has no rows, as a static text for users. */
const char *td_json_shape_reason(enum td_json_shape shape);

#endif
