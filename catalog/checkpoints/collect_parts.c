#include "catalog/checkpoints/collect_parts.h"

#include "catalog/checkpoints/weights_name.h"
#include "catalog/model/box_checkpoint.h"
#include "parser/safetensors.h"

#include <stdio.h>
#include <stdlib.h>

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
        td_unit_remove(b);
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
