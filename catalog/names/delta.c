#include "catalog/names/delta.h"

#include "core/digits.h"

#include <stdlib.h>
#include <string.h>

/* A model whose folder has the name of a version. */
struct version {
    struct td_text parent; /* the folder above; empty: the root */
    struct td_text name;   /* the end of the model's id */
    uint64_t number;
};

struct versions {
    struct version *items;
    size_t count;
};

/* Reads the model's folder as a version. Returns false for a model that is no folder, or a snapshot of a cache. */
static bool read_version(const struct td_model *model, const struct td_version_prefixes *more, struct version *out)
{
    if (model->directory_len == 0 || model->revision != NULL)
        return false;
    const char *name = td_base_name(model->id);
    *out = (struct version){.name = td_text_of(name)};
    if (name > model->id)
        out->parent = td_text_n(model->id, (size_t)(name - model->id) - 1);
    return td_version_name_parse(out->name, more, &out->number);
}

static int compare_numbers(const struct version *x, const struct version *y)
{
    int order = td_text_compare(x->parent, y->parent);
    return order != 0 ? order : (x->number > y->number) - (x->number < y->number);
}

static int version_compare(const void *a, const void *b)
{
    const struct version *x = a;
    const struct version *y = b;
    int order = compare_numbers(x, y);
    return order != 0 ? order : td_text_compare(x->name, y->name);
}

/* Returns the name without the digits at its end. */
static struct td_text prefix_of(struct td_text name)
{
    while (name.len > 0 && td_is_digit(name.p[name.len - 1]))
        name.len--;
    return name;
}

/* Returns the name of the version that the delta `own` changes; NULL when no version beside it has the number. */
static const char *find_base(const struct versions *versions, const struct version *own, uint64_t number)
{
    const struct version wanted = {.parent = own->parent, .number = number};
    const char *found = NULL;
    size_t first = 0;
    for (size_t end = versions->count; first < end;) {
        size_t middle = first + (end - first) / 2;
        if (compare_numbers(&versions->items[middle], &wanted) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    for (size_t i = first; i < versions->count && compare_numbers(&versions->items[i], &wanted) == 0; i++) {
        const struct version *version = &versions->items[i];
        if (td_text_compare(version->name, own->name) == 0)
            continue;
        if (td_text_compare(prefix_of(version->name), prefix_of(own->name)) == 0)
            return version->name.p;
        found = found == NULL ? version->name.p : found;
    }
    return found;
}

/* Sets the model's base. */
static void set_base(const struct td_snapshot *snapshot, struct td_model *model, const struct versions *versions,
                     const struct td_version_prefixes *more)
{
    const struct td_entry *entry = td_model_find_file(snapshot, model, TD_TEXT(TD_SAFETENSORS_INDEX_NAME));
    const char *text = entry == NULL ? NULL : entry->file->index.base_version;
    struct version own;
    uint64_t number;
    model->base = text;
    if (text == NULL || !td_version_name_parse(td_text_of(text), more, &number) || !read_version(model, more, &own))
        return;
    const char *name = find_base(versions, &own, number);
    model->base = name == NULL ? text : name;
}

bool td_deltas_find_bases(struct td_snapshot *snapshot, const struct td_version_prefixes *more, struct td_error *err)
{
    struct versions versions = {.items = NULL};
    bool has_delta = false;
    for (size_t i = 0; i < snapshot->model_count && !has_delta; i++)
        has_delta = snapshot->models[i].is_delta;
    if (!has_delta)
        return true;
    versions.items = calloc(snapshot->model_count, sizeof *versions.items);
    if (versions.items == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < snapshot->model_count; i++)
        if (read_version(&snapshot->models[i], more, &versions.items[versions.count]))
            versions.count++;
    if (versions.count > 0)
        qsort(versions.items, versions.count, sizeof *versions.items, version_compare);
    for (size_t i = 0; i < snapshot->model_count; i++)
        if (snapshot->models[i].is_delta)
            set_base(snapshot, &snapshot->models[i], &versions, more);
    free(versions.items);
    return true;
}
