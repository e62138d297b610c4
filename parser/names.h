/* Sets of names that come from a file: their byte order and their duplicates, in n log n at worst and in
 * linear time when they are nearly in order already, which files mostly are. Nothing is quadratic or
 * recursive. */
#ifndef TD_PARSER_NAMES_H
#define TD_PARSER_NAMES_H

#include "core/arena.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A list of names, wherever they are kept. */
struct td_names {
    size_t count;
    const void *context;
    struct td_text (*get)(const void *context, size_t i);
};

/* One item of a list that is being sorted: a key that decides most comparisons without touching the item. */
struct td_order {
    uint64_t key;
    size_t index;
};

/* Stable merge sort of items by key, equal keys by tie(context, index, index). Needs count * sizeof *items
 * bytes of scratch unless the items are in order already; running out is the only failure. */
bool td_order_sort(struct td_order *items, size_t count, int (*tie)(const void *context, size_t a, size_t b),
                   const void *context, struct td_error *err);

/* The names' byte order: (*order)[i].index is the i-th name's place in the list; NULL when the list is in
 * order already. The caller frees *order. */
bool td_names_order(const struct td_names *names, struct td_order **order, struct td_error *err);

/* Moves base's items (size bytes each, at most 128) into the order, which is used up. NULL moves nothing. */
void td_order_apply(struct td_order *order, size_t count, void *base, size_t size);

/* A name that occurs twice, the first in byte order: its second place in the list, or count when there is
 * none. order as td_names_order gave it. */
size_t td_names_duplicate(const struct td_names *names, const struct td_order *order);

/* In names that are in byte order: the place of the first that does not come before `name`, count when they all do.
 * *found (or NULL) tells whether that is the name itself. */
size_t td_names_search(const struct td_names *names, struct td_text name, bool *found);

/* The different names in byte order, copied into the arena: *distinct, *distinct_count. number[i], count of them given
 * by the caller, becomes the place of the list's i-th name among them. At most 2^32-1 names. */
bool td_names_distinct(const struct td_names *names, struct td_arena *arena, const char ***distinct,
                       size_t *distinct_count, uint32_t *number, struct td_error *err);

/* Names made unique: of equal ones the first in the list keeps its own, the others get "#2", "#3" and so on, each the
 * next number with which it is none of the names that are there. (*fresh)[i].p is the i-th name's new text, in the
 * arena and terminated, or NULL where it stays; *fresh is NULL where all stay. The caller frees it. */
bool td_names_number_repeated(const struct td_names *names, struct td_arena *arena, struct td_text **fresh,
                              struct td_error *err);

/* Whether this can only be a file beside the one that names it: not empty, no '/', no NUL, neither "." nor "..". */
bool td_is_plain_file_name(struct td_text text);

#endif
