#include "core/budget.h"

void td_budget_init(struct td_budget *budget, size_t max_bytes)
{
    atomic_init(&budget->used_bytes, 0);
    budget->max_bytes = max_bytes;
}

bool td_budget_take(struct td_budget *budget, size_t bytes)
{
    size_t used = atomic_load(&budget->used_bytes);
    do {
        if (bytes > budget->max_bytes - used)
            return false;
    } while (!atomic_compare_exchange_weak(&budget->used_bytes, &used, used + bytes));
    return true;
}

void td_budget_give(struct td_budget *budget, size_t bytes)
{
    atomic_fetch_sub(&budget->used_bytes, bytes);
}

size_t td_budget_used(const struct td_budget *budget)
{
    return atomic_load(&budget->used_bytes);
}
