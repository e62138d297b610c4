/* The plans that clients registered, by id, in a td_lru of TD_PLAN_STORE_BYTES. */
#ifndef TD_RANK_PLAN_STORE_H
#define TD_RANK_PLAN_STORE_H

#include "http/lru.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_PLAN_STORE_BYTES = 64 * 1024 * 1024 };

/* The text of a registered plan, shared and immutable, with what td_rank_name says of it. */
struct td_stored_plan {
    _Atomic int refs;
    uint64_t tp_size;
    bool by_engine, by_config;
    size_t len;
    char text[];
};

/* Drops a reference, as td_lru_get and the plan's creation give one. NULL is fine. */
void td_stored_plan_unref(struct td_stored_plan *plan);

extern const struct td_lru_class td_plan_store_class;

#endif
