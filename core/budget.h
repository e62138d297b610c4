/* A bound on the memory that several owners take together. Thread-safe. */
#ifndef TD_CORE_BUDGET_H
#define TD_CORE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct td_budget {
    _Atomic size_t used_bytes;
    size_t max_bytes;
};

void td_budget_init(struct td_budget *budget, size_t max_bytes);

/* Takes so many bytes, if they are left. */
bool td_budget_take(struct td_budget *budget, size_t bytes);

/* Gives back what was taken. */
void td_budget_give(struct td_budget *budget, size_t bytes);

size_t td_budget_used(const struct td_budget *budget);

#endif
