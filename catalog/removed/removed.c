/* Plan: a table of held models, sorted by id, under one lock, which is never held while a file is opened or closed. The
 * thread of a request that asks for the first body of a model enters the model and then opens its files; the publishing
 * thread compares the tables' files with those of a new snapshot; a thread of this module ends holds when they are due.
 * A model that leaves the table goes to a list, and that thread closes its files, since closing a file without names
 * frees its blocks.
 *
 * What is hard: (1) a model may leave the table while its files are being opened: the thread that opens them then frees
 * it. (2) A kept model's snapshot also refers to files of others. If those are removed, too, their mappings must not
 * stay open for as long: td_removed_publish closes them. */
#include "catalog/removed/removed.h"

#include "core/array.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/waiting.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct held {
    char *id;
    struct td_file **files; /* of the model, in the order of its entries; a reference on each */
    size_t file_count;
    uint64_t read_ns;  /* when a body was asked for last */
    bool is_opening;   /* a thread opens the files, and owns `held_count` */
    bool is_dropped;   /* it was taken out of the table while its files were being opened: that thread frees it */
    size_t held_count; /* files that are open, the first ones */
    struct td_snapshot *kept; /* the last snapshot that had all files, a reference; NULL: nothing is missing */
    const char *kept_id;      /* the model's id in that snapshot */
    bool is_gone;             /* kept, and the folder is gone */
    bool closes_maps;         /* when it is freed, the mappings of its files are closed, too */
    size_t left_count;        /* files that the last snapshot had */
    uint64_t lost_ns;         /* when the model lost files last */
    uint64_t order;           /* the number of its removal */
    struct held *next;        /* in the list of those that were taken out of the table */
};

struct td_removed {
    struct td_removed_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a model was taken out of the table, or entered */
    /* under the lock */
    struct held **items; /* sorted by id */
    size_t count, capacity;
    size_t file_count; /* of all in the table */
    struct held *dead; /* that were taken out of the table, to be freed by the thread */
    uint64_t removals; /* number of models that were ever kept */
    bool has_warned;   /* that a model has too many files */
    bool stop;
};

/* ---- the table, under the lock ------------------------------------------------------------------------- */

/* Returns the place of the first model whose id is not below this one. */
static size_t place_of(const struct td_removed *removed, struct td_text id)
{
    size_t first = 0;
    for (size_t end = removed->count; first < end;) {
        size_t middle = first + (end - first) / 2;
        if (td_text_compare(td_text_of(removed->items[middle]->id), id) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

static struct held *find(const struct td_removed *removed, struct td_text id)
{
    size_t at = place_of(removed, id);
    bool found = at < removed->count && td_text_equals(id, removed->items[at]->id);
    return found ? removed->items[at] : NULL;
}

/* Takes the model at this place out of the table. */
static void drop_at(struct td_removed *removed, size_t at, bool closes_maps)
{
    struct held *held = removed->items[at];
    removed->count--;
    memmove(&removed->items[at], &removed->items[at + 1], (removed->count - at) * sizeof(*removed->items));
    removed->file_count -= held->file_count;
    held->closes_maps = closes_maps || held->kept != NULL;
    if (held->is_opening) {
        held->is_dropped = true;
        return;
    }
    held->next = removed->dead;
    removed->dead = held;
    pthread_cond_signal(&removed->changed);
}

/* Makes room for `count` more files. Models that were read longest ago and are not kept lose their hold. Returns
 * whether there is room. */
static bool make_room(struct td_removed *removed, size_t count)
{
    while (removed->file_count + count > removed->config.max_files) {
        size_t oldest = SIZE_MAX;
        for (size_t i = 0; i < removed->count; i++)
            if (removed->items[i]->kept == NULL &&
                (oldest == SIZE_MAX || removed->items[i]->read_ns < removed->items[oldest]->read_ns))
                oldest = i;
        if (oldest == SIZE_MAX)
            return false;
        drop_at(removed, oldest, false);
    }
    return true;
}

/* ---- holding ------------------------------------------------------------------------------------------- */

/* Closes what the model holds, and frees it. Not under the lock. */
static void held_free(struct td_removed *removed, struct held *held)
{
    for (size_t i = 0; i < held->file_count; i++) {
        if (i < held->held_count)
            td_file_source_release(removed->config.maps, &held->files[i]->source);
        if (held->closes_maps)
            td_file_source_forget(removed->config.maps, &held->files[i]->source);
        td_file_unref(held->files[i]);
    }
    td_snapshot_unref(held->kept);
    free(held->files);
    free(held->id);
    free(held);
}

/* Returns a model that is not in the table yet; NULL for want of memory. */
static struct held *held_create(const struct td_snapshot *snapshot, const struct td_model *model)
{
    struct held *held = calloc(1, sizeof *held);
    if (held == NULL)
        return NULL;
    held->id = strdup(model->id);
    held->files = calloc(model->entry_count, sizeof(*held->files));
    if (held->id == NULL || held->files == NULL) {
        free(held->files);
        free(held->id);
        free(held);
        return NULL;
    }
    for (size_t i = 0; i < model->entry_count; i++)
        held->files[i] = td_file_ref(snapshot->entries[model->first_entry + i].file);
    held->file_count = model->entry_count;
    held->is_opening = true;
    held->read_ns = td_clock_ns();
    return held;
}

/* Enters the model in the table. Returns false when it is there already, when there is no room, or for want of memory.
 */
static bool enter(struct td_removed *removed, struct held *held)
{
    struct td_error ignored = TD_ERROR_INIT;
    pthread_mutex_lock(&removed->lock);
    bool ok = find(removed, td_text_of(held->id)) == NULL && make_room(removed, held->file_count) &&
              TD_ARRAY_GROW(removed->items, removed->count, removed->capacity, &ignored);
    if (ok) {
        size_t at = place_of(removed, td_text_of(held->id));
        memmove(&removed->items[at + 1], &removed->items[at], (removed->count - at) * sizeof(*removed->items));
        removed->items[at] = held;
        removed->count++;
        removed->file_count += held->file_count;
        pthread_cond_signal(&removed->changed);
    }
    pthread_mutex_unlock(&removed->lock);
    return ok;
}

/* Opens the files of a model that was entered. */
static void open_files(struct td_removed *removed, struct held *held, const struct td_root *root)
{
    struct td_error why = TD_ERROR_INIT;
    while (held->held_count < held->file_count &&
           td_file_source_hold(removed->config.maps, root, &held->files[held->held_count]->source, &why))
        held->held_count++;
    pthread_mutex_lock(&removed->lock);
    bool is_whole = held->held_count == held->file_count;
    held->is_opening = false;
    bool is_dropped = held->is_dropped;
    if (!is_dropped && !is_whole) /* a file changed, or descriptors are short: the next body tries again */
        drop_at(removed, place_of(removed, td_text_of(held->id)), false);
    pthread_mutex_unlock(&removed->lock);
    if (is_dropped)
        held_free(removed, held);
}

/* Returns whether the model can be held: it is a folder, and all its files are here. */
static bool may_be_held(struct td_removed *removed, const struct td_snapshot *snapshot, const struct td_model *model)
{
    if (model->directory_len == 0 || model->is_other_revision || model->entry_count == 0)
        return false;
    const size_t most = removed->config.max_files;
    for (size_t i = 0; i < model->entry_count && i < most; i++)
        if (snapshot->entries[model->first_entry + i].file->source.incoming != NULL)
            return false;
    if (model->entry_count <= most)
        return true;
    pthread_mutex_lock(&removed->lock);
    bool is_first = !removed->has_warned;
    removed->has_warned = true;
    pthread_mutex_unlock(&removed->lock);
    if (is_first)
        td_log(TD_LOG_WARN, "--keep-removed: model \"%s\" has more than %zu files and cannot outlive its folder",
               model->id, most);
    return false;
}

/* Notes that the model with this id was read. Returns whether it is held. */
static bool touch(struct td_removed *removed, struct td_text id)
{
    pthread_mutex_lock(&removed->lock);
    struct held *held = find(removed, id);
    if (held != NULL)
        held->read_ns = td_clock_ns();
    pthread_mutex_unlock(&removed->lock);
    return held != NULL;
}

bool td_removed_note_read(struct td_removed *removed, const struct td_snapshot *snapshot, struct td_text path,
                          struct td_error *err)
{
    for (size_t len = 1; removed != NULL && len <= path.len; len++) {
        struct td_text id = td_text_n(path.p, len);
        if ((len < path.len && path.p[len] != '/') || touch(removed, id))
            continue;
        const struct td_model *model = td_snapshot_find_model(snapshot, id);
        if (model == NULL || !may_be_held(removed, snapshot, model))
            continue;
        if (!td_may_wait(err))
            return false;
        struct held *held = held_create(snapshot, model);
        if (held == NULL)
            return td_error_no_memory(err);
        if (enter(removed, held))
            open_files(removed, held, snapshot->root);
        else
            held_free(removed, held);
    }
    return true;
}

/* ---- snapshots ----------------------------------------------------------------------------------------- */

enum fate {
    SAME,  /* the snapshot has the model with the same files */
    FEWER, /* some of them, and no others */
    GONE,  /* no model of this id */
    OTHER  /* other files */
};

/* Compares a held model with the one of the snapshot. Sets *left to the number of files that are left. */
static enum fate fate_of(const struct held *held, const struct td_snapshot *snapshot, size_t *left)
{
    const struct td_model *model = td_snapshot_find_model(snapshot, td_text_of(held->id));
    *left = 0;
    if (model == NULL)
        return GONE;
    size_t at = 0;
    for (size_t i = 0; i < model->entry_count; i++) {
        const struct td_file *file = snapshot->entries[model->first_entry + i].file;
        while (at < held->file_count && held->files[at] != file)
            at++;
        if (at++ == held->file_count)
            return OTHER;
    }
    *left = model->entry_count;
    return *left == held->file_count ? SAME : FEWER;
}

/* Returns whether the model has to leave the table with the snapshot `now`. If not, sets `kept` and what belongs to it,
 * unless nothing is missing. A file that is there again is another td_file, which is not held. Under the lock. */
static bool judge(struct td_removed *removed, struct held *held, struct td_snapshot *before,
                  const struct td_snapshot *now)
{
    size_t left;
    size_t ignored;
    enum fate fate = fate_of(held, now, &left);
    if (fate == SAME)
        return false;
    if (fate == OTHER || (held->is_gone && fate == FEWER))
        return true;
    if (held->kept == NULL) {
        if (fate_of(held, before, &ignored) != SAME)
            return true;
        held->kept = td_snapshot_ref(before);
        held->kept_id = td_snapshot_find_model(before, td_text_of(held->id))->id;
        held->left_count = held->file_count;
        held->order = ++removed->removals;
    }
    if (left != held->left_count)
        held->lost_ns = td_clock_ns();
    held->left_count = left;
    held->is_gone = fate == GONE;
    return false;
}

/* Returns whether a folder above this model's is gone and kept. Under the lock. */
static bool is_within_another(const struct td_removed *removed, const struct held *held)
{
    for (const char *slash = strchr(held->id, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        const struct held *above = find(removed, td_text_n(held->id, (size_t)(slash - held->id)));
        if (above != NULL && above->kept != NULL && above->is_gone)
            return true;
    }
    return false;
}

/* Takes kept models out of the table: those that another one contains, and then the ones that were removed first, until
 * at most max_models are left. Under the lock. */
static void limit_kept(struct td_removed *removed)
{
    size_t kept_count = 0;
    for (size_t i = removed->count; i-- > 0;) { /* a folder comes before those in it */
        const struct held *held = removed->items[i];
        if (held->kept != NULL && held->is_gone && is_within_another(removed, held))
            drop_at(removed, i, true);
        else
            kept_count += held->kept != NULL ? 1 : 0;
    }
    for (; kept_count > removed->config.max_models; kept_count--) {
        size_t first = SIZE_MAX;
        for (size_t i = 0; i < removed->count; i++)
            if (removed->items[i]->kept != NULL &&
                (first == SIZE_MAX || removed->items[i]->order < removed->items[first]->order))
                first = i;
        drop_at(removed, first, true);
    }
}

/* Closes the mappings of the files that `before` has and `now` lacks. */
static void close_vanished(struct td_removed *removed, struct td_snapshot *before, const struct td_snapshot *now)
{
    size_t at = 0;
    for (size_t i = 0; i < before->entry_count; i++) {
        struct td_entry *entry = &before->entries[i];
        while (at < now->entry_count && strcmp(now->entries[at].path, entry->path) < 0)
            at++;
        bool is_there = at < now->entry_count && now->entries[at].file == entry->file;
        if (!is_there)
            td_file_source_forget(removed->config.maps, &entry->file->source);
    }
}

void td_removed_publish(struct td_removed *removed, struct td_snapshot *before, const struct td_snapshot *now)
{
    bool has_kept = false;
    if (before == NULL)
        return;
    pthread_mutex_lock(&removed->lock);
    for (size_t i = 0; i < removed->count;) {
        if (judge(removed, removed->items[i], before, now))
            drop_at(removed, i, true);
        else
            i++;
    }
    limit_kept(removed);
    for (size_t i = 0; i < removed->count && !has_kept; i++)
        has_kept = removed->items[i]->kept != NULL;
    pthread_cond_signal(&removed->changed); /* a model that shrinks may be due sooner */
    pthread_mutex_unlock(&removed->lock);
    if (has_kept)
        close_vanished(removed, before, now);
}

void td_removed_forget(struct td_removed *removed, struct td_text id)
{
    pthread_mutex_lock(&removed->lock);
    for (size_t i = 0; i < removed->count;) {
        struct td_text held = td_text_of(removed->items[i]->id);
        if (td_text_begins(held, id) && (held.len == id.len || held.p[id.len] == '/'))
            drop_at(removed, i, true);
        else
            i++;
    }
    pthread_mutex_unlock(&removed->lock);
}

bool td_removed_get(struct td_removed *removed, size_t number, struct td_removed_model *out)
{
    const struct held *found = NULL;
    uint64_t below = UINT64_MAX;
    pthread_mutex_lock(&removed->lock);
    for (size_t n = 0; n <= number; n++) {
        found = NULL;
        for (size_t i = 0; i < removed->count; i++) {
            const struct held *held = removed->items[i];
            if (held->kept != NULL && held->order < below && (found == NULL || held->order > found->order))
                found = held;
        }
        below = found == NULL ? 0 : found->order;
    }
    if (found != NULL)
        *out = (struct td_removed_model){.snapshot = td_snapshot_ref(found->kept), .id = found->kept_id};
    pthread_mutex_unlock(&removed->lock);
    return found != NULL;
}

/* ---- the thread ---------------------------------------------------------------------------------------- */

/* Returns when the model has to leave the table. */
static uint64_t due_ns(const struct td_removed *removed, const struct held *held)
{
    uint64_t due = held->read_ns + removed->config.keep_ns;
    uint64_t shrink_due = held->lost_ns + TD_REMOVED_SHRINK_NS;
    return held->kept != NULL && !held->is_gone && shrink_due < due ? shrink_due : due;
}

/* Takes the models that are due out of the table. Returns when the next one is due; UINT64_MAX: none. Under the lock.
 */
static uint64_t drop_due(struct td_removed *removed)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t next_ns = UINT64_MAX;
    for (size_t i = 0; i < removed->count;) {
        uint64_t due = due_ns(removed, removed->items[i]);
        if (due <= now_ns) {
            drop_at(removed, i, false);
            continue;
        }
        next_ns = due < next_ns ? due : next_ns;
        i++;
    }
    return next_ns;
}

/* Frees the models of the list. Not under the lock. */
static void free_list(struct td_removed *removed, struct held *list)
{
    while (list != NULL) {
        struct held *next = list->next;
        held_free(removed, list);
        list = next;
    }
}

static void *thread_main(void *argument)
{
    struct td_removed *removed = argument;
    pthread_mutex_lock(&removed->lock);
    while (!removed->stop) {
        uint64_t next_ns = drop_due(removed);
        struct held *list = removed->dead;
        removed->dead = NULL;
        if (list != NULL) {
            pthread_mutex_unlock(&removed->lock);
            free_list(removed, list);
            pthread_mutex_lock(&removed->lock);
        } else if (next_ns == UINT64_MAX) {
            pthread_cond_wait(&removed->changed, &removed->lock);
        } else {
            struct timespec until = td_clock_timespec(next_ns);
            (void)pthread_cond_timedwait(&removed->changed, &removed->lock, &until);
        }
    }
    pthread_mutex_unlock(&removed->lock);
    return NULL;
}

bool td_removed_create(const struct td_removed_config *config, struct td_removed **out, struct td_error *err)
{
    struct td_removed *removed = calloc(1, sizeof *removed);
    if (removed == NULL)
        return td_error_no_memory(err);
    removed->config = *config;
    if (pthread_mutex_init(&removed->lock, NULL) != 0) {
        free(removed);
        return td_error_no_memory(err);
    }
    if (!td_clock_condition_init(&removed->changed)) {
        (void)pthread_mutex_destroy(&removed->lock);
        free(removed);
        return td_error_no_memory(err);
    }
    int sys = pthread_create(&removed->thread, NULL, thread_main, removed);
    if (sys != 0) {
        (void)pthread_cond_destroy(&removed->changed);
        (void)pthread_mutex_destroy(&removed->lock);
        free(removed);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start the thread of removed models");
    }
    *out = removed;
    return true;
}

void td_removed_destroy(struct td_removed *removed)
{
    if (removed == NULL)
        return;
    pthread_mutex_lock(&removed->lock);
    removed->stop = true;
    pthread_cond_signal(&removed->changed);
    pthread_mutex_unlock(&removed->lock);
    (void)pthread_join(removed->thread, NULL);
    while (removed->count > 0)
        drop_at(removed, removed->count - 1, true);
    free_list(removed, removed->dead);
    free(removed->items);
    (void)pthread_cond_destroy(&removed->changed);
    (void)pthread_mutex_destroy(&removed->lock);
    free(removed);
}
