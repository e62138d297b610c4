/* Plan: find_seen_models() asks the filter about each model; find_owners() finds the model that each entry belongs to,
 * the one in the deepest directory; show_entries() decides about each entry. The view's entries are those that are
 * shown, in the same order, so a run of entries stays a run: `before` counts the shown entries up to a place. Models
 * are copied, with new runs; repositories and buckets are built again, by the functions that build those of a snapshot;
 * datasets are copied, since their splits are whole.
 *
 * What is hard: (1) a model's run holds the files of models in directories below. If some of these are hidden, sizes,
 * problems and tag are counted again, so that nothing of them is left in numbers. (2) Lifetimes: a reference on a view
 * is also one on its snapshot (td_snapshot_ref), but the snapshot's own reference on each view is not; else neither
 * would end. */
#include "catalog/scan/view.h"

#include "catalog/checkpoints/shard_group.h"
#include "catalog/dataset/dataset.h"
#include "catalog/model/plain_id.h"
#include "catalog/names/bucket.h"
#include "catalog/names/delta.h"
#include "catalog/names/family.h"
#include "catalog/names/oci_name.h"
#include "catalog/names/repo.h"
#include "catalog/scan/grouping.h"
#include "core/array.h"
#include "core/buffer.h"
#include "core/checked.h"
#include "core/clock.h"
#include "core/waiting.h"
#include "parser/format/names.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NO_OWNER SIZE_MAX

/* How often it is asked whether the request is cancelled. */
static const uint64_t ask_every_ns = UINT64_C(50000000);

static const char datasets_prefix[] = "datasets/";

struct builder {
    const struct td_snapshot *base;
    struct td_snapshot *view;
    const struct td_view_filter *filter;
    bool *model_seen;   /* per model */
    bool *dataset_seen; /* per dataset */
    size_t *owners;     /* per entry: the number of its model, or NO_OWNER */
    bool *in_dataset;   /* per entry */
    bool *shown;        /* per entry */
    size_t *before;     /* per entry, and one more: shown entries before it */
    uint64_t ask_ns;    /* when it is asked again whether the request is cancelled */
    bool is_cancelled;  /* nothing more is seen, and the view is dropped */
    struct td_error *err;
};

/* ---- what is visible ------------------------------------------------------------------------------------ */

static bool refuse_cancelled(struct td_error *err)
{
    return td_error_set(err, TD_UNAVAILABLE, "the request was cancelled");
}

/* Asks the filter, which may take long: no more once the request is cancelled. */
static bool may_see(struct builder *b, struct td_text id)
{
    uint64_t now_ns = td_clock_ns();
    if (now_ns >= b->ask_ns) {
        b->is_cancelled = b->is_cancelled || td_cancel_is_asked(b->filter->cancel);
        b->ask_ns = now_ns + ask_every_ns;
    }
    return !b->is_cancelled && b->filter->may_see(b->filter->context, id);
}

/* Asks for beginning + id. */
static bool may_see_below(struct builder *b, const char *beginning, const char *id, bool *seen)
{
    struct td_buffer text;
    td_buffer_init(&text);
    td_buffer_puts(&text, beginning);
    td_buffer_puts(&text, id);
    *seen = !text.failed && may_see(b, td_buffer_text(&text));
    bool ok = !text.failed || td_buffer_refuse(&text, b->err);
    td_buffer_fini(&text);
    return ok;
}

/* Asks for a model. org/name@commit/unet, of another revision, counts as org/name/unet; org/run@@step-1, a kept version
 * that is a subfolder at the upstream, as org/run/step-1. */
static bool may_see_model(struct builder *b, const struct td_model *model, bool *seen)
{
    const struct td_plain_path plain = td_plain_path(model, model->id);
    if (plain.after.len == 0 && !model->is_of_subfolder) {
        *seen = may_see(b, plain.before);
        return true;
    }
    struct td_buffer id;
    td_buffer_init(&id);
    td_buffer_append(&id, plain.before.p, plain.before.len);
    if (model->is_of_subfolder)
        td_buffer_printf(&id, "/%s", model->revision);
    td_buffer_append(&id, plain.after.p, plain.after.len);
    *seen = !id.failed && may_see(b, td_buffer_text(&id));
    bool ok = !id.failed || td_buffer_refuse(&id, b->err);
    td_buffer_fini(&id);
    return ok;
}

static bool find_seen_models(struct builder *b)
{
    for (size_t i = 0; i < b->base->model_count; i++)
        if (!may_see_model(b, &b->base->models[i], &b->model_seen[i]))
            return false;
    const struct td_datasets *datasets = td_datasets_of(b->base);
    for (size_t i = 0; i < datasets->count; i++)
        if (!may_see_below(b, datasets_prefix, datasets->items[i].id, &b->dataset_seen[i]))
            return false;
    return true;
}

/* Returns whether an entry in the run of a model directly in the root is one of the model's. Unless the whole root is
 * the model, the model is one file, or the shards with one stem. */
static bool is_of_root_model(const struct td_snapshot *base, const struct td_model *model, size_t entry)
{
    const char *path = base->entries[entry].path;
    const char *first = base->entries[model->first_entry].path;
    size_t stem_len = td_shard_stem_len(first);
    return base->root_is_model || strcmp(path, first) == 0 ||
           (stem_len > 0 && td_shard_stem_len(path) == stem_len && strncmp(path, first, stem_len) == 0);
}

/* Finds the owner of each entry. Models are sorted by id, and the id of one in a directory is that directory, so a
 * model comes before those below, which take their entries from it. */
static void find_owners(struct builder *b)
{
    const struct td_snapshot *base = b->base;
    for (size_t i = 0; i < base->entry_count; i++)
        b->owners[i] = NO_OWNER;
    for (int in_directories = 0; in_directories < 2; in_directories++)
        for (size_t m = 0; m < base->model_count; m++) {
            const struct td_model *model = &base->models[m];
            if ((model->directory_len > 0) != (in_directories > 0))
                continue;
            for (size_t i = model->first_entry; i < model->first_entry + model->entry_count; i++)
                if (in_directories > 0 || is_of_root_model(base, model, i))
                    b->owners[i] = m;
        }
}

/* Shows the files of a visible dataset: those that belong to no model, and the plain files beside a hidden checkpoint
 * in the dataset's own directory. */
static void show_dataset(struct builder *b, const struct td_repo *repo, bool seen)
{
    for (size_t i = repo->first_entry; i < repo->first_entry + repo->entry_count; i++) {
        const struct td_model *owner = b->owners[i] == NO_OWNER ? NULL : &b->base->models[b->owners[i]];
        bool is_beside = owner != NULL && owner->directory_len + 1 == repo->prefix_len &&
                         b->base->entries[i].file->kind == TD_FILE_PLAIN;
        b->in_dataset[i] = true;
        if (seen && (owner == NULL || is_beside))
            b->shown[i] = true;
    }
}

/* Shows the files of a repository with an accepted id, except files of models and datasets. */
static bool show_repo(struct builder *b, const struct td_repo *repo)
{
    bool seen;
    if (!may_see_below(b, repo->is_dataset_folder ? datasets_prefix : "", repo->id, &seen))
        return false;
    for (size_t i = repo->first_entry; seen && i < repo->first_entry + repo->entry_count; i++)
        if (b->owners[i] == NO_OWNER && !b->in_dataset[i])
            b->shown[i] = true;
    return true;
}

static struct td_text directory_of(const char *path)
{
    const char *name = td_base_name(path);
    return td_text_n(path, name == path ? 0 : (size_t)(name - path) - 1);
}

/* Shows the files that belong to nothing, if their path or directory is accepted. */
static void show_others(struct builder *b)
{
    struct td_text last = TD_TEXT("");
    bool last_seen = false;
    for (size_t i = 0; i < b->base->entry_count; i++) {
        const char *path = b->base->entries[i].path;
        struct td_text directory = directory_of(path);
        if (b->owners[i] != NO_OWNER || b->in_dataset[i] || b->shown[i])
            continue;
        if (directory.len > 0 &&
            td_text_compare(directory, last) != 0) { /* files of one directory follow one another */
            last = directory;
            last_seen = may_see(b, directory);
        }
        b->shown[i] = (directory.len > 0 && last_seen) || may_see(b, td_text_of(path));
    }
}

static bool show_entries(struct builder *b)
{
    const struct td_snapshot *base = b->base;
    for (size_t i = 0; i < base->entry_count; i++)
        b->shown[i] = b->owners[i] != NO_OWNER && b->model_seen[b->owners[i]];
    const struct td_datasets *datasets = td_datasets_of(base);
    for (size_t i = 0; i < datasets->count; i++)
        show_dataset(b, datasets->items[i].repo, b->dataset_seen[i]);
    const struct td_repos *repos = td_repos_of(base);
    for (size_t i = 0; i < repos->count; i++)
        if (!show_repo(b, &repos->items[i]))
            return false;
    show_others(b);
    for (size_t i = 0; i < base->entry_count; i++)
        b->before[i + 1] = b->before[i] + b->shown[i];
    return true;
}

/* ---- the view's parts ----------------------------------------------------------------------------------- */

static bool copy_entries(struct builder *b)
{
    struct td_snapshot *view = b->view;
    view->entries = calloc(b->before[b->base->entry_count] + 1, sizeof *view->entries);
    if (view->entries == NULL)
        return td_error_no_memory(b->err);
    for (size_t i = 0; i < b->base->entry_count; i++)
        if (b->shown[i])
            view->entries[view->entry_count++] = b->base->entries[i];
    return true;
}

/* Returns whether a problem of a model is of a file that is hidden. */
static bool is_of_hidden(const struct builder *b, const struct td_model *model, const struct td_problem *problem)
{
    const struct td_entry *entry = td_model_find_file(b->base, model, td_text_of(problem->path));
    return entry != NULL && !b->shown[entry - b->base->entries];
}

/* Counts sizes, problems and tags of a model again, since some of its files are hidden. */
static bool count_again(struct builder *b, const struct td_model *from, struct td_model *model)
{
    struct td_snapshot *view = b->view;
    model->file_bytes = 0;
    model->updated_ns = 0;
    for (size_t i = model->first_entry; i < model->first_entry + model->entry_count; i++) {
        const struct td_file_id *id = &view->entries[i].file->source.id;
        if (!td_add_u64(model->file_bytes, id->size_bytes, &model->file_bytes))
            model->file_bytes = UINT64_MAX;
        if (id->mtime_ns > model->updated_ns)
            model->updated_ns = id->mtime_ns;
    }
    struct td_problem *items = td_arena_array(&view->arena, from->problems.count, sizeof *items);
    if (items == NULL)
        return td_error_no_memory(b->err);
    model->problems = (struct td_problems){.items = items};
    for (size_t i = 0; i < from->problems.count; i++)
        if (!is_of_hidden(b, from, &from->problems.items[i]))
            items[model->problems.count++] = from->problems.items[i];
    return td_model_make_tag(view, model, b->err);
}

static bool copy_models(struct builder *b)
{
    struct td_snapshot *view = b->view;
    const struct td_snapshot *base = b->base;
    view->models = calloc(base->model_count + 1, sizeof *view->models);
    if (view->models == NULL)
        return td_error_no_memory(b->err);
    for (size_t i = 0; i < base->model_count; i++) {
        const struct td_model *from = &base->models[i];
        if (!b->model_seen[i])
            continue;
        struct td_model *model = &view->models[view->model_count++];
        *model = *from;
        model->first_entry = b->before[from->first_entry];
        model->entry_count = b->before[from->first_entry + from->entry_count] - model->first_entry;
        size_t config = from->config == NULL ? 0 : (size_t)(from->config - base->entries);
        if (from->config != NULL)
            model->config = b->shown[config] ? &view->entries[b->before[config]] : NULL;
        if (model->entry_count != from->entry_count && !count_again(b, from, model))
            return false;
    }
    return true;
}

/* Copies the problems of files that were not published, if the model that contains the path is visible; for a path
 * outside of models, if the filter accepts the path or its directory. Problems of repositories are added with the
 * view's own repositories. */
static void copy_problems(struct builder *b)
{
    const struct td_problems *from = &b->base->problems;
    const struct td_repos *repos = td_repos_of(b->base);
    for (size_t i = 0; i < from->count; i++) {
        struct td_text path = td_text_of(from->items[i].path);
        struct td_text directory = directory_of(path.p);
        size_t rest;
        const struct td_model *model = td_snapshot_route(b->base, path, &rest);
        bool is_of_repo = i >= repos->problem_first && i < repos->problem_first + repos->problem_count;
        bool seen = model != NULL ? b->model_seen[model - b->base->models]
                                  : path.len > 0 && (may_see(b, path) || (directory.len > 0 && may_see(b, directory)));
        if (seen && !is_of_repo)
            td_problems_add(&b->view->problems, &b->view->arena, path.p, from->items[i].message);
    }
}

/* Makes the repositories. A cache folder is one as long as one of its files is visible. */
static bool build_repos(struct builder *b)
{
    size_t count = 0;
    const struct td_repos *repos = td_repos_of(b->base);
    struct td_cache_folder *caches = calloc(repos->cache_count + 1, sizeof *caches);
    if (caches == NULL)
        return td_error_no_memory(b->err);
    for (size_t i = 0; i < repos->cache_count; i++) {
        size_t first;
        size_t entry_count;
        td_snapshot_entries_below(b->view, td_text_of(repos->caches[i].path), &first, &entry_count);
        if (entry_count > 0)
            caches[count++] = repos->caches[i];
    }
    bool ok = td_repos_build(b->view, caches, count, b->err);
    free(caches);
    return ok;
}

/* Returns the view's repository that is this one of the snapshot, or NULL. */
static const struct td_repo *find_repo(const struct td_snapshot *view, const struct td_repo *wanted)
{
    const struct td_repo *repo = td_repo_find(view, wanted->is_dataset_folder, td_text_of(wanted->id));
    bool is_same =
        repo != NULL && repo->is_dataset_folder == wanted->is_dataset_folder && strcmp(repo->id, wanted->id) == 0;
    return is_same ? repo : NULL;
}

/* Returns the view's repository of dataset number `number`; NULL for one that the caller may not see. */
static const struct td_repo *repo_of_dataset(void *context, size_t number)
{
    struct builder *b = context;
    return b->dataset_seen[number] ? find_repo(b->view, td_datasets_of(b->base)->items[number].repo) : NULL;
}

static bool build_view(struct builder *b)
{
    size_t entries = b->base->entry_count + 1;
    b->model_seen = calloc(b->base->model_count + 1, sizeof *b->model_seen);
    b->dataset_seen = calloc(td_datasets_of(b->base)->count + 1, sizeof *b->dataset_seen);
    b->owners = calloc(entries, sizeof *b->owners);
    b->in_dataset = calloc(entries, sizeof *b->in_dataset);
    b->shown = calloc(entries, sizeof *b->shown);
    b->before = calloc(entries, sizeof *b->before);
    if (b->model_seen == NULL || b->dataset_seen == NULL || b->owners == NULL || b->in_dataset == NULL ||
        b->shown == NULL || b->before == NULL)
        return td_error_no_memory(b->err);
    if (!find_seen_models(b))
        return false;
    find_owners(b);
    if (!show_entries(b) || !copy_entries(b) || !copy_models(b))
        return false;
    copy_problems(b);
    if (b->is_cancelled)
        return refuse_cancelled(b->err);
    const struct td_version_prefixes *prefixes = td_families_of(b->base)->prefixes;
    if (!build_repos(b) || !td_families_build(b->view, prefixes, b->err))
        return false;
    td_deltas_find_bases(b->view);
    return td_datasets_copy(b->view, b->base, repo_of_dataset, b, b->err) && td_buckets_build(b->view, b->err) &&
           td_oci_names_build(b->view, b->err) && (!b->view->problems.incomplete || td_error_no_memory(b->err));
}

/* Returns a view with one reference, the one that its snapshot keeps; NULL for want of memory. */
static struct td_snapshot *view_create(struct td_snapshot *base, const struct td_view_filter *filter,
                                       struct td_error *err)
{
    struct td_snapshot *view = calloc(1, sizeof *view);
    if (view == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    atomic_init(&view->refs, 1);
    td_arena_init(&view->arena, 0);
    view->base = base;
    view->root = base->root == NULL ? NULL : td_root_ref(base->root);
    view->root_is_model = base->root_is_model;
    view->generation = base->generation;
    struct builder b = {.base = base, .view = view, .filter = filter, .err = err};
    bool ok = build_view(&b);
    free(b.model_seen);
    free(b.dataset_seen);
    free(b.owners);
    free(b.in_dataset);
    free(b.shown);
    free(b.before);
    if (ok)
        return view;
    td_snapshot_free(view);
    return NULL;
}

/* ---- keeping them --------------------------------------------------------------------------------------- */

struct slot {
    char key[TD_VIEW_KEY_BYTES];
    struct td_snapshot *view; /* NULL: a thread is making it */
    uint64_t used;            /* when it was asked for last, as a number of requests */
    size_t bytes;
};

struct td_views {
    struct td_snapshot_part part;
    pthread_mutex_t lock;
    pthread_cond_t made;
    struct slot *slots;
    size_t count, capacity;
    size_t bytes; /* of all views */
    uint64_t requests;
};

/* Drops the snapshot's own reference on a view. */
static void drop_view(struct td_snapshot *view)
{
    if (atomic_fetch_sub_explicit(&view->refs, 1, memory_order_acq_rel) == 1)
        td_snapshot_free(view);
}

static void destroy_views(struct td_snapshot_part *part)
{
    struct td_views *views = (struct td_views *)(void *)part;
    for (size_t i = 0; i < views->count; i++)
        drop_view(views->slots[i].view);
    (void)pthread_cond_destroy(&views->made);
    (void)pthread_mutex_destroy(&views->lock);
    free(views->slots);
    free(views);
}

static struct td_views *views_create(void)
{
    struct td_views *views = calloc(1, sizeof *views);
    if (views == NULL)
        return NULL;
    views->part.destroy = destroy_views;
    bool has_lock = pthread_mutex_init(&views->lock, NULL) == 0;
    if (has_lock && td_clock_condition_init(&views->made))
        return views;
    if (has_lock)
        (void)pthread_mutex_destroy(&views->lock);
    free(views);
    return NULL;
}

/* Returns the snapshot's views; the first caller makes the list. NULL for want of memory. */
static struct td_views *views_of(struct td_snapshot *snapshot)
{
    struct td_snapshot_part *part = td_snapshot_get_part(snapshot, TD_PART_VIEWS);
    if (part == NULL) {
        struct td_views *made = views_create();
        part = made == NULL ? NULL : td_snapshot_add_part(snapshot, TD_PART_VIEWS, &made->part);
    }
    return (struct td_views *)(void *)part;
}

/* Under the lock, as the functions below. */
static struct slot *find_slot(struct td_views *views, const char *key)
{
    for (size_t i = 0; i < views->count; i++)
        if (strcmp(views->slots[i].key, key) == 0)
            return &views->slots[i];
    return NULL;
}

static void remove_slot(struct td_views *views, struct slot *slot)
{
    *slot = views->slots[--views->count];
}

/* Drops the views that were asked for longest ago, but not the newest. */
static void drop_surplus(struct td_views *views)
{
    while (views->count > TD_VIEWS_MAX || views->bytes > TD_VIEWS_BYTES) {
        struct slot *oldest = NULL;
        for (size_t i = 0; i < views->count; i++) {
            struct slot *slot = &views->slots[i];
            if (slot->view != NULL && slot->used != views->requests && (oldest == NULL || slot->used < oldest->used))
                oldest = slot;
        }
        if (oldest == NULL)
            return;
        views->bytes -= oldest->bytes;
        drop_view(oldest->view);
        remove_slot(views, oldest);
    }
}

/* Returns about how many bytes the view takes. */
static size_t view_bytes(const struct td_snapshot *view)
{
    return sizeof *view + view->arena.used_bytes +
           view->entry_count * (sizeof *view->entries + sizeof(struct td_bucket_run)) +
           view->model_count * sizeof *view->models + td_repos_of(view)->count * sizeof(struct td_repo) +
           td_families_of(view)->count * sizeof(char *) + td_datasets_of(view)->count * sizeof(struct td_dataset) +
           td_oci_names_of(view)->count * sizeof(struct td_oci_name) +
           (td_buckets_of(view)->count + td_buckets_of(view)->other_count) * sizeof(struct td_bucket);
}

/* Makes a view without the lock, and puts it in the slot that the caller has added. Returns the view with a reference
 * for the caller. */
static struct td_snapshot *make_view(struct td_views *views, struct td_snapshot *snapshot,
                                     const struct td_view_filter *filter, struct td_error *err)
{
    pthread_mutex_unlock(&views->lock);
    struct td_snapshot *view = view_create(snapshot, filter, err);
    pthread_mutex_lock(&views->lock);
    struct slot *slot = find_slot(views, filter->key);
    if (view == NULL) {
        remove_slot(views, slot);
    } else {
        (void)td_snapshot_ref(view);
        slot->view = view;
        slot->used = ++views->requests;
        slot->bytes = view_bytes(view);
        views->bytes += slot->bytes;
        drop_surplus(views);
    }
    pthread_cond_broadcast(&views->made);
    return view;
}

/* Adds a slot for a view that the caller is going to make. */
static bool add_slot(struct td_views *views, const char *key, struct td_error *err)
{
    if (!TD_ARRAY_GROW(views->slots, views->count, views->capacity, err))
        return false;
    struct slot *slot = &views->slots[views->count++];
    *slot = (struct slot){.used = ++views->requests};
    memcpy(slot->key, key, strlen(key) + 1);
    return true;
}

/* Waits until a view is made, and at most until it is time to ask whether the request is cancelled. Returns false when
 * it is. */
static bool wait_for_maker(struct td_views *views, const struct td_view_filter *filter, struct td_error *err)
{
    const struct timespec until = td_clock_timespec(td_clock_ns() + ask_every_ns);
    if (td_cancel_is_asked(filter->cancel))
        return refuse_cancelled(err);
    (void)pthread_cond_timedwait(&views->made, &views->lock, &until);
    return true;
}

struct td_snapshot *td_view_get(struct td_snapshot *snapshot, const struct td_view_filter *filter, struct td_error *err)
{
    struct td_views *views = views_of(snapshot);
    struct td_snapshot *view = NULL;
    struct slot *slot;
    if (views == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    pthread_mutex_lock(&views->lock);
    while ((slot = find_slot(views, filter->key)) != NULL && slot->view == NULL && td_may_wait(err) &&
           wait_for_maker(views, filter, err))
        ;
    if (slot != NULL && slot->view != NULL) {
        slot->used = ++views->requests;
        view = td_snapshot_ref(slot->view);
    } else if (slot == NULL && td_may_wait(err) && add_slot(views, filter->key, err)) {
        view = make_view(views, snapshot, filter, err);
    }
    pthread_mutex_unlock(&views->lock);
    return view;
}
