/* Memory budgets: one limit that many owners of memory share. A budget only counts bytes; it allocates nothing. An
 * owner (a blob, a layout, an arena, a buffer) takes from the budget the bytes that it allocates, and gives the same
 * number back when it frees them. Thread-safe. */
#ifndef TD_CORE_BUDGET_H
#define TD_CORE_BUDGET_H

#include "core/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_budget {
    _Atomic size_t used_bytes;
    size_t max_bytes;
    const char *what; /* names the users of the memory in messages: "the rank files". Static */
    /* NULL, or a function that drops one item of a cache whose items take memory from the budget. Returns false when it
     * has nothing to drop. Set once, before threads share the budget; called by any thread that takes. */
    bool (*make_room)(void *context);
    void *context;
    /* NULL, or the budget that this one is a share of: bytes that are taken from or returned to this budget are taken
     * from or returned to that one as well. Set once, as make_room, and not together with it. That budget has no
     * `whole` itself. */
    struct td_budget *whole;
};

enum { TD_BUDGET_SHARES = 1024 };

/* A budget that is divided among clients, so that one of them does not keep all others out: each gets one of the
 * shares by its number, and clients whose numbers have the same low bits have a share together. Thread-safe. */
struct td_shared_budget {
    struct td_budget whole;
    struct td_budget shares[TD_BUDGET_SHARES]; /* of half the bytes each */
};

/* Initialises a budget of max_bytes without make_room and `whole`. */
void td_budget_init(struct td_budget *budget, size_t max_bytes, const char *what);

/* Initialises a budget of max_bytes and its shares. `what` as in td_budget. */
void td_shared_budget_init(struct td_shared_budget *budget, size_t max_bytes, const char *what);

/* Returns the share of a client, which lives as long as the budget. `client`: equal numbers for equal clients; numbers
 * that nobody can foresee keep a client from choosing whose share it uses. */
struct td_budget *td_shared_budget_of(struct td_shared_budget *budget, uint64_t client);

/* Takes `bytes`, after calls of make_room while they do not fit. Returns false and takes nothing when they do not fit.
 * budget NULL: returns true, there is no limit. */
bool td_budget_take(struct td_budget *budget, size_t bytes);

/* Takes `bytes` as td_budget_take does, but counts `replaced` of the bytes that are taken as free, because their owners
 * will return them soon. Until they do, more than max_bytes may be taken, and td_budget_take refuses everything.
 * budget NULL: returns true. */
bool td_budget_take_replacing(struct td_budget *budget, size_t bytes, size_t replaced);

/* Returns whether td_budget_take_replacing would take the bytes now, without a call of make_room and without `whole`.
 * budget NULL: returns true. */
bool td_budget_fits(const struct td_budget *budget, size_t bytes, size_t replaced);

/* Returns bytes that were taken. budget NULL: does nothing. */
void td_budget_give(struct td_budget *budget, size_t bytes);

/* Sets the error for bytes that td_budget_take refused; budget is not NULL. Errors: TD_FAILED_PRECONDITION when the
 * bytes are more than max_bytes, else TD_RESOURCE_EXHAUSTED (try again later). Returns false. */
bool td_budget_refuse(const struct td_budget *budget, size_t bytes, struct td_error *err);

/* Returns how many bytes are taken at the moment. */
size_t td_budget_used(const struct td_budget *budget);

#endif
