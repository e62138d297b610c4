/* Rules: how an engine lays the tensors of a checkpoint out over its ranks, as data. The built-in engines (engine.h) and
 * the plans that clients register are lists of them; docs/slicing.md describes the JSON. */
#ifndef TD_SLICING_RULE_H
#define TD_SLICING_RULE_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_RULE_MAX_PARTS = 8, TD_RULE_MAX_CAPTURES = 8, TD_MAX_TP_SIZE = 4096 };

/* What is done when the ranks do not divide a part's units. */
enum td_uneven {
    TD_UNEVEN_ERROR,
    TD_UNEVEN_CHUNK,    /* torch.chunk: ceil(n/t) each, the tail gets less or nothing (DTensor, FSDP2) */
    TD_UNEVEN_BALANCED, /* the first n % t ranks get one more (expert parallel) */
};

/* Units of a dimension that are dealt to the ranks together: 16 heads of 128 rows. */
struct td_rule_part {
    uint64_t count,
        unit; /* count 0: as many as the dimension has (only for a single part); unit in elements, >= 1 */
    bool replicate; /* with fewer units than ranks, t / count ranks share one; else that is an error */
};

struct td_rule {
    /* Anchored at both ends. "*" stands for one component of the name (no dot, not empty), "**" for any text; both
     * capture. The first rule of a list that matches counts. */
    const char *match;
    const char
        *out; /* name of the result; "*" and "**" are the captures in order. NULL: the tensor's own name */
    uint32_t slot; /* tensors with the same `out` are joined along dim in this order */
    bool drop;     /* the engine has no use for it: it is listed as dropped */
    bool whole;    /* every rank gets all of it; dim and what follows is of no meaning */
    bool
        stack; /* the last capture of match is a number: the index in a new first dimension of the result, and it is
                        not put into `out` */
    int32_t dim;                                  /* which dimension is split; negative: from the end */
    struct td_rule_part parts[TD_RULE_MAX_PARTS]; /* of the dimension, in order; none: {0, 1} */
    uint32_t part_count;
    uint64_t groups; /* the parts recur so often along the dimension (GPT-NeoX: heads x (q, k, v)); 1 */
    uint64_t pack;   /* elements of the dimension in one stored element (4-bit weights in I32: 8); 1 */
    enum td_uneven uneven;
    uint64_t
        pad_to; /* the dimension is taken as rounded up to a multiple of this, the rest zeros; 1: as it is */
};

struct td_rule_list {
    struct td_rule *rules;
    size_t count;
};

/* Reads a JSON array of rules at the reader (the next token is its '['). Strings and rules are copied into the arena.
 * Errors (TD_INVALID_ARGUMENT with a position): unknown or repeated keys, wrong types, values out of range, more than
 * 10,000 rules. */
bool td_rules_read(struct td_json *json, struct td_arena *arena, struct td_rule_list *out,
                   struct td_error *err);

/* Where the wildcards of a pattern matched. */
struct td_captures {
    struct {
        uint32_t off, len;
    } at[TD_RULE_MAX_CAPTURES];
    uint32_t count;
};

/* Whether the whole name matches. Time is at most pattern x name. Greedy or not makes no difference to whether it
 * matches; captures are the shortest from the left. */
bool td_rule_match(const char *pattern, const char *name, size_t name_len, struct td_captures *captures);

/* The first rule that matches, or NULL. */
const struct td_rule *td_rules_find(const struct td_rule_list *rules, const char *name, size_t name_len,
                                    struct td_captures *captures);

#endif
