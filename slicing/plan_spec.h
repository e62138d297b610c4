/* Plan specifications: what a client asks to be planned, as JSON:
 *   {"engine": NAME, "tp_size": N}                            a built-in engine
 *   {"tp_size": N, "rules": [RULE...]}                        rules of the client's own (rule.h)
 *   {"ranks": [{"tensors": [{"name", "as"?, "slice"?}...]}]}  what each rank gets, spelled out
 * docs/slicing.md describes them to users. */
#ifndef TD_SLICING_PLAN_SPEC_H
#define TD_SLICING_PLAN_SPEC_H

#include "core/text.h"
#include "slicing/engine/engine.h"
#include "slicing/plan.h"

struct td_plan_items {
    const struct td_plan_item *items;
    size_t count;
};

struct td_plan_spec {
    struct td_arena arena; /* owns all that follows */
    const char *engine;    /* NULL: not an engine's */
    uint64_t tp_size;      /* at least 1 */
    struct td_rule_list rules;
    const struct td_plan_items *ranks; /* tp_size of them; NULL: not spelled out */
};

/* The specification of a built-in engine. Fini in every case. */
bool td_plan_spec_init_engine(struct td_plan_spec *spec, struct td_text engine, uint64_t tp_size, struct td_error *err);

/* Reads a specification; nothing points into the text afterwards. Fini in every case. Errors: TD_INVALID_ARGUMENT with
 * the position. */
bool td_plan_spec_parse(struct td_plan_spec *spec, struct td_text text, struct td_error *err);

/* Reads a list of tensors, [{"name", "as"?, "slice"?}...], at the reader (the next token is its '['); what it holds
 * lives in the arena. */
bool td_plan_items_read(struct td_json *json, struct td_arena *arena, struct td_plan_items *out, struct td_error *err);

void td_plan_spec_fini(struct td_plan_spec *spec);

/* What the ranks of a specification have in common, so that it is found once for all of them: rules, and which one each
 * tensor has. Nothing where the ranks are spelled out. It points into itself: it is not to be moved. */
struct td_plan_basis {
    struct td_arena arena;
    struct td_rule_list rules;
    struct td_plan_match match;
    struct td_budget *budget;
};

/* Fini in every case. The specification, and what the tensors point to, are to outlive it. config and errors as in
 * td_engine_rules; errors as td_plan_match too. Matches and plans are taken from the budget (borrowed; NULL: none). */
bool td_plan_spec_match(const struct td_plan_spec *spec, struct td_text config, const struct td_tensor_list *tensors,
                        struct td_budget *budget, struct td_plan_basis *out, struct td_error *err);
void td_plan_basis_fini(struct td_plan_basis *basis);

/* What rank tp_rank (below tp_size) gets. Errors as td_plan_from_match and td_plan_from_items. */
bool td_plan_spec_rank(const struct td_plan_spec *spec, const struct td_plan_basis *basis,
                       const struct td_tensor_list *tensors, uint64_t tp_rank, struct td_plan *out,
                       struct td_error *err);

#endif
