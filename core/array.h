/* Growing arrays. The caller keeps the pointer, the number of items and the capacity (the number of items that fit). An
 * empty array is NULL with capacity 0. The caller frees the array with free(). And arrays of bytes that do not grow. */
#ifndef TD_CORE_ARRAY_H
#define TD_CORE_ARRAY_H

#include "core/budget.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Returns the capacity to grow to: half as much again, at least `wanted` and at least 4 items. Appending n items one by
 * one then copies fewer than 3 n items. */
size_t td_array_next_capacity(size_t capacity, size_t wanted);

/* Makes room for `wanted` items of `item_bytes` each and sets *capacity. Does nothing when they fit already. `items` is
 * the address of the caller's pointer, of any type; the array may move, and new items are not cleared. Takes the added
 * bytes from `budget` (NULL: none); the caller gives *capacity * item_bytes bytes back when it frees the array. Returns
 * false and changes nothing on failure. Errors (err may be NULL): TD_RESOURCE_EXHAUSTED, or as td_budget_refuse. */
bool td_array_reserve(void *items, size_t *capacity, size_t wanted, size_t item_bytes, struct td_budget *budget,
                      struct td_error *err);

/* Makes room for one more item after `count` in the typed array `items`, without a budget. Returns and errors as
 * td_array_reserve. The arguments are variables, not pointers to them. */
#define TD_ARRAY_GROW(items, count, capacity, err) \
    td_array_reserve(&(items), &(capacity), (count) + 1, sizeof *(items), NULL, err)

/* Appends the first of `count` bytes to the *len bytes in an array of `size` bytes: as many as there is room for. Adds
 * their number to *len, and returns it. */
size_t td_array_fill(void *array, size_t size, size_t *len, const void *bytes, size_t count);

#endif
