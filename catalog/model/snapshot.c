/* Plan: reference counts and the end of each object first, then look-ups. Entries, models, checkpoints and tensors are
 * sorted arrays, so every look-up is a binary search, and everything below a directory is one run (lower_bound() finds
 * its two ends).
 *
 * What is hard: the SHA-256 of a file becomes known while requests read the file. hash_state makes that safe without a
 * lock: one thread wins UNKNOWN -> WRITTEN, writes the text, and publishes KNOWN with release order. */
#include "catalog/model/snapshot.h"

#include "core/array.h"
#include "core/digits.h"
#include "parser/format/names.h"

#include <stdlib.h>
#include <string.h>

struct td_snapshot *td_snapshot_ref(struct td_snapshot *snapshot)
{
    atomic_fetch_add_explicit(&snapshot->refs, 1, memory_order_relaxed);
    if (snapshot->base != NULL)
        atomic_fetch_add_explicit(&snapshot->base->refs, 1, memory_order_relaxed);
    return snapshot;
}

/* Drops one reference on the snapshot or view alone. */
static void drop_reference(struct td_snapshot *snapshot)
{
    if (atomic_fetch_sub_explicit(&snapshot->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (snapshot->retirement.retire != NULL)
        snapshot->retirement.retire(snapshot->retirement.context, snapshot);
    else
        td_snapshot_free(snapshot);
}

void td_snapshot_unref(struct td_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    struct td_snapshot *base = snapshot->base;
    drop_reference(snapshot);
    if (base != NULL)
        drop_reference(base);
}

/* Frees what the models own beside the arena. */
static void free_models(struct td_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->model_count; i++) {
        struct td_model *model = &snapshot->models[i];
        for (size_t j = 0; j < model->checkpoint_count; j++) {
            free(model->checkpoints[j].parts);
            td_checkpoint_drop_refs(&model->checkpoints[j]);
        }
        for (size_t j = 0; j < model->partial_count; j++) {
            free(model->partials[j].parts);
            td_checkpoint_drop_refs(&model->partials[j]);
        }
        free(model->partials);
        free(model->checkpoints);
        free(model->problems.items);
    }
}

void td_snapshot_free(struct td_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    for (size_t i = 0; i < TD_SNAPSHOT_PARTS; i++) {
        struct td_snapshot_part *part = atomic_load(&snapshot->parts[i]);
        if (part != NULL)
            part->destroy(part);
    }
    for (size_t i = 0; snapshot->base == NULL && i < snapshot->entry_count; i++)
        td_file_unref(snapshot->entries[i].file);
    free(snapshot->entries);
    if (snapshot->base == NULL)
        free_models(snapshot);
    free(snapshot->models);
    free(snapshot->problems.items);
    td_arena_fini(&snapshot->arena);
    td_root_unref(snapshot->root);
    free(snapshot);
}

struct td_snapshot_part *td_snapshot_add_part(struct td_snapshot *snapshot, enum td_snapshot_part_number number,
                                              struct td_snapshot_part *part)
{
    struct td_snapshot_part *has = NULL;
    if (atomic_compare_exchange_strong(&snapshot->parts[number], &has, part))
        return part;
    part->destroy(part);
    return has;
}

struct td_snapshot_part *td_snapshot_get_part(const struct td_snapshot *snapshot, enum td_snapshot_part_number number)
{
    return atomic_load_explicit(&snapshot->parts[number], memory_order_acquire);
}

const struct td_snapshot_part *td_snapshot_part_or(const struct td_snapshot *snapshot,
                                                   enum td_snapshot_part_number number,
                                                   const struct td_snapshot_part *none)
{
    const struct td_snapshot_part *part = td_snapshot_get_part(snapshot, number);
    return part == NULL ? none : part;
}

/* A run of entries, and where their paths begin. */
struct entry_run {
    const struct td_entry *entries;
    size_t prefix_len;
};

static struct td_text entry_path(const void *context, size_t i)
{
    const struct entry_run *run = context;
    const char *path = run->entries[i].path + run->prefix_len;
    return td_text_of(path);
}

/* Returns the number of the first name that is not less than directory + border. */
static size_t lower_bound(const struct td_names *names, struct td_text directory, char border)
{
    size_t low = 0;
    size_t high = names->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const char *path = names->get(names->context, mid).p;
        int order = strncmp(path, directory.p, directory.len);
        if (order == 0)
            order = (unsigned char)path[directory.len] < (unsigned char)border ? -1 : 1;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void td_snapshot_entries_below(const struct td_snapshot *snapshot, struct td_text directory, size_t *first,
                               size_t *count)
{
    const struct entry_run run = {.entries = snapshot->entries};
    const struct td_names names = {.count = snapshot->entry_count, .context = &run, .get = entry_path};
    *first = lower_bound(&names, directory, '/');
    *count = lower_bound(&names, directory, '/' + 1) - *first;
}

static struct td_text unsettled_path(const void *context, size_t i)
{
    return td_text_of(((const struct td_unsettled_facts *)context)->paths[i]);
}

bool td_snapshot_lacks_below(const struct td_snapshot *snapshot, struct td_text directory)
{
    const struct td_snapshot *whole = snapshot->base != NULL ? snapshot->base : snapshot;
    const struct td_names names = {
        .count = whole->unsettled.count, .context = &whole->unsettled, .get = unsettled_path};
    if (directory.len == 0)
        return whole->unsettled.count > 0;
    return lower_bound(&names, directory, '/') < lower_bound(&names, directory, '/' + 1);
}

bool td_snapshot_run_has_folder(const struct td_snapshot *snapshot, size_t first, size_t count, size_t prefix_len,
                                struct td_text folder)
{
    const struct entry_run run = {.entries = snapshot->entries + first, .prefix_len = prefix_len};
    const struct td_names names = {.count = count, .context = &run, .get = entry_path};
    return lower_bound(&names, folder, '/') < lower_bound(&names, folder, '/' + 1);
}

struct td_joined_tensors *td_joined_tensors_create(struct td_error *err)
{
    struct td_joined_tensors *join = calloc(1, sizeof *join);
    if (join == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    atomic_init(&join->refs, 1);
    td_arena_init(&join->arena, 0);
    return join;
}

struct td_joined_tensors *td_joined_tensors_ref(struct td_joined_tensors *join)
{
    atomic_fetch_add_explicit(&join->refs, 1, memory_order_relaxed);
    return join;
}

void td_joined_tensors_unref(struct td_joined_tensors *join)
{
    if (join == NULL || atomic_fetch_sub_explicit(&join->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < join->tensor_count; i++)
        td_grid_unref(join->grids[i]);
    td_arena_fini(&join->arena);
    free(join);
}

void td_checkpoint_drop_refs(struct td_checkpoint *checkpoint)
{
    if (checkpoint->join == NULL)
        free(checkpoint->refs);
    td_joined_tensors_unref(checkpoint->join);
    checkpoint->join = NULL;
    checkpoint->refs = NULL;
}

struct td_file *td_file_ref(struct td_file *file)
{
    atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
    return file;
}

const char *td_file_sha256(const struct td_file *file)
{
    return atomic_load_explicit(&file->hash_state, memory_order_acquire) == TD_HASH_KNOWN ? file->sha256 : NULL;
}

bool td_file_set_sha256(struct td_file *file, const uint8_t *sum)
{
    enum td_hash_state state = TD_HASH_UNKNOWN;
    if (!atomic_compare_exchange_strong(&file->hash_state, &state, TD_HASH_WRITTEN))
        return false; /* another thread was first */
    td_hex_write(sum, TD_SHA256_BYTES, file->sha256);
    atomic_store_explicit(&file->hash_state, TD_HASH_KNOWN, memory_order_release);
    return true;
}

const char *td_file_tag(const struct td_file *file)
{
    const char *sha256 = td_file_sha256(file);
    return sha256 != NULL ? sha256 : file->identity_tag;
}

void td_file_forget_content(struct td_file *file)
{
    if (file->format != NULL)
        td_manifest_fini(&file->manifest);
    if (file->kind == TD_FILE_DCP_METADATA)
        td_dcp_fini(&file->dcp);
    if (file->kind == TD_FILE_SHARD_INDEX)
        td_shard_index_fini(&file->index);
    td_facts_destroy(file->facts);
    file->facts = NULL;
    file->count_count = 0;
    td_budget_give(file->memory, file->memory_bytes);
    file->memory_bytes = 0;
    file->readable = false;
}

/* Frees the rows of a file, and returns their memory to the budget. */
static void free_rows(struct td_file_rows *rows)
{
    while (rows != NULL) {
        struct td_file_rows *next = rows->next;
        td_row_index_fini(&rows->index);
        td_budget_give(rows->memory, rows->memory_bytes);
        free(rows->error);
        free(rows);
        rows = next;
    }
}

void td_file_unref(struct td_file *file)
{
    if (file == NULL || atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (file->maps != NULL)
        td_file_source_forget(file->maps, &file->source);
    td_blob_unref(file->source.incoming);
    td_file_forget_content(file);
    free_rows(file->rows);
    free(file->error);
    free((char *)(uintptr_t)file->source.path);
    free(file);
}

static struct td_text model_id(const void *context, size_t i)
{
    const char *id = ((const struct td_model *)context)[i].id;
    return td_text_of(id);
}

static size_t find_model(const struct td_snapshot *snapshot, struct td_text id, bool *found)
{
    struct td_names names = {.count = snapshot->model_count, .context = snapshot->models, .get = model_id};
    return td_names_search(&names, id, found);
}

const struct td_model *td_snapshot_find_model(const struct td_snapshot *snapshot, struct td_text id)
{
    bool found;
    size_t at = find_model(snapshot, id, &found);
    return found ? &snapshot->models[at] : NULL;
}

void td_snapshot_models_below(const struct td_snapshot *snapshot, struct td_text id, size_t *first, size_t *count)
{
    const struct td_names names = {.count = snapshot->model_count, .context = snapshot->models, .get = model_id};
    *first = lower_bound(&names, id, '/');
    *count = lower_bound(&names, id, '/' + 1) - *first;
}

size_t td_snapshot_models_after(const struct td_snapshot *snapshot, struct td_text id)
{
    bool found;
    size_t at = find_model(snapshot, id, &found);
    return at + found;
}

const struct td_entry *td_snapshot_find_in_run(const struct td_snapshot *snapshot, size_t first, size_t count,
                                               size_t prefix_len, struct td_text path)
{
    struct entry_run run = {.entries = snapshot->entries + first, .prefix_len = prefix_len};
    struct td_names names = {.count = count, .context = &run, .get = entry_path};
    bool found;
    size_t at = td_names_search(&names, path, &found);
    return found ? &run.entries[at] : NULL;
}

const struct td_entry *td_snapshot_find_entry(const struct td_snapshot *snapshot, struct td_text path)
{
    return td_snapshot_find_in_run(snapshot, 0, snapshot->entry_count, 0, path);
}

const struct td_model *td_snapshot_route(const struct td_snapshot *snapshot, struct td_text path, size_t *rest)
{
    for (size_t end = path.len; end > 0; end--) {
        if (end != path.len && path.p[end] != '/')
            continue;
        const struct td_model *model = td_snapshot_find_model(snapshot, td_text_n(path.p, end));
        if (model != NULL) {
            *rest = end < path.len ? end + 1 : path.len;
            return model;
        }
    }
    return NULL;
}

const char *td_model_relative(const struct td_model *model, const struct td_entry *entry)
{
    return model->directory_len == 0 ? entry->path : entry->path + model->directory_len + 1;
}

const struct td_entry *td_model_find_file(const struct td_snapshot *snapshot, const struct td_model *model,
                                          struct td_text path)
{
    size_t prefix_len = model->directory_len == 0 ? 0 : model->directory_len + 1;
    return td_snapshot_find_in_run(snapshot, model->first_entry, model->entry_count, prefix_len, path);
}

const struct td_checkpoint *td_model_find_checkpoint(const struct td_model *model, struct td_text id)
{
    if (model->checkpoint_count == 0)
        return NULL;
    if (id.p == NULL || id.len == 0)
        return &model->checkpoints[0];
    for (size_t i = 0; i < model->checkpoint_count; i++) {
        const char *known = model->checkpoints[i].id;
        if (td_text_compare(td_text_of(known), id) == 0)
            return &model->checkpoints[i];
    }
    return NULL;
}

bool td_model_is_default_checkpoint(const struct td_model *model, const struct td_checkpoint *checkpoint)
{
    return !checkpoint->is_rank_part &&
           checkpoint == (checkpoint->lacks != NULL ? model->partials : model->checkpoints);
}

size_t td_model_rank_part_count(const struct td_model *model)
{
    size_t count = 0;
    while (count < model->partial_count && model->partials[model->partial_count - count - 1].is_rank_part)
        count++;
    return count;
}

struct td_tensor_ref td_checkpoint_tensor(const struct td_checkpoint *checkpoint, size_t i)
{
    if (checkpoint->refs != NULL)
        return checkpoint->refs[i];
    return (struct td_tensor_ref){.tensor = &checkpoint->parts[0]->file->manifest.tensors[i], .part = 0};
}

static struct td_text tensor_name(const void *context, size_t i)
{
    const struct td_tensor *tensor = td_checkpoint_tensor(context, i).tensor;
    return td_text_n(tensor->name, tensor->name_len);
}

static size_t find_tensor(const struct td_checkpoint *checkpoint, struct td_text name, bool *found)
{
    struct td_names names = {.count = checkpoint->tensor_count, .context = checkpoint, .get = tensor_name};
    return td_names_search(&names, name, found);
}

size_t td_checkpoint_after(const struct td_checkpoint *checkpoint, struct td_text name)
{
    bool found;
    size_t at = find_tensor(checkpoint, name, &found);
    return at + found;
}

bool td_checkpoint_find_number(const struct td_checkpoint *checkpoint, struct td_text name, size_t *out)
{
    bool found;
    *out = find_tensor(checkpoint, name, &found);
    return found;
}

bool td_checkpoint_find(const struct td_checkpoint *checkpoint, struct td_text name, struct td_tensor_ref *out)
{
    size_t at;
    bool found = td_checkpoint_find_number(checkpoint, name, &at);
    if (found)
        *out = td_checkpoint_tensor(checkpoint, at);
    return found;
}

struct td_grid *td_checkpoint_grid(const struct td_checkpoint *checkpoint, const struct td_tensor *tensor)
{
    const struct td_joined_tensors *join = checkpoint->join;
    return tensor->piece_count == 0 ? NULL : join->grids[tensor - join->tensors[0].tensor];
}

void td_problems_add(struct td_problems *problems, struct td_arena *arena, const char *path, const char *message)
{
    enum { PROBLEMS_MAX = 1000 };
    if (problems->count >= PROBLEMS_MAX)
        return;
    bool room = TD_ARRAY_GROW(problems->items, problems->count, problems->capacity, NULL);
    char *path_copy = room ? td_arena_strndup(arena, td_text_of(path)) : NULL;
    char *message_copy = room ? td_arena_strndup(arena, td_text_of(message)) : NULL;
    if (path_copy == NULL || message_copy == NULL)
        problems->incomplete = true;
    else
        problems->items[problems->count++] = (struct td_problem){.path = path_copy, .message = message_copy};
}

bool td_snapshot_has_all_problems(const struct td_snapshot *snapshot)
{
    bool all = !snapshot->problems.incomplete;
    for (size_t i = 0; i < snapshot->model_count; i++)
        all = all && !snapshot->models[i].problems.incomplete;
    return all;
}

/* ---- rows of datasets ---------------------------------------------------------------------------------- */

struct td_file_rows *td_file_rows_get(struct td_file_rows **list, const struct td_row_format *format,
                                      uint64_t table_number)
{
    for (struct td_file_rows *rows = *list; rows != NULL; rows = rows->next)
        if (rows->format == format && rows->table_number == table_number)
            return rows;
    struct td_file_rows *rows = calloc(1, sizeof *rows);
    if (rows == NULL)
        return NULL;
    rows->next = *list;
    rows->format = format;
    rows->table_number = table_number;
    *list = rows;
    return rows;
}
