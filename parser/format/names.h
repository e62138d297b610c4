/* Names that come from a file: their byte order and their duplicates. Takes n log n time at worst, and linear time when
 * the names are nearly in order, as in most files. Nothing is quadratic or recursive. */
#ifndef TD_PARSER_FORMAT_NAMES_H
#define TD_PARSER_FORMAT_NAMES_H

#include "core/arena.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A list of names that the caller keeps: get(context, i) returns the i-th, borrowed. */
struct td_names {
    size_t count;
    const void *context;
    struct td_text (*get)(const void *context, size_t i);
};

/* One item of a list that is being sorted. The key decides most comparisons without a look at the item. */
struct td_order {
    uint64_t key;
    size_t index;
};

/* Returns the index of the item at place i. order NULL: the list is in order. */
static inline size_t td_order_place(const struct td_order *order, size_t i)
{
    return order != NULL ? order[i].index : i;
}

/* Sorts items by key, and items of equal keys by tie(context, index, index), unless tie is NULL. A stable merge sort.
 * Allocates count * sizeof *items bytes of scratch unless the items are in order already. Fails only when out of
 * memory. */
bool td_order_sort(struct td_order *items, size_t count, int (*tie)(const void *context, size_t a, size_t b),
                   const void *context, struct td_error *err);

/* Computes the byte order of the names: (*order)[i].index is the place in the list of the i-th name. *order is NULL
 * when the list is in order already. The caller frees *order with free(). Fails only when out of memory. */
bool td_names_order(const struct td_names *names, struct td_order **order, struct td_error *err);

/* Moves the `count` items at base, of `size` bytes each (at most 128), into this order. Overwrites the order, which
 * cannot be used again. order NULL: moves nothing. */
void td_order_apply(struct td_order *order, size_t count, void *base, size_t size);

/* Moves the items at base, of `size` bytes each (at most 128), into the byte order of their names. `names` reads the
 * names from these items. Fails only when out of memory. */
bool td_names_sort(const struct td_names *names, void *base, size_t size, struct td_error *err);

/* Returns the second place in the list of a name that occurs twice, the first such name in byte order; count when all
 * names differ. order comes from td_names_order. */
size_t td_names_duplicate(const struct td_names *names, const struct td_order *order);

/* Searches names that are in byte order. Returns the place of the first that does not come before `name`, or count when
 * all do. Sets *found, unless found is NULL, to whether that is the name itself. */
size_t td_names_search(const struct td_names *names, struct td_text name, bool *found);

/* Copies the different names into the arena, in byte order: *distinct, *distinct_count of them. Sets number[i], for
 * each name i of the list, to its place among them; the caller's array has room for count. The list has at most 2^32-1
 * names. Fails only when out of memory. */
bool td_names_distinct(const struct td_names *names, struct td_arena *arena, const char ***distinct,
                       size_t *distinct_count, uint32_t *number, struct td_error *err);

/* Makes names unique: of equal names the first in the list stays, and the others get "#2", "#3" and so on, each the
 * next number that makes a name not in the list. (*fresh)[i].p is the new text of the i-th name, in the arena and
 * terminated, or NULL where the name stays; *fresh is NULL where all stay. The caller frees *fresh with free(). Fails
 * only when out of memory, and *fresh is then NULL. */
bool td_names_number_repeated(const struct td_names *names, struct td_arena *arena, struct td_text **fresh,
                              struct td_error *err);

/* Returns whether the text names a file in the same directory: not empty, no '/', no NUL, neither "." nor "..". */
bool td_is_plain_file_name(struct td_text text);

/* Returns whether the text is a path below a directory in the form that td_path_clean produces: plain file names with
 * one '/' between them. */
bool td_is_path_below(struct td_text text);

/* Removes "." and empty components from the path, in place. Returns false when the path is absolute, has a ".." or has
 * no component left; its text is then undefined. */
bool td_path_clean(char *path);

#endif
