/* Arrays that grow while items are appended. The caller holds the pointer, the number of items and the capacity (the
 * number of items that there is room for); an array that is NULL with capacity 0 is empty. Free it with free(). */
#ifndef TD_CORE_ARRAY_H
#define TD_CORE_ARRAY_H

#include "core/budget.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Returns the capacity to grow to, so that appending n items copies fewer than 3 n: half as much again, at least
 * `wanted` and at least 4. */
size_t td_array_next_capacity(size_t capacity, size_t wanted);

/* Makes room for `wanted` items of `item_bytes` each. `items` is the address of the caller's pointer, of any type; the
 * array may move. Takes what it adds from `budget` (NULL: none); whoever frees the array gives capacity * item_bytes
 * back. Returns false and changes nothing when memory is short (TD_RESOURCE_EXHAUSTED) or the budget is
 * (td_budget_refuse). `err` may be NULL. */
bool td_array_reserve(void *items, size_t *capacity, size_t wanted, size_t item_bytes, struct td_budget *budget,
                      struct td_error *err);

/* Makes room for one more item behind `count` in the typed array `items`. */
#define TD_ARRAY_GROW(items, count, capacity, err) \
    td_array_reserve(&(items), &(capacity), (count) + 1, sizeof *(items), NULL, err)

#endif
