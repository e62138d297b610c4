/* The plans that clients registered: a td_lru of at most TD_PLAN_STORE_BYTES, whose keys are plan ids. */
#ifndef TD_RANK_PLAN_STORE_H
#define TD_RANK_PLAN_STORE_H

#include "http/lru.h"
#include "rank/rank_store.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_PLAN_STORE_BYTES = 64 * 1024 * 1024 };

/* A registered plan: its text, and the members that td_rank_name needs. Shared and immutable. */
struct td_stored_plan {
    _Atomic int refs;
    uint64_t tp_size;                    /* number of ranks */
    bool by_engine, by_config, is_boxes; /* as in td_rank_name */
    struct td_text stands_for;           /* likewise; static text */
    char manifest[TD_TAG_BYTES];         /* the tag of the manifest that the plan is bound to; empty: it is not bound */
    size_t len;                          /* of the text */
    char text[];                         /* the plan as canonical JSON, without a NUL */
};

/* Drops a reference, which td_lru_get and the plan's creation give; the last one frees the plan. NULL: does nothing. */
void td_stored_plan_unref(struct td_stored_plan *plan);

/* Returns the tag of the manifest that the plan is bound to, valid as long as the plan; NULL if it is not bound. */
const char *td_stored_plan_manifest(const struct td_stored_plan *plan);

/* Fills in the set of the plan's rank files: its ranks, how they are named, and the text, which is borrowed. */
void td_stored_plan_describe(const struct td_stored_plan *plan, struct td_rank_set *set);

/* How a td_lru takes and drops references on struct td_stored_plan. */
extern const struct td_lru_class td_plan_store_class;

#endif
