/* Anchors and the merge key, which YAML has and JSON lacks: for model_card.c, which turns the YAML of a model card into
 * JSON. */
#ifndef TD_PARSER_CARD_YAML_H
#define TD_PARSER_CARD_YAML_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- anchors ----
 * `&name` stores the JSON of the value after it, and `*name` stands for that value. The number of anchors and the bytes
 * that they store are limited here. The caller limits the JSON that aliases insert. */

enum {
    TD_CARD_MAX_ANCHORS = 256,          /* an alias is compared with every name */
    TD_CARD_MAX_ANCHOR_BYTES = 4 << 20, /* of names and values together */
};

struct td_card_anchor {
    size_t name_off, name_len; /* places in `texts` */
    size_t json_off, json_len; /* json_len 0: the value has not ended, or memory is short */
    size_t height;             /* nesting depth of lists and maps in the value; 0: a scalar */
};

/* Initialize with zeros. */
struct td_card_anchors {
    struct td_card_anchor items[TD_CARD_MAX_ANCHORS];
    size_t count;
    struct td_buffer texts;
};

/* Begins an anchor; its value follows. Returns its number, or -1 and the error TD_INVALID_ARGUMENT when there are too
 * many names. An anchor replaces an earlier one of the same name. */
int td_card_anchors_begin(struct td_card_anchors *anchors, struct td_text name, struct td_error *err);

/* Ends the anchor of this number: stores a copy of its value's JSON. Errors: TD_INVALID_ARGUMENT when all values
 * together are too long, TD_RESOURCE_EXHAUSTED. */
bool td_card_anchors_end(struct td_card_anchors *anchors, int number, struct td_text json, size_t height,
                         struct td_error *err);

/* Finds the value that an alias of this name stands for. Sets *json, which is valid until the next call of another
 * function, and *height. Errors: TD_INVALID_ARGUMENT when no anchor has this name, or when the alias is inside the
 * value. */
bool td_card_anchors_find(const struct td_card_anchors *anchors, struct td_text name, struct td_text *json,
                          size_t *height, struct td_error *err);

void td_card_anchors_fini(struct td_card_anchors *anchors);

/* ---- the merge key of YAML 1.1 (https://yaml.org/type/merge.html) ----
 * On JSON: {"a": 1, "<<": {"a": 2, "b": 3}} becomes {"a": 1, "b": 3}. */

/* Appends an object to *out: the members of `object` except "<<", then the members of the value of "<<", which is an
 * object or an array of objects. Leaves out a member whose key occurred before. `object` must be JSON without blanks,
 * as this program writes it, with distinct keys. Takes the time of sorting the members. Errors: TD_INVALID_ARGUMENT
 * when the value of "<<" is neither, TD_RESOURCE_EXHAUSTED. */
bool td_card_merge(struct td_text object, struct td_buffer *out, struct td_error *err);

#endif
