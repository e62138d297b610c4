#include "rank/plan_store.h"

#include <stdlib.h>

void td_stored_plan_unref(struct td_stored_plan *plan)
{
    if (plan != NULL && atomic_fetch_sub(&plan->refs, 1) == 1)
        free(plan);
}

const char *td_stored_plan_manifest(const struct td_stored_plan *plan)
{
    return plan->manifest[0] != '\0' ? plan->manifest : NULL;
}

void td_stored_plan_describe(const struct td_stored_plan *plan, struct td_rank_set *set)
{
    set->name.tp_size = plan->tp_size;
    set->name.by_engine = plan->by_engine;
    set->name.by_config = plan->by_config;
    set->name.stands_for = plan->stands_for;
    set->name.is_boxes = plan->is_boxes;
    set->plan = td_text_n(plan->text, plan->len);
}

static void *ref_plan(void *value)
{
    struct td_stored_plan *plan = value;
    atomic_fetch_add(&plan->refs, 1);
    return plan;
}

static void unref_plan(void *value)
{
    td_stored_plan_unref(value);
}

const struct td_lru_class td_plan_store_class = {.ref = ref_plan, .unref = unref_plan};
