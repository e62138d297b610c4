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
