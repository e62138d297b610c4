#include "catalog/checkpoints/checkpoint_unit.h"

#include "catalog/checkpoints/weights_name.h"
#include "catalog/model/box_checkpoint.h"
#include "core/array.h"
#include "core/text.h"
#include "parser/format/names.h"
#include "parser/safetensors.h"

#include <stdio.h>
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

/* Frees the last unit. */
static void remove_unit(struct td_unit_builder *b)
{
    free(b->units[--b->unit_count].parts);
}

const struct td_model *td_units_previous_model(const struct td_unit_builder *b)
{
    const char *id = b->model->id;
    return b->previous == NULL ? NULL : td_snapshot_find_model(b->previous, td_text_of(id));
}

struct td_joined_tensors *td_units_previous_join(const struct td_unit_builder *b, const struct td_unit *unit)
{
    const struct td_model *before = td_units_previous_model(b);
    return before == NULL
               ? NULL
               : td_shards_find_join(before->checkpoints, before->checkpoint_count, unit->parts, unit->part_count);
}

/* ---- files that hold parts of tensors ------------------------------------------------------------------ */

static const char rank_reason[] = "it is one rank's part of the tensors, and nothing says how the parts are joined";

/* Claims the file and sets it aside as a rank part. */
static bool set_aside_part(struct td_unit_builder *b, size_t i, const char *reason)
{
    const struct td_candidate *candidate = &b->candidates[i];
    b->claimed[i] = true;
    if (b->first_part == NULL)
        b->first_part = candidate->path;
    b->rank_part_count++;
    if (!td_candidate_is_usable(candidate))
        return true;
    if (td_unit_add(b, td_base_name(candidate->path), 1) == NULL)
        return false;
    struct td_unit *aside = td_unit_set_aside(b);
    if (aside == NULL)
        return false;
    aside->part_reason = reason;
    aside->parts[aside->part_count++] = candidate->entry;
    return true;
}

/* Returns whether the candidate holds boxes of tensors and no set has claimed it yet. */
static bool has_boxes(const struct td_unit_builder *b, size_t i)
{
    const struct td_candidate *candidate = &b->candidates[i];
    return !b->claimed[i] && td_candidate_is_usable(candidate) && candidate->entry->file->manifest.starts != NULL;
}

bool td_collect_boxes(struct td_unit_builder *b)
{
    static const char reason[] = "it holds boxes of the tensors, and the boxes in other files do not make them whole";
    struct td_unit *unit = NULL;
    const char *unfilled = NULL;
    char message[512];
    for (size_t i = 0; i < b->count; i++) {
        const struct td_candidate *candidate = &b->candidates[i];
        if (!has_boxes(b, i))
            continue;
        unit = unit != NULL ? unit : td_unit_add(b, td_base_name(candidate->path), b->count);
        if (unit == NULL)
            return false;
        unit->parts[unit->part_count++] = candidate->entry;
    }
    if (unit == NULL)
        return true;
    struct td_joined_tensors *before = td_units_previous_join(b, unit);
    unit->boxes = before != NULL ? td_joined_tensors_ref(before)
                                 : td_boxes_join(unit->parts, unit->part_count, &unfilled, b->err);
    bool is_whole = unit->boxes != NULL;
    if (!is_whole)
        remove_unit(b);
    if (!is_whole && unfilled == NULL)
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < b->count; i++) {
        if (!has_boxes(b, i))
            continue;
        b->claimed[i] = true;
        ok = is_whole || set_aside_part(b, i, reason);
    }
    if (is_whole || !ok)
        return ok;
    (void)snprintf(
        message, sizeof message,
        "tensor \"%.200s\" is not whole: the boxes in these files do not fill it, so this sharded checkpoint is "
        "not published",
        unfilled);
    td_units_problem(b, b->first_part, message);
    return true;
}

/* Returns whether the numbered files are rank parts. They are not if all are safetensors files and share no tensor
 * name: engines read such files together. Sets *ok to false when memory is short. */
static bool are_numbered_parts(struct td_unit_builder *b, bool *ok)
{
    const struct td_entry **parts = calloc(b->count + 1, sizeof *parts);
    bool is_safetensors = true;
    size_t count = 0;
    *ok = parts != NULL || td_error_no_memory(b->err);
    if (parts == NULL)
        return false;
    for (size_t i = 0; i < b->count; i++) {
        const struct td_candidate *candidate = &b->candidates[i];
        if (b->claimed[i] || candidate->part != TD_CANDIDATE_NUMBERED || !td_candidate_is_usable(candidate))
            continue;
        is_safetensors = is_safetensors && candidate->entry->file->format == &td_format_safetensors;
        parts[count++] = candidate->entry;
    }
    struct td_checkpoint all = {.parts = parts, .part_count = count};
    *ok = td_shards_merge(&all, b->err);
    bool are_parts = *ok && (!is_safetensors || td_shards_duplicate(&all) > 0);
    free(all.refs);
    free(parts);
    return are_parts;
}

bool td_collect_rank_parts(struct td_unit_builder *b)
{
    bool ok;
    bool are_numbered = are_numbered_parts(b, &ok);
    for (size_t i = 0; ok && i < b->count; i++) {
        enum td_candidate_part part = b->candidates[i].part;
        bool is_part = part == TD_CANDIDATE_RANK || (part == TD_CANDIDATE_NUMBERED && are_numbered);
        if (is_part && !b->claimed[i] && b->candidates[i].kind == TD_FILE_TENSORS)
            ok = set_aside_part(b, i, rank_reason);
    }
    return ok;
}

bool td_collect_beside_parts(struct td_unit_builder *b)
{
    static const char reason[] = "it is beside parts of ranks, and holds what a trainer saves beside the model";
    for (size_t i = 0; b->rank_part_count > 0 && i < b->count; i++) {
        const struct td_candidate *candidate = &b->candidates[i];
        if (b->claimed[i] || candidate->kind != TD_FILE_TENSORS || !td_candidate_is_usable(candidate))
            continue;
        bool is_empty = candidate->entry->file->manifest.tensor_count == 0;
        if ((is_empty || td_weights_is_trainer_state(td_base_name(candidate->path))) && !set_aside_part(b, i, reason))
            return false;
    }
    return true;
}

void td_report_parts(struct td_unit_builder *b)
{
    if (b->rank_part_count == 0 || (b->model->checkpoint_count > 0 && b->model->checkpoints[0].tensor_count > 0))
        return;
    td_units_problem(
        b, b->first_part,
        "it holds one rank's part of the tensors, and nothing says how the parts are joined; so the model has no "
        "default checkpoint");
}
