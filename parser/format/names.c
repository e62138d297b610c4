/* Sorts names by merging the runs that are sorted already. A hostile file may have a million names, and qsort is
 * quadratic in the worst case when memory is short. Writers sort tensors by type and then by name, which leaves a few
 * runs. Most comparisons read only eight bytes of each name: those after the prefix that all names share. */
#include "parser/format/names.h"

#include "core/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct order_sort {
    int (*tie)(const void *context, size_t a, size_t b);
    const void *context;
};

static bool order_less(const struct order_sort *sort, const struct td_order *a, const struct td_order *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    return sort->tie != NULL && sort->tie(sort->context, a->index, b->index) < 0;
}

/* Returns where the ascending run that begins at `start` ends. */
static size_t run_end(const struct order_sort *sort, const struct td_order *items, size_t count, size_t start)
{
    size_t i = start + 1;
    while (i < count && !order_less(sort, &items[i], &items[i - 1]))
        i++;
    return i;
}

static void merge_runs(const struct order_sort *sort, const struct td_order *from, size_t begin, size_t middle,
                       size_t end, struct td_order *to)
{
    size_t left = begin;
    size_t right = middle;
    for (size_t i = begin; i < end; i++) {
        if (right == end || (left < middle && !order_less(sort, &from[right], &from[left])))
            to[i] = from[left++];
        else
            to[i] = from[right++];
    }
}

/* Merges every two neighbouring runs of `from` into one run of `to`. Returns how many runs are left. */
static size_t merge_pass(const struct order_sort *sort, const struct td_order *from, size_t count, struct td_order *to)
{
    size_t runs = 0;
    for (size_t begin = 0; begin < count; runs++) {
        size_t middle = run_end(sort, from, count, begin);
        size_t end = middle < count ? run_end(sort, from, count, middle) : count;
        merge_runs(sort, from, begin, middle, end, to);
        begin = end;
    }
    return runs;
}

bool td_order_sort(struct td_order *items, size_t count, int (*tie)(const void *context, size_t a, size_t b),
                   const void *context, struct td_error *err)
{
    struct order_sort sort = {.tie = tie, .context = context};
    if (count < 2 || run_end(&sort, items, count, 0) == count)
        return true;
    size_t bytes;
    struct td_order *scratch = td_mul_size(count, sizeof *items, &bytes) ? malloc(bytes) : NULL;
    if (scratch == NULL)
        return td_error_no_memory(err);
    struct td_order *from = items;
    struct td_order *to = scratch;
    size_t runs;
    do {
        runs = merge_pass(&sort, from, count, to);
        struct td_order *swap = from;
        from = to;
        to = swap;
    } while (runs > 1);
    if (from != items)
        memcpy(items, from, bytes);
    free(scratch);
    return true;
}

static int names_tie(const void *context, size_t a, size_t b)
{
    const struct td_names *names = context;
    struct td_text left = names->get(names->context, a);
    struct td_text right = names->get(names->context, b);
    return td_text_compare(left, right);
}

static bool names_in_order(const struct td_names *names)
{
    for (size_t i = 1; i < names->count; i++)
        if (names_tie(names, i - 1, i) > 0)
            return false;
    return true;
}

/* Returns the length of the prefix that all names share ("model.layers."), which does not matter for the order. */
static size_t common_prefix(const struct td_names *names)
{
    struct td_text first = names->get(names->context, 0);
    size_t common = first.len;
    for (size_t i = 1; i < names->count && common > 0; i++) {
        struct td_text name = names->get(names->context, i);
        size_t same = 0;
        while (same < common && same < name.len && name.p[same] == first.p[same])
            same++;
        common = same;
    }
    return common;
}

/* Returns the first 8 bytes as a big-endian number, with zeros past the end. Its order is the order of the bytes,
 * because no name holds a NUL. */
static uint64_t name_key(struct td_text name)
{
    uint64_t key = 0;
    for (size_t i = 0; i < sizeof key; i++)
        key = key << 8 | (i < name.len ? (uint8_t)name.p[i] : 0);
    return key;
}

bool td_names_order(const struct td_names *names, struct td_order **order, struct td_error *err)
{
    *order = NULL;
    if (names->count < 2 || names_in_order(names))
        return true;
    size_t bytes;
    struct td_order *items = td_mul_size(names->count, sizeof *items, &bytes) ? malloc(bytes) : NULL;
    if (items == NULL)
        return td_error_no_memory(err);
    size_t common = common_prefix(names);
    for (size_t i = 0; i < names->count; i++) {
        struct td_text name = names->get(names->context, i);
        items[i] = (struct td_order){.key = name_key(td_text_skip(name, common)), .index = i};
    }
    if (!td_order_sort(items, names->count, names_tie, names, err)) {
        free(items);
        return false;
    }
    *order = items;
    return true;
}

void td_order_apply(struct td_order *order, size_t count, void *base, size_t size)
{
    unsigned char *items = base;
    unsigned char held[128];
    for (size_t start = 0; order != NULL && start < count; start++) {
        if (order[start].index == start)
            continue;
        /* Moves one cycle of the permutation, and marks each of its items as being at its place. */
        memcpy(held, items + start * size, size);
        size_t to = start;
        for (size_t from = order[to].index; from != start; from = order[to].index) {
            memcpy(items + to * size, items + from * size, size);
            order[to].index = to;
            to = from;
        }
        memcpy(items + to * size, held, size);
        order[to].index = to;
    }
}

bool td_names_sort(const struct td_names *names, void *base, size_t size, struct td_error *err)
{
    struct td_order *order;
    if (!td_names_order(names, &order, err))
        return false;
    td_order_apply(order, names->count, base, size);
    free(order);
    return true;
}

size_t td_names_duplicate(const struct td_names *names, const struct td_order *order)
{
    for (size_t i = 1; i < names->count; i++)
        if (names_tie(names, td_order_place(order, i - 1), td_order_place(order, i)) == 0)
            return td_order_place(order, i);
    return names->count;
}

/* Does what td_names_search does with the names in this order. */
static size_t search_in_order(const struct td_names *names, const struct td_order *order, struct td_text name,
                              bool *found)
{
    size_t low = 0;
    size_t high = names->count;
    bool met = false; /* whether the name at `high` is the name itself */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct td_text here = names->get(names->context, td_order_place(order, middle));
        int compared = td_text_compare(here, name);
        if (compared < 0) {
            low = middle + 1;
        } else {
            high = middle;
            met = compared == 0;
        }
    }
    if (found != NULL)
        *found = met;
    return low;
}

size_t td_names_search(const struct td_names *names, struct td_text name, bool *found)
{
    return search_in_order(names, NULL, name, found);
}

bool td_names_distinct(const struct td_names *names, struct td_arena *arena, const char ***distinct,
                       size_t *distinct_count, uint32_t *number, struct td_error *err)
{
    struct td_order *order;
    *distinct_count = 0;
    if (!td_names_order(names, &order, err))
        return false;
    *distinct = td_arena_array(arena, names->count, sizeof **distinct);
    bool ok = *distinct != NULL;
    for (size_t i = 0; ok && i < names->count; i++) {
        size_t here = td_order_place(order, i);
        if (i == 0 || names_tie(names, td_order_place(order, i - 1), here) != 0) {
            struct td_text name = names->get(names->context, here);
            (*distinct)[*distinct_count] = td_arena_strndup(arena, name);
            ok = (*distinct)[(*distinct_count)++] != NULL;
        }
        number[here] = (uint32_t)(*distinct_count - 1);
    }
    free(order);
    return ok || td_error_no_memory(err);
}

/* Makes the name with the next free number after *number. A number that was tried for a name is not tried again, and
 * two different names never become the same, because a number has no '#'. So each name of the list is in the way once.
 */
static bool number_name(const struct td_names *names, const struct td_order *order, size_t at, struct td_arena *arena,
                        size_t *number, struct td_text *fresh)
{
    enum { SUFFIX_MAX = 24 };
    struct td_text name = names->get(names->context, at);
    char *text = td_arena_array(arena, 1, name.len + SUFFIX_MAX);
    if (text == NULL)
        return false;
    memcpy(text, name.p, name.len);
    fresh->p = text;
    bool is_taken;
    do {
        ++*number;
        fresh->len = name.len + (size_t)snprintf(text + name.len, SUFFIX_MAX, "#%zu", *number);
        (void)search_in_order(names, order, td_text_n(text, fresh->len), &is_taken);
    } while (is_taken);
    return true;
}

bool td_names_number_repeated(const struct td_names *names, struct td_arena *arena, struct td_text **fresh,
                              struct td_error *err)
{
    struct td_order *order;
    size_t number = 1;
    bool ok = true;
    *fresh = NULL;
    if (!td_names_order(names, &order, err))
        return false;
    if (td_names_duplicate(names, order) < names->count) {
        *fresh = calloc(names->count, sizeof **fresh);
        ok = *fresh != NULL;
    }
    for (size_t i = 1; ok && *fresh != NULL && i < names->count; i++) {
        size_t here = td_order_place(order, i);
        if (names_tie(names, td_order_place(order, i - 1), here) != 0)
            number = 1;
        else
            ok = number_name(names, order, here, arena, &number, &(*fresh)[here]);
    }
    free(order);
    if (ok)
        return true;
    free(*fresh);
    *fresh = NULL;
    return td_error_no_memory(err);
}

bool td_is_plain_file_name(struct td_text text)
{
    bool dots = (text.len == 1 && text.p[0] == '.') || (text.len == 2 && text.p[0] == '.' && text.p[1] == '.');
    return text.len > 0 && !dots && memchr(text.p, '/', text.len) == NULL && memchr(text.p, '\0', text.len) == NULL;
}

bool td_is_path_below(struct td_text text)
{
    bool ok = text.len > 0 && text.p[text.len - 1] != '/';
    while (ok && text.len > 0)
        ok = td_is_plain_file_name(td_text_take_until(&text, '/'));
    return ok;
}

bool td_path_clean(char *path)
{
    char *out = path;
    const char *p = path;
    if (*p == '/')
        return false;
    while (*p != '\0') {
        size_t len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.')
            return false;
        if (len > 0 && !(len == 1 && p[0] == '.')) {
            if (out > path)
                *out++ = '/';
            memmove(out, p, len);
            out += len;
        }
        p += len;
        p += *p == '/' ? 1 : 0;
    }
    *out = '\0';
    return out > path;
}
