/* Plan: the builder of checkpoints hands over sets that lack files. fill_partial() keeps the available parts and notes
 * what is missing in a td_lacks, then takes the tensors of these parts: by the index, by joining the .metadata, or all
 * tensors of a group's members. The second half writes messages from the td_lacks when a client asks.
 *
 * What is hard: a group's name can claim 99,999 members, so missing members are never listed in memory, only walked
 * through. */
#include "catalog/checkpoints/partial_checkpoint.h"

#include "catalog/model/dcp_checkpoint.h"
#include "catalog/model/plain_id.h"
#include "core/array.h"
#include "core/checked.h"
#include "parser/format/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More bytes than the name of any file has. */
enum { NAME_BYTES = 512 };

static bool is_distributed(const struct td_lacks *lacks)
{
    return lacks->index != NULL && lacks->index->file->kind == TD_FILE_DCP_METADATA;
}

/* Returns the names of the files of an index or of a .metadata. */
static const char *const *files_of(const struct td_lacks *lacks)
{
    const struct td_file *file = lacks->index->file;
    return is_distributed(lacks) ? file->dcp.files : file->index.files;
}

static size_t file_total(const struct td_lacks *lacks)
{
    const struct td_file *file = lacks->index->file;
    return is_distributed(lacks) ? file->dcp.file_count : file->index.file_count;
}

/* ---- available tensors --------------------------------------------------------------------------------- */

/* Keeps the available files, and gives each file of an index its place among them. */
static bool take_parts(struct td_snapshot *snapshot, struct td_checkpoint *checkpoint, struct td_lacks *lacks,
                       const struct td_partial_set *set)
{
    uint32_t *places = td_arena_array(&snapshot->arena, set->part_count + 1, sizeof *places);
    checkpoint->parts = calloc(set->part_count + 1, sizeof(*checkpoint->parts));
    if (places == NULL || checkpoint->parts == NULL)
        return false;
    for (size_t i = 0; i < set->part_count; i++) {
        places[i] = set->parts[i] == NULL ? TD_DCP_NO_PART : (uint32_t)checkpoint->part_count;
        if (set->parts[i] == NULL)
            lacks->file_count++;
        else
            checkpoint->parts[checkpoint->part_count++] = set->parts[i];
    }
    places[set->part_count] = (uint32_t)checkpoint->part_count;
    lacks->places = places;
    if (is_distributed(lacks)) /* stands for tensors that are in no file */
        checkpoint->parts[checkpoint->part_count++] = set->index;
    return true;
}

/* Counts the files that a group lacks. Returns false when it lacks none. */
static bool count_members(struct td_lacks *lacks, const struct td_partial_set *set)
{
    if (set->part_count == 0 || set->part_count >= set->range.count)
        return false;
    lacks->file_count = set->range.count - set->part_count;
    lacks->range = set->range;
    return true;
}

static bool take_indexed(struct td_checkpoint *checkpoint, struct td_lacks *lacks, struct td_error *err)
{
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): without an index td_partial_knows_tensors() is false
    const struct td_shard_index *index = &lacks->index->file->index;
    checkpoint->refs = malloc((index->entry_count + 1) * sizeof *checkpoint->refs);
    if (checkpoint->refs == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < index->entry_count; i++) {
        const struct td_shard_entry *entry = &index->entries[i];
        uint32_t place = lacks->places[entry->file];
        const struct td_tensor *tensor = NULL;
        if (place != TD_DCP_NO_PART)
            tensor = td_manifest_find(&checkpoint->parts[place]->file->manifest,
                                      td_text_n(entry->tensor, entry->tensor_len));
        if (tensor != NULL)
            checkpoint->refs[checkpoint->tensor_count++] = (struct td_tensor_ref){.tensor = tensor, .part = place};
    }
    lacks->tensor_count = index->entry_count - checkpoint->tensor_count;
    return true;
}

static bool take_joined(struct td_checkpoint *checkpoint, struct td_lacks *lacks, const struct td_model *previous,
                        struct td_error *err)
{
    const struct td_dcp *dcp = &lacks->index->file->dcp;
    struct td_joined_tensors *before = previous == NULL
                                           ? NULL
                                           : td_shards_find_join(previous->partials, previous->partial_count,
                                                                 checkpoint->parts, checkpoint->part_count);
    checkpoint->join =
        before != NULL ? td_joined_tensors_ref(before) : td_dcp_join(dcp, checkpoint->parts, lacks->places, err);
    if (checkpoint->join == NULL)
        return false;
    checkpoint->refs = checkpoint->join->tensors;
    checkpoint->tensor_count = checkpoint->join->tensor_count;
    lacks->tensor_count = dcp->tensor_count - checkpoint->tensor_count;
    return true;
}

bool td_partial_knows_tensors(const struct td_checkpoint *checkpoint)
{
    return td_shards_are_listed(checkpoint->lacks->index);
}

static bool take_tensors(struct td_checkpoint *checkpoint, struct td_lacks *lacks, const struct td_model *previous,
                         struct td_error *err)
{
    if (!td_partial_knows_tensors(checkpoint))
        return td_shards_merge(checkpoint, err);
    return is_distributed(lacks) ? take_joined(checkpoint, lacks, previous, err) : take_indexed(checkpoint, lacks, err);
}

/* Adds up the bytes of the tensors that can be served. Returns false when the sum is past 2^64-1. */
static bool sum_bytes(struct td_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->tensor_count; i++) {
        const struct td_tensor *tensor = checkpoint->refs[i].tensor;
        if (tensor->reason == NULL && !td_add_u64(checkpoint->total_bytes, tensor->nbytes, &checkpoint->total_bytes))
            return false;
    }
    return true;
}

/* Makes a tag over the available files and the set: together they determine which files are missing. */
static bool make_tag(const struct td_checkpoint *checkpoint, const struct td_model *model, bool former,
                     char tag[TD_TAG_BYTES])
{
    struct td_digest *digest = td_digest_create();
    const struct td_entry *index = checkpoint->lacks->index;
    td_digest_add_cstring(digest, "partial");
    td_plain_path_digest(model, model->id, digest);
    td_digest_add_cstring(digest, checkpoint->id);
    if (index != NULL)
        td_digest_add_cstring(digest, former ? index->file->identity_tag : td_file_tag(index->file));
    td_shards_add_tags(digest, model, checkpoint->parts, checkpoint->part_count, former);
    return td_digest_finish(digest, tag);
}

/* Fills the checkpoint. Sets *is_any to whether it holds a tensor. */
static bool fill_partial(struct td_snapshot *snapshot, const struct td_model *previous, const struct td_model *model,
                         struct td_checkpoint *checkpoint, const struct td_partial_set *set, bool *is_any,
                         struct td_error *err)
{
    struct td_lacks *lacks = td_arena_array(&snapshot->arena, 1, sizeof *lacks);
    *is_any = false;
    if (lacks == NULL)
        return td_error_no_memory(err);
    *lacks = (struct td_lacks){.index = set->index, .part_reason = set->part_reason};
    checkpoint->lacks = lacks;
    checkpoint->is_rank_part = set->part_reason != NULL;
    if (set->index == NULL && set->part_reason == NULL && !count_members(lacks, set))
        return true;
    if (!take_parts(snapshot, checkpoint, lacks, set))
        return td_error_no_memory(err);
    if (!take_tensors(checkpoint, lacks, previous, err))
        return false;
    bool is_twice = !td_partial_knows_tensors(checkpoint) && td_shards_duplicate(checkpoint) > 0;
    if (checkpoint->tensor_count == 0 || is_twice || !sum_bytes(checkpoint))
        return true;
    *is_any = true;
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a part holds the tensors that were found
    const struct td_file *first = checkpoint->parts[0]->file;
    checkpoint->format = is_distributed(lacks) ? "dcp" : first->format->name;
    checkpoint->metadata = first->manifest.metadata;
    checkpoint->metadata_count = first->manifest.metadata_count;
    bool is_hashed = td_shards_are_hashed(checkpoint->parts, checkpoint->part_count, lacks->index);
    return (make_tag(checkpoint, model, !is_hashed, checkpoint->tag) &&
            make_tag(checkpoint, model, true, checkpoint->former_tag)) ||
           td_error_no_memory(err);
}

bool td_partial_add(struct td_snapshot *snapshot, const struct td_model *previous, struct td_model *model,
                    const struct td_partial_set *set, struct td_error *err)
{
    struct td_checkpoint checkpoint = {.id = set->id};
    bool is_any;
    bool ok = fill_partial(snapshot, previous, model, &checkpoint, set, &is_any, err);
    if (ok && is_any) {
        ok = TD_ARRAY_GROW(model->partials, model->partial_count, model->partial_capacity, err);
        if (ok)
            model->partials[model->partial_count++] = checkpoint;
    }
    if (ok && is_any)
        return true;
    free(checkpoint.parts);
    td_checkpoint_drop_refs(&checkpoint);
    return ok;
}

const struct td_checkpoint *td_partial_find(const struct td_model *model, struct td_text id)
{
    for (size_t i = 0; i < model->partial_count; i++) {
        const char *known = model->partials[i].id;
        if (id.len == 0 ? !model->partials[i].is_rank_part : td_text_compare(td_text_of(known), id) == 0)
            return &model->partials[i];
    }
    return NULL;
}

/* ---- missing files and tensors ------------------------------------------------------------------------- */

/* Returns the name of the document that lists the set's files, for messages. */
static const char *source_of(const struct td_lacks *lacks)
{
    return lacks->index == NULL ? "the group" : is_distributed(lacks) ? ".metadata" : "the index";
}

void td_partial_write_reason(const struct td_checkpoint *checkpoint, struct td_buffer *out)
{
    const struct td_lacks *lacks = checkpoint->lacks;
    if (lacks->part_reason != NULL)
        td_buffer_puts(out, lacks->part_reason);
    else if (lacks->file_count == 0)
        td_buffer_printf(out, "%s names %zu tensor%s not there", source_of(lacks), lacks->tensor_count,
                         lacks->tensor_count == 1 ? " that is" : "s that are");
    else
        td_buffer_printf(out, "%zu file%s of %s %s missing or refused", lacks->file_count,
                         lacks->file_count == 1 ? "" : "s", source_of(lacks), lacks->file_count == 1 ? "is" : "are");
}

/* Calls `each` with the names of a group's missing members. A name can claim 99,999 members, so no list of them is
 * kept. */
static void each_missing_member(const struct td_checkpoint *checkpoint, size_t max,
                                void (*each)(void *context, const char *file), void *context)
{
    const char *first = td_base_name(checkpoint->parts[0]->path);
    char name[NAME_BYTES];
    struct td_shard_of of;
    size_t next = 0; /* the first part whose number is still to come */
    if (!td_shard_of_name(first, &of))
        return;
    const struct td_shard_range *range = &checkpoint->lacks->range;
    for (unsigned number = range->first; number < range->first + range->count && max > 0; number++) {
        struct td_shard_of member = {0};
        if (next < checkpoint->part_count && td_shard_of_name(td_base_name(checkpoint->parts[next]->path), &member) &&
            member.number == number) {
            next++;
            continue;
        }
        (void)snprintf(name, sizeof name, "%.*s-%05u-of-%05u%s", (int)of.stem_len, first, number, of.total,
                       first + of.stem_len + TD_SHARD_NUMBERS_BYTES);
        each(context, name);
        max--;
    }
}

void td_partial_each_missing(const struct td_checkpoint *checkpoint, size_t max,
                             void (*each)(void *context, const char *file), void *context)
{
    const struct td_lacks *lacks = checkpoint->lacks;
    if (lacks->part_reason != NULL)
        return;
    if (lacks->index == NULL) {
        each_missing_member(checkpoint, max, each, context);
        return;
    }
    for (size_t i = 0; i < file_total(lacks) && max > 0; i++) {
        if (lacks->places[i] != TD_DCP_NO_PART)
            continue;
        each(context, files_of(lacks)[i]);
        max--;
    }
}

/* Returns whether the snapshot lists a file of this name beside the others, refused or not. Returns false for want of
 * memory, too. */
static bool is_listed(const struct td_snapshot *snapshot, const struct td_checkpoint *checkpoint, const char *file)
{
    const struct td_lacks *lacks = checkpoint->lacks;
    const char *beside = lacks->index != NULL ? lacks->index->path : checkpoint->parts[0]->path;
    struct td_buffer path;
    td_buffer_init(&path);
    td_buffer_append(&path, beside, (size_t)(td_base_name(beside) - beside));
    td_buffer_puts(&path, file);
    bool listed = !path.failed && td_snapshot_find_entry(snapshot, td_buffer_text(&path)) != NULL;
    td_buffer_fini(&path);
    return listed;
}

static struct td_text indexed_name(const void *context, size_t i)
{
    const struct td_shard_entry *entry = &((const struct td_shard_index *)context)->entries[i];
    return td_text_n(entry->tensor, entry->tensor_len);
}

static struct td_text joined_name(const void *context, size_t i)
{
    const struct td_dcp_tensor *tensor = &((const struct td_dcp *)context)->tensors[i];
    return td_text_n(tensor->name, tensor->name_len);
}

/* Returns the number of the file in which an index or a .metadata has the tensor; SIZE_MAX when in none. */
static size_t file_of(const struct td_lacks *lacks, struct td_text name)
{
    const struct td_shard_index *index = &lacks->index->file->index;
    const struct td_dcp *dcp = &lacks->index->file->dcp;
    struct td_names names = {.count = index->entry_count, .context = index, .get = indexed_name};
    if (is_distributed(lacks))
        names = (struct td_names){.count = dcp->tensor_count, .context = dcp, .get = joined_name};
    bool found;
    size_t at = td_names_search(&names, name, &found);
    if (!found)
        return SIZE_MAX;
    return is_distributed(lacks) ? td_dcp_missing_file(&dcp->tensors[at], lacks->places) : index->entries[at].file;
}

static void copy_name(void *context, const char *file)
{
    (void)snprintf(context, NAME_BYTES, "%s", file);
}

void td_partial_write_absence(const struct td_snapshot *snapshot, const struct td_checkpoint *checkpoint,
                              struct td_text name, struct td_buffer *out)
{
    const struct td_lacks *lacks = checkpoint->lacks;
    char member[NAME_BYTES] = "";
    const char *file = member;
    bool is_there = false;
    if (lacks->part_reason != NULL)
        return;
    if (!td_partial_knows_tensors(checkpoint)) {
        td_partial_each_missing(checkpoint, 1, copy_name, member);
    } else {
        size_t number = file_of(lacks, name);
        if (number == SIZE_MAX)
            return;
        file = files_of(lacks)[number];
        is_there = lacks->places[number] != TD_DCP_NO_PART;
    }
    const char *fault = is_there                                ? "does not have it"
                        : is_listed(snapshot, checkpoint, file) ? "cannot be read"
                                                                : "is missing";
    td_buffer_printf(out, "tensor \"%.*s\" is not there: ", TD_SHOW(name, 200));
    if (td_partial_knows_tensors(checkpoint))
        td_buffer_printf(out, "%s says that it is in \"%.200s\", which %s", source_of(lacks), file, fault);
    else if (lacks->file_count == 1)
        td_buffer_printf(out, "it may be in \"%.200s\", which %s", file, fault);
    else
        td_buffer_printf(out, "it may be in \"%.200s\", which %s, or in %zu other missing or refused files", file,
                         fault, lacks->file_count - 1);
}
