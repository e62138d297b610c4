/* The anchors of a YAML text that is being turned into JSON: `&name` before a value keeps the value's JSON, and `*name`
 * stands for it. The number of anchors and the bytes that they keep are bounded; whoever inserts their JSON bounds the
 * result. */
#ifndef TD_PARSER_CARD_ANCHORS_H
#define TD_PARSER_CARD_ANCHORS_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TD_CARD_MAX_ANCHORS = 256,          /* each alias is compared with the names of all */
    TD_CARD_MAX_ANCHOR_BYTES = 4 << 20, /* of names and values together */
};

struct td_card_anchor {
    size_t name_off, name_len; /* places in `texts` */
    size_t json_off, json_len; /* json_len 0: the value has not ended, or memory is short */
    size_t height;             /* lists and maps within each other in the value; 0: it is a scalar */
};

/* All zero at first. */
struct td_card_anchors {
    struct td_card_anchor items[TD_CARD_MAX_ANCHORS];
    size_t count;
    struct td_buffer texts;
};

/* Begins an anchor, whose value follows. Returns its number, or -1 and the error: TD_INVALID_ARGUMENT when there are
 * too many names. A later anchor takes the name of an earlier one. */
int td_card_anchors_begin(struct td_card_anchors *anchors, struct td_text name, struct td_error *err);

/* Ends the anchor of this number: keeps a copy of its value's JSON. Errors: TD_INVALID_ARGUMENT when the values are too
 * long together, TD_RESOURCE_EXHAUSTED. */
bool td_card_anchors_end(struct td_card_anchors *anchors, int number, struct td_text json, size_t height,
                         struct td_error *err);

/* Finds the value that an alias of this name stands for. Sets *json, which is valid until the next call of another
 * function, and *height. Errors: TD_INVALID_ARGUMENT when there is none, or the alias lies within the value. */
bool td_card_anchors_find(const struct td_card_anchors *anchors, struct td_text name, struct td_text *json,
                          size_t *height, struct td_error *err);

void td_card_anchors_fini(struct td_card_anchors *anchors);

#endif
