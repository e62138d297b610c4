/* Plan: one thread scans in a loop: scan_once(), then publish() or note_failure(), then wait_for_turn() until the next
 * scan is due. One lock guards all shared state, and is held for moments only; the scan itself runs without it. Readers
 * take a reference on `current` and never wait for a scan. A snapshot without references is put on `retired` and freed
 * by the scanner, because unmapping files is slow. The scanner also ends mappings of large files that other threads
 * have released.
 *
 * What is hard: (1) a root that is suddenly empty may be an unmounted volume, so that scan counts as failed until a
 * second look, 1 s later. (2) Whether the next scan also publishes young files that are finished: a request sets
 * publish_requested, and scans continue to do so while finished files wait for the clock (has_racy). (3) A rescan waits
 * for a scan that began after the call, because the running one may have passed the new file already. (4) Changes that
 * the tree watch reports must not keep the scanner busy: scans for changes have a time budget, see note_scan_end(). */
#include "catalog/catalog.h"

#include "catalog/dataset/dataset.h"
#include "catalog/events/snapshot_changes.h"
#include "catalog/scan/noted_commits.h"
#include "catalog/scan/scan_report.h"
#include "catalog/scan/walk.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The least time between requested scans, which is also never shorter than the last scan. */
static const uint64_t scan_gap_ns = 50000000;
/* A scan begins this long after the first change that it answers. By then a file that was renamed at that moment can be
 * published, see td_change_time_at_rest, and a burst of changes is one scan. */
static const uint64_t change_delay_ns = 45000000;
/* The least time between scans for writes and changes of times and modes, which is also write_rest times as long as the
 * last scan. */
static const uint64_t write_gap_ns = TD_NS_PER_S;
static const uint64_t write_rest = 9;
/* Scans for names may take burst_ns in all, at once, and a quarter of the time from then on. So a change after a quiet
 * time is seen at once, however long a scan takes, and endless changes do not keep the scanner busy. */
static const uint64_t burst_ns = 2000000000;
static const uint64_t burst_share = 4;
/* An empty root is believed after it was seen twice, this far apart. */
static const uint64_t empty_confirm_ns = TD_NS_PER_S;
/* A rescan waits at most for the settling time and rescan_grace_ns, and at most rescan_max_ns in all. */
static const uint64_t rescan_grace_ns = 3000000000;
static const uint64_t rescan_max_ns = 20000000000;

/* A scan for td_catalog_show alone does not walk the commits that this program published before, unless the last scan
 * that walked everything began so long ago. */
static const uint64_t whole_scan_ns = 60 * TD_NS_PER_S;

/* td_catalog_show waits at most for so long. */
static const uint64_t show_max_ns = 60000000000;

/* The state that was logged last, which is logged again only when it changes. */
struct logged {
    bool ready, no_model, too_few, send_guard;
    size_t usable_count; /* beside too_few */
};

struct td_catalog {
    struct td_catalog_config config; /* what td_catalog_tune changes is under the lock, the rest never changes */
    char *root_path;
    struct td_mapping_cache maps;
    struct td_decode_cache decodes;
    struct td_budget memory; /* of everything that was read from files */
    struct td_hasher *hasher;
    struct td_row_indexer *indexer;
    struct td_event_ring *events;
    struct td_removed *removed; /* NULL: models end with their folders */
    struct td_noted_commits noted;
    struct td_tree_watch *watch; /* NULL: none */
    struct td_scan_progress progress;
    pthread_t scanner;
    /* scanner thread only */
    uint64_t began_ns;     /* when the last scan began */
    uint64_t first_end_ns; /* when the first successful scan ended; 0: none was successful yet */
    struct td_unsettled_list unsettled;
    struct logged logged;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_cond_t scanned; /* a scan has ended */
    /* under the lock */
    struct td_root *root;
    struct td_snapshot *current;
    struct td_snapshot *retired; /* freed by the scanner, because unmapping is slow */
    bool has_retired_maps;       /* the scanner must reap mappings, for the same reason */
    bool scan_requested, publish_requested;
    void (*on_publish)(void *context); /* NULL: no callback */
    void *on_publish_context;
    uint64_t names_ns, writes_ns; /* when the first change of each kind without a scan since was reported; 0: none */
    uint64_t scan_debt_ns;        /* of the scans for changes, at the end of the last scan */
    bool is_for_changes;          /* the running scan is */
    uint64_t publish_until_ns;    /* until then a further scan publishes finished files too, if racy files are left */
    bool publishes;               /* the running scan publishes what is finished */
    bool has_racy, scan_failed;
    size_t pending_count; /* of the last scan, as in td_snapshot */
    uint64_t started_count, ended_count;
    size_t waiter_count;
    size_t show_count;      /* callers of td_catalog_show that wait */
    bool keeps_published;   /* the scan that is running; as in td_scan_config */
    uint64_t whole_scan_ns; /* when the last scan that walked everything began; 0: none */
    struct td_catalog_status status;
    uint64_t last_scan_end_ns;
    uint64_t empty_since_ns;
    uint64_t settle_due_ns; /* when the first young file is old enough; 0 = none */
    uint64_t ready_due_ns;  /* after it young files do not delay readiness; 0: no successful scan yet, or ready */
    _Atomic enum td_catalog_stage stage; /* written under the lock */
    _Atomic bool stop;
};

static void on_retire(void *context, struct td_snapshot *snapshot)
{
    struct td_catalog *catalog = context;
    pthread_mutex_lock(&catalog->lock);
    snapshot->retirement.next = catalog->retired;
    catalog->retired = snapshot;
    pthread_cond_signal(&catalog->wake);
    pthread_mutex_unlock(&catalog->lock);
}

static void on_retired_map(void *context)
{
    struct td_catalog *catalog = context;
    pthread_mutex_lock(&catalog->lock);
    catalog->has_retired_maps = true;
    pthread_cond_signal(&catalog->wake);
    pthread_mutex_unlock(&catalog->lock);
}

/* Frees retired snapshots, then reaps retired mappings, also those of the snapshots' files. */
static void free_retired(struct td_catalog *catalog)
{
    pthread_mutex_lock(&catalog->lock);
    struct td_snapshot *list = catalog->retired;
    catalog->retired = NULL;
    catalog->has_retired_maps = false;
    pthread_mutex_unlock(&catalog->lock);
    while (list != NULL) {
        struct td_snapshot *next = list->retirement.next;
        td_snapshot_free(list);
        list = next;
    }
    td_mapping_cache_reap(&catalog->maps);
}

/* Warns, once until it changes, that no model is served or that too few are usable. A forgotten mount looks like this.
 */
static void log_missing_models(struct td_catalog *catalog, const struct td_snapshot_counts *counts)
{
    pthread_mutex_lock(&catalog->lock);
    size_t required = catalog->config.require_models;
    pthread_mutex_unlock(&catalog->lock);
    struct logged *logged = &catalog->logged;
    if (counts->unsettled > 0)
        return; /* perhaps these are the missing models */
    bool is_expected = catalog->config.own_folder != NULL;
    if (counts->models == 0 && counts->datasets == 0 && !logged->no_model && !is_expected)
        td_log(
            TD_LOG_WARN,
            "\"%s\" holds no model and no dataset (%zu file%s): a model is a directory with a checkpoint in it, such "
            "as model.safetensors; a dataset is a directory, too, below datasets/ for example",
            catalog->root_path, counts->files, td_plural(counts->files));
    bool too_few = counts->usable < required;
    if (too_few && (!logged->too_few || logged->usable_count != counts->usable))
        td_log(TD_LOG_WARN, "not ready: %zu of the %zu models that --require-models asks for %s published",
               counts->usable, required, counts->usable == 1 ? "is" : "are");
    logged->no_model = counts->models == 0;
    logged->too_few = too_few;
    logged->usable_count = counts->usable;
}

/* Warns once, when the first files are there, if all of them are sent the slow way. */
static void report_send_guard(struct td_catalog *catalog)
{
    if (catalog->logged.send_guard || catalog->config.files_are_immutable)
        return;
    struct td_snapshot *snapshot = td_catalog_acquire(catalog);
    if (snapshot != NULL)
        catalog->logged.send_guard = td_scan_report_send_guard(snapshot, catalog->config.lease_signal);
    td_snapshot_unref(snapshot);
}

/* Logs when /readyz begins to answer otherwise. The reason for a 503 was logged in a line before. */
static void log_readiness(struct td_catalog *catalog)
{
    struct td_catalog_status status;
    td_catalog_get_status(catalog, &status);
    if (status.ready == catalog->logged.ready)
        return;
    catalog->logged.ready = status.ready;
    if (status.ready) {
        td_log(TD_LOG_INFO, "ready: /readyz answers 200 from now on");
        report_send_guard(catalog);
    } else {
        td_log(TD_LOG_INFO, "not ready any more: /readyz answers 503 from now on (%s)",
               status.root_missing ? "root missing" : "too few models");
    }
}

/* Opens the root by its path again: after a remount the old descriptor shows the old, perhaps empty, directory. Returns
 * the root with a reference for the caller, or NULL. */
static struct td_root *current_root(struct td_catalog *catalog, struct td_error *err)
{
    struct td_root *fresh;
    if (!td_root_create(catalog->root_path, &fresh, err))
        return NULL;
    pthread_mutex_lock(&catalog->lock);
    if (fresh->device != catalog->root->device || fresh->inode != catalog->root->inode) {
        struct td_root *old = catalog->root;
        catalog->root = td_root_ref(fresh);
        pthread_mutex_unlock(&catalog->lock);
        td_root_unref(old);
        return fresh;
    }
    struct td_root *same = td_root_ref(catalog->root);
    pthread_mutex_unlock(&catalog->lock);
    td_root_unref(fresh);
    return same;
}

/* Notes a failed scan. Logs a failure once for as long as it lasts, not with every scan. */
static void note_failure(struct td_catalog *catalog, const struct td_error *why, bool root_missing)
{
    char message[sizeof catalog->status.message];
    (void)snprintf(message, sizeof message, "%.*s", TD_SHOW(td_text_of(why->message), sizeof message - 1));
    pthread_mutex_lock(&catalog->lock);
    bool published = catalog->current != NULL;
    bool news = !catalog->scan_failed || catalog->status.root_missing != root_missing ||
                (!root_missing && strcmp(catalog->status.message, message) != 0);
    catalog->status.failed_scan_count++;
    catalog->scan_failed = true;
    catalog->has_racy = false;
    catalog->status.root_missing = root_missing;
    memcpy(catalog->status.message, message, sizeof message);
    pthread_mutex_unlock(&catalog->lock);
    if (news)
        td_log(TD_LOG_ERROR, "cannot scan \"%s\": %s; %s", catalog->root_path, why->message,
               published ? "the last good state stays" : "nothing is published yet");
}

/* Returns whether the root has the folder that this server has made in it. */
static bool has_own_folder(const struct td_catalog *catalog, const struct td_root *root)
{
    const char *name = catalog->config.own_folder;
    return name != NULL && faccessat(root->fd, name, F_OK, 0) == 0;
}

/* Returns true when a root that had files shows none, for the first time: perhaps it was unmounted. */
static bool is_suddenly_empty(struct td_catalog *catalog, const struct td_root *root,
                              const struct td_snapshot *previous, const struct td_snapshot *snapshot)
{
    uint64_t now = td_clock_ns();
    if (previous == NULL || previous->entry_count == 0 || snapshot->entry_count > 0 || snapshot->unsettled.count > 0 ||
        has_own_folder(catalog, root)) {
        catalog->empty_since_ns = 0;
        return false;
    }
    if (catalog->empty_since_ns == 0)
        catalog->empty_since_ns = now;
    if (now - catalog->empty_since_ns >= empty_confirm_ns) {
        catalog->empty_since_ns = 0;
        return false;
    }
    return true;
}

static bool is_same(const struct td_snapshot *a, const struct td_snapshot *b)
{
    return a != NULL && strcmp(a->tag, b->tag) == 0 && td_unsettled_facts_equal(&a->unsettled, &b->unsettled) &&
           a->hashed_count == b->hashed_count && a->root == b->root && td_snapshot_has_all_problems(a);
}

/* Sets status->ready once all files that were there at the start are published: the last scan found no young file, or
 * began at least the settling time after the first successful scan (a file may never settle). Then also sets the stage
 * by the number of usable models. Call under the lock. */
static void note_ready(struct td_catalog *catalog)
{
    struct td_catalog_status *status = &catalog->status;
    if (catalog->current == NULL)
        return;
    if (catalog->first_end_ns == 0)
        catalog->first_end_ns = td_clock_ns();
    catalog->ready_due_ns = catalog->first_end_ns + catalog->config.scan.settle_ns;
    if (status->counts.unsettled == 0 || catalog->began_ns >= catalog->ready_due_ns)
        status->ready = true;
    if (!status->ready)
        return;
    catalog->ready_due_ns = 0;
    bool is_complete = atomic_load(&catalog->stage) == TD_CATALOG_COMPLETE ||
                       (!status->root_missing && status->counts.usable >= catalog->config.require_models);
    atomic_store(&catalog->stage, is_complete ? TD_CATALOG_COMPLETE : TD_CATALOG_LACKING);
}

static void publish(struct td_catalog *catalog, struct td_snapshot *snapshot, uint64_t took_ns)
{
    struct td_snapshot_counts counts;
    td_scan_report_count(snapshot, &counts);
    struct td_snapshot *old = catalog->current; /* only this thread replaces it */
    bool changed = !is_same(old, snapshot);
    bool has_events = changed && old != NULL && strcmp(old->tag, snapshot->tag) != 0;
    bool news = changed && (old == NULL || has_events ||
                            old->unsettled.count != snapshot->unsettled.count); /* more than digests changed */
    if (changed && catalog->removed != NULL)
        td_removed_publish(catalog->removed, old, snapshot);
    struct td_snapshot_changes *changes = has_events ? td_snapshot_changes_find(old, snapshot) : NULL;
    pthread_mutex_lock(&catalog->lock);
    struct td_catalog_status *status = &catalog->status;
    if (changed) {
        snapshot->retirement = (struct td_retirement){.retire = on_retire, .context = catalog};
        catalog->current = snapshot;
        status->counts = counts;
        status->generation = snapshot->generation;
    }
    if (has_events)
        td_snapshot_changes_add(changes, catalog->events);
    bool is_mended = catalog->scan_failed && !status->root_missing; /* log_readiness reports a root that is back */
    status->root_missing = false;
    enum td_catalog_stage before = atomic_load(&catalog->stage);
    note_ready(catalog);
    bool has_advanced = atomic_load(&catalog->stage) != before;
    if ((changed || has_advanced) && catalog->on_publish != NULL)
        catalog->on_publish(catalog->on_publish_context);
    catalog->settle_due_ns = snapshot->unsettled.next_due_ns;
    catalog->pending_count = snapshot->unsettled.pending_count;
    catalog->has_racy = snapshot->unsettled.racy_count > 0;
    catalog->scan_failed = false;
    status->message[0] = '\0';
    pthread_mutex_unlock(&catalog->lock);
    if (is_mended)
        td_log(TD_LOG_INFO, "\"%s\" can be scanned again", catalog->root_path);
    if (news)
        td_scan_report_published(old, snapshot, &counts, took_ns);
    if (news)
        log_missing_models(catalog, &counts);
    if (news)
        td_scan_report_large_files(old, snapshot);
    if (changed) { /* still valid: only this thread replaces it */
        struct td_error err = TD_ERROR_INIT;
        td_hasher_set_snapshot(catalog->hasher, snapshot);
        if (!td_row_indexer_set_snapshot(catalog->indexer, snapshot, &err))
            td_log(TD_LOG_WARN, "new datasets are indexed after the next scan: %s", err.message);
    }
    td_snapshot_unref(changed ? old : snapshot);
}

static void scan_once(struct td_catalog *catalog)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_root *root = current_root(catalog, &err);
    if (root == NULL) {
        note_failure(catalog, &err, true);
        return;
    }
    struct td_snapshot *previous = td_catalog_acquire(catalog);
    struct td_snapshot *snapshot = NULL;
    uint64_t started_ns = td_clock_ns();
    catalog->began_ns = started_ns;
    pthread_mutex_lock(&catalog->lock);
    struct td_scan_config config = catalog->config.scan;
    pthread_mutex_unlock(&catalog->lock);
    struct td_published *published;
    config.published_count = td_noted_commits_list(&catalog->noted, &published);
    config.published = published;
    config.publish_complete = catalog->publishes;
    config.keeps_published = catalog->keeps_published;
    bool ok = td_scan(root, &catalog->maps, previous, &config, &catalog->unsettled, &catalog->progress, &catalog->stop,
                      &snapshot, &err);
    free(published);
    uint64_t took_ns = td_clock_ns() - started_ns;
    pthread_mutex_lock(&catalog->lock);
    catalog->status.last_scan_ns = took_ns; /* before publish(): a client that sees a ready server reads it */
    pthread_mutex_unlock(&catalog->lock);
    if (!ok) {
        if (!atomic_load(&catalog->stop))
            note_failure(catalog, &err, false);
    } else if (is_suddenly_empty(catalog, root, previous, snapshot)) {
        (void)td_error_set(&err, TD_UNAVAILABLE, "all files are gone; waiting for a second look before believing it");
        note_failure(catalog, &err, true);
        td_snapshot_unref(snapshot);
    } else {
        publish(catalog, snapshot, took_ns);
    }
    td_snapshot_unref(previous);
    td_root_unref(root);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns when the scan for a changed name is due (monotonic): soon, or when the scans of late have been paid for.
 * Under the lock. */
static uint64_t names_due_ns(const struct td_catalog *catalog)
{
    uint64_t allowed_ns = catalog->config.burst_ns > 0 ? catalog->config.burst_ns : burst_ns;
    uint64_t debt_ns = catalog->scan_debt_ns > allowed_ns ? catalog->scan_debt_ns - allowed_ns : 0;
    uint64_t paid_ns = catalog->last_scan_end_ns + debt_ns * burst_share;
    uint64_t due_ns = catalog->names_ns + change_delay_ns;
    return due_ns > paid_ns ? due_ns : paid_ns;
}

/* Returns when the scan for a write is due (monotonic). Under the lock. */
static uint64_t writes_due_ns(const struct td_catalog *catalog)
{
    uint64_t pause_ns = catalog->status.last_scan_ns * write_rest;
    uint64_t rested_ns = catalog->last_scan_end_ns + (pause_ns > write_gap_ns ? pause_ns : write_gap_ns);
    uint64_t due_ns = catalog->writes_ns + change_delay_ns;
    return due_ns > rested_ns ? due_ns : rested_ns;
}

/* Notes the end of a scan: the time since the last one pays for scans, a scan for changes costs. Under the lock. */
static void note_scan_end(struct td_catalog *catalog)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t paid_ns = (now_ns - catalog->last_scan_end_ns) / burst_share;
    catalog->scan_debt_ns -= paid_ns < catalog->scan_debt_ns ? paid_ns : catalog->scan_debt_ns;
    catalog->scan_debt_ns += catalog->is_for_changes ? catalog->status.last_scan_ns : 0;
    catalog->last_scan_end_ns = now_ns;
}

/* Returns when the next scan is due (monotonic); UINT64_MAX for never. Under the lock. */
static uint64_t next_scan_ns(const struct td_catalog *catalog)
{
    uint64_t earliest = catalog->last_scan_end_ns;
    uint64_t took = catalog->status.last_scan_ns;
    earliest += took > scan_gap_ns ? took : scan_gap_ns;
    uint64_t due = UINT64_MAX;
    if (catalog->config.interval_ns > 0)
        due = catalog->last_scan_end_ns + catalog->config.interval_ns;
    if (catalog->empty_since_ns > 0 && catalog->empty_since_ns + empty_confirm_ns < due)
        due = catalog->empty_since_ns + empty_confirm_ns;
    if (catalog->settle_due_ns > 0 && catalog->settle_due_ns < due)
        due = catalog->settle_due_ns;
    if (catalog->ready_due_ns > 0)
        due = earlier(due, catalog->ready_due_ns);
    if (catalog->names_ns > 0)
        due = earlier(due, names_due_ns(catalog));
    if (catalog->writes_ns > 0)
        due = earlier(due, writes_due_ns(catalog));
    if (catalog->show_count > 0 && catalog->scan_requested)
        return 0; /* no gap: one scan shows everything that is waited for */
    if (catalog->scan_requested)
        due = earliest;
    return due < earliest ? earliest : due;
}

/* Sleeps until a scan is due; frees retired snapshots and mappings in between. Returns false when the catalog is
 * stopping. */
static bool wait_for_turn(struct td_catalog *catalog)
{
    pthread_mutex_lock(&catalog->lock);
    while (!atomic_load(&catalog->stop)) {
        if (catalog->retired != NULL || catalog->has_retired_maps) {
            pthread_mutex_unlock(&catalog->lock);
            free_retired(catalog);
            pthread_mutex_lock(&catalog->lock);
            continue;
        }
        uint64_t due = next_scan_ns(catalog);
        if (due <= td_clock_ns())
            break;
        if (due == UINT64_MAX) {
            pthread_cond_wait(&catalog->wake, &catalog->lock);
        } else {
            struct timespec until = td_clock_timespec(due);
            (void)pthread_cond_timedwait(&catalog->wake, &catalog->lock, &until);
        }
    }
    bool go = !atomic_load(&catalog->stop);
    catalog->publishes = catalog->publish_requested ||
                         (catalog->has_racy && catalog->publishes && td_clock_ns() < catalog->publish_until_ns);
    uint64_t now_ns = td_clock_ns();
    catalog->keeps_published = catalog->show_count > 0 && catalog->waiter_count == 0 && !catalog->publishes &&
                               catalog->whole_scan_ns != 0 && now_ns - catalog->whole_scan_ns < whole_scan_ns;
    if (!catalog->keeps_published)
        catalog->whole_scan_ns = now_ns;
    catalog->scan_requested = false;
    catalog->publish_requested = false;
    catalog->is_for_changes = catalog->names_ns > 0 || catalog->writes_ns > 0;
    catalog->names_ns = 0;
    catalog->writes_ns = 0;
    catalog->started_count++;
    catalog->status.scanning = go;
    pthread_mutex_unlock(&catalog->lock);
    return go;
}

static void *scanner_main(void *argument)
{
    struct td_catalog *catalog = argument;
    bool go = true;
    while (go) {
        scan_once(catalog);
        log_readiness(catalog);
        pthread_mutex_lock(&catalog->lock);
        catalog->status.scan_count++;
        catalog->status.scanning = false;
        note_scan_end(catalog);
        catalog->ended_count = catalog->started_count;
        pthread_cond_broadcast(&catalog->scanned);
        pthread_mutex_unlock(&catalog->lock);
        go = wait_for_turn(catalog);
    }
    return NULL;
}

static void on_known(void *context)
{
    td_catalog_request_scan(context);
}

static void on_change(void *context, enum td_tree_change change)
{
    struct td_catalog *catalog = context;
    pthread_mutex_lock(&catalog->lock);
    uint64_t *told_ns = change == TD_TREE_NAMES ? &catalog->names_ns : &catalog->writes_ns;
    if (*told_ns == 0) {
        *told_ns = td_clock_ns();
        pthread_cond_signal(&catalog->wake);
    }
    pthread_mutex_unlock(&catalog->lock);
}

static bool create_watch(struct td_catalog *catalog, struct td_error *err)
{
    const struct td_tree_watch_config config = {.ignores = td_walk_ignores, .on_change = on_change, .context = catalog};
    if (!catalog->config.watches)
        return true;
    if (!td_tree_watch_create(&config, &catalog->watch, err))
        return false;
    catalog->config.scan.watch = catalog->watch;
    return true;
}

static bool create_hasher(struct td_catalog *catalog, struct td_error *err)
{
    const struct td_hasher_config config = {.state_dir = catalog->config.state_dir,
                                            .root = catalog->root_path,
                                            .threads = catalog->config.hash_threads,
                                            .on_known = on_known,
                                            .context = catalog};
    if (!td_hasher_create(&config, &catalog->hasher, err))
        return false;
    catalog->config.scan.hasher = catalog->hasher;
    return true;
}

static bool create_indexer(struct td_catalog *catalog, struct td_error *err)
{
    const struct td_row_indexer_config config = {
        .state_dir = catalog->config.state_dir,
        .root = catalog->root_path,
        .threads = catalog->config.index_threads > 0 ? catalog->config.index_threads : 2,
        .limits = catalog->config.scan.limits,
        .memory = catalog->config.scan.memory,
        .parsers = catalog->config.scan.parsers};
    return td_row_indexer_create(&config, &catalog->indexer, err);
}

static bool create_removed(struct td_catalog *catalog, struct td_error *err)
{
    const struct td_removed_config config = {.keep_ns = catalog->config.keep_removed_ns,
                                             .max_files = catalog->config.keep_removed_files,
                                             .max_models = catalog->config.keep_removed_models,
                                             .maps = &catalog->maps};
    return config.keep_ns == 0 || td_removed_create(&config, &catalog->removed, err);
}

static bool init_sync(struct td_catalog *catalog)
{
    return td_clock_condition_init(&catalog->wake) && td_clock_condition_init(&catalog->scanned) &&
           pthread_mutex_init(&catalog->lock, NULL) == 0;
}

/* Returns whether the root can be listed at all. Otherwise only the log would report a mount that belongs to another
 * user. */
static bool check_readable(const struct td_root *root, struct td_error *err)
{
    int fd;
    if (!td_root_open_directory(root, "", &fd, err))
        return false;
    (void)close(fd);
    return true;
}

bool td_catalog_create(const struct td_catalog_config *config, struct td_catalog **out, struct td_error *err)
{
    struct td_catalog *catalog = calloc(1, sizeof *catalog);
    if (catalog == NULL || !td_noted_commits_init(&catalog->noted)) {
        free(catalog);
        return td_error_no_memory(err);
    }
    catalog->config = *config;
    catalog->config.scan.all_revisions = true;
    catalog->config.scan.memory = config->max_memory_bytes > 0 ? &catalog->memory : NULL;
    td_budget_init(&catalog->memory, (size_t)config->max_memory_bytes, "files");
    catalog->status.scanning = true;
    catalog->started_count = 1;
    catalog->config.scan.lease_signal = config->lease_signal;
    if (!td_root_create(config->root, &catalog->root, err) || !check_readable(catalog->root, err))
        goto fail;
    catalog->root_path = strdup(config->root);
    if (catalog->root_path == NULL || !init_sync(catalog)) {
        (void)td_error_no_memory(err);
        goto fail;
    }
    size_t decode_bytes = config->decode_bytes > 0 ? config->decode_bytes : TD_DECODE_MEMORY_BYTES;
    if (!td_decode_cache_init(&catalog->decodes, decode_bytes, err))
        goto fail;
    if (!td_mapping_cache_init(&catalog->maps, config->max_maps, config->lease_signal, config->files_are_immutable,
                               err))
        goto fail_decodes;
    td_mapping_cache_on_retired(&catalog->maps, on_retired_map, catalog);
    if (!td_event_ring_create(TD_EVENTS_MAX, &catalog->events, err) || !create_hasher(catalog, err) ||
        !create_indexer(catalog, err) || !create_removed(catalog, err) || !create_watch(catalog, err))
        goto fail_maps;
    int sys = pthread_create(&catalog->scanner, NULL, scanner_main, catalog);
    if (sys != 0) {
        (void)td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start the scanning thread");
        goto fail_maps;
    }
    *out = catalog;
    return true;
fail_maps:
    td_removed_destroy(catalog->removed);
    td_mapping_cache_fini(&catalog->maps);
fail_decodes:
    td_decode_cache_fini(&catalog->decodes);
fail:
    td_tree_watch_destroy(catalog->watch);
    td_row_indexer_destroy(catalog->indexer);
    td_hasher_destroy(catalog->hasher);
    td_event_ring_destroy(catalog->events);
    td_root_unref(catalog->root);
    td_noted_commits_fini(&catalog->noted);
    free(catalog->root_path);
    free(catalog);
    return false;
}

void td_catalog_destroy(struct td_catalog *catalog)
{
    if (catalog == NULL)
        return;
    pthread_mutex_lock(&catalog->lock);
    atomic_store(&catalog->stop, true);
    pthread_cond_signal(&catalog->wake);
    pthread_mutex_unlock(&catalog->lock);
    (void)pthread_join(catalog->scanner, NULL);
    td_tree_watch_destroy(catalog->watch);
    td_row_indexer_destroy(catalog->indexer);
    td_hasher_destroy(catalog->hasher);
    td_event_ring_destroy(catalog->events);
    td_removed_destroy(catalog->removed);
    td_snapshot_unref(catalog->current);
    free_retired(catalog);
    td_unsettled_list_fini(&catalog->unsettled);
    td_mapping_cache_fini(&catalog->maps);
    td_decode_cache_fini(&catalog->decodes);
    td_root_unref(catalog->root);
    (void)pthread_cond_destroy(&catalog->wake);
    (void)pthread_cond_destroy(&catalog->scanned);
    (void)pthread_mutex_destroy(&catalog->lock);
    td_noted_commits_fini(&catalog->noted);
    free(catalog->root_path);
    free(catalog);
}

struct td_snapshot *td_catalog_acquire(struct td_catalog *catalog)
{
    pthread_mutex_lock(&catalog->lock);
    struct td_snapshot *snapshot = catalog->current == NULL ? NULL : td_snapshot_ref(catalog->current);
    pthread_mutex_unlock(&catalog->lock);
    return snapshot;
}

void td_catalog_on_publish(struct td_catalog *catalog, void (*on_publish)(void *context), void *context)
{
    pthread_mutex_lock(&catalog->lock);
    catalog->on_publish = on_publish;
    catalog->on_publish_context = context;
    pthread_mutex_unlock(&catalog->lock);
}

void td_catalog_announce(struct td_catalog *catalog)
{
    pthread_mutex_lock(&catalog->lock);
    if (catalog->on_publish != NULL)
        catalog->on_publish(catalog->on_publish_context);
    pthread_mutex_unlock(&catalog->lock);
}

struct td_removed *td_catalog_removed(struct td_catalog *catalog)
{
    return catalog->removed;
}

struct td_event_ring *td_catalog_events(struct td_catalog *catalog)
{
    return catalog->events;
}

void td_catalog_tune(struct td_catalog *catalog, const struct td_catalog_tuning *tuning)
{
    pthread_mutex_lock(&catalog->lock);
    catalog->config.interval_ns = tuning->interval_ns;
    catalog->config.require_models = tuning->require_models;
    catalog->config.scan.settle_ns = tuning->settle_ns;
    catalog->config.scan.max_files = tuning->max_files;
    pthread_mutex_unlock(&catalog->lock);
    td_catalog_request_scan(catalog);
}

void td_catalog_request_scan(struct td_catalog *catalog)
{
    pthread_mutex_lock(&catalog->lock);
    catalog->scan_requested = true;
    pthread_cond_signal(&catalog->wake);
    pthread_mutex_unlock(&catalog->lock);
}

/* Under the lock. */
static void request_publish(struct td_catalog *catalog)
{
    catalog->scan_requested = true;
    catalog->publish_requested = true;
    catalog->publish_until_ns = td_clock_ns() + catalog->config.scan.settle_ns;
    pthread_cond_signal(&catalog->wake);
}

void td_catalog_request_publish(struct td_catalog *catalog)
{
    pthread_mutex_lock(&catalog->lock);
    request_publish(catalog);
    pthread_mutex_unlock(&catalog->lock);
}

/* Waits for the end of a scan, or for 0.2 s. Returns false when the time is over or *stop is true. Under the lock. */
static bool wait_for_scan(struct td_catalog *catalog, uint64_t until_ns, const _Atomic bool *stop)
{
    if (td_clock_ns() >= until_ns || atomic_load(stop) || atomic_load(&catalog->stop))
        return false;
    struct timespec step = td_clock_timespec(td_clock_part_ns(until_ns));
    (void)pthread_cond_timedwait(&catalog->scanned, &catalog->lock, &step);
    return true;
}

bool td_catalog_rescan(struct td_catalog *catalog, const _Atomic bool *stop, struct td_rescan *out,
                       struct td_error *err)
{
    *out = (struct td_rescan){0};
    pthread_mutex_lock(&catalog->lock);
    uint64_t settle_ns = catalog->config.scan.settle_ns;
    uint64_t most_ns = settle_ns < rescan_max_ns - rescan_grace_ns ? settle_ns + rescan_grace_ns : rescan_max_ns;
    if (catalog->waiter_count >= TD_RESCAN_WAITERS) {
        pthread_mutex_unlock(&catalog->lock);
        return td_error_set(err, TD_RESOURCE_EXHAUSTED, "%d requests wait for a scan already; try again",
                            TD_RESCAN_WAITERS);
    }
    catalog->waiter_count++;
    request_publish(catalog);
    uint64_t awaited = catalog->started_count + 1; /* the running scan may have passed the new files already */
    uint64_t until_ns = td_clock_ns() + most_ns;
    do {
        out->done = catalog->ended_count >= awaited;
        out->failed = out->done && catalog->scan_failed;
        out->settled = out->done && !out->failed && catalog->pending_count == 0;
    } while (!out->settled && !out->failed && wait_for_scan(catalog, until_ns, stop));
    (void)snprintf(out->message, sizeof out->message, "%s", catalog->status.message);
    catalog->waiter_count--;
    pthread_mutex_unlock(&catalog->lock);
    return true;
}

void td_catalog_note_commit(struct td_catalog *catalog, const char *folder, const char *commit)
{
    td_noted_commits_add(&catalog->noted, folder, commit);
}

size_t td_catalog_max_files(struct td_catalog *catalog, const char *folder, size_t *others)
{
    struct td_snapshot *snapshot = td_catalog_acquire(catalog);
    *others = 0;
    if (snapshot != NULL) {
        const struct td_repos *repos = td_repos_of(snapshot);
        *others = snapshot->entry_count;
        for (size_t i = 0; i < repos->count; i++)
            if (repos->items[i].is_other_revision || strcmp(repos->items[i].folder, folder) == 0)
                *others -= repos->items[i].entry_count;
        td_snapshot_unref(snapshot);
    }
    pthread_mutex_lock(&catalog->lock);
    size_t max_files = catalog->config.scan.max_files;
    pthread_mutex_unlock(&catalog->lock);
    return max_files;
}

bool td_catalog_show(struct td_catalog *catalog, const _Atomic bool *stop, struct td_error *err)
{
    pthread_mutex_lock(&catalog->lock);
    catalog->show_count++;
    catalog->scan_requested = true;
    pthread_cond_signal(&catalog->wake);
    uint64_t awaited = catalog->started_count + 1; /* the running scan may have passed the change already */
    uint64_t until_ns = td_clock_ns() + show_max_ns;
    while (catalog->ended_count < awaited && wait_for_scan(catalog, until_ns, stop))
        ;
    bool has_ended = catalog->ended_count >= awaited;
    bool ok = has_ended && !catalog->scan_failed;
    if (!ok)
        (void)td_error_set(err, TD_UNAVAILABLE, "%s",
                           has_ended ? catalog->status.message : "the scan that shows the change has not ended");
    catalog->show_count--;
    pthread_mutex_unlock(&catalog->lock);
    return ok;
}

enum td_catalog_stage td_catalog_get_stage(const struct td_catalog *catalog)
{
    return atomic_load(&catalog->stage);
}

void td_catalog_get_status(struct td_catalog *catalog, struct td_catalog_status *status)
{
    pthread_mutex_lock(&catalog->lock);
    *status = catalog->status;
    status->scan_failed = catalog->scan_failed;
    status->first_scan_failed = catalog->current == NULL && catalog->scan_failed;
    uint64_t end_ns = catalog->last_scan_end_ns;
    size_t required = catalog->config.require_models;
    pthread_mutex_unlock(&catalog->lock);
    status->last_scan_age_ns = end_ns == 0 ? 0 : td_clock_ns() - end_ns;
    status->files_found = atomic_load(&catalog->progress.files_found);
    status->files_to_read = atomic_load(&catalog->progress.files_to_read);
    status->files_read = atomic_load(&catalog->progress.files_read);
    status->maps = td_mapping_cache_count(&catalog->maps);
    status->watch = td_tree_watch_get_counts(catalog->watch);
    status->decoding = td_decode_cache_counts(&catalog->decodes);
    td_parse_pool_get_status(catalog->config.scan.parsers, &status->parsing);
    td_hasher_get_status(catalog->hasher, &status->hasher);
    td_row_indexer_get_status(catalog->indexer, &status->indexer);
    status->too_few_models = status->ready && !status->root_missing && status->counts.usable < required;
    if (status->too_few_models && status->message[0] == '\0')
        (void)snprintf(status->message, sizeof status->message,
                       "%zu of the %zu models that --require-models asks for %s published%s", status->counts.usable,
                       required, status->counts.usable == 1 ? "is" : "are",
                       status->counts.models > status->counts.usable ? "; others were refused, GET /models says why"
                                                                     : "");
    if (status->root_missing || status->too_few_models)
        status->ready = false;
}

bool td_catalog_wait_digest(struct td_catalog *catalog, const struct td_snapshot *snapshot, struct td_file *file,
                            const struct td_digest_wait *how)
{
    if (file->source.incoming != NULL) /* the file is not whole yet */
        return td_file_sha256(file) != NULL;
    return td_hasher_wait(catalog->hasher, snapshot->root, file, how);
}

void td_catalog_note_digest(struct td_catalog *catalog, const struct td_file_id *id, const uint8_t sum[TD_SHA256_BYTES])
{
    td_hasher_note(catalog->hasher, id, sum);
}

struct td_parse_pool *td_catalog_parsers(struct td_catalog *catalog)
{
    return catalog->config.scan.parsers;
}

struct td_mapping_cache *td_catalog_maps(struct td_catalog *catalog)
{
    return &catalog->maps;
}

struct td_decode_cache *td_catalog_decode_cache(struct td_catalog *catalog)
{
    return &catalog->decodes;
}
