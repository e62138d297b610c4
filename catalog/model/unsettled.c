#include "catalog/model/unsettled.h"

#include "core/array.h"
#include "parser/format/names.h"

#include <stdlib.h>
#include <string.h>

void td_unsettled_list_fini(struct td_unsettled_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i].path);
    free(list->items);
    memset(list, 0, sizeof *list);
}

static struct td_text unsettled_path(const void *context, size_t i)
{
    const char *path = ((const struct td_unsettled *)context)[i].path;
    return td_text_of(path);
}

const struct td_unsettled *td_unsettled_find(const struct td_unsettled_list *list, const char *path)
{
    struct td_names names = {.count = list->count, .context = list->items, .get = unsettled_path};
    bool found;
    size_t at = td_names_search(&names, td_text_of(path), &found);
    return found ? &list->items[at] : NULL;
}

bool td_unsettled_add(struct td_unsettled_list *list, const struct td_unsettled *file, const char *path,
                      struct td_error *err)
{
    if (!TD_ARRAY_GROW(list->items, list->count, list->capacity, err))
        return false;
    char *copy = strdup(path);
    if (copy == NULL)
        return td_error_no_memory(err);
    list->items[list->count] = *file;
    list->items[list->count++].path = copy;
    return true;
}

void td_unsettled_facts_add(struct td_unsettled_facts *facts, bool is_pending, bool is_racy, uint64_t due_ns)
{
    facts->count++;
    facts->pending_count += is_pending ? 1 : 0;
    facts->racy_count += is_racy ? 1 : 0;
    if (facts->next_due_ns == 0 || due_ns < facts->next_due_ns)
        facts->next_due_ns = due_ns;
}

bool td_unsettled_facts_set_paths(struct td_unsettled_facts *facts, const struct td_unsettled_list *list,
                                  struct td_arena *arena, struct td_error *err)
{
    if (list->count == 0)
        return true;
    const char **paths = td_arena_alloc(arena, list->count * sizeof *paths);
    if (paths == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < list->count; i++) {
        paths[i] = td_arena_strndup(arena, td_text_of(list->items[i].path));
        if (paths[i] == NULL)
            return td_error_no_memory(err);
    }
    facts->paths = paths;
    return true;
}

bool td_unsettled_facts_equal(const struct td_unsettled_facts *a, const struct td_unsettled_facts *b)
{
    size_t i = 0;
    while (i < a->count && i < b->count && strcmp(a->paths[i], b->paths[i]) == 0)
        i++;
    return i == a->count && i == b->count;
}
