/* Plan: a unit is a set of files that may become a checkpoint. The collect_* functions turn the candidates of one
 * directory into units (checkpoint_unit.h), in this order: indexes, a distributed checkpoint, boxes and ranks' parts
 * (checkpoint_unit.h), groups by name, single files. Each claims its files, so that no later step takes them. A unit
 * that lacks files becomes an "aside". publish_units() chooses the one unit of each family that gets the family's id
 * and makes checkpoints of all units; add_partials() makes incomplete checkpoints of the asides.
 *
 * What is hard: (1) ids: a group wants an id that no file, family or other group has, see request_id() and grant_ids().
 * (2) An index that cannot be read hides which files are its shards, so the whole family beside it is held back. (3)
 * Memory: a unit owns its `parts` until a checkpoint takes them; the tensors of joined checkpoints are shared with the
 * snapshot before, because making them takes long. */
#include "catalog/checkpoints/checkpoint.h"

#include "catalog/checkpoints/checkpoint_unit.h"
#include "catalog/checkpoints/partial_checkpoint.h"
#include "catalog/checkpoints/weights_name.h"
#include "catalog/model/box_checkpoint.h"
#include "catalog/model/dcp_checkpoint.h"
#include "catalog/model/external_data.h"
#include "catalog/model/plain_id.h"
#include "core/checked.h"
#include "core/text.h"
#include "parser/formats.h"
#include "parser/gguf.h"
#include "parser/safetensors.h"
#include "parser/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The id of each family, and the names of the files that are its default. */
static const struct {
    const char *id;
    const char *whole, *index; /* the files that are the default if they exist */
    const char *others[2];     /* the same for diffusers, which prefers the index; NULL: none */
    const struct td_format *format;
} families[] = {
    [TD_FAMILY_SAFETENSORS] = {"safetensors",
                               "model.safetensors",
                               TD_SAFETENSORS_INDEX_NAME,
                               {"diffusion_pytorch_model.safetensors.index.json",
                                "diffusion_pytorch_model.safetensors"},
                               &td_format_safetensors},
    [TD_FAMILY_PYTORCH] =
        {"pytorch", "pytorch_model.bin", "pytorch_model.bin.index.json", {NULL, NULL}, &td_format_torch},
};

static const char distributed_id[] = "dcp";

/* Returns whether the entry can be a shard. An index and a .metadata can be read, but hold no tensors. */
static bool has_tensors(const struct td_entry *entry)
{
    return td_entry_is_readable(entry) && entry->file->format != NULL;
}

/* ---- sharded by an index ------------------------------------------------------------------------------- */

/* Returns the entry at a path relative to the index's directory, or NULL. Sets *is_candidate to whether the file is a
 * candidate, and claims it then. A candidate that could not be opened has no entry. */
static const struct td_entry *index_file(struct td_unit_builder *b, const struct td_candidate *index, const char *file,
                                         bool *is_candidate)
{
    const size_t prefix_len = (size_t)(td_base_name(index->path) - index->path);
    size_t at = strchr(file, '/') == NULL ? td_units_find(b, file) : SIZE_MAX;
    size_t first = 0;
    size_t count = b->snapshot->entry_count;
    *is_candidate = at != SIZE_MAX;
    if (at != SIZE_MAX) {
        b->claimed[at] = true;
        return b->candidates[at].entry;
    }
    if (strchr(file, '/') == NULL)
        return NULL;
    if (prefix_len > 0)
        td_snapshot_entries_below(b->snapshot, td_text_n(index->path, prefix_len - 1), &first, &count);
    return td_snapshot_find_in_run(b->snapshot, first, count, prefix_len, td_text_of(file));
}

/* Finds a file that the index lists. Returns NULL and adds a problem, which says with `result` what follows, when it is
 * missing or refused. */
static const struct td_entry *find_shard(struct td_unit_builder *b, const struct td_candidate *index, const char *file,
                                         const char *result)
{
    char message[512];
    bool is_candidate;
    const struct td_entry *entry = index_file(b, index, file, &is_candidate);
    const char *fault = NULL;
    if (entry == NULL && !is_candidate)
        fault = "is not there";
    else if (!td_entry_is_readable(entry) && (is_candidate || entry->file->error != NULL))
        fault = "cannot be read";
    else if (!has_tensors(entry))
        fault = "holds no tensors";
    if (fault == NULL)
        return entry;
    (void)snprintf(message, sizeof message, "shard \"%.300s\" %s, so this %s", file, fault, result);
    td_units_problem(b, index->path, message);
    return NULL;
}

/* Adds the files of an index to the unit's parts. Returns false and adds a problem when one is missing or refused. */
static bool index_parts(struct td_unit_builder *b, const struct td_candidate *candidate, const char *const *files,
                        size_t file_count, struct td_unit *unit)
{
    bool complete = true;
    for (size_t i = 0; i < file_count; i++) {
        const struct td_entry *entry = find_shard(b, candidate, files[i], "sharded checkpoint is not published");
        if (entry != NULL)
            unit->parts[unit->part_count++] = entry;
        complete = complete && entry != NULL;
    }
    return complete;
}

static bool index_tensors_present(struct td_unit_builder *b, const struct td_candidate *candidate,
                                  const struct td_shard_index *index, const struct td_unit *unit)
{
    for (size_t i = 0; i < index->entry_count; i++) {
        const struct td_shard_entry *entry = &index->entries[i];
        if (td_manifest_find(&unit->parts[entry->file]->file->manifest, td_text_n(entry->tensor, entry->tensor_len)) !=
            NULL)
            continue;
        char message[512];
        (void)snprintf(message, sizeof message,
                       "tensor \"%.200s\" is not in shard \"%.200s\", so this sharded checkpoint is not published",
                       entry->tensor, index->files[entry->file]);
        td_units_problem(b, candidate->path, message);
        return false;
    }
    return true;
}

/* Claims the files beside indexes that cannot be read. Nobody knows which files are their shards, so of their family
 * only the file that is complete by its name is published. */
static void claim_beside_refused_indexes(struct td_unit_builder *b, const bool refused[TD_FAMILY_OTHER + 1])
{
    for (size_t i = 0; i < b->count; i++) {
        const char *name = td_base_name(b->candidates[i].path);
        enum td_family family = td_family_of(name);
        bool is_sibling = family != TD_FAMILY_OTHER && refused[family] && strcmp(name, families[family].whole) != 0;
        if (is_sibling || (refused[TD_FAMILY_OTHER] && (td_has_extension(name, ".bin") || td_shard_is_keras(name))))
            b->claimed[i] = true;
    }
}

/* Sets the last unit aside with the files of its index or .metadata, which is the candidate. In unit->parts, NULL
 * stands for a file that is not available. */
static bool set_aside_indexed(struct td_unit_builder *b, const struct td_candidate *candidate, const char *const *files,
                              size_t file_count)
{
    struct td_unit *unit = td_unit_set_aside(b);
    if (unit == NULL)
        return false;
    for (size_t i = 0; i < file_count; i++) {
        bool is_candidate;
        const struct td_entry *entry = index_file(b, candidate, files[i], &is_candidate);
        unit->parts[i] = has_tensors(entry) ? entry : NULL;
    }
    unit->part_count = file_count;
    return true;
}

static bool collect_indexes(struct td_unit_builder *b)
{
    bool refused[TD_FAMILY_OTHER + 1] = {false};
    bool any_refused = false;
    for (size_t i = 0; i < b->count; i++) { // NOLINT(clang-analyzer-unix.Malloc): the builder holds every unit
        const struct td_candidate *candidate = &b->candidates[i];
        if (candidate->kind != TD_FILE_SHARD_INDEX)
            continue;
        if (!td_candidate_is_usable(candidate)) {
            refused[td_family_of(td_base_name(candidate->path))] = any_refused = true;
            continue;
        }
        const struct td_shard_index *index = &candidate->entry->file->index;
        struct td_unit *unit = td_unit_add(b, td_base_name(candidate->path), index->file_count + 1);
        if (unit == NULL)
            return false;
        unit->index_entry = candidate->entry;
        if (index_parts(b, candidate, index->files, index->file_count, unit) &&
            index_tensors_present(b, candidate, index, unit))
            continue;
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the builder holds every unit
        if (!set_aside_indexed(b, candidate, index->files, index->file_count))
            return false;
    }
    if (any_refused)
        claim_beside_refused_indexes(b, refused);
    return true;
}

/* Claims the files that are shards of an index in a directory above. */
static void claim_shards_of_others(struct td_unit_builder *b)
{
    char message[512];
    bool is_reported = false;
    for (size_t i = 0; i < b->count; i++) {
        if (b->candidates[i].index == NULL)
            continue;
        b->claimed[i] = true;
        (void)snprintf(message, sizeof message, "a shard of \"%.300s\", and no checkpoint by itself",
                       b->candidates[i].index);
        if (!is_reported)
            td_units_problem(b, b->candidates[i].path, message);
        is_reported = true;
    }
}

/* ---- deltas -------------------------------------------------------------------------------------------- */

/* Marks the model as a delta if all its files of tensors are those of SkyRL's trainer, which writes manifest.json,
 * where all else is, as the last file: so the names say it at every moment. Returns whether it is one. */
static bool note_skyrl_delta(struct td_unit_builder *b)
{
    size_t payloads = 0;
    while (payloads < b->count && td_weights_name_is_skyrl_delta(td_base_name(b->candidates[payloads].path)))
        payloads++;
    b->model->is_delta = payloads > 0 && payloads == b->count;
    return b->model->is_delta;
}

/* Marks the model as a delta if its index says so. Returns whether it does: the shards then hold compressed changes,
 * and no file of the folder becomes a checkpoint. */
static bool note_delta(struct td_unit_builder *b)
{
    size_t at = td_units_find(b, families[TD_FAMILY_SAFETENSORS].index);
    const struct td_candidate *candidate = at == SIZE_MAX ? NULL : &b->candidates[at];
    if (candidate == NULL || !td_candidate_is_usable(candidate) || !candidate->entry->file->index.is_delta)
        return false;
    const struct td_shard_index *index = &candidate->entry->file->index;
    b->model->is_delta = true;
    b->model->base = index->base_version;
    for (size_t i = 0; i < index->file_count; i++)
        (void)find_shard(b, candidate, index->files[i], "delta cannot be applied");
    return true;
}

/* ---- distributed checkpoints --------------------------------------------------------------------------- */

/* Collects a .metadata and the files that it names. Such files are never published by themselves. */
static bool collect_distributed(struct td_unit_builder *b)
{
    size_t metadata = td_units_find(b, TD_DCP_METADATA_NAME);
    size_t stray = SIZE_MAX;
    if (metadata != SIZE_MAX && td_candidate_is_usable(&b->candidates[metadata])) {
        const struct td_candidate *candidate = &b->candidates[metadata];
        const struct td_dcp *dcp = &candidate->entry->file->dcp;
        struct td_unit *unit = td_unit_add(b, distributed_id, dcp->file_count + 1);
        if (unit == NULL)
            return false;
        unit->index_entry = candidate->entry;
        if (index_parts(b, candidate, dcp->files, dcp->file_count, unit)) {
            unit->parts[unit->part_count++] = candidate->entry; /* stands for tensors that are in no file */
        } else if (!set_aside_indexed(b, candidate, dcp->files, dcp->file_count)) {
            return false;
        }
    }
    for (size_t i = 0; i < b->count; i++) {
        if (b->candidates[i].kind == TD_FILE_DCP_PART && !b->claimed[i] && stray == SIZE_MAX)
            stray = i;
        b->claimed[i] = b->claimed[i] || b->candidates[i].kind == TD_FILE_DCP_PART || i == metadata;
    }
    if (stray != SIZE_MAX && metadata == SIZE_MAX)
        td_units_problem(b, b->candidates[stray].path, "there is no .metadata beside it, which would name its tensors");
    return true;
}

/* ---- sharded by name ----------------------------------------------------------------------------------- */

/* Returns whether the id is reserved for other sets. */
static bool is_fixed_id(const char *id)
{
    for (size_t i = 0; i < TD_FAMILY_OTHER; i++)
        if (strcmp(id, families[i].id) == 0)
            return true;
    return strcmp(id, distributed_id) == 0;
}

/* Sets *requested to the id that a group asks for: its stem with the extension, or the stem alone where the format
 * splits its files. Sets NULL when a file or another set has that id. Returns false for want of memory. */
static bool request_id(struct td_unit_builder *b, const struct td_shard *first, const char **requested)
{
    const struct td_format *format = td_format_for_name(first->name);
    const char *extension = format != NULL && format->splits ? "" : td_shard_extension(first);
    char id[512];
    (void)snprintf(id, sizeof id, "%.*s%s", (int)first->of.stem_len, first->name, extension);
    *requested = NULL;
    if (is_fixed_id(id) || td_units_find(b, id) != SIZE_MAX)
        return true;
    *requested = td_arena_strndup(&b->snapshot->arena, td_text_of(id));
    return *requested != NULL || td_error_no_memory(b->err);
}

static int requested_compare(const void *a, const void *b)
{
    const struct td_unit *x = *(const struct td_unit *const *)a;
    const struct td_unit *y = *(const struct td_unit *const *)b;
    int order = strcmp(x->requested_id, y->requested_id);
    return order != 0 ? order : (x > y) - (x < y);
}

/* Gives groups the ids that they ask for. Groups that differ only in their totals ask for the same id; the first gets
 * it. */
static bool grant_ids(struct td_unit_builder *b)
{
    struct td_unit **requesting = calloc(b->unit_count + 1, sizeof(*requesting));
    size_t count = 0;
    if (requesting == NULL)
        return td_error_no_memory(b->err);
    for (size_t i = 0; i < b->unit_count; i++)
        if (b->units[i].requested_id != NULL)
            requesting[count++] = &b->units[i];
    if (count > 0)
        qsort(requesting, count, sizeof(*requesting), requested_compare);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(requesting[i]->requested_id, requesting[i - 1]->requested_id) != 0)
            requesting[i]->name = requesting[i]->requested_id;
    free(requesting);
    return true;
}

static bool splits_agree(const struct td_unit *unit, char *message, size_t capacity)
{
    for (size_t i = 0; i < unit->part_count; i++)
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a complete group has all its parts
        if (!td_shard_split_agrees(unit->parts[i], i, unit->range.count, message, capacity))
            return false;
    return true;
}

/* Gives a group that lacks files the id that it would have if it were complete. Of groups that differ only in their
 * totals the first gets it. Returns false for want of memory. */
static bool name_partial_group(struct td_unit_builder *b, const struct td_shard *first, bool is_first,
                               struct td_unit *unit)
{
    const char *requested;
    if (!request_id(b, first, &requested))
        return false;
    if (!is_first || requested == NULL)
        return true;
    bool is_split = strlen(requested) == first->of.stem_len;
    if (!is_split || td_format_for_name(requested) == NULL) /* "a.bin" may be a split's stem and a group's id */
        unit->name = requested;
    return true;
}

/* Sets the last unit aside with the available files of its group. Leaves out a shard of a split GGUF whose metadata
 * name another shard, and numbers that the group cannot have. */
static bool set_aside_group(struct td_unit_builder *b, const struct td_shard *shards, size_t count, bool is_first)
{
    char message[512];
    struct td_unit *unit = td_unit_set_aside(b);
    if (unit == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct td_candidate *candidate = &b->candidates[shards[i].candidate];
        const unsigned at = shards[i].of.number - unit->range.first;
        if (at < unit->range.count && td_candidate_is_usable(candidate) &&
            td_shard_split_agrees(candidate->entry, at, unit->range.count, message, sizeof message))
            unit->parts[unit->part_count++] = candidate->entry;
    }
    return name_partial_group(b, shards, is_first, unit);
}

/* Makes a unit of a group, or reports what the group lacks; claims its members in both cases. is_first: the first of
 * the groups with its stem and extension. */
static bool collect_group(struct td_unit_builder *b, const struct td_shard *shards, size_t count, bool is_first)
{
    const struct td_candidate *broken = NULL;
    struct td_unit *unit = td_unit_add(b, shards[0].name, count);
    if (unit == NULL)
        return false;
    unit->range = td_shard_range_of(shards, count);
    for (size_t i = 0; i < count; i++) {
        const struct td_candidate *candidate = &b->candidates[shards[i].candidate];
        b->claimed[shards[i].candidate] = true;
        if (broken == NULL && !td_candidate_is_usable(candidate))
            broken = candidate;
        if (unit->part_count < unit->range.count && shards[i].of.number == unit->range.first + unit->part_count)
            unit->parts[unit->part_count++] = candidate->entry;
    }
    char message[512];
    if (unit->part_count < unit->range.count)
        (void)snprintf(message, sizeof message,
                       "shard %zu of %u is not there, so this sharded checkpoint is not published%s",
                       unit->range.first + unit->part_count, shards[0].of.total,
                       unit->range.first == 0 ? "; its files are counted from 0" : "");
    else if (count > unit->range.count)
        (void)snprintf(message, sizeof message,
                       "the number of \"%.300s\" is past its total, so this sharded checkpoint is not published",
                       shards[count - 1].name);
    else if (broken != NULL)
        (void)snprintf(message, sizeof message, "shard \"%.300s\" cannot be read, so the set is not published",
                       td_base_name(broken->path));
    else if (splits_agree(unit, message, sizeof message))
        return request_id(b, &shards[0], &unit->requested_id);
    td_units_problem(b, b->candidates[shards[0].candidate].path, message);
    return set_aside_group(b, shards, count, is_first);
}

static bool is_left(const struct td_unit_builder *b, size_t i)
{
    return !b->claimed[i] && b->candidates[i].kind != TD_FILE_SHARD_INDEX;
}

static bool collect_groups(struct td_unit_builder *b)
{
    struct td_shard *shards = calloc(b->count + 1, sizeof *shards);
    size_t count = 0;
    bool ok = true;
    if (shards == NULL)
        return td_error_no_memory(b->err);
    for (size_t i = 0; i < b->count; i++) {
        struct td_shard *shard = &shards[count];
        *shard = (struct td_shard){.name = td_base_name(b->candidates[i].path), .candidate = i};
        if (is_left(b, i) && !b->candidates[i].alone && td_shard_of_name(shard->name, &shard->of))
            count++;
    }
    if (count > 0)
        qsort(shards, count, sizeof *shards, td_shard_compare);
    for (size_t first = 0, end; ok && first < count; first = end) {
        for (end = first + 1; end < count && td_shard_group_compare(&shards[first], &shards[end]) == 0;)
            end++;
        ok = collect_group(b, &shards[first], end - first,
                           first == 0 || !td_shard_is_same_stem(&shards[first - 1], &shards[first]));
    }
    free(shards);
    return ok && grant_ids(b);
}

/* Adds a problem when a file with tensors of this one is missing: these tensors are listed, but cannot be served. */
static void report_missing(struct td_unit_builder *b, const struct td_unit *unit)
{
    struct td_error why = TD_ERROR_INIT;
    const char *missing = td_external_missing(unit->parts, unit->part_count);
    if (missing == NULL)
        return;
    (void)td_error_set(&why, TD_NOT_FOUND, "\"%.300s\", which holds some of its tensors, is missing or not served",
                       missing);
    td_units_problem(b, unit->parts[0]->path, why.message);
}

static bool collect_singles(struct td_unit_builder *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct td_candidate *candidate = &b->candidates[i];
        if (!is_left(b, i) || !td_candidate_is_usable(candidate))
            continue;
        size_t file_count = candidate->entry->file->manifest.file_count;
        struct td_unit *unit = td_unit_add(b, td_base_name(candidate->path), 1 + file_count);
        if (unit == NULL)
            return false;
        unit->part_count = td_external_parts(b->snapshot, candidate->entry, unit->parts);
        if (!candidate->alone)
            report_missing(b, unit);
    }
    return true;
}

/* ---- tensors of several parts -------------------------------------------------------------------------- */

static bool checkpoint_fill_indexed(struct td_checkpoint *checkpoint, const struct td_unit *unit, struct td_error *err)
{
    const struct td_shard_index *index = &unit->index_entry->file->index;
    checkpoint->refs = malloc((index->entry_count + 1) * sizeof *checkpoint->refs);
    if (checkpoint->refs == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < index->entry_count; i++) {
        const struct td_shard_entry *entry = &index->entries[i];
        const struct td_manifest *manifest = &unit->parts[entry->file]->file->manifest;
        checkpoint->refs[i] = (struct td_tensor_ref){
            .tensor = td_manifest_find(manifest, td_text_n(entry->tensor, entry->tensor_len)), .part = entry->file};
    }
    checkpoint->tensor_count = index->entry_count;
    return true;
}

/* Returns whether a tensor is stored in another way than it is answered. */
static bool is_decoded(const struct td_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->tensor_count; i++)
        if (td_tensor_stored(td_checkpoint_tensor(checkpoint, i).tensor) != NULL)
            return true;
    return false;
}

static bool make_tag(const struct td_checkpoint *checkpoint, const struct td_model *model, const struct td_unit *unit,
                     bool former, char tag[TD_TAG_BYTES])
{
    struct td_digest *digest = td_digest_create();
    td_plain_path_digest(model, model->id, digest);
    td_digest_add_cstring(digest, checkpoint->id);
    td_shards_add_tags(digest, model, unit->parts, unit->part_count, former);
    if (unit->index_entry != NULL) {
        const struct td_file *file = unit->index_entry->file;
        td_digest_add_cstring(digest, former ? file->identity_tag : td_file_tag(file));
    }
    if (is_decoded(checkpoint)) /* older versions did not answer such tensors, and had other manifests */
        td_digest_add_cstring(digest, "decoded");
    return td_digest_finish(digest, tag);
}

/* Makes both tags. They are equal until all files are hashed, so that hashing changes the tag once and not with each
 * file. */
static bool checkpoint_tag(struct td_checkpoint *checkpoint, const struct td_model *model, const struct td_unit *unit,
                           struct td_error *err)
{
    bool is_hashed = td_shards_are_hashed(unit->parts, unit->part_count, unit->index_entry);
    return (make_tag(checkpoint, model, unit, !is_hashed, checkpoint->tag) &&
            make_tag(checkpoint, model, unit, true, checkpoint->former_tag)) ||
           td_error_no_memory(err);
}

static bool is_distributed(const struct td_unit *unit)
{
    return unit->index_entry != NULL && unit->index_entry->file->kind == TD_FILE_DCP_METADATA;
}

/* Returns whether the unit is one file with tensors in other files. Without a root (one inspected file) these are not
 * sought. */
static bool is_external(const struct td_unit_builder *b, const struct td_unit *unit)
{
    return b->snapshot->root != NULL && unit->index_entry == NULL && unit->range.count == 0 && unit->part_count > 0 &&
           unit->parts[0]->file->manifest.file_count > 0;
}

/* Fills in tensors that are put together from several files. */
static bool checkpoint_fill_joined(const struct td_unit_builder *b, struct td_checkpoint *checkpoint,
                                   const struct td_unit *unit)
{
    struct td_joined_tensors *before = td_units_previous_join(b, unit);
    if (unit->boxes != NULL)
        checkpoint->join = td_joined_tensors_ref(unit->boxes);
    else if (before != NULL)
        checkpoint->join = td_joined_tensors_ref(before);
    else if (is_distributed(unit))
        checkpoint->join = td_dcp_join(&unit->index_entry->file->dcp, unit->parts, NULL, b->err);
    else
        checkpoint->join = td_external_join(unit->parts, unit->part_count, b->err);
    if (checkpoint->join == NULL)
        return false;
    checkpoint->refs = checkpoint->join->tensors;
    checkpoint->tensor_count = checkpoint->join->tensor_count;
    return true;
}

static bool checkpoint_fill(const struct td_unit_builder *b, struct td_checkpoint *checkpoint,
                            const struct td_unit *unit)
{
    if (is_distributed(unit) || is_external(b, unit) || unit->boxes != NULL)
        return checkpoint_fill_joined(b, checkpoint, unit);
    if (td_shards_are_listed(unit->index_entry))
        return checkpoint_fill_indexed(checkpoint, unit, b->err);
    if (unit->part_count != 1 || unit->index_entry != NULL)
        return td_shards_merge(checkpoint, b->err);
    checkpoint->tensor_count = unit->parts[0]->file->manifest.tensor_count;
    return true;
}

static bool fits_safetensors(const struct td_tensor *tensor)
{
    return tensor->reason == NULL && td_dtype_is_safetensors(tensor->dtype) &&
           strcmp(tensor->name, "__metadata__") != 0;
}

/* Adds up the bytes of the tensors that can be served, and notes whether all fit into a safetensors file. Returns false
 * when a sum is past 2^64-1. */
static bool checkpoint_sum(const struct td_unit_builder *b, struct td_checkpoint *checkpoint, uint64_t *model_bytes)
{
    checkpoint->fits_safetensors = true;
    for (size_t i = 0; i < checkpoint->tensor_count; i++) {
        const struct td_tensor *tensor = td_checkpoint_tensor(checkpoint, i).tensor;
        checkpoint->fits_safetensors = checkpoint->fits_safetensors && fits_safetensors(tensor);
        if (tensor->reason == NULL && !td_add_u64(checkpoint->total_bytes, tensor->nbytes, &checkpoint->total_bytes))
            return false;
    }
    return td_add_u64(b->model->total_bytes, checkpoint->total_bytes, model_bytes);
}

/* Returns whether the checkpoint can be published, and adds a problem if not. Sets *model_bytes to the bytes of the
 * model's tensors with those of the checkpoint. */
static bool checkpoint_check(struct td_unit_builder *b, struct td_checkpoint *checkpoint, const struct td_unit *unit,
                             uint64_t *model_bytes)
{
    char message[512];
    bool is_merged = checkpoint->refs != NULL && !td_shards_are_listed(unit->index_entry) && checkpoint->join == NULL;
    size_t twice = is_merged ? td_shards_duplicate(checkpoint) : 0;
    if (twice > 0)
        (void)snprintf(message, sizeof message,
                       "tensor \"%.200s\" is in two shards, so this sharded checkpoint is not published",
                       checkpoint->refs[twice].tensor->name);
    else if (!checkpoint_sum(b, checkpoint, model_bytes))
        (void)snprintf(message, sizeof message,
                       "not published, because with its tensors the model has more than 2^64-1 bytes");
    else
        return true;
    td_units_problem(b, unit->index_entry != NULL ? unit->index_entry->path : unit->parts[0]->path, message);
    return false;
}

/* Returns the file name by which libraries know the set: its index, or else its first file. */
static const char *written_name(const struct td_unit *unit)
{
    if (unit->index_entry != NULL)
        return td_base_name(unit->index_entry->path);
    return unit->part_count > 0 ? td_base_name(unit->parts[0]->path) : unit->name;
}

static bool is_secondary(const struct td_unit *unit)
{
    const char *name = written_name(unit);
    if (unit->is_variant || td_weights_is_trainer_state(name))
        return true;
    const struct td_file *first = unit->part_count > 0 ? unit->parts[0]->file : NULL;
    return first != NULL && first->format == &td_format_gguf && !td_gguf_is_model(&first->manifest, name);
}

static const char *format_name(const struct td_unit *unit)
{
    if (is_distributed(unit))
        return distributed_id;
    if (unit->part_count > 0)
        return unit->parts[0]->file->format->name;
    /* an index that maps nothing */
    return families[unit->family == TD_FAMILY_OTHER ? TD_FAMILY_PYTORCH : unit->family].format->name;
}

/* Makes the unit a checkpoint. Sets *published to false, and adds a problem, when it cannot be published. */
static bool checkpoint_create(struct td_unit_builder *b, struct td_unit *unit, const char *id,
                              struct td_checkpoint *checkpoint, bool *published)
{
    uint64_t model_bytes;
    memset(checkpoint, 0, sizeof *checkpoint);
    checkpoint->id = id;
    checkpoint->parts = unit->parts;
    checkpoint->part_count = unit->part_count;
    checkpoint->format = format_name(unit);
    checkpoint->is_secondary = is_secondary(unit);
    *published = false;
    if (!checkpoint_fill(b, checkpoint, unit))
        return false;
    if (!checkpoint_check(b, checkpoint, unit, &model_bytes)) {
        td_checkpoint_drop_refs(checkpoint);
        return true;
    }
    size_t metadata_parts =
        is_external(b, unit) || unit->boxes != NULL ? 1 : unit->part_count; /* number of parts that give metadata */
    if (!td_shards_metadata(checkpoint, metadata_parts, &b->snapshot->arena, b->err) ||
        (unit->boxes != NULL && !td_boxes_drop_metadata(checkpoint, &b->snapshot->arena, b->err)) ||
        !checkpoint_tag(checkpoint, b->model, unit, b->err)) {
        td_checkpoint_drop_refs(checkpoint);
        return false;
    }
    unit->parts = NULL; /* the checkpoint owns the list now */
    b->model->total_bytes = model_bytes;
    *published = true;
    return true;
}

/* ---- ids ----------------------------------------------------------------------------------------------- */

static struct td_unit *find_named(struct td_unit *units, size_t count, enum td_family family, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (units[i].family == family && units[i].part_reason == NULL && strcmp(units[i].name, name) == 0)
            return &units[i];
    return NULL;
}

static struct td_unit *unit_named(const struct td_unit_builder *b, enum td_family family, const char *name)
{
    return find_named(b->units, b->unit_count, family, name);
}

/* Returns whether the unit may get its family's id by rule 4 or 5 of td_checkpoints_build. */
static bool is_sibling(const struct td_unit *unit, enum td_family family)
{
    return unit->family == family && !unit->is_variant;
}

/* Returns whether the unit is one file: it has no index, no group and no boxes. */
static bool is_single(const struct td_unit *unit)
{
    return unit->index_entry == NULL && unit->range.count == 0 && unit->boxes == NULL;
}

/* Joins a family's units into the first one, if all are single files and share no tensor name. */
static bool join_singles(struct td_unit_builder *b, enum td_family family, size_t siblings, struct td_unit **joined)
{
    struct td_unit all = {.name = families[family].id};
    all.parts = calloc(siblings + 1, sizeof(*all.parts));
    if (all.parts == NULL)
        return td_error_no_memory(b->err);
    bool single = true;
    for (size_t i = 0; i < b->unit_count; i++) {
        const struct td_unit *unit = &b->units[i];
        if (!is_sibling(unit, family))
            continue;
        single = single && is_single(unit);
        all.parts[all.part_count++] = unit->part_count > 0 ? unit->parts[0] : NULL;
    }
    struct td_checkpoint trial = {.parts = all.parts, .part_count = all.part_count};
    bool ok = !single || td_shards_merge(&trial, b->err);
    bool disjoint = ok && single && td_shards_duplicate(&trial) == 0;
    free(trial.refs);
    for (size_t i = 0; i < b->unit_count && disjoint; i++) {
        struct td_unit *unit = &b->units[i];
        if (!is_sibling(unit, family))
            continue;
        unit->joined = *joined != NULL;
        if (*joined != NULL)
            continue;
        *joined = unit;
        free(unit->parts);
        unit->parts = all.parts;
        unit->part_count = all.part_count;
        all.parts = NULL;
    }
    free(all.parts);
    return ok;
}

/* Sets *chosen to the unit that gets its family's id; NULL when none does. */
static bool choose_in_family(struct td_unit_builder *b, enum td_family family, struct td_unit **chosen)
{
    const char *const names[] = {families[family].whole, families[family].index, families[family].others[0],
                                 families[family].others[1]};
    *chosen = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && names[i] != NULL && *chosen == NULL; i++)
        *chosen = unit_named(b, family, names[i]);
    if (*chosen != NULL)
        return true;
    size_t siblings = 0;
    struct td_unit *last = NULL;
    for (size_t i = 0; i < b->unit_count; i++) {
        if (!is_sibling(&b->units[i], family))
            continue;
        last = &b->units[i];
        siblings++;
    }
    if (siblings <= 1) {
        *chosen = last;
        return true;
    }
    return join_singles(b, family, siblings, chosen);
}

/* Returns the place of a checkpoint in the list, the default one first. */
static int rank_of(const struct td_checkpoint *checkpoint)
{
    if (checkpoint->is_rank_part)
        return 5;
    if (strcmp(checkpoint->id, families[TD_FAMILY_SAFETENSORS].id) == 0)
        return 0;
    if (strcmp(checkpoint->id, families[TD_FAMILY_PYTORCH].id) == 0)
        return 1;
    if (checkpoint->tensor_count == 0) /* training_args.bin, for example */
        return 4;
    return checkpoint->is_secondary ? 3 : 2;
}

static int checkpoint_compare(const void *a, const void *b)
{
    const struct td_checkpoint *x = a;
    const struct td_checkpoint *y = b;
    int order = rank_of(x) - rank_of(y);
    return order != 0 ? order : strcmp(x->id, y->id);
}

static bool mark_variants(struct td_unit_builder *b)
{
    const char **names = calloc(b->unit_count + 1, sizeof *names);
    bool *is_variant = calloc(b->unit_count + 1, sizeof *is_variant);
    bool ok = names != NULL && is_variant != NULL;
    if (!ok)
        (void)td_error_no_memory(b->err);
    for (size_t i = 0; ok && i < b->unit_count; i++)
        names[i] = written_name(&b->units[i]);
    ok = ok && td_weights_find_variants(names, b->unit_count, is_variant, b->err);
    for (size_t i = 0; ok && i < b->unit_count; i++)
        b->units[i].is_variant = is_variant[i];
    free(names);
    free(is_variant);
    return ok;
}

static bool publish_units(struct td_unit_builder *b)
{
    struct td_unit *chosen[TD_FAMILY_OTHER] = {NULL};
    if (!mark_variants(b))
        return false;
    for (size_t family = 0; family < TD_FAMILY_OTHER; family++)
        if (!choose_in_family(b, (enum td_family)family, &chosen[family]))
            return false;
    struct td_model *model = b->model;
    model->checkpoints = calloc(b->unit_count + 1, sizeof *model->checkpoints);
    if (model->checkpoints == NULL)
        return td_error_no_memory(b->err);
    for (size_t i = 0; i < b->unit_count; i++) {
        struct td_unit *unit = &b->units[i];
        bool published;
        if (unit->joined)
            continue;
        const char *id = unit->name;
        if (unit->family != TD_FAMILY_OTHER && unit == chosen[unit->family])
            id = families[unit->family].id;
        if (!checkpoint_create(b, unit, id, &model->checkpoints[model->checkpoint_count], &published))
            return false;
        if (published)
            model->checkpoint_count++;
    }
    qsort(model->checkpoints, model->checkpoint_count, sizeof *model->checkpoints, checkpoint_compare);
    return true;
}

/* ---- incomplete ones ----------------------------------------------------------------------------------- */

static bool has_any_part(const struct td_unit *unit)
{
    for (size_t i = 0; i < unit->part_count; i++)
        if (unit->parts[i] != NULL)
            return true;
    return false;
}

/* Returns the unit that lacks files and would have its family's id if it were complete, or NULL. When several qualify
 * as the only set, returns the first. */
static const struct td_unit *choose_aside(const struct td_unit_builder *b, enum td_family family)
{
    const struct td_unit *aside = find_named(b->asides, b->aside_count, family, families[family].whole);
    if (aside != NULL || unit_named(b, family, families[family].whole) != NULL)
        return aside;
    aside = find_named(b->asides, b->aside_count, family, families[family].index);
    if (aside != NULL)
        return aside;
    for (size_t i = 0; i < b->unit_count; i++)
        if (b->units[i].family == family)
            return NULL;
    for (size_t i = 0; i < b->aside_count; i++)
        if (b->asides[i].family == family && b->asides[i].part_reason == NULL && has_any_part(&b->asides[i]))
            return &b->asides[i];
    return NULL;
}

/* Makes incomplete checkpoints of the units that lack files, in the order of complete ones. */
static bool add_partials(struct td_unit_builder *b)
{
    struct td_model *model = b->model;
    const struct td_unit *chosen[TD_FAMILY_OTHER + 1] = {NULL};
    for (size_t family = 0; family < TD_FAMILY_OTHER; family++)
        chosen[family] = choose_aside(b, (enum td_family)family);
    for (size_t i = 0; i < b->aside_count; i++) {
        const struct td_unit *unit = &b->asides[i];
        bool is_family = unit == chosen[unit->family];
        const struct td_partial_set set = {.id = is_family ? families[unit->family].id : unit->name,
                                           .index = unit->index_entry,
                                           .parts = unit->parts,
                                           .part_count = unit->part_count,
                                           .range = unit->range,
                                           .part_reason = unit->part_reason};
        if (!td_partial_add(b->snapshot, td_units_previous_model(b), model, &set, b->err))
            return false;
    }
    if (model->partial_count > 0)
        qsort(model->partials, model->partial_count, sizeof *model->partials, checkpoint_compare);
    return true;
}

bool td_checkpoints_build(struct td_snapshot *snapshot, const struct td_snapshot *previous, struct td_model *model,
                          const struct td_candidate *candidates, size_t count, struct td_error *err)
{
    struct td_unit_builder b = {.snapshot = snapshot,
                                .previous = previous,
                                .model = model,
                                .candidates = candidates,
                                .count = count,
                                .err = err};
    bool ok = false;
    b.claimed = calloc(count + 1, sizeof *b.claimed);
    if (b.claimed == NULL) {
        (void)td_error_no_memory(err);
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        const char *error = candidates[i].entry == NULL ? candidates[i].error : candidates[i].entry->file->error;
        if (error != NULL &&
            candidates[i].kind != TD_FILE_PLAIN) /* grouping.c reports those with the other plain files */
            td_units_problem(&b, candidates[i].path, error);
    }
    claim_shards_of_others(&b);
    if (note_delta(&b) || note_skyrl_delta(&b)) {
        ok = true;
        goto out;
    }
    ok = collect_indexes(&b) && collect_distributed(&b) && td_collect_boxes(&b) && td_collect_rank_parts(&b) &&
         td_collect_beside_parts(&b) && collect_groups(&b) && collect_singles(&b) && publish_units(&b) &&
         add_partials(&b);
    if (ok)
        td_report_parts(&b);
out:
    for (size_t i = 0; i < b.unit_count; i++) {
        free(b.units[i].parts);
        td_joined_tensors_unref(b.units[i].boxes);
    }
    for (size_t i = 0; i < b.aside_count; i++)
        free(b.asides[i].parts);
    free(b.units);
    free(b.asides);
    free(b.claimed);
    return ok;
}
