/* Model cards: the YAML front matter of a README.md, as JSON. libyaml parses the YAML. The text is not trusted: its
 * length, depth, directives, anchors and the JSON that comes out are limited, so that aliases cannot expand without
 * limit. An alias within its own value is refused. The key << merges maps (card_yaml.h).
 *
 * Scalars follow YAML 1.2's core schema, as the Hub's js-yaml does: `no` is a text, 0o17 a number. Dates stay texts. */
#ifndef TD_PARSER_MODEL_CARD_H
#define TD_PARSER_MODEL_CARD_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TD_CARD_MAX_BYTES = 1 << 20,      /* of README.md from its beginning, in which the front matter must end */
    TD_CARD_MAX_JSON_BYTES = 4 << 20, /* of the resulting JSON, in which control characters take more bytes */
    TD_CARD_MAX_DEPTH = 64,           /* of lists and maps within each other */
    TD_CARD_MAX_DIRECTIVES = 16,      /* lines that begin with "%": libyaml compares each with all before it */
};

/* Appends the front matter of the text, the beginning of a README.md, to json as an object. Appends nothing where there
 * is no front matter or an empty one. is_cut: the file continues after the text. Errors: TD_INVALID_ARGUMENT,
 * TD_RESOURCE_EXHAUSTED when memory is short; the contents of json are then undefined. */
bool td_model_card_read(struct td_text text, bool is_cut, struct td_buffer *json, struct td_error *err);

/* Returns the length of the front matter of the text, with its lines of dashes, any blanks before it, and a byte order
 * mark: the card's own text begins there. Returns the length of the byte order mark, or 0, where there is no front
 * matter. */
size_t td_model_card_end(struct td_text text);

#endif
