/* Repeats what a test tries, with its first allocation failing, then its second, and so on, until none fails:
 *
 *   struct alloc_trials trials = {0};
 *   while (alloc_try(&trials)) {
 *       bool ok = ...;
 *       alloc_tried(&trials, ok, &err);
 *       ... frees what the try made
 *   }
 *   assert_true(trials.k > ...);
 *
 * Needs WRAP_MALLOC. */
#ifndef TD_TESTS_UNIT_ALLOC_TRIALS_H
#define TD_TESTS_UNIT_ALLOC_TRIALS_H

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

struct alloc_trials {
    bool may_do_without; /* some allocations are not needed: the test says so at the beginning */
    size_t k;            /* the number of this try, and of the allocation that fails in it */
    size_t failed;       /* how many tries failed */
    bool is_over;        /* no allocation failed */
};

/* Begins a try. Checks that the try before it left no block. Returns false when an allocation failed in none. */
static inline bool alloc_try(struct alloc_trials *trials)
{
    size_t left = alloc_count_get().live_bytes;
    CHECK(!trials->is_over || left == 0, "no allocation failed: %zu bytes leak", left);
    CHECK(trials->k == 0 || left == 0, "allocation %zu fails: %zu bytes leak", trials->k, left);
    if (trials->is_over)
        return false;
    alloc_count_start();
    alloc_fail_at(++trials->k);
    return true;
}

/* Lets allocations succeed again. Checks that a try succeeds when no allocation failed, that it fails when a needed one
 * failed, and that the error (may be NULL) says so. */
static inline void alloc_tried(struct alloc_trials *trials, bool ok, const struct td_error *err)
{
    alloc_fail_at(0);
    trials->is_over = alloc_count_get().calls < trials->k;
    trials->failed += !ok;
    CHECK(ok || !trials->is_over, "no allocation failed, but the try did: %s", err == NULL ? "" : err->message);
    CHECK(!ok || trials->is_over || trials->may_do_without, "allocation %zu fails: no error", trials->k);
    if (err != NULL)
        CHECK(err->code == (ok ? TD_OK : TD_RESOURCE_EXHAUSTED), "allocation %zu fails: code %d, %s", trials->k,
              (int)err->code, err->message);
}

#endif
