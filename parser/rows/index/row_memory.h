/* Memory that one budget bounds, with errors that name the limit: of an index that is being made, or of an answer. A
 * budget's max_bytes is the limit, its `what` the subject of the sentence ("an index of rows"). */
#ifndef TD_PARSER_ROWS_INDEX_ROW_MEMORY_H
#define TD_PARSER_ROWS_INDEX_ROW_MEMORY_H

#include "core/array.h"
#include "core/budget.h"
#include "core/buffer.h"

#include <stdlib.h>

/* Records TD_RESOURCE_EXHAUSTED with the limit. Returns false. */
static inline bool td_row_memory_refuse(const struct td_budget *budget, struct td_error *err)
{
    return td_error_set(err, TD_RESOURCE_EXHAUSTED, "%s would take more than %zu bytes of memory, the limit",
                        budget->what, budget->max_bytes);
}

/* Does what td_array_reserve does. Errors: TD_RESOURCE_EXHAUSTED. */
static inline bool td_row_memory_reserve(void *items, size_t *capacity, size_t wanted, size_t item_bytes,
                                         struct td_budget *budget, struct td_error *err)
{
    struct td_error inner = TD_ERROR_INIT;
    if (td_array_reserve(items, capacity, wanted, item_bytes, budget, &inner))
        return true;
    bool is_short =
        wanted > budget->max_bytes / item_bytes || td_array_next_capacity(*capacity, wanted) - *capacity >
                                                       (budget->max_bytes - td_budget_used(budget)) / item_bytes;
    return is_short ? td_row_memory_refuse(budget, err) : td_error_no_memory(err);
}

/* Frees an array of td_row_memory_reserve. */
static inline void td_row_memory_free(void *items, size_t capacity, size_t item_bytes, struct td_budget *budget)
{
    free(items);
    td_budget_give(budget, capacity * item_bytes);
}

/* Returns whether all appends to a buffer with a budget went well. Errors: TD_RESOURCE_EXHAUSTED. */
static inline bool td_row_memory_check(const struct td_buffer *buffer, struct td_error *err)
{
    if (!buffer->failed)
        return true;
    return buffer->lacked_bytes > 0 ? td_row_memory_refuse(buffer->budget, err) : td_error_no_memory(err);
}

/* Returns a copy of the text, which the caller frees with free(), or NULL when memory is short. */
static inline char *td_row_memory_copy(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    if (copy != NULL)
        memcpy(copy, text, bytes);
    return copy;
}

#endif
