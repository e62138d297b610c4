/* Rules: how an engine lays the tensors of a checkpoint out over its ranks, as data. The built-in engines (engine.h)
 * and the plans that clients register are lists of them; docs/slicing.md describes the JSON. */
#ifndef TD_SLICING_RULE_H
#define TD_SLICING_RULE_H

#include "core/arena.h"
#include "core/buffer.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_RULE_MAX_PARTS = 8,
    TD_RULE_MAX_CAPTURES = 8,
    TD_RULE_MAX_PATTERN_BYTES = 1024, /* of match and of out */
    TD_RULE_MAX_COUNT = 10000,        /* rules of a list that a client gives */
    TD_MAX_TP_SIZE = 4096,
};

/* What is done when the ranks do not divide a part's units. */
enum td_uneven {
    TD_UNEVEN_ERROR,
    TD_UNEVEN_CHUNK,    /* torch.chunk: ceil(n/t) each, the tail gets less or nothing (DTensor, FSDP2) */
    TD_UNEVEN_BALANCED, /* the first n % t ranks get one more (expert parallel) */
};

/* What a part's units are, for messages. */
enum td_units {
    TD_UNITS_ANY,
    TD_UNITS_HEADS,
    TD_UNITS_KEY_VALUE_HEADS,
    TD_UNITS_VOCABULARY,
};

/* Units of a dimension that are dealt to the ranks together: 16 heads of 128 rows. */
struct td_rule_part {
    uint64_t count; /* 0: what the parts with a count leave of the dimension, shared evenly by those without */
    uint64_t unit;  /* elements of one; 0, for a single part with a count: the dimension over count */
    bool replicate; /* with fewer units than ranks, t / count ranks share one; else that is uneven */
    enum td_units what;
};

struct td_rule {
    /* Anchored at both ends. "*" stands for one whole component of the name (no dot, not empty), "**" for any text;
     * both capture. The first rule of a list that matches counts. */
    const char *match;
    /* Name of the result; its "*" and "**" are match's captures in order, whichever of the two. NULL: the tensor's own.
     */
    const char *out;
    /* Tensors with the same result are joined along dim in this order. Every slot that a rule with this `out` has must
     * be there. */
    uint32_t slot;
    const char *refuse; /* a reason: a tensor that matches is an error. Beside it only match is of meaning */
    bool drop;          /* the engine has no use for it: it is listed as dropped. Likewise */
    bool whole;         /* every rank gets all of it; no parts, groups, pack, uneven, pad_to then */
    bool stack;         /* match's last capture is a number: the index in a new first dimension of the result. It is not
                                    put into `out` */
    uint64_t stack_size; /* so many must be there; 0: as many as there are */
    int32_t dim;         /* which dimension is split; negative: from the end. Tensors of 0 dimensions are whole */
    struct td_rule_part parts[TD_RULE_MAX_PARTS]; /* of the dimension, in order; none: one of unit 1 */
    uint32_t part_count;
    uint64_t groups; /* the parts recur so often along the dimension (GPT-NeoX: heads x (q, k, v)); 0 is 1 */
    uint64_t pack;   /* elements of the dimension in one stored element (4-bit weights in I32: 8); 0 is 1 */
    enum td_uneven uneven;
    uint64_t
        pad_to; /* a single part is taken as rounded up to a multiple of so many elements, the rest zeros; 0 is 1 */
};

struct td_rule_list {
    struct td_rule *rules;
    size_t count;
    bool plain_types_only; /* a tensor that is not dropped must be F64, F32, F16 or BF16: what is quantised has a layout
                               that the rules do not know */
};

/* Whether there may be so many ranks, 1 to TD_MAX_TP_SIZE. Errors: TD_INVALID_ARGUMENT. */
bool td_tp_size_check(uint64_t tp_size, struct td_error *err);

/* Reads a JSON array of rules at the reader (the next token is its '['). Strings and rules are copied into the arena.
 * Errors (TD_INVALID_ARGUMENT with a position): unknown or repeated keys, wrong types, values out of range, patterns
 * that cannot be, keys that contradict each other, more than TD_RULE_MAX_COUNT rules. */
bool td_rules_read(struct td_json *json, struct td_arena *arena, struct td_rule_list *out, struct td_error *err);

/* Whether a rule's patterns make sense: "*" only as a whole component, no wildcards that touch, at most
 * TD_RULE_MAX_CAPTURES, `out` with no more of them than match gives it, lengths. NULL: they do; else the reason. */
const char *td_rule_check(const struct td_rule *rule);

/* Where the wildcards of a pattern matched. */
struct td_captures {
    struct {
        uint32_t off, len;
    } at[TD_RULE_MAX_CAPTURES];
    uint32_t count;
};

/* Whether the whole name matches. Time is at most pattern x name. Captures are the shortest from the left. */
bool td_rule_match(const char *pattern, struct td_text name, struct td_captures *captures);

/* The first rule that matches, or NULL. *steps, when given, is how much work is left: it goes down by about the
 * characters looked at, and at 0 the search ends with NULL. */
const struct td_rule *td_rules_find(const struct td_rule_list *rules, struct td_text name, struct td_captures *captures,
                                    uint64_t *steps);

/* Appends the rule's result for a tensor's name, no NUL after it. */
void td_rule_write_out(const struct td_rule *rule, const char *name, const struct td_captures *captures,
                       struct td_buffer *out);

#endif
