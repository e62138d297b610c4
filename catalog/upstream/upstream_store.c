/* Plan: the table in memory (kept_table.h) has one row for each model in the store, complete or not; it is read from
 * the disk at the start. The functions of kept_disk.h change the disk, which takes long, so they run without the lock:
 * until they return, the row's stage says what is under way and keeps other threads from changing the model. A thread
 * that needs such a stage to end waits for `changed`. */
#include "catalog/upstream/upstream_store.h"

#include "catalog/upstream/kept_disk.h"
#include "catalog/upstream/kept_table.h"
#include "core/checked.h"
#include "core/clock.h"
#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OLD_S = 7 * 86400 };

struct td_upstream_store {
    pthread_mutex_t lock;
    pthread_cond_t changed;    /* a stage in which something is under way has ended */
    struct td_own_folder disk; /* does not change */
    uint64_t max_bytes;
    /* Under the lock. */
    struct td_kept_table table;
};

static int64_t now_s(void)
{
    return td_wall_now().seconds;
}

static int64_t now_ns(void)
{
    struct td_wall now = td_wall_now();
    return now.seconds * TD_NS_PER_S + now.nanoseconds;
}

/* Removes the row of a model, and wakes the threads that wait for that. Takes the lock. */
static void drop_row(struct td_upstream_store *store, const char *id)
{
    pthread_mutex_lock(&store->lock);
    td_kept_table_remove(&store->table, td_text_of(id));
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}

/* Replaces the row of a model, and wakes the threads that wait for that. Takes the lock. */
static void put_row(struct td_upstream_store *store, const struct td_kept_row *row)
{
    pthread_mutex_lock(&store->lock);
    struct td_kept_row *found = td_kept_table_find(&store->table, td_text_of(row->note.id));
    if (found != NULL)
        *found = *row;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}

/* ---- the start ------------------------------------------------------------------------------------------- */

/* Moves a model back that a killed process had moved to check/: it may have been changed by the operator. */
static bool restore_checked(void *context, const char *name, struct td_error *err)
{
    const struct td_upstream_store *store = context;
    (void)err;
    td_kept_disk_put_back(&store->disk, name);
    return true;
}

/* Reads the note of the model with this key. Returns false when the note is missing or belongs to another model. */
static bool read_row(const struct td_upstream_store *store, const char *path, const char *key, struct td_kept_row *row)
{
    return td_kept_note_read(store->disk.fd, path, &row->note) && td_kept_key(row->note.id, row->key) &&
           strcmp(row->key, key) == 0;
}

static bool add_row(struct td_upstream_store *store, const struct td_kept_row *row, struct td_error *err)
{
    struct td_kept_row *added = td_kept_table_add(&store->table, row->note.id, err);
    if (added != NULL)
        *added = *row;
    return added != NULL;
}

/* Reads a record. Removes a record that is broken, of an older version, or of a model that is gone. */
static bool load_record(void *context, const char *name, struct td_error *err)
{
    struct td_upstream_store *store = context;
    char path[TD_OWN_NAME_BYTES];
    struct td_kept_row row = {.stage = TD_KEPT_PUBLISHED};
    struct stat st;
    td_kept_record_name(name, path);
    bool ok = read_row(store, path, name, &row) && row.note.tree[0] != '\0' &&
              td_kept_disk_is_in_place(&store->disk, &row.note) &&
              fstatat(store->disk.fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!ok) {
        (void)unlinkat(store->disk.fd, path, 0);
        return true;
    }
    row.read_ns = td_file_id_of(&st).mtime_ns;
    return add_row(store, &row, err);
}

/* Adds a row for an incomplete model that can be resumed; removes any other incomplete model. */
static bool load_incoming(void *context, const char *name, struct td_error *err)
{
    struct td_upstream_store *store = context;
    char path[TD_OWN_NAME_BYTES];
    struct td_kept_row row = {.stage = TD_KEPT_PAUSED};
    td_kept_incoming_name(name, "/model", path);
    bool ok = read_row(store, path, name, &row) && row.note.began_s + OLD_S > now_s() &&
              td_kept_table_find(&store->table, td_text_of(row.note.id)) == NULL;
    if (ok)
        return add_row(store, &row, err);
    td_kept_incoming_name(name, "", path);
    td_own_folder_remove(&store->disk, path);
    return true;
}

static bool init_locks(struct td_upstream_store *store)
{
    if (pthread_mutex_init(&store->lock, NULL) != 0)
        return false;
    if (pthread_cond_init(&store->changed, NULL) == 0)
        return true;
    (void)pthread_mutex_destroy(&store->lock);
    return false;
}

bool td_upstream_store_open(const char *root, uint64_t max_bytes, struct td_upstream_store **out, struct td_error *err)
{
    struct td_upstream_store *store = calloc(1, sizeof *store);
    if (store == NULL || !init_locks(store)) {
        free(store);
        return td_error_no_memory(err);
    }
    store->max_bytes = max_bytes;
    const struct td_own_folder *disk = &store->disk;
    bool ok = td_own_folder_open(&store->disk, &td_kept_folder, root, err) && td_own_folder_empty(disk, "trash", err) &&
              td_own_folder_each(disk, "check", restore_checked, store, err) &&
              td_own_folder_each(disk, "records", load_record, store, err) &&
              td_own_folder_each(disk, "incoming", load_incoming, store, err);
    if (ok)
        *out = store;
    else
        td_upstream_store_close(store);
    return ok;
}

void td_upstream_store_close(struct td_upstream_store *store)
{
    if (store == NULL)
        return;
    if (store->disk.fd >= 0)
        td_upstream_store_write_reads(store);
    td_own_folder_close(&store->disk);
    (void)pthread_cond_destroy(&store->changed);
    (void)pthread_mutex_destroy(&store->lock);
    td_kept_table_fini(&store->table);
    free(store);
}

/* ---- room ------------------------------------------------------------------------------------------------ */

static bool fits_in_store(const struct td_upstream_store *store, uint64_t used, uint64_t bytes)
{
    uint64_t sum;
    return td_add_u64(used, bytes, &sum) && sum <= store->max_bytes;
}

/* Removes the model of a row that is REMOVING, from the disk and then from the table: until then its bytes count.
 * Returns whether a published model was removed; one that was changed belongs to the operator and stays on disk. Takes
 * the lock. */
static bool remove_model(struct td_upstream_store *store, const struct td_kept_row *row)
{
    bool was_published = row->note.inode != 0;
    bool was_removed = true;
    if (was_published)
        was_removed = td_kept_disk_remove_published(&store->disk, &row->note, row->key);
    else
        td_kept_disk_remove_incoming(&store->disk, row->key);
    drop_row(store, row->note.id);
    return was_published && was_removed;
}

/* Evicts the model that is first in the order of eviction. Returns false when none may be evicted. Under the lock,
 * which it releases while it removes files. */
static bool evict_one(struct td_upstream_store *store, uint64_t *evicted)
{
    struct td_kept_row *victim = td_kept_table_choose_victim(&store->table);
    if (victim == NULL)
        return false;
    victim->stage = TD_KEPT_REMOVING;
    const struct td_kept_row leaving = *victim;
    pthread_mutex_unlock(&store->lock);
    if (remove_model(store, &leaving)) {
        td_log(TD_LOG_INFO, "upstream: removed \"%s\" (%" PRIu64 " bytes), the least recently read model",
               leaving.note.id, leaving.note.bytes);
        ++*evicted;
    }
    pthread_mutex_lock(&store->lock);
    return true;
}

/* Refuses a model of `bytes` beside models that are being fetched, which need fetched_bytes. Returns false. */
static bool refuse_beside(const struct td_upstream_store *store, uint64_t bytes, uint64_t fetched_bytes,
                          struct td_error *err)
{
    return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                        "it needs %" PRIu64 " bytes; of --cache-max-bytes %" PRIu64 ", %" PRIu64
                        " are for models that are being fetched",
                        bytes, store->max_bytes, fetched_bytes);
}

/* Evicts models until `bytes` more fit. Waits for models that other threads remove, so that it evicts no more than
 * needed. Under the lock, which it releases while it removes files or waits. */
static bool evict_until_fits(struct td_upstream_store *store, uint64_t bytes, uint64_t *evicted, struct td_error *err)
{
    const struct td_kept_table *table = &store->table;
    if (store->max_bytes == 0)
        return true;
    if (bytes > store->max_bytes) {
        (void)td_error_set(err, TD_RESOURCE_EXHAUSTED, "it has %" PRIu64 " bytes, more than --cache-max-bytes %" PRIu64,
                           bytes, store->max_bytes);
        err->sys = EFBIG;
        return false;
    }
    while (!fits_in_store(store, td_kept_table_bytes(table), bytes)) {
        bool fits_soon = fits_in_store(store, td_kept_table_staying_bytes(table), bytes);
        if (!fits_soon && evict_one(store, evicted))
            continue;
        if (!fits_soon)
            return refuse_beside(store, bytes, td_kept_table_staying_bytes(table), err);
        (void)pthread_cond_wait(&store->changed, &store->lock);
    }
    return true;
}

/* Checks that a model of `bytes` will fit once the necessary models are evicted, and that the disk will then have room
 * for its `missing` bytes, so that none is evicted without use. free_bytes: the free bytes of the disk now. Under the
 * lock. */
static bool check_gain(const struct td_upstream_store *store, uint64_t bytes, uint64_t missing, uint64_t free_bytes,
                       struct td_error *err)
{
    uint64_t used = td_kept_table_bytes(&store->table);
    if (store->max_bytes == 0 || bytes > store->max_bytes || fits_in_store(store, used, bytes))
        return true; /* none is evicted */
    uint64_t excess = used - (store->max_bytes - bytes);
    uint64_t gain = td_kept_table_gain(&store->table, excess);
    if (gain < excess)
        return refuse_beside(store, bytes, used - gain, err);
    if (missing <= free_bytes || missing - free_bytes <= gain)
        return true;
    return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                        "it needs %" PRIu64 " more bytes, and the disk has %" PRIu64 " free, and %" PRIu64
                        " of models that could be evicted",
                        missing, free_bytes, gain);
}

/* ---- incomplete models ----------------------------------------------------------------------------------- */

/* Takes a model's row for a fetch, or adds a row; waits while the model is REMOVING. The row's bytes are 0 until room
 * is reserved. Sets *out to the row as it was; its began_s is 0 if the model had no row. Takes the lock. */
static bool claim_row(struct td_upstream_store *store, const char *id, struct td_kept_row *out, struct td_error *err)
{
    struct td_kept_row *row;
    pthread_mutex_lock(&store->lock);
    while ((row = td_kept_table_find(&store->table, td_text_of(id))) != NULL && row->stage == TD_KEPT_REMOVING)
        (void)pthread_cond_wait(&store->changed, &store->lock);
    bool is_free = row == NULL || row->stage == TD_KEPT_PAUSED;
    if (row == NULL)
        row = td_kept_table_add(&store->table, id, err);
    bool ok = row != NULL && is_free;
    if (ok) {
        *out = *row;
        row->stage = TD_KEPT_FETCHED;
        row->note.bytes = 0;
    }
    pthread_mutex_unlock(&store->lock);
    if (!is_free)
        (void)td_error_set(err, TD_CONFLICT, "\"%s\" is here already, or on its way", id);
    return ok;
}

/* Restores the row that claim_row has taken, or removes the row that it has added. Takes the lock. */
static void unclaim_row(struct td_upstream_store *store, const struct td_kept_row *before)
{
    if (before->note.began_s != 0)
        put_row(store, before);
    else
        drop_row(store, before->note.id);
}

/* Makes room for a claimed row, and stores the row's bytes in the table. `missing` of these bytes are not on disk yet.
 * Takes the lock. */
static bool reserve_bytes(struct td_upstream_store *store, struct td_kept_row *row, uint64_t missing, uint64_t *evicted,
                          struct td_error *err)
{
    uint64_t free_bytes = td_own_folder_free_bytes(&store->disk);
    pthread_mutex_lock(&store->lock);
    bool ok = check_gain(store, row->note.bytes, missing, free_bytes, err) &&
              evict_until_fits(store, row->note.bytes, evicted, err);
    struct td_kept_row *found = td_kept_table_find(&store->table, td_text_of(row->note.id));
    if (ok && found != NULL)
        *found = *row;
    pthread_mutex_unlock(&store->lock);
    return ok;
}

bool td_upstream_store_begin(struct td_upstream_store *store, const char *id, uint64_t bytes, struct td_root **folder,
                             int64_t *began_s, uint64_t *evicted, struct td_error *err)
{
    struct td_kept_row before;
    if (!td_own_folder_check(&store->disk, err) || !claim_row(store, id, &before, err))
        return false;
    struct td_kept_row row = before;
    row.stage = TD_KEPT_FETCHED;
    row.note.bytes = bytes;
    row.note.began_s = before.note.began_s == 0 ? now_s() : before.note.began_s;
    uint64_t here = td_kept_disk_incoming_bytes(&store->disk, row.key);
    uint64_t missing = bytes > here ? bytes - here : 0;
    bool ok = td_kept_disk_check_place(&store->disk, id, err) && reserve_bytes(store, &row, missing, evicted, err) &&
              td_own_folder_check_room(&store->disk, missing, err) &&
              td_kept_disk_open_incoming(&store->disk, row.key, &row.note, folder, err);
    if (ok)
        *began_s = row.note.began_s;
    else
        unclaim_row(store, &before);
    return ok;
}

void td_upstream_store_pause(struct td_upstream_store *store, const char *id)
{
    pthread_mutex_lock(&store->lock);
    struct td_kept_row *row = td_kept_table_find(&store->table, td_text_of(id));
    if (row != NULL && row->stage == TD_KEPT_FETCHED)
        row->stage = TD_KEPT_PAUSED;
    pthread_mutex_unlock(&store->lock);
}

void td_upstream_store_discard(struct td_upstream_store *store, const char *id)
{
    struct td_kept_row leaving;
    pthread_mutex_lock(&store->lock);
    struct td_kept_row *row = td_kept_table_find(&store->table, td_text_of(id));
    bool ok = row != NULL && (row->stage == TD_KEPT_FETCHED || row->stage == TD_KEPT_PAUSED);
    if (ok) {
        row->stage = TD_KEPT_REMOVING;
        leaving = *row;
    }
    pthread_mutex_unlock(&store->lock);
    if (ok)
        (void)remove_model(store, &leaving);
}

bool td_upstream_store_publish(struct td_upstream_store *store, const char *id, bool is_verified,
                               bool (*belongs)(void *context, const char *path), void *context, struct td_error *err)
{
    const struct td_kept_files files = {.belongs = belongs, .context = context};
    struct td_kept_row before;
    pthread_mutex_lock(&store->lock);
    struct td_kept_row *found = td_kept_table_find(&store->table, td_text_of(id));
    bool ok = found != NULL && found->stage == TD_KEPT_FETCHED;
    if (ok) {
        found->stage = TD_KEPT_PUBLISHING;
        before = *found;
    }
    pthread_mutex_unlock(&store->lock);
    if (!ok)
        return td_error_set(err, TD_INTERNAL, "\"%s\" is not being fetched", id);
    struct td_kept_row row = before;
    row.note.is_verified = is_verified;
    ok = td_kept_publish(&store->disk, row.key, &files, &row.note, err);
    row.read_ns = now_ns();
    row.stage = TD_KEPT_PUBLISHED;
    before.stage = TD_KEPT_PAUSED;
    put_row(store, ok ? &row : &before);
    return ok;
}

/* ---- published models ------------------------------------------------------------------------------------ */

bool td_upstream_store_find(struct td_upstream_store *store, struct td_text id, struct td_kept_model *out)
{
    pthread_mutex_lock(&store->lock);
    const struct td_kept_row *row = td_kept_table_find(&store->table, id);
    bool found = row != NULL && row->stage == TD_KEPT_PUBLISHED;
    if (found)
        *out = (struct td_kept_model){
            .bytes = row->note.bytes, .is_verified = row->note.is_verified, .read_ns = row->read_ns};
    pthread_mutex_unlock(&store->lock);
    return found;
}

/* Sets a published model to REMOVING if its directory has this inode; 0: whichever it has. Sets *out to its row. Takes
 * the lock. */
static bool begin_removal(struct td_upstream_store *store, const char *id, uint64_t inode, struct td_kept_row *out)
{
    pthread_mutex_lock(&store->lock);
    struct td_kept_row *row = td_kept_table_find(&store->table, td_text_of(id));
    bool ok = row != NULL && row->stage == TD_KEPT_PUBLISHED && (inode == 0 || row->note.inode == inode);
    if (ok) {
        row->stage = TD_KEPT_REMOVING;
        *out = *row;
    }
    pthread_mutex_unlock(&store->lock);
    return ok;
}

bool td_upstream_store_drop(struct td_upstream_store *store, const char *id)
{
    struct td_kept_row leaving;
    return begin_removal(store, id, 0, &leaving) && remove_model(store, &leaving);
}

bool td_upstream_store_next(struct td_upstream_store *store, const char *after, char id[TD_UPSTREAM_ID_BYTES])
{
    bool found = false;
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < store->table.count && !found; i++) {
        const struct td_kept_row *row = &store->table.rows[i];
        found = row->stage == TD_KEPT_PUBLISHED && strcmp(row->note.id, after) > 0;
        if (found)
            memcpy(id, row->note.id, TD_UPSTREAM_ID_BYTES);
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}

bool td_upstream_store_is_there(struct td_upstream_store *store, struct td_text id)
{
    struct td_kept_row copy = {.stage = TD_KEPT_PAUSED};
    pthread_mutex_lock(&store->lock);
    const struct td_kept_row *row = td_kept_table_find(&store->table, id);
    if (row != NULL)
        copy = *row;
    pthread_mutex_unlock(&store->lock);
    if (copy.stage != TD_KEPT_PUBLISHED)
        return false;
    if (td_kept_disk_is_in_place(&store->disk, &copy.note))
        return true;
    if (begin_removal(store, copy.note.id, copy.note.inode, &copy)) { /* the operator has removed or changed it */
        char path[TD_OWN_NAME_BYTES];
        td_kept_record_name(copy.key, path);
        (void)unlinkat(store->disk.fd, path, 0);
        drop_row(store, copy.note.id);
    }
    return false;
}

/* ---- reads ----------------------------------------------------------------------------------------------- */

void td_upstream_store_note_read(struct td_upstream_store *store, struct td_text id)
{
    pthread_mutex_lock(&store->lock);
    struct td_kept_row *row = td_kept_table_find(&store->table, id);
    if (row != NULL && row->stage == TD_KEPT_PUBLISHED) {
        row->read_ns = now_ns();
        row->is_read = true;
    }
    pthread_mutex_unlock(&store->lock);
}

/* Copies one row with a time that is not written yet, and marks it as written. Returns false when there is no such
 * row. */
static bool next_unwritten_read(struct td_upstream_store *store, struct td_kept_row *out)
{
    bool found = false;
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < store->table.count && !found; i++) {
        struct td_kept_row *row = &store->table.rows[i];
        found = row->is_read && row->stage == TD_KEPT_PUBLISHED;
        if (found)
            *out = *row;
        row->is_read = false;
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}

/* Sets the record's modification time to the model's last read. */
static void write_read(const struct td_upstream_store *store, const struct td_kept_row *row)
{
    char path[TD_OWN_NAME_BYTES];
    const struct timespec read = {.tv_sec = row->read_ns / TD_NS_PER_S, .tv_nsec = row->read_ns % TD_NS_PER_S};
    const struct timespec times[2] = {read, read};
    td_kept_record_name(row->key, path);
    (void)utimensat(store->disk.fd, path, times, AT_SYMLINK_NOFOLLOW);
}

void td_upstream_store_write_reads(struct td_upstream_store *store)
{
    struct td_kept_row row;
    while (next_unwritten_read(store, &row))
        write_read(store, &row);
}

/* ---- numbers --------------------------------------------------------------------------------------------- */

size_t td_upstream_store_count_unverified(struct td_upstream_store *store)
{
    size_t count = 0;
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < store->table.count; i++)
        count += store->table.rows[i].stage == TD_KEPT_PUBLISHED && !store->table.rows[i].note.is_verified ? 1 : 0;
    pthread_mutex_unlock(&store->lock);
    return count;
}

size_t td_upstream_store_count_paused(struct td_upstream_store *store)
{
    pthread_mutex_lock(&store->lock);
    size_t count = td_kept_table_count(&store->table, TD_KEPT_PAUSED);
    pthread_mutex_unlock(&store->lock);
    return count;
}

uint64_t td_upstream_store_bytes(struct td_upstream_store *store, size_t *count)
{
    pthread_mutex_lock(&store->lock);
    uint64_t bytes = td_kept_table_bytes(&store->table);
    *count = td_kept_table_count(&store->table, TD_KEPT_PUBLISHED);
    pthread_mutex_unlock(&store->lock);
    return bytes;
}
