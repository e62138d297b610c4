#include "catalog/names/delta.h"

#include "catalog/model/file_kind.h"
#include "catalog/names/family.h"
#include "core/digits.h"

#include <inttypes.h>
#include <stdio.h>

/* Returns the name without the digits at its end. */
static struct td_text prefix_of(const char *name)
{
    struct td_text prefix = td_text_of(name);
    while (prefix.len > 0 && td_is_digit(prefix.p[prefix.len - 1]))
        prefix.len--;
    return prefix;
}

/* Returns the name of the family's version with this number, which `own` changes; NULL: there is none but `own`. */
static const char *find_base(const struct td_family *family, const struct td_version *own, uint64_t number)
{
    char text[TD_VERSION_DIGITS + 1];
    const struct td_version *version;
    const struct td_version *end = family->versions + family->count;
    const char *found = NULL;
    (void)snprintf(text, sizeof text, "%" PRIu64, number);
    if (td_family_find_version(family, td_text_of(text), &version) == TD_VERSION_UNKNOWN)
        return NULL;
    while (version > family->versions && version[-1].has_number && version[-1].number == number)
        version--;
    for (; version < end && version->has_number && version->number == number; version++) {
        if (version != own && td_text_compare(prefix_of(version->name), prefix_of(own->name)) == 0)
            return version->name;
        if (version != own && found == NULL)
            found = version->name;
    }
    return found;
}

/* Returns the number before the one in the name of a delta of SkyRL's trainer, delta-00000012, as a text; NULL for
 * another name, and without memory. The trainer writes each version for the one before. */
static const char *number_before(struct td_snapshot *snapshot, const struct td_model *model)
{
    struct td_text name = td_text_of(model->is_kept_version ? model->revision : td_base_name(model->id));
    const struct td_text prefix = TD_TEXT("delta-");
    uint64_t number = 0;
    char text[24];
    if (!td_text_begins(name, prefix) || !td_number_read(td_text_skip(name, prefix.len), UINT64_MAX, &number) ||
        number == 0)
        return NULL;
    (void)snprintf(text, sizeof text, "%" PRIu64, number - 1);
    return td_arena_strndup(&snapshot->arena, td_text_of(text));
}

/* Returns what a delta says of its base: its index, or without one its name; NULL if it says nothing. */
static const char *base_version_of(struct td_snapshot *snapshot, const struct td_model *model)
{
    const struct td_entry *entry = td_model_find_file(snapshot, model, TD_TEXT(TD_SAFETENSORS_INDEX_NAME));
    return entry == NULL ? number_before(snapshot, model) : entry->file->index.base_version;
}

void td_deltas_find_bases(struct td_snapshot *snapshot)
{
    const struct td_families *families = td_families_of(snapshot);
    for (size_t i = 0; i < snapshot->model_count; i++)
        if (snapshot->models[i].is_delta) /* a view's copy may have another base */
            snapshot->models[i].base = base_version_of(snapshot, &snapshot->models[i]);
    for (size_t i = 0; i < families->count; i++) {
        const struct td_family *family = &families->items[i];
        for (size_t k = 0; k < family->count; k++) {
            const struct td_version *own = &family->versions[k];
            uint64_t number;
            if (!own->model->is_delta || own->model->base == NULL ||
                !td_version_name_parse(td_text_of(own->model->base), families->prefixes, &number))
                continue;
            const char *name = find_base(family, own, number);
            if (name != NULL)
                snapshot->models[own->model - snapshot->models].base = name;
        }
    }
}
