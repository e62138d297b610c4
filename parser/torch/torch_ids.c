#include "parser/torch/torch_ids.h"

#include "parser/format/manifest.h"
#include "parser/format/names.h"

#include <stdlib.h>

static struct td_text storage_key(const void *context, size_t i)
{
    const struct td_torch_storage *storages = context;
    return td_text_n(storages[i].key, storages[i].key_len);
}

static struct td_text view_key(const void *context, size_t i)
{
    const struct td_torch_storage *storages = context;
    return td_text_n(storages[i].view_key, storages[i].view_key_len);
}

static bool same_key(const struct td_torch_storage *a, const struct td_torch_storage *b)
{
    return td_text_compare(td_text_n(a->key, a->key_len), td_text_n(b->key, b->key_len)) == 0;
}

static bool refuse_storage(const struct td_pickle *pickle, const struct td_torch_storage *storage, const char *what,
                           struct td_error *err)
{
    return td_error_at(err, TD_INVALID_ARGUMENT, td_pickle_position(pickle, storage->ref), "storage \"%.*s\" %s",
                       (int)(storage->key_len < 96 ? storage->key_len : 96), storage->key, what);
}

/* Reads every id once: many values share one tuple. */
static bool read_all(struct td_torch_ids *ids, struct td_pickle *pickle, bool is_legacy, struct td_error *err)
{
    for (td_pickle_ref ref = 1; ref <= pickle->value_count; ref++) {
        struct td_torch_storage *storage = &ids->storages[ids->count];
        bool is_storage;
        if (!td_pickle_mark(pickle, td_pickle_persistent(pickle, ref)))
            continue;
        if (!td_torch_storage_read(pickle, ref, &is_storage, storage, err))
            return false;
        if (!is_legacy && (!is_storage || storage->is_view))
            return td_torch_refuse(err, pickle, ref, "a persistent id is not ('storage', ...)");
        ids->count += is_storage ? 1 : 0;
    }
    return true;
}

static bool sort_storages(struct td_torch_storage *storages, size_t count,
                          struct td_text (*key)(const void *context, size_t i), struct td_error *err)
{
    struct td_names names = {.count = count, .context = storages, .get = key};
    return td_names_sort(&names, storages, sizeof *storages, err);
}

/* Refuses a view whose key is also that of a storage or of a different view: torch keeps both kinds under one set of
 * keys. */
static bool check_views(const struct td_torch_ids *ids, const struct td_pickle *pickle, struct td_torch_storage *views,
                        size_t count, struct td_error *err)
{
    if (!sort_storages(views, count, view_key, err))
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct td_torch_storage *here = &views[i];
        const struct td_torch_storage *before = i > 0 ? &views[i - 1] : here;
        bool is_same = same_key(before, here) && before->view_offset == here->view_offset &&
                       before->view_numel == here->view_numel;
        if (!is_same && td_text_compare(td_text_n(before->view_key, before->view_key_len),
                                        td_text_n(here->view_key, here->view_key_len)) == 0)
            return refuse_storage(pickle, here, "has a view with the key of another view", err);
        if (td_torch_ids_find(ids, td_text_n(here->view_key, here->view_key_len)) < ids->count)
            return refuse_storage(pickle, here, "has a view with the key of a storage", err);
    }
    return true;
}

/* Keeps one storage of each key, and copies the *view_count views to `views`. */
static bool merge_views(struct td_torch_ids *ids, const struct td_pickle *pickle, struct td_torch_storage *views,
                        size_t *view_count, struct td_error *err)
{
    size_t kept = 0;
    *view_count = 0;
    for (size_t i = 0; i < ids->count; i++) {
        const struct td_torch_storage *here = &ids->storages[i];
        const struct td_torch_storage *before = kept > 0 ? &ids->storages[kept - 1] : NULL;
        if (here->is_view)
            views[(*view_count)++] = *here;
        if (before == NULL || !same_key(before, here))
            ids->storages[kept++] = *here;
        else if (before->dtype != here->dtype || before->numel != here->numel)
            return refuse_storage(pickle, here, "is said to have two types or two sizes", err);
    }
    ids->count = kept;
    return true;
}

static bool read_and_check(struct td_torch_ids *ids, struct td_pickle *pickle, bool is_legacy,
                           struct td_torch_storage *views, struct td_error *err)
{
    size_t view_count;
    return read_all(ids, pickle, is_legacy, err) && sort_storages(ids->storages, ids->count, storage_key, err) &&
           merge_views(ids, pickle, views, &view_count, err) && check_views(ids, pickle, views, view_count, err);
}

bool td_torch_ids_read(struct td_torch_ids *ids, struct td_pickle *pickle, bool is_legacy, struct td_arena *budget,
                       struct td_error *err)
{
    size_t count = 1; /* room for one more, which may turn out to be a module's id */
    *ids = (struct td_torch_ids){0};
    for (td_pickle_ref ref = 1; ref <= pickle->value_count; ref++)
        count += td_pickle_mark(pickle, td_pickle_persistent(pickle, ref)) ? 1 : 0;
    td_pickle_unmark_all(pickle);
    /* the storages, their views, and what sorting takes */
    if (!td_arena_claim(budget, count * 2 * (sizeof *ids->storages + sizeof(struct td_order))))
        return td_error_no_memory(err);
    struct td_torch_storage *views = malloc(count * sizeof *views);
    ids->storages = malloc(count * sizeof *ids->storages);
    bool ok = views != NULL && ids->storages != NULL ? read_and_check(ids, pickle, is_legacy, views, err)
                                                     : td_error_no_memory(err);
    free(views);
    td_pickle_unmark_all(pickle);
    return ok;
}

void td_torch_ids_fini(struct td_torch_ids *ids)
{
    free(ids->storages);
    *ids = (struct td_torch_ids){0};
}

size_t td_torch_ids_find(const struct td_torch_ids *ids, struct td_text key)
{
    struct td_names keys = {.count = ids->count, .context = ids->storages, .get = storage_key};
    bool found;
    size_t at = td_names_search(&keys, key, &found);
    return found ? at : ids->count;
}
