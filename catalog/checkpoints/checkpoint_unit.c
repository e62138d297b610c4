#include "catalog/checkpoints/checkpoint_unit.h"

#include "core/array.h"
#include "core/text.h"
#include "parser/format/names.h"

#include <stdlib.h>
#include <string.h>

/* transformers gives pytorch_model its meaning; other .bin files have none. */
enum td_family td_family_of(const char *name)
{
    bool index = td_file_kind_of(name) == TD_FILE_SHARD_INDEX;
    if (index ? strstr(name, ".safetensors.index.") != NULL : td_has_extension(name, ".safetensors"))
        return TD_FAMILY_SAFETENSORS;
    bool model = strncmp(name, "pytorch_model", strlen("pytorch_model")) == 0;
    return model && (index || td_has_extension(name, ".bin")) ? TD_FAMILY_PYTORCH : TD_FAMILY_OTHER;
}

void td_units_problem(struct td_unit_builder *b, const char *path, const char *message)
{
    td_problems_add(&b->model->problems, &b->snapshot->arena, td_base_name(path), message);
}

/* Returns the place for one more unit, or NULL for want of memory. */
static struct td_unit *units_next(struct td_unit **units, size_t count, size_t *capacity, struct td_error *err)
{
    return TD_ARRAY_GROW(*units, count, *capacity, err) ? *units + count : NULL;
}

struct td_unit *td_unit_add(struct td_unit_builder *b, const char *name, size_t capacity)
{
    struct td_unit *unit = units_next(&b->units, b->unit_count, &b->unit_capacity, b->err);
    if (unit == NULL)
        return NULL;
    struct td_unit new_unit = {.family = td_family_of(name),
                               .name = td_arena_strndup(&b->snapshot->arena, td_text_of(name)),
                               .parts = calloc(capacity + 1, sizeof(*new_unit.parts))};
    if (new_unit.parts == NULL || new_unit.name == NULL) {
        free(new_unit.parts);
        (void)td_error_no_memory(b->err);
        return NULL;
    }
    *unit = new_unit;
    b->unit_count++;
    return unit;
}

struct td_unit *td_unit_set_aside(struct td_unit_builder *b)
{
    struct td_unit *aside = units_next(&b->asides, b->aside_count, &b->aside_capacity, b->err);
    if (aside == NULL)
        return NULL;
    b->aside_count++;
    *aside = b->units[--b->unit_count];
    aside->part_count = 0;
    return aside;
}

static struct td_text candidate_name(const void *context, size_t i)
{
    const char *name = td_base_name(((const struct td_candidate *)context)[i].path);
    return td_text_of(name);
}

/* Candidates of one directory share a prefix, so they are sorted by base name. */
size_t td_units_find(const struct td_unit_builder *b, const char *name)
{
    struct td_names names = {.count = b->count, .context = b->candidates, .get = candidate_name};
    bool found;
    size_t at = td_names_search(&names, td_text_of(name), &found);
    return found ? at : SIZE_MAX;
}

void td_unit_remove(struct td_unit_builder *b)
{
    free(b->units[--b->unit_count].parts);
}

const struct td_model *td_units_previous_model(const struct td_unit_builder *b)
{
    const char *id = b->model->id;
    return b->previous == NULL ? NULL : td_snapshot_find_model(b->previous, td_text_of(id));
}

static bool same_files(const struct td_checkpoint *checkpoint, const struct td_unit *unit)
{
    bool same = checkpoint->part_count == unit->part_count;
    for (size_t i = 0; same && i < unit->part_count; i++)
        same = checkpoint->parts[i]->file == unit->parts[i]->file;
    return same;
}

struct td_joined_tensors *td_units_previous_join(const struct td_unit_builder *b, const struct td_unit *unit)
{
    const struct td_model *before = td_units_previous_model(b);
    for (size_t i = 0; before != NULL && i < before->checkpoint_count; i++)
        if (before->checkpoints[i].join != NULL && same_files(&before->checkpoints[i], unit))
            return before->checkpoints[i].join;
    return NULL;
}
