#include "core/budget.h"

void td_budget_init(struct td_budget *budget, size_t max_bytes, const char *what)
{
    atomic_init(&budget->used_bytes, 0);
    budget->max_bytes = max_bytes;
    budget->what = what;
    budget->make_room = NULL;
    budget->context = NULL;
    budget->whole = NULL;
}

void td_shared_budget_init(struct td_shared_budget *budget, size_t max_bytes, const char *what)
{
    td_budget_init(&budget->whole, max_bytes, what);
    for (size_t i = 0; i < TD_BUDGET_SHARES; i++) {
        td_budget_init(&budget->shares[i], max_bytes / 2, what);
        budget->shares[i].whole = &budget->whole;
    }
}

struct td_budget *td_shared_budget_of(struct td_shared_budget *budget, uint64_t client)
{
    return &budget->shares[client % TD_BUDGET_SHARES];
}

/* Returns whether so many bytes fit when `used` are taken and `replaced` of these count as free. */
static bool fits_beside(const struct td_budget *budget, size_t used, size_t bytes, size_t replaced)
{
    size_t staying = used > replaced ? used - replaced : 0;
    return staying <= budget->max_bytes && bytes <= budget->max_bytes - staying;
}

bool td_budget_fits(const struct td_budget *budget, size_t bytes, size_t replaced)
{
    return budget == NULL || fits_beside(budget, td_budget_used(budget), bytes, replaced);
}

/* Takes from the budget alone. */
static bool take_bytes(struct td_budget *budget, size_t bytes, size_t replaced)
{
    size_t used = atomic_load(&budget->used_bytes);
    do {
        if (!fits_beside(budget, used, bytes, replaced))
            return false;
    } while (!atomic_compare_exchange_weak(&budget->used_bytes, &used, used + bytes));
    return true;
}

/* Takes from the budget alone, after calls of make_room. */
static bool take_with_room(struct td_budget *budget, size_t bytes, size_t replaced)
{
    while (!take_bytes(budget, bytes, replaced))
        if (bytes > budget->max_bytes || budget->make_room == NULL || !budget->make_room(budget->context))
            return false;
    return true;
}

bool td_budget_take(struct td_budget *budget, size_t bytes)
{
    return td_budget_take_replacing(budget, bytes, 0);
}

bool td_budget_take_replacing(struct td_budget *budget, size_t bytes, size_t replaced)
{
    if (budget == NULL)
        return true;
    if (!take_with_room(budget, bytes, replaced))
        return false;
    if (budget->whole == NULL || take_with_room(budget->whole, bytes, replaced))
        return true;
    atomic_fetch_sub(&budget->used_bytes, bytes);
    return false;
}

void td_budget_give(struct td_budget *budget, size_t bytes)
{
    if (budget == NULL)
        return;
    atomic_fetch_sub(&budget->used_bytes, bytes);
    if (budget->whole != NULL)
        atomic_fetch_sub(&budget->whole->used_bytes, bytes);
}

bool td_budget_refuse(const struct td_budget *budget, size_t bytes, struct td_error *err)
{
    if (bytes > budget->max_bytes && budget->whole != NULL)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "this would take more than the %zu MiB that one client's %s may take; ask for less at once",
                            budget->max_bytes >> 20, budget->what);
    if (bytes > budget->max_bytes)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "this would take more than the %zu MiB that all %s share; ask for less at once",
                            budget->max_bytes >> 20, budget->what);
    if (budget->whole != NULL && !td_budget_fits(budget, bytes, 0))
        return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                            "the %s that are being made or sent for your address take nearly all of the %zu MiB that "
                            "they may take; try again when some of these answers have ended",
                            budget->what, budget->max_bytes >> 20);
    if (budget->whole != NULL)
        budget = budget->whole;
    return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                        "the %s that are being made or sent take nearly all of the %zu MiB that they share; "
                        "try again when some of these answers have ended",
                        budget->what, budget->max_bytes >> 20);
}

size_t td_budget_used(const struct td_budget *budget)
{
    return atomic_load(&budget->used_bytes);
}
