#include "rank/plan_store.h"

#include <stdlib.h>

void td_stored_plan_unref(struct td_stored_plan *plan)
{
    if (plan != NULL && atomic_fetch_sub(&plan->refs, 1) == 1)
        free(plan);
}

static void *ref(void *value)
{
    struct td_stored_plan *plan = value;
    atomic_fetch_add(&plan->refs, 1);
    return plan;
}

static void unref(void *value)
{
    td_stored_plan_unref(value);
}

const struct td_lru_class td_plan_store_class = {.ref = ref, .unref = unref};
