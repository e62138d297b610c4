/* The plan of one rank from rules, without keeping the match, for tests. */
#ifndef TD_TESTS_KIT_PLAN_FROM_RULES_H
#define TD_TESTS_KIT_PLAN_FROM_RULES_H

#include "slicing/plan/plan.h"

/* Plans the file of one rank: calls td_plan_match and td_plan_from_match, without a budget. Errors as both. */
static inline bool plan_from_rules(const struct td_rule_list *rules, const struct td_tensor_list *tensors,
                                   uint64_t tp_size, uint64_t tp_rank, struct td_plan *out, struct td_error *err)
{
    struct td_plan_match match = {0};
    *out = (struct td_plan){0};
    bool ok =
        td_plan_match(rules, tensors, NULL, &match, err) && td_plan_from_match(&match, tp_size, tp_rank, out, err);
    td_plan_match_fini(&match);
    return ok;
}

#endif
