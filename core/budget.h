/* A bound on the memory that several owners take together. What takes memory for as long as it lives (a blob, a layout,
 * an arena, a buffer) holds its share of the budget itself, and gives it back when the memory is freed. Thread-safe. */
#ifndef TD_CORE_BUDGET_H
#define TD_CORE_BUDGET_H

#include "core/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct td_budget {
    _Atomic size_t used_bytes;
    size_t max_bytes;
    const char *what; /* what takes the memory, for messages: "the rank files". Static */
    /* NULL, or frees something that is kept only because there was room; false when there is nothing. Set once, before
     * the budget is shared. */
    bool (*make_room)(void *context);
    void *context;
};

void td_budget_init(struct td_budget *budget, size_t max_bytes, const char *what);

/* Takes so many bytes, if they are left or room can be made for them. Of no budget (NULL) there is always enough. */
bool td_budget_take(struct td_budget *budget, size_t bytes);

/* Gives back what was taken. NULL is fine. */
void td_budget_give(struct td_budget *budget, size_t bytes);

/* Sets the error for bytes that could not be taken: TD_RESOURCE_EXHAUSTED, or TD_FAILED_PRECONDITION for more than all
 * there are. Returns false. */
bool td_budget_refuse(const struct td_budget *budget, size_t bytes, struct td_error *err);

size_t td_budget_used(const struct td_budget *budget);

#endif
