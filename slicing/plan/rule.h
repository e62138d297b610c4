/* Rules: the description, as data, of how an engine distributes the tensors of a checkpoint over its ranks. Built-in
 * engines (engine.h) and the plans of clients are lists of rules; docs/slicing.md describes their JSON. */
#ifndef TD_SLICING_PLAN_RULE_H
#define TD_SLICING_PLAN_RULE_H

#include "core/arena.h"
#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_RULE_MAX_PARTS = 8,
    TD_RULE_MAX_CAPTURES = 8,
    TD_RULE_MAX_PATTERN_BYTES = 1024, /* of match, and of out */
    TD_RULE_MAX_COUNT = 10000,        /* rules in a client's list */
    TD_MAX_TP_SIZE = 4096,            /* ranks */
};

/* How n units are dealt to t ranks when t does not divide n. */
enum td_uneven {
    TD_UNEVEN_ERROR,    /* such a tensor is refused */
    TD_UNEVEN_CHUNK,    /* as torch.chunk: ceil(n/t) each, the last ranks less or nothing (DTensor, FSDP2) */
    TD_UNEVEN_BALANCED, /* the first n % t ranks get one more than the others (expert parallel) */
};

/* The meaning of a part's units, for messages. */
enum td_units {
    TD_UNITS_ANY,
    TD_UNITS_HEADS,
    TD_UNITS_KEY_VALUE_HEADS,
    TD_UNITS_VOCABULARY,
};

/* A part of a dimension, which consists of units that are never cut: 16 heads of 128 rows. The units are dealt to the
 * ranks in order. */
struct td_rule_part {
    uint64_t count; /* units; 0: the parts without a count share evenly the rest of the dimension */
    uint64_t unit;  /* elements of one unit; 0: the dimension over count, for a single part with a count */
    bool replicate; /* when there are fewer units than ranks and their number divides tp_size, tp_size / count ranks in
                       a row get the same unit; else the part is dealt as without replicate */
    enum td_units what;
};

/* A rule: the tensors that it matches, the result that they become a part of, and how they are split. Texts are
 * NUL-terminated and borrowed from the maker of the rule.
 *
 * A rule with is_constant takes no tensor. For each tensor that it matches and that no rule drops, it adds a result
 * named `out`, of type F32, without dimensions, with the value `constant`. Results of the same name and value become
 * one. */
struct td_rule {
    /* A pattern for the whole name of a tensor. "*" stands for one component (no dot, not empty), "**" for any text;
     * both capture. A tensor belongs to the first rule of the list, other than constants, that matches. */
    const char *match;
    /* The name of the result. Its wildcards stand for the captures of match in order; "*" and "**" mean the same here.
     * NULL: the tensor's own name. */
    const char *out;
    /* Tensors of one result are joined along dim in the order of their slots, which count from 0. A result must have a
     * tensor for every slot of the rules with this `out`. */
    uint32_t slot;
    const char *refuse; /* a reason: a tensor that matches is an error. No other member but match is then used */
    bool drop;          /* the tensor is left out and listed as dropped. No other member but match is then used */
    bool whole;         /* every rank gets the whole tensor; parts, groups, pack, uneven and pad_to are not used */
    bool stack; /* match's last capture is the index in a new first dimension of the result, not a part of its name */
    uint64_t stack_size; /* the length of that dimension; 0: the number of tensors that there are */
    int32_t dim;         /* the dimension that is split; negative: from the end. A tensor without dimensions is whole */
    struct td_rule_part parts[TD_RULE_MAX_PARTS]; /* of the dimension, in order; none: one part of unit 1 */
    uint32_t part_count;
    uint64_t groups; /* times that the parts recur along the dimension (GPT-NeoX: heads x (q, k, v)); 0 is 1 */
    uint64_t pack;   /* elements of the dimension in one stored element (4-bit weights in I32: 8); 0 is 1 */
    enum td_uneven uneven;
    uint64_t pad_to; /* a single part is padded with zeros to a multiple of so many elements; 0 is 1 */
    bool is_constant;
    float constant; /* value of a constant, whose rule has otherwise only match and out */
};

struct td_rule_list {
    struct td_rule *rules; /* borrowed; the first that matches a tensor counts */
    size_t count;
    bool plain_types_only; /* tensors that are not dropped must be F64, F32, F16 or BF16, because the rules do not know
                              the layout of quantised ones */
    const char *way_on; /* ends the message when the layout of a tensor is not known: another way for the engine to load
                           its part. Static; NULL: none */
};

/* Checks that tp_size is from 1 to TD_MAX_TP_SIZE. Errors: TD_INVALID_ARGUMENT. */
bool td_tp_size_check(uint64_t tp_size, struct td_error *err);

/* Checks a rule's patterns. Returns NULL if they are good, else the reason, a static text: "*" in match that is not a
 * whole component, wildcards that touch, more than TD_RULE_MAX_CAPTURES wildcards, more of them in `out` than match
 * captures for it, a pattern longer than TD_RULE_MAX_PATTERN_BYTES, or a constant without `out`. */
const char *td_rule_check(const struct td_rule *rule);

/* The places in a name that the wildcards of a pattern matched, in order; in bytes of the name. */
struct td_captures {
    struct {
        uint32_t off, len;
    } at[TD_RULE_MAX_CAPTURES];
    uint32_t count;
};

/* Returns whether the pattern, which td_rule_check has accepted, matches the whole name. If so, sets *captures to the
 * shortest captures, from the left; else *captures is undefined. Takes at most the time of pattern length x name
 * length. */
bool td_rule_match(const char *pattern, struct td_text name, struct td_captures *captures);

/* Returns the first rule, other than constants, that matches the name, and sets *captures as td_rule_match does;
 * returns NULL when no rule matches. *steps is the work that is left: the search lowers *steps by about the number of
 * characters that it looks at. When *steps becomes 0, returns NULL even if a rule would match. steps NULL: no limit. */
const struct td_rule *td_rules_find(const struct td_rule_list *rules, struct td_text name, struct td_captures *captures,
                                    uint64_t *steps);

/* Returns the first constant from rule number *at on that matches the name, and sets *at to the number after the
 * constant's; otherwise works like td_rules_find. */
const struct td_rule *td_rules_next_constant(const struct td_rule_list *rules, size_t *at, struct td_text name,
                                             struct td_captures *captures, uint64_t *steps);

/* Appends the name of the result that the rule makes of a tensor's name, without a NUL: `out` with the captures, which
 * td_rule_match found in `name`, in place of its wildcards. The rule must have an `out`. out->failed is set when memory
 * is short. */
void td_rule_write_out(const struct td_rule *rule, const char *name, const struct td_captures *captures,
                       struct td_buffer *out);

#endif
