/* Plan specifications: a client's description of a plan, as JSON:
 *   {"engine": NAME, "tp_size": N}                            by a built-in engine
 *   {"tp_size": N, "rules": [RULE...]}                        by the client's own rules (rule.h)
 *   {"ranks": [{"tensors": [{"name", "as"?, "slice"?}...]}]}  an explicit list of tensors for each rank
 *   {"boxes": [{"name", "slice"?}...]}                        a list of parts of tensors, whose bytes are one file
 * and in each form optionally "manifest": TAG, the tag of the manifest that the plan was made for.
 * docs/slicing.md describes them for users. */
#ifndef TD_SLICING_PLAN_SPEC_H
#define TD_SLICING_PLAN_SPEC_H

#include "core/json/json_document.h"
#include "core/text.h"
#include "slicing/engine/engine.h"
#include "slicing/plan/plan_items.h"

/* An explicit list of tensors, or of boxes. */
struct td_plan_items {
    const struct td_plan_item *items;
    size_t count;
};

struct td_plan_spec {
    struct td_arena arena;             /* owns everything below */
    const char *engine;                /* NULL: rules, ranks or boxes are given */
    uint64_t tp_size;                  /* at least 1 */
    struct td_rule_list rules;         /* empty with an engine, ranks or boxes */
    const struct td_plan_items *ranks; /* tp_size lists; NULL: no ranks are given */
    const struct td_plan_items *boxes; /* one list, whose items have no `as`; tp_size is then 1; NULL: no boxes */
    const char *manifest;              /* what "manifest" says; nothing here checks it; NULL: it is not there */
};

/* Makes the specification of a built-in engine; whether the engine exists is not checked. The caller calls
 * td_plan_spec_fini in every case. Errors: TD_INVALID_ARGUMENT for tp_size, TD_RESOURCE_EXHAUSTED. */
bool td_plan_spec_init_engine(struct td_plan_spec *spec, struct td_text engine, uint64_t tp_size, struct td_error *err);

/* Reads a specification, and copies what it needs of the text. Its memory, at most 21 times the length of the text and
 * 4 MiB, comes from the budget, which is borrowed; NULL: none. The caller calls td_plan_spec_fini in every case.
 * Errors: TD_INVALID_ARGUMENT with the position of the first fault in the text, TD_RESOURCE_EXHAUSTED; as
 * td_budget_refuse. */
bool td_plan_spec_parse(struct td_plan_spec *spec, struct td_text text, struct td_budget *budget, struct td_error *err);

/* Reads an explicit list, [{"name", "as"?, "slice"?}...], an item of the document. The list is put into the arena; its
 * strings stay in the document's. Errors as td_plan_spec_parse and td_arena_refuse, and a fault of the document that
 * comes before those. */
bool td_plan_items_read(const struct td_json_document *document, const cJSON *list, struct td_arena *arena,
                        struct td_plan_items *out, struct td_error *err);

/* Frees all that the specification owns. */
void td_plan_spec_fini(struct td_plan_spec *spec);

/* The part of a plan that all ranks share: the rules, and the rule of each tensor. It is empty when the ranks are
 * explicit lists, and with boxes. It points into itself, so it must not be moved or copied. */
struct td_plan_basis {
    struct td_arena arena;
    struct td_rule_list rules;
    struct td_plan_match match;
    struct td_budget *budget;
};

/* Makes the shared part of a plan. The caller calls td_plan_basis_fini in every case. The specification, and what the
 * tensors point to, must outlive it. `config` as in td_engine_rules. The memory of the match and of plans from it comes
 * from the budget, which is borrowed; NULL: none. Errors as td_engine_rules and td_plan_match. */
bool td_plan_spec_match(const struct td_plan_spec *spec, struct td_text config, const struct td_tensor_list *tensors,
                        struct td_budget *budget, struct td_plan_basis *out, struct td_error *err);

/* Frees the shared part. Plans that were made from it stay valid. */
void td_plan_basis_fini(struct td_plan_basis *basis);

/* Plans the file of rank tp_rank, which must be below tp_size, of a specification without boxes (those are for
 * rank_file.h). Errors as td_plan_from_match and td_plan_from_items. */
bool td_plan_spec_rank(const struct td_plan_spec *spec, const struct td_plan_basis *basis,
                       const struct td_tensor_list *tensors, uint64_t tp_rank, struct td_plan *out,
                       struct td_error *err);

#endif
