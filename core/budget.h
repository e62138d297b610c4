/* Memory budgets: one limit that many owners of memory share. A budget only counts bytes; it allocates nothing. An
 * owner (a blob, a layout, an arena, a buffer) takes from the budget the bytes that it allocates, and gives the same
 * number back when it frees them. Thread-safe. */
#ifndef TD_CORE_BUDGET_H
#define TD_CORE_BUDGET_H

#include "core/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct td_budget {
    _Atomic size_t used_bytes;
    size_t max_bytes;
    const char *what; /* names the users of the memory in messages: "the rank files". Static */
    /* NULL, or a function that drops one item of a cache whose items take memory from the budget. Returns false when it
     * has nothing to drop. Set once, before threads share the budget; called by any thread that takes. */
    bool (*make_room)(void *context);
    void *context;
};

/* Initialises a budget of max_bytes without make_room. */
void td_budget_init(struct td_budget *budget, size_t max_bytes, const char *what);

/* Takes `bytes`, after calls of make_room while they do not fit. Returns false and takes nothing when they do not fit.
 * budget NULL: returns true, there is no limit. */
bool td_budget_take(struct td_budget *budget, size_t bytes);

/* Gives back bytes that were taken. budget NULL: does nothing. */
void td_budget_give(struct td_budget *budget, size_t bytes);

/* Sets the error for bytes that td_budget_take refused; budget is not NULL. Errors: TD_FAILED_PRECONDITION when the
 * bytes are more than max_bytes, else TD_RESOURCE_EXHAUSTED (try again later). Returns false. */
bool td_budget_refuse(const struct td_budget *budget, size_t bytes, struct td_error *err);

/* Returns how many bytes are taken at the moment. */
size_t td_budget_used(const struct td_budget *budget);

#endif
