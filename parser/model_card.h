/* Model cards: the YAML front matter of a README.md, as JSON. libyaml tells the events; the text is anybody's, so its
 * length, its depth, its directives and what comes out of it are bounded, and aliases, which could unfold without end,
 * are refused.
 *
 * Scalars mean what YAML 1.2's core schema says, as to the Hub's js-yaml: `no` is a text, 0o17 a number. Dates stay
 * texts. */
#ifndef TD_PARSER_MODEL_CARD_H
#define TD_PARSER_MODEL_CARD_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TD_CARD_MAX_BYTES = 1 << 20,      /* of README.md, from its beginning, in which the front matter must end */
    TD_CARD_MAX_JSON_BYTES = 4 << 20, /* what may come out: control characters grow */
    TD_CARD_MAX_DEPTH = 64,           /* of lists and maps in each other */
    TD_CARD_MAX_DIRECTIVES = 16,      /* lines that begin with "%": libyaml compares each with all before it */
};

/* Appends the front matter of text[0..len), the beginning of a README.md, to json: an object, or nothing where there is
 * no front matter or an empty one. is_cut: the file goes on behind len. Errors: TD_INVALID_ARGUMENT (then json is
 * rubbish), TD_RESOURCE_EXHAUSTED when memory is short. */
bool td_model_card_read(struct td_text text, bool is_cut, struct td_buffer *json, struct td_error *err);

#endif
