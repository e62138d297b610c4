/* Matching: finds the rule of each tensor of a checkpoint. This is the part of planning that all ranks share. Pure. */
#ifndef TD_SLICING_PLAN_PLAN_MATCH_H
#define TD_SLICING_PLAN_PLAN_MATCH_H

#include "parser/format/manifest.h"
#include "slicing/plan/rule.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The tensors of a checkpoint, sorted by name. A tensor's number in a plan is its index in this order. */
struct td_tensor_list {
    size_t count;
    const struct td_tensor *(*get)(const void *context, size_t i);
    const void *context;
};

/* A tensor with its rule and the result that it becomes a part of. */
struct td_matched {
    const struct td_tensor *tensor;
    const struct td_rule *rule; /* NULL: no rule matches, and every rank gets the whole tensor */
    const char *out;            /* name of the result */
    uint32_t number;            /* of the tensor */
    uint32_t index;             /* in a stack; else 0 */
};

/* Returns the tensor's slot in the result, which is that of its rule; 0 without a rule. */
uint32_t td_matched_slot(const struct td_matched *matched);

/* Sets TD_FAILED_PRECONDITION with the tensor's name and the reason; returns false. */
bool td_matched_refuse(const struct td_matched *matched, const char *reason, struct td_error *err);

enum { TD_DROP_RULE_BYTES = 256 };

/* Writes the JSON of a rule that leaves the tensor out of a plan, for messages. A name of more than 100 bytes in JSON
 * is replaced by NAME. */
void td_plan_write_drop_rule(const char *name, char out[TD_DROP_RULE_BYTES]);

/* A result that is a constant: type F32, no dimensions. */
struct td_matched_constant {
    const char *out;
    float value;
};

/* Rules with the same `out` form a class. Together, the tensors that they match make one result, or a result for each
 * value of the wildcards. */
struct td_plan_match {
    struct td_arena arena;            /* owns the arrays below */
    const struct td_rule_list *rules; /* borrowed, like the tensors */
    struct td_tensor_list tensors;
    const uint32_t *class_of, *slots_of; /* by the rule's number: its class, and the number of that class's slots */
    const struct td_matched *matches;    /* sorted by out, index, slot, number */
    size_t match_count;
    const struct td_matched_constant *constants; /* sorted by out, each name once */
    size_t constant_count;
    const uint32_t *dropped; /* numbers of the tensors that rules with `drop` leave out */
    size_t dropped_count;
    const uint32_t *unused; /* numbers of the rules, constants included, that no tensor uses */
    size_t unused_count;
};

enum { TD_PLAN_MAX_MEMORY_BYTES = 256 << 20 }; /* most that a match may take, and most that a plan may take */
#define TD_PLAN_MAX_STEPS UINT64_C(200000000)  /* most characters that the search for rules may look at */
#define TD_PLAN_MAX_TENSORS (UINT32_MAX - 1)

/* Finds the rule of each tensor. A tensor of fewer than two dimensions that no rule matches is whole on every rank. The
 * rules, and what the tensors point to, must outlive the match. Its memory, and that of plans from it, comes from the
 * budget, which is borrowed; NULL: no limit but TD_PLAN_MAX_MEMORY_BYTES. A match that could not be made owns nothing.
 * Takes the time of the search and of a sort of the tensors. Errors:
 * - TD_FAILED_PRECONDITION, with the tensor's name: no rule matches a tensor of two or more dimensions; the tensor's
 *   rule refuses it; the tensor has no bytes; plain_types_only does not allow its type; its index in a stack is not a
 *   number; one constant would have two values; one of TD_PLAN_MAX_STEPS, TD_PLAN_MAX_TENSORS and
 *   TD_PLAN_MAX_MEMORY_BYTES is exceeded.
 * - TD_RESOURCE_EXHAUSTED: memory or the budget is short. */
bool td_plan_match(const struct td_rule_list *rules, const struct td_tensor_list *tensors, struct td_budget *budget,
                   struct td_plan_match *out, struct td_error *err);

/* Frees the match's memory. An empty match, or one that could not be made, is allowed. */
void td_plan_match_fini(struct td_plan_match *match);

/* Why no tensor uses a rule: it matches no name, or earlier rules take every tensor that it matches. Why no tensor uses
 * a constant: it matches no name, or other rules drop every tensor that it matches. */
struct td_unused_rule {
    bool known;                  /* false: the steps did not suffice to find out */
    const struct td_rule *taker; /* the rule that takes the first tensor of this one; NULL: this one matches no name */
    bool several;                /* other rules take further tensors */
};

/* Finds out why no tensor has the rule with this number, one of match->unused. Lowers *steps by the characters that it
 * looks at; the caller sets *steps to TD_PLAN_MAX_STEPS once for all unused rules of a plan. Takes no memory. */
struct td_unused_rule td_plan_match_explain(const struct td_plan_match *match, uint32_t rule, uint64_t *steps);

#endif
