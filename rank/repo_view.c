/* Plan: a view is a run of the snapshot's entries and a kind. td_repo_view_models() finds the models in it;
 * is_replaced() finds the models with checkpoints that rank files replace; is_kept() finds the files on disk that are
 * shown. Listing and finding join these two. Opening a revision tries the repository's own revisions first, then names
 * of virtual revisions, then their commits.
 *
 * What is hard: (1) a commit decodes to a revision but does not contain its files, so open_commit() encodes it again
 * for every revision of the repository and compares. (2) A view with replaced checkpoints must not show pickles,
 * whatever their names: clients would load them. (3) A view may have a million files, so items are small and
 * descriptions are made one by one. */
#include "rank/repo_view.h"

#include "catalog/checkpoints/shard_group.h"
#include "core/clock.h"
#include "core/text.h"
#include "rank/file_answer.h"
#include "rank/tensor_source.h"
#include "slicing/engine/engine.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- revisions ----------------------------------------------------------------------------------------- */

static void set_files(struct td_repo_view *view, const struct td_repo *repo)
{
    view->kind = TD_REVISION_FILES;
    view->first_entry = repo->first_entry;
    view->entry_count = repo->entry_count;
    view->prefix_len = repo->prefix_len;
    view->updated_ns = repo->updated_ns;
    memcpy(view->commit, repo->commit, TD_COMMIT_BYTES);
}

/* Turns a view of files, which have the commit `base`, into one of a virtual revision. */
static bool set_virtual(struct td_repo_view *view, const struct td_virtual_revision *virtual, const char *base,
                        struct td_error *err)
{
    const char *engine = td_engine_name_of(virtual->engine); /* outlives the request */
    view->kind = virtual->kind;
    view->rank = virtual->rank;
    (void)td_rank_name_engine(td_text_of(engine), virtual->tp_size, &view->name);
    return td_virtual_revision_write_commit(virtual, base, view->commit) || td_error_no_memory(err);
}

/* Opens a virtual revision by its commit; any revision of the repository may be its base. Returns false when it is no
 * such commit (err is not set), or memory is short. */
static bool open_commit(struct td_repo_view *view, const struct td_repo *repo, struct td_text commit,
                        struct td_error *err)
{
    struct td_virtual_revision virtual;
    if (!td_virtual_revision_read_commit(commit, &virtual))
        return false;
    for (const struct td_repo *other = repo; other <= repo + repo->other_count; other++) {
        const char *const bases[] = {other->commit, other->identity_commit};
        for (size_t i = 0; i < 2; i++) {
            set_files(view, other);
            if (!set_virtual(view, &virtual, bases[i], err))
                return false;
            if (td_text_equals(commit, view->commit))
                return true;
        }
    }
    return false;
}

/* ---- the models in a view ------------------------------------------------------------------------------ */

struct td_repo_models td_repo_view_models(const struct td_repo_view *view)
{
    const struct td_snapshot *snapshot = view->snapshot;
    struct td_repo_models run = {0};
    if (view->kind == TD_REVISION_RANKS)
        run.root = view->model;
    if (view->entry_count == 0 || run.root != NULL)
        return run;
    if (view->prefix_len == 0) {
        for (size_t i = 0; i < snapshot->model_count && run.root == NULL; i++)
            if (snapshot->models[i].directory_len == 0 && snapshot->models[i].first_entry == view->first_entry &&
                snapshot->models[i].entry_count == view->entry_count)
                run.root = &snapshot->models[i];
        return run;
    }
    const char *base = snapshot->entries[view->first_entry].path; /* its beginning is the view's path, with the '/' */
    run.at = td_snapshot_find_model(snapshot, td_text_n(base, view->prefix_len - 1));
    size_t first = td_snapshot_models_after(snapshot, td_text_n(base, view->prefix_len));
    run.children = &snapshot->models[first];
    while (first + run.child_count < snapshot->model_count &&
           strncmp(run.children[run.child_count].id, base, view->prefix_len) == 0)
        run.child_count++;
    return run;
}

static size_t models_count(const struct td_repo_models *models)
{
    return models->child_count + (models->at != NULL ? 1 : 0) + (models->root != NULL ? 1 : 0);
}

const struct td_model *td_repo_models_get(const struct td_repo_models *models, size_t i)
{
    if (i >= models_count(models))
        return NULL;
    if (models->root != NULL)
        return models->root;
    if (models->at != NULL)
        return i == 0 ? models->at : &models->children[i - 1];
    return &models->children[i];
}

/* Returns whether a view of RANK leaves this model's checkpoint out. It does if the engine reads config.json, this
 * model is in a folder without one, and the view has a rank file of the model in its own directory. Such folders, as
 * onnx/ and original/, hold the same model in other forms. No engine could make rank files of them. */
static bool is_left_out(const struct td_repo_view *view, const struct td_repo_models *run, const struct td_model *model)
{
    return view->kind == TD_REVISION_RANK && view->name.by_config && model->config == NULL && run->at != NULL &&
           run->at != model && run->at->checkpoint_count > 0;
}

/* Returns whether the view, which has these models, has a rank file in place of this one's checkpoint. */
static bool is_replaced(const struct td_repo_view *view, const struct td_repo_models *run, const struct td_model *model)
{
    if (model->checkpoint_count == 0 || view->kind == TD_REVISION_FILES || is_left_out(view, run, model))
        return false;
    const struct td_checkpoint *checkpoint = &model->checkpoints[0];
    bool is_safetensors = strcmp(checkpoint->format, "safetensors") == 0 && checkpoint->join == NULL;
    return view->kind != TD_REVISION_SAFETENSORS || !is_safetensors;
}

bool td_repo_view_fits(const struct td_repo_view *view)
{
    const struct td_repo_models run = td_repo_view_models(view);
    for (size_t i = 0; i < models_count(&run); i++) {
        const struct td_model *model = td_repo_models_get(&run, i);
        if (is_replaced(view, &run, model) && !model->checkpoints[0].fits_safetensors)
            return false;
    }
    return true;
}

/* Returns whether the name is one of pickles, also of those that tensord does not read. */
static bool is_pickles_name(const char *name)
{
    static const char *const extensions[] = {".pkl", ".pickle", ".pk",   ".joblib",  ".dill",   ".pt",      ".pt2",
                                             ".pth", ".ckpt",   ".bin",  ".distcp",  ".npy",    ".npz",     ".nemo",
                                             ".th",  ".ptl",    ".pyth", ".pth.tar", ".pt.tar", ".ckpt.tar"};
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        if (td_has_extension_any_case(name, extensions[i]))
            return true;
    return false;
}

/* Returns whether the view shows this file as it is on disk. A file with a checkpoint's name may be a pickle, whatever
 * its bytes. */
static bool is_kept(const struct td_repo_view *view, const struct td_repo_models *run, const struct td_entry *entry)
{
    const char *name = td_base_name(entry->path);
    if (view->kind == TD_REVISION_FILES)
        return true;
    if (entry->file->kind == TD_FILE_PLAIN)
        return !is_pickles_name(name);
    if (view->kind != TD_REVISION_SAFETENSORS ||
        (!td_has_extension(name, ".safetensors") && strstr(name, ".safetensors.index.") == NULL))
        return false;
    size_t rest;
    const struct td_model *model =
        run->root != NULL ? run->root : td_snapshot_route(view->snapshot, td_text_of(entry->path), &rest);
    return model == NULL || !is_replaced(view, run, model);
}

/* Returns the length of a file's name without .bin and without -00001-of-00002. */
static size_t stem_len(const char *part)
{
    size_t len = td_shard_stem_len(part);
    return len > 0 ? len : strlen(part) - strlen(".bin");
}

/* The file name under which transformers and other libraries look for a model's weights. */
#define WEIGHTS "model.safetensors"

/* Writes the name of the file in place of a checkpoint: the one that the libraries that load it look for. */
static void write_rank_file_name(const struct td_repo_view *view, const struct td_model *model, uint64_t rank,
                                 char *out, size_t capacity)
{
    const char *part = td_base_name(model->checkpoints[0].parts[0]->path);
    if (view->kind == TD_REVISION_RANKS ||
        (view->kind == TD_REVISION_RANK && td_engine_reads_states(view->name.engine)))
        (void)td_rank_name_write_state(rank, out, capacity);
    else if (view->kind == TD_REVISION_SAFETENSORS && td_has_extension(part, ".bin") &&
             strncmp(part, "pytorch_model", 13) != 0)
        (void)snprintf(out, capacity, "%.*s.safetensors", (int)stem_len(part), part); /* adapter_model */
    else
        (void)snprintf(out, capacity, WEIGHTS);
}

struct td_text td_repo_view_directory(const struct td_repo_view *view, const struct td_model *model)
{
    if (model->directory_len <= view->prefix_len)
        return TD_TEXT("");
    return td_text_n(model->id + view->prefix_len, model->directory_len - view->prefix_len);
}

/* Fills in the item of a rank file. */
static bool set_rank_item(const struct td_repo_view *view, const struct td_model *model, uint64_t rank,
                          struct td_arena *arena, struct td_repo_item *item)
{
    char name[NAME_MAX + 32];
    struct td_text directory = td_repo_view_directory(view, model);
    write_rank_file_name(view, model, rank, name, sizeof name);
    size_t above = directory.len + (directory.len > 0 ? 1 : 0); /* with a '/' */
    char *path = td_arena_alloc(arena, above + strlen(name) + 1);
    if (path == NULL)
        return false;
    memcpy(path, directory.p, directory.len);
    if (above > 0)
        path[above - 1] = '/';
    memcpy(path + above, name, strlen(name) + 1);
    *item = (struct td_repo_item){.path = path, .model = model, .rank = rank};
    return true;
}

static uint64_t rank_files_per_model(const struct td_repo_view *view)
{
    return view->kind == TD_REVISION_RANKS ? view->name.tp_size : 1;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static bool no_revision(struct td_text revision, struct td_error *err)
{
    return td_error_set(err, TD_NOT_FOUND, "no revision \"%.*s\"", TD_SHOW(revision, 100));
}

/* Returns whether the view has a model with a checkpoint. */
static bool has_checkpoint(const struct td_repo_view *view)
{
    struct td_repo_models run = td_repo_view_models(view);
    for (size_t i = 0; i < models_count(&run); i++)
        if (td_repo_models_get(&run, i)->checkpoint_count > 0)
            return true;
    return false;
}

bool td_repo_view_open(struct td_snapshot *snapshot, const struct td_repo *repo, struct td_text revision,
                       struct td_repo_view *view, struct td_error *err)
{
    const struct td_repo *found = td_repo_at(repo, revision);
    struct td_text text = {.p = revision.p, .len = revision.len};
    struct td_virtual_revision virtual;
    memset(view, 0, sizeof *view);
    view->snapshot = snapshot;
    set_files(view, found == NULL ? repo : found);
    if (found != NULL) {
        if (td_text_equals(text, found->identity_commit))
            memcpy(view->commit, found->identity_commit, TD_COMMIT_BYTES); /* the commit that was asked for */
        return true;
    }
    bool ok = td_virtual_revision_read_name(text, &virtual, NULL) ? set_virtual(view, &virtual, repo->commit, err)
                                                                  : open_commit(view, repo, text, err);
    if (err->code != TD_OK)
        return false;
    return (ok && has_checkpoint(view)) || no_revision(revision, err);
}

void td_repo_view_note(const struct td_repo_view *view, struct td_text revision, struct td_response *response)
{
    if (view->entry_count > 0 && view->prefix_len > 0 && !td_text_equals(revision, "main"))
        td_response_note_subject(response,
                                 td_text_n(view->snapshot->entries[view->first_entry].path, view->prefix_len - 1));
}

void td_repo_view_ranks(struct td_snapshot *snapshot, const struct td_model *model, const struct td_rank_name *name,
                        struct td_repo_view *view)
{
    *view = (struct td_repo_view){.snapshot = snapshot,
                                  .kind = TD_REVISION_RANKS,
                                  .first_entry = model->first_entry,
                                  .entry_count = model->entry_count,
                                  .prefix_len = model->directory_len > 0 ? model->directory_len + 1 : 0,
                                  .name = *name,
                                  .model = model,
                                  .updated_ns = model->updated_ns};
}

/* ---- items --------------------------------------------------------------------------------------------- */

static int item_compare(const void *a, const void *b)
{
    return strcmp(((const struct td_repo_item *)a)->path, ((const struct td_repo_item *)b)->path);
}

/* Adds the rank files of these models to the list, which has room for them. Returns false when memory is short. */
static bool add_rank_items(const struct td_repo_view *view, const struct td_repo_models *run, struct td_arena *arena,
                           struct td_repo_item *list, size_t *count)
{
    for (size_t i = 0; i < models_count(run); i++) {
        const struct td_model *model = td_repo_models_get(run, i);
        uint64_t rank_files = is_replaced(view, run, model) ? rank_files_per_model(view) : 0;
        for (uint64_t k = 0; k < rank_files; k++)
            if (!set_rank_item(view, model, view->kind == TD_REVISION_RANK ? view->rank : k, arena, &list[(*count)++]))
                return false;
    }
    return true;
}

bool td_repo_view_list(const struct td_repo_view *view, struct td_arena *arena, struct td_repo_item **items,
                       size_t *count, struct td_error *err)
{
    struct td_repo_models run = td_repo_view_models(view);
    size_t most = view->entry_count;
    if (view->kind != TD_REVISION_FILES)
        most += models_count(&run) * rank_files_per_model(view);
    struct td_repo_item *list = td_arena_array(arena, most, sizeof *list);
    if (list == NULL)
        return td_error_no_memory(err);
    *count = 0;
    *items = list;
    for (size_t i = 0; i < view->entry_count; i++) {
        const struct td_entry *entry = &view->snapshot->entries[view->first_entry + i];
        if (is_kept(view, &run, entry))
            list[(*count)++] = (struct td_repo_item){.path = entry->path + view->prefix_len, .entry = entry};
    }
    size_t kept = *count;
    if (!add_rank_items(view, &run, arena, list, count))
        return td_error_no_memory(err);
    if (*count > kept)
        qsort(list, *count, sizeof *list, item_compare);
    return true;
}

bool td_repo_view_list_rank_files(const struct td_repo_view *view, struct td_arena *arena, struct td_repo_item **items,
                                  size_t *count, struct td_error *err)
{
    struct td_repo_models run = td_repo_view_models(view);
    *count = 0;
    *items = td_arena_array(arena, models_count(&run) * rank_files_per_model(view), sizeof **items);
    return (*items != NULL && add_rank_items(view, &run, arena, *items, count)) || td_error_no_memory(err);
}

bool td_repo_view_keeps(const struct td_repo_view *view, const struct td_entry *entry)
{
    struct td_repo_models run = td_repo_view_models(view);
    return is_kept(view, &run, entry);
}

const char *td_repo_view_format(const struct td_repo_view *view, const struct td_checkpoint *checkpoint)
{
    return view->kind == TD_REVISION_FILES ? checkpoint->format : "safetensors";
}

bool td_repo_view_rank(const struct td_repo_view *view, uint64_t rank, struct td_arena *arena,
                       struct td_repo_item *item, struct td_error *err)
{
    return set_rank_item(view, view->model, rank, arena, item) || td_error_no_memory(err);
}

/* Returns whether a rank file of this model has this name in its directory, and sets *rank. */
static bool is_rank_file_name(const struct td_repo_view *view, const struct td_model *model, struct td_text name,
                              uint64_t *rank)
{
    char listed[NAME_MAX + 32];
    if (view->kind != TD_REVISION_RANKS) {
        *rank = view->rank;
        write_rank_file_name(view, model, *rank, listed, sizeof listed);
        if (td_text_equals(name, listed))
            return true;
    }
    if (view->kind == TD_REVISION_RANK && td_text_equals(name, WEIGHTS))
        return true;
    if (view->kind == TD_REVISION_SAFETENSORS || !td_rank_name_read_state(name, rank))
        return false;
    return view->kind == TD_REVISION_RANK ? *rank == view->rank : *rank < view->name.tp_size;
}

/* Sets *rank to the rank that has its file of this model at this path. Returns false when the path is not a rank
 * file's. */
static bool find_rank_file(const struct td_repo_view *view, const struct td_model *model, struct td_text path,
                           uint64_t *rank)
{
    struct td_text directory = td_repo_view_directory(view, model);
    if (directory.len > 0) {
        if (path.len <= directory.len || !td_text_begins(path, directory) || path.p[directory.len] != '/')
            return false;
        path = td_text_skip(path, directory.len + 1);
    }
    return is_rank_file_name(view, model, path, rank);
}

bool td_repo_view_find(const struct td_repo_view *view, struct td_text path, struct td_arena *arena,
                       struct td_repo_item *item, struct td_error *err)
{
    struct td_repo_models run = {0};
    if (view->kind != TD_REVISION_FILES)
        run = td_repo_view_models(view);
    const struct td_entry *entry =
        td_snapshot_find_in_run(view->snapshot, view->first_entry, view->entry_count, view->prefix_len, path);
    if (entry != NULL && is_kept(view, &run, entry)) {
        *item = (struct td_repo_item){.path = entry->path + view->prefix_len, .entry = entry};
        return true;
    }
    for (size_t i = 0; i < models_count(&run); i++) {
        const struct td_model *model = td_repo_models_get(&run, i);
        uint64_t rank;
        if (!is_replaced(view, &run, model) || !find_rank_file(view, model, path, &rank))
            continue;
        *item = (struct td_repo_item){.path = td_arena_strndup(arena, path), .model = model, .rank = rank};
        return item->path != NULL || td_error_no_memory(err);
    }
    return td_error_set(err, TD_NOT_FOUND, "no file \"%.*s\"", TD_SHOW(path, 200));
}

struct td_rank_set td_repo_view_rank_set(const struct td_repo_view *view, const struct td_model *model)
{
    return (struct td_rank_set){
        .snapshot = view->snapshot, .model = model, .checkpoint = &model->checkpoints[0], .name = view->name};
}

bool td_repo_view_refuse(const struct td_repo_view *view, const struct td_model *model, const struct td_error *why,
                         struct td_error *err)
{
    struct td_text directory = td_repo_view_directory(view, model);
    if (directory.len == 0 || why->code != TD_FAILED_PRECONDITION)
        return td_error_copy(err, why);
    return td_error_at(err, why->code, why->pos, "in \"%.*s\": %s", TD_SHOW(directory, 100), why->message);
}

void td_repo_stats_init(struct td_repo_stats *stats, struct td_rank_store *store, const struct td_repo_view *view)
{
    *stats = (struct td_repo_stats){.store = store, .view = view};
}

void td_repo_stats_fini(struct td_repo_stats *stats)
{
    if (stats->set.model != NULL)
        td_rank_maker_fini(&stats->maker);
}

/* Returns the maker of this model's files: the one before, while the model is the same. */
static struct td_rank_maker *maker_of(struct td_repo_stats *stats, const struct td_model *model)
{
    if (stats->set.model != model) {
        td_repo_stats_fini(stats);
        stats->set = td_repo_view_rank_set(stats->view, model);
        td_rank_maker_init(&stats->maker, stats->store, &stats->set);
    }
    return &stats->maker;
}

bool td_repo_stats_get(struct td_repo_stats *stats, const struct td_repo_item *item, struct td_repo_stat *out,
                       struct td_error *err)
{
    memset(out, 0, sizeof *out);
    if (item->entry != NULL) {
        const struct td_file *file = item->entry->file;
        const char *sha256 = td_file_sha256(file); /* may become known at any time */
        out->size_bytes = file->source.id.size_bytes;
        out->updated_ns = file->source.id.mtime_ns;
        out->is_sha256 = sha256 != NULL;
        (void)snprintf(out->tag, sizeof out->tag, "%s", sha256 != NULL ? sha256 : file->identity_tag);
        return true;
    }
    struct td_rank_file *file = NULL;
    struct td_error why = TD_ERROR_INIT;
    if (!td_rank_maker_get(maker_of(stats, item->model), item->rank, &file, out->tag, &why))
        return td_repo_view_refuse(stats->view, item->model, &why, err);
    out->size_bytes = file->nbytes;
    out->updated_ns = item->model->updated_ns;
    td_rank_file_unref(file);
    return true;
}

bool td_repo_item_stat(struct td_rank_store *store, const struct td_repo_view *view, const struct td_repo_item *item,
                       struct td_repo_stat *stat, struct td_error *err)
{
    struct td_repo_stats stats;
    td_repo_stats_init(&stats, store, view);
    bool ok = td_repo_stats_get(&stats, item, stat, err);
    td_repo_stats_fini(&stats);
    return ok;
}

bool td_repo_item_answer(struct td_rank_store *store, const struct td_repo_view *view, const struct td_repo_item *item,
                         struct td_response *response, struct td_error *err)
{
    if (item->entry != NULL)
        return td_file_answer(store->catalog, view->snapshot, item->entry, response, err);
    struct td_rank_set set = td_repo_view_rank_set(view, item->model);
    struct td_rank_file *file = NULL;
    struct td_error why = TD_ERROR_INIT;
    char tag[TD_TAG_BYTES];
    bool ok = td_rank_store_get(store, &set, item->rank, &file, tag, &why) &&
              td_rank_file_answer(store, &set, item->rank, file, tag, response, &why);
    td_rank_file_unref(file);
    td_response_set_modified(response, item->model->updated_ns);
    return ok || td_repo_view_refuse(view, item->model, &why, err);
}
