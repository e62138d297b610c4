#include "core/array.h"

#include "core/checked.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_CAPACITY = 4 };

size_t td_array_next_capacity(size_t capacity, size_t wanted)
{
    size_t next;
    if (!td_add_size(capacity, capacity / 2, &next))
        next = SIZE_MAX;
    if (next < LEAST_CAPACITY)
        next = LEAST_CAPACITY;
    return next < wanted ? wanted : next;
}

bool td_array_reserve(void *items, size_t *capacity, size_t wanted, size_t item_bytes, struct td_budget *budget,
                      struct td_error *err)
{
    if (wanted <= *capacity)
        return true;
    size_t next = td_array_next_capacity(*capacity, wanted);
    size_t bytes;
    if (!td_mul_size(next, item_bytes, &bytes))
        return td_error_no_memory(err);
    size_t added = bytes - *capacity * item_bytes;
    if (!td_budget_take(budget, added))
        return td_budget_refuse(budget, added, err);
    void *old;
    memcpy(&old, items, sizeof old); /* through memcpy, because the pointer may have any type */
    void *grown = realloc(old, bytes);
    if (grown == NULL) {
        td_budget_give(budget, added);
        return td_error_no_memory(err);
    }
    memcpy(items, &grown, sizeof grown);
    *capacity = next;
    return true;
}

size_t td_array_fill(void *array, size_t size, size_t *len, const void *bytes, size_t count)
{
    size_t room = size - *len;
    size_t added = count < room ? count : room;
    memcpy((char *)array + *len, bytes, added);
    *len += added;
    return added;
}
