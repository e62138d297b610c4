#include "catalog/upstream/remote_family.h"

#include "core/arena.h"

#include <stdlib.h>
#include <string.h>

enum { FAMILY_BYTES = 64 * 1024 * 1024 }; /* most memory of one */

static const char what[] = "the upstream's list of versions";

/* Returns a new family without versions, or NULL. */
static struct td_remote_family *begin(const char *id, struct td_budget *budget, struct td_error *err)
{
    struct td_remote_family *family = calloc(1, sizeof *family);
    if (family == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    atomic_init(&family->refs, 1);
    td_arena_init_budget(&family->arena, FAMILY_BYTES, budget);
    family->family.id = td_arena_strndup(&family->arena, td_text_of(id));
    family->family.list_state = &family->state;
    if (family->family.id != NULL)
        return family;
    (void)td_arena_refuse(&family->arena, what, err);
    td_remote_family_unref(family);
    return NULL;
}

/* Copies a text that may be NULL. Returns false when memory is short. */
static bool copy_text(struct td_arena *arena, const char *from, const char **out)
{
    *out = from == NULL ? NULL : td_arena_strndup(arena, td_text_of(from));
    return from == NULL || *out != NULL;
}

/* Copies the facts of a version, with `model` for its model. Returns false when memory is short. */
static bool copy_version(struct td_arena *arena, const struct td_version *from, struct td_model *model,
                         struct td_version *out)
{
    const char **refs = td_arena_array(arena, from->ref_count, sizeof *refs);
    bool ok = refs != NULL && copy_text(arena, from->name, &out->name) &&
              copy_text(arena, from->commit, &out->commit) && copy_text(arena, from->model->base, &model->base);
    for (size_t i = 0; ok && i < from->ref_count; i++)
        ok = copy_text(arena, from->refs[i], &refs[i]);
    if (!ok)
        return false;
    const char *base = model->base;
    *model = (struct td_model){.is_delta = from->model->is_delta,
                               .base = base,
                               .total_bytes = from->model->total_bytes,
                               .file_bytes = from->model->file_bytes,
                               .updated_ns = from->model->updated_ns,
                               .entry_count = from->model->entry_count};
    out->has_number = from->has_number;
    out->number = from->number;
    out->model = model;
    out->refs = refs;
    out->ref_count = from->ref_count;
    return true;
}

static int compare_versions(const void *a, const void *b)
{
    const struct td_version *x = a;
    const struct td_version *y = b;
    if (x->has_number != y->has_number)
        return x->has_number ? 1 : -1;
    return td_version_name_compare(x->number, td_text_of(x->name), y->number, td_text_of(y->name));
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns whether the names of all versions differ. Sets the error otherwise. */
static bool check_names(const struct td_family *family, struct td_error *err)
{
    const char **names = calloc(family->count + 1, sizeof *names);
    if (names == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < family->count; i++)
        names[i] = family->versions[i].name;
    if (family->count > 0)
        qsort(names, family->count, sizeof *names, compare_names);
    bool ok = true;
    for (size_t i = 1; ok && i < family->count; i++)
        if (strcmp(names[i], names[i - 1]) == 0)
            ok = td_error_set(err, TD_INVALID_ARGUMENT, "the upstream lists two versions \"%.100s\" of \"%.100s\"",
                              names[i], family->id);
    free(names);
    return ok;
}

/* Fills the family with copies of `count` versions, and sorts these. Returns false with an error. */
static bool fill(struct td_remote_family *family, const struct td_version *from, size_t count, struct td_error *err)
{
    struct td_arena *arena = &family->arena;
    struct td_version *versions = td_arena_array(arena, count, sizeof *versions);
    struct td_model *models = td_arena_array(arena, count, sizeof *models);
    bool ok = versions != NULL && models != NULL;
    for (size_t i = 0; ok && i < count; i++)
        ok = copy_version(arena, &from[i], &models[i], &versions[i]);
    if (!ok)
        return td_arena_refuse(arena, what, err);
    if (count > 0)
        qsort(versions, count, sizeof *versions, compare_versions);
    family->family.versions = versions;
    family->family.count = count;
    return check_names(&family->family, err) && td_family_list_aliases(&family->family, arena, err);
}

/* Returns the version with this name, or NULL. */
static const struct td_version *find_name(const struct td_family *family, const char *name)
{
    for (size_t i = family->count; i > 0; i--)
        if (strcmp(family->versions[i - 1].name, name) == 0)
            return &family->versions[i - 1];
    return NULL;
}

/* Copies the rows of a list as versions, whose texts are the list's. models: room for as many. */
static void read_rows(const struct td_remote_versions *list, struct td_version *versions, struct td_model *models,
                      bool *is_cache)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct td_remote_version *row = &list->items[i];
        models[i] = (struct td_model){.is_delta = row->is_delta,
                                      .base = row->base,
                                      .total_bytes = row->total_bytes,
                                      .file_bytes = row->file_bytes,
                                      .updated_ns = row->updated_ns,
                                      .entry_count = row->updated_ns != 0 ? 1 : 0 /* else it has no time */};
        versions[i] = (struct td_version){.name = row->name,
                                          .has_number = row->has_number,
                                          .number = row->number,
                                          .model = &models[i],
                                          .commit = row->commit,
                                          .refs = row->refs,
                                          .ref_count = row->ref_count};
        *is_cache = *is_cache || row->commit != NULL;
    }
}

bool td_remote_family_create(const char *id, const struct td_remote_versions *list, struct td_budget *budget,
                             struct td_remote_family **out, struct td_error *err)
{
    struct td_version *versions = calloc(list->count + 1, sizeof *versions);
    struct td_model *models = calloc(list->count + 1, sizeof *models);
    struct td_remote_family *made = begin(id, budget, err);
    bool ok = made != NULL && versions != NULL && models != NULL;
    if (ok) {
        read_rows(list, versions, models, &made->family.is_cache);
        ok = fill(made, versions, list->count, err);
    } else if (made != NULL) {
        (void)td_error_no_memory(err);
    }
    free(versions);
    free(models);
    if (ok && list->latest != NULL) {
        made->family.latest = find_name(&made->family, list->latest);
        ok = made->family.latest != NULL ||
             td_error_set(err, TD_INVALID_ARGUMENT, "the latest version of \"%.100s\" is not in the upstream's list",
                          id);
    }
    if (ok)
        *out = made;
    else
        td_remote_family_unref(made);
    return ok;
}

bool td_remote_family_filter(const struct td_remote_family *from,
                             bool (*shows)(const void *context, const struct td_version *version), const void *context,
                             struct td_remote_family **out, struct td_error *err)
{
    const struct td_family *family = &from->family;
    struct td_remote_family *made = begin(family->id, NULL, err);
    struct td_version *shown = calloc(family->count + 1, sizeof *shown);
    size_t count = 0;
    const char *latest = NULL;
    bool is_below = false; /* of the family's latest, or it */
    for (size_t i = family->count; made != NULL && shown != NULL && i > 0; i--) {
        const struct td_version *version = &family->versions[i - 1];
        is_below = is_below || version == family->latest;
        if (!shows(context, version))
            continue;
        shown[count++] = *version;
        if (latest == NULL && is_below && !version->model->is_delta)
            latest = version->name;
    }
    bool ok = made != NULL && shown != NULL && fill(made, shown, count, err);
    if (made != NULL && shown == NULL)
        (void)td_error_no_memory(err);
    free(shown);
    if (ok) {
        made->family.is_cache = family->is_cache;
        made->family.latest = latest == NULL ? NULL : find_name(&made->family, latest);
        *out = made;
    } else {
        td_remote_family_unref(made);
    }
    return ok;
}

struct td_remote_family *td_remote_family_ref(struct td_remote_family *family)
{
    atomic_fetch_add_explicit(&family->refs, 1, memory_order_relaxed);
    return family;
}

void td_remote_family_unref(struct td_remote_family *family)
{
    if (family == NULL || atomic_fetch_sub_explicit(&family->refs, 1, memory_order_acq_rel) > 1)
        return;
    free(atomic_load(&family->state));
    td_arena_fini(&family->arena);
    free(family);
}
