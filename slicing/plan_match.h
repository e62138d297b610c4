/* Which rule each tensor of a checkpoint has: the part of planning that is the same for all ranks. Pure. */
#ifndef TD_SLICING_PLAN_MATCH_H
#define TD_SLICING_PLAN_MATCH_H

#include "parser/manifest.h"
#include "slicing/rule.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The tensors of a checkpoint, sorted by name; numbers in plans count in this order. */
struct td_tensor_list {
    size_t count;
    const struct td_tensor *(*get)(const void *context, size_t i);
    const void *context;
};

/* A tensor, and what its rule makes of it. */
struct td_matched {
    const struct td_tensor *tensor;
    const struct td_rule *rule; /* NULL: none matched, it is whole */
    const char *out;            /* name of the result */
    uint32_t number;            /* of the tensor */
    uint32_t index;             /* in a stack */
};

/* Its slot in the result; 0 without a rule. */
uint32_t td_matched_slot(const struct td_matched *matched);

/* Sets TD_FAILED_PRECONDITION with the tensor's name and the reason; returns false. */
bool td_matched_refuse(const struct td_matched *matched, const char *reason, struct td_error *err);

enum { TD_DROP_RULE_BYTES = 256 };

/* Writes the rule that leaves a tensor out of a plan, for messages; a long name is spelled NAME. */
void td_plan_write_drop_rule(const char *name, char out[TD_DROP_RULE_BYTES]);

struct td_plan_match {
    struct td_arena arena;            /* owns what follows the tensors */
    const struct td_rule_list *rules; /* borrowed, as the tensors are */
    struct td_tensor_list tensors;
    const uint32_t *class_of, *slots_of; /* of each rule, by its number: rules of one `out` are a class, and have so
                                            many different slots */
    const struct td_matched *matches;    /* sorted by out, index, slot, number */
    size_t match_count;
    const uint32_t *dropped; /* tensors that the engine has no use for */
    size_t dropped_count;
    const uint32_t *unused; /* rules that no tensor has */
    size_t unused_count;
};

enum { TD_PLAN_MAX_MEMORY_BYTES = 256 << 20 }; /* what matching may take, and what one rank's plan may */
#define TD_PLAN_MAX_STEPS UINT64_C(200000000)  /* characters that matching names with patterns may look at */
#define TD_PLAN_MAX_TENSORS (UINT32_MAX - 1)

/* Rules and what the tensors point to are to outlive the match. Errors: TD_FAILED_PRECONDITION (the message names the
 * tensor): no rule matches a tensor of two or more dimensions (of fewer: it is whole on every rank), a rule that
 * refuses (its reason), a source without bytes (its reason), an index of a stack that is no number, too many steps,
 * more tensors than TD_PLAN_MAX_TENSORS or more than TD_PLAN_MAX_MEMORY_BYTES; TD_RESOURCE_EXHAUSTED: memory, of the
 * budget too, which the match and plans from it are taken from (borrowed; NULL: none). Time is that of a sort of the
 * tensors beside the matching. */
bool td_plan_match(const struct td_rule_list *rules, const struct td_tensor_list *tensors, struct td_budget *budget,
                   struct td_plan_match *out, struct td_error *err);

void td_plan_match_fini(struct td_plan_match *match); /* of an empty or failed one too */

/* Why no tensor has a rule: it matches no name, or earlier rules take every tensor that it matches. */
struct td_unused_rule {
    bool known;                  /* false: the steps did not suffice to tell */
    const struct td_rule *taker; /* has the first tensor that the rule matches; NULL: the rule matches none */
    bool several;                /* another rule has a further tensor that it matches */
};

/* Says why no tensor has this rule, one of match->unused. *steps, at first TD_PLAN_MAX_STEPS for all rules of a plan,
 * goes down by the work. */
struct td_unused_rule td_plan_match_explain(const struct td_plan_match *match, uint32_t rule, uint64_t *steps);

#endif
