#include "core/budget.h"

void td_budget_init(struct td_budget *budget, size_t max_bytes, const char *what)
{
    atomic_init(&budget->used_bytes, 0);
    budget->max_bytes = max_bytes;
    budget->what = what;
    budget->make_room = NULL;
    budget->context = NULL;
}

static bool take(struct td_budget *budget, size_t bytes)
{
    size_t used = atomic_load(&budget->used_bytes);
    do {
        if (bytes > budget->max_bytes - used)
            return false;
    } while (!atomic_compare_exchange_weak(&budget->used_bytes, &used, used + bytes));
    return true;
}

bool td_budget_take(struct td_budget *budget, size_t bytes)
{
    if (budget == NULL)
        return true;
    while (!take(budget, bytes))
        if (bytes > budget->max_bytes || budget->make_room == NULL || !budget->make_room(budget->context))
            return false;
    return true;
}

void td_budget_give(struct td_budget *budget, size_t bytes)
{
    if (budget != NULL)
        atomic_fetch_sub(&budget->used_bytes, bytes);
}

bool td_budget_refuse(const struct td_budget *budget, size_t bytes, struct td_error *err)
{
    if (bytes > budget->max_bytes)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "this would take more than the %zu MiB that all %s share; ask for less at once",
                            budget->max_bytes >> 20, budget->what);
    return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                        "the %s that are being made or sent take nearly all of the %zu MiB that they share; "
                        "try again when some of these answers have ended",
                        budget->what, budget->max_bytes >> 20);
}

size_t td_budget_used(const struct td_budget *budget)
{
    return atomic_load(&budget->used_bytes);
}
