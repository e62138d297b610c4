/* Plan: a table of intakes by model id, under one lock; TD_UPSTREAM_WORKERS threads take jobs from it: list a model's
 * files, or fetch one of them. Whoever finishes a file looks whether that was the last one of its phase and takes the
 * next step. No thread belongs to a model, so that a large model holds up no small one.
 *
 * What is hard:
 *   - An intake that has failed keeps its place until every thread that works for it has noticed (`running`), and its
 *     files on disk are then left to be resumed, or removed where the disk is full.
 *   - Readers of incoming blobs wait without this lock, and say only by a flag of the blob that they do; so while files
 *     wait to be fetched, idle threads look for wanted ones every LOOK_NS.
 *   - A model that has been published is shown from its intake until a scan has found it: until then the catalog's
 *     snapshot lacks it, and asking leads here. */
#include "catalog/upstream/upstream.h"

#include "catalog/upstream/frontier.h"
#include "catalog/upstream/intake.h"
#include "catalog/upstream/late_digests.h"
#include "core/array.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/log.h"
#include "core/waiting.h"
#include "storage/incoming.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

enum { ID_BYTES = 17 }; /* of this process in TD_UPSTREAM_VIA: 16 hexadecimal digits and a NUL */

static const uint64_t look_ns = NS_PER_S / 10;
static const uint64_t published_ns = 60 * NS_PER_S; /* how long an intake stays after it was published */
static const uint64_t relay_wait_ns = 2 * NS_PER_S; /* how long other servers wait for a list: less than we do */
static const uint64_t failure_ns = 2 * NS_PER_S;    /* how long the first failure is kept; doubles with each */
static const uint64_t failure_most_ns = 60 * NS_PER_S;

struct td_upstream {
    pthread_mutex_t lock;
    pthread_cond_t work, changed; /* for the threads; for those that ask */
    struct td_upstream_config config;
    char id[ID_BYTES];
    struct td_intake **intakes;
    size_t count, capacity;
    size_t files_running;
    uint64_t noted_ns;
    struct td_late_digests late;
    bool has_warned_of_loop;
    _Atomic bool stop;
    pthread_t workers[TD_UPSTREAM_WORKERS];
    size_t worker_count;
    struct td_upstream_status status; /* the counters */
    _Atomic uint64_t fetched_bytes;
};

/* ---- the table, under the lock ---------------------------------------------------------------------------- */

static struct td_intake *find_intake(struct td_upstream *u, struct td_text id)
{
    for (size_t i = 0; i < u->count; i++)
        if (td_text_equals(id, u->intakes[i]->id))
            return u->intakes[i];
    return NULL;
}

/* Returns whether the intake holds one of the TD_UPSTREAM_MODELS places. */
static bool is_active(const struct td_intake *intake)
{
    return intake->running > 0 || (intake->phase > TD_INTAKE_QUEUED && intake->phase <= TD_INTAKE_PUBLISHING);
}

static size_t count_active(const struct td_upstream *u)
{
    size_t count = 0;
    for (size_t i = 0; i < u->count; i++)
        count += is_active(u->intakes[i]) ? 1 : 0;
    return count;
}

static size_t count_queued(const struct td_upstream *u)
{
    size_t count = 0;
    for (size_t i = 0; i < u->count; i++)
        count += u->intakes[i]->phase == TD_INTAKE_QUEUED ? 1 : 0;
    return count;
}

/* Returns whether the intake only keeps an answer, whose time may be over. */
static bool is_answer(const struct td_intake *intake)
{
    return intake->running == 0 && intake->phase >= TD_INTAKE_PUBLISHED;
}

static void remove_intake(struct td_upstream *u, size_t at)
{
    td_intake_destroy(u->intakes[at]);
    u->intakes[at] = u->intakes[--u->count];
}

/* Drops answers whose time is over. A failure is remembered for longer, so that the next one is kept for longer. */
static void drop_old(struct td_upstream *u)
{
    uint64_t now_ns = td_clock_ns();
    for (size_t i = 0; i < u->count;) {
        const struct td_intake *intake = u->intakes[i];
        uint64_t grace_ns = intake->phase == TD_INTAKE_FAILED ? failure_most_ns : 0;
        if (is_answer(intake) && now_ns >= intake->until_ns + grace_ns)
            remove_intake(u, i);
        else
            i++;
    }
}

/* Makes room in the table: drops the answer that ends first. Returns false when there is none. */
static bool drop_one(struct td_upstream *u)
{
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < u->count; i++)
        if (is_answer(u->intakes[i]) && (first == SIZE_MAX || u->intakes[i]->until_ns < u->intakes[first]->until_ns))
            first = i;
    if (first != SIZE_MAX)
        remove_intake(u, first);
    return first != SIZE_MAX;
}

/* ---- failing ---------------------------------------------------------------------------------------------- */

static enum td_upstream_failure failure_of(const struct td_error *why)
{
    switch (why->code) {
    case TD_RESOURCE_EXHAUSTED:
        return TD_UPSTREAM_FAILED_SPACE;
    case TD_FAILED_PRECONDITION:
    case TD_INVALID_ARGUMENT:
        return TD_UPSTREAM_FAILED_CONTENT;
    case TD_UNAVAILABLE:
        return TD_UPSTREAM_FAILED_UNREACHABLE;
    default:
        return TD_UPSTREAM_FAILED_OTHER;
    }
}

/* Ends an intake with an error. Under the lock. */
static void fail(struct td_upstream *u, struct td_intake *intake, const struct td_error *why)
{
    unsigned shift = intake->failures < 5 ? intake->failures : 5;
    uint64_t kept_ns = failure_ns << shift;
    bool is_first = intake->phase != TD_INTAKE_FAILED;
    struct td_error shown = *why;
    if (atomic_load(&u->stop)) {
        td_error_init(&shown);
        (void)td_error_set(&shown, TD_UNAVAILABLE, "the server is stopping");
    }
    intake->is_disk_full = intake->is_disk_full || why->sys == ENOSPC || why->sys == EDQUOT || why->sys == EFBIG;
    td_intake_fail(intake, &shown, td_clock_ns() + (kept_ns < failure_most_ns ? kept_ns : failure_most_ns));
    if (is_first && !atomic_load(&u->stop)) {
        u->status.failures[failure_of(why)]++;
        td_log(TD_LOG_WARN, "upstream: \"%s\" could not be fetched: %s", intake->id, why->message);
    }
    pthread_cond_broadcast(&u->changed);
}

/* Puts away a failed intake, when the last thread has left it: its files stay on disk, or make room. Under the lock,
 * which it releases meanwhile. */
static void put_away(struct td_upstream *u, struct td_intake *intake)
{
    bool has_files = intake->folder != NULL;
    bool is_full = intake->is_disk_full;
    td_intake_clear(intake);
    if (!has_files)
        return;
    intake->running++; /* keeps its place */
    pthread_mutex_unlock(&u->lock);
    if (is_full)
        td_upstream_store_discard(u->config.store, intake->id);
    else
        td_upstream_store_pause(u->config.store, intake->id);
    pthread_mutex_lock(&u->lock);
    intake->running--;
}

static bool is_cancelled(void *context)
{
    return atomic_load(&((struct td_intake *)context)->is_cancelled);
}

/* ---- listing ---------------------------------------------------------------------------------------------- */

/* Keeps the answer that the upstream has no such model. Under the lock. */
static void set_absent(struct td_upstream *u, struct td_intake *intake)
{
    intake->phase = TD_INTAKE_ABSENT;
    intake->failures = 0;
    intake->until_ns = td_clock_ns() + u->config.absent_ns;
    u->status.absent++;
    pthread_cond_broadcast(&u->changed);
}

/* Takes a list of files over: makes room on disk and the intake's files. Without the lock, before any reader can see
 * the intake's files. */
static bool begin_files(struct td_upstream *u, struct td_intake *intake, uint64_t *evicted, struct td_error *err)
{
    const struct td_remote_listing *listing = &intake->model.listing;
    return td_upstream_store_begin(u->config.store, intake->id, listing->total_bytes, &intake->folder, &intake->began_s,
                                   evicted, err);
}

/* An intake whose list is being asked for. */
struct listing {
    struct td_upstream *upstream;
    struct td_intake *intake;
};

/* Notes for those who wait why it takes so long. Called without the lock. */
static void on_list_retry(void *context, const char *why)
{
    const struct listing *listing = context;
    struct td_intake *intake = listing->intake;
    pthread_mutex_lock(&listing->upstream->lock);
    (void)snprintf(intake->retry_why, sizeof intake->retry_why, ": %s", why);
    pthread_mutex_unlock(&listing->upstream->lock);
}

/* Lists a model. Called and returns under the lock. */
static void run_list(struct td_upstream *u, struct td_intake *intake)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_cancel cancel = {.is_asked = is_cancelled, .context = intake};
    struct listing listing = {.upstream = u, .intake = intake};
    const struct td_upstream_wish wish = {
        .id = intake->id, .via = intake->via, .cancel = &cancel, .on_retry = on_list_retry, .context = &listing};
    const struct td_upstream_source *source = &u->config.source;
    uint64_t evicted = 0;
    intake->phase = TD_INTAKE_LISTING;
    intake->retry_why[0] = '\0';
    pthread_mutex_unlock(&u->lock);
    bool is_listed = source->list(source->context, &wish, &intake->model, &err);
    bool has_files = is_listed && intake->model.listing.count > 0;
    bool ok = has_files && begin_files(u, intake, &evicted, &err);
    if (evicted > 0 && u->config.catalog != NULL)
        td_catalog_request_scan(u->config.catalog);
    pthread_mutex_lock(&u->lock);
    u->status.evicted += evicted;
    bool is_absent = (!is_listed && (err.code == TD_NOT_FOUND || err.code == TD_PERMISSION_DENIED)) ||
                     (is_listed && !has_files) || err.code == TD_CONFLICT;
    if (is_absent && !atomic_load(&intake->is_cancelled)) {
        if (err.code != TD_OK)
            td_log(TD_LOG_INFO, "upstream: not fetched: %s", err.message);
        else
            td_log(TD_LOG_INFO, "upstream: not fetched: \"%s\" has no files", intake->id);
        set_absent(u, intake);
        return;
    }
    if (!ok || atomic_load(&intake->is_cancelled) || !td_intake_begin_files(intake, &err)) {
        fail(u, intake, &err);
        return;
    }
    u->status.begun++;
    td_log(TD_LOG_INFO, "upstream: fetching \"%s\": %zu file%s, %" PRIu64 " bytes", intake->id,
           intake->model.listing.count, td_plural(intake->model.listing.count), intake->model.listing.total_bytes);
    pthread_cond_broadcast(&u->work);
    pthread_cond_broadcast(&u->changed);
}

/* ---- one file --------------------------------------------------------------------------------------------- */

/* The context of a fetch's events. One thread. */
struct arriving {
    struct td_upstream *upstream;
    struct td_intake *intake;
    struct td_blob *blob;
    struct td_frontier frontier;
    bool is_attached;
    uint64_t resumed_bytes;
};

/* Opens the file anew for reading: a duplicate of a descriptor that can write would keep the kernel from granting
 * leases on the file as long as it is open. */
static void on_began(void *context, int fd, uint64_t size_bytes)
{
    struct arriving *arriving = context;
    char path[32];
    (void)size_bytes;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int mine = arriving->is_attached ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (mine < 0) /* without descriptors, or /proc, the file is opened at its end */
        return;
    td_incoming_attach(arriving->blob, mine);
    arriving->is_attached = true;
}

static void on_arrived(void *context, uint64_t off, uint64_t len, bool resumed)
{
    struct arriving *arriving = context;
    td_frontier_add(&arriving->frontier, off, len);
    if (arriving->is_attached)
        td_incoming_advance(arriving->blob, arriving->frontier.bytes);
    if (resumed)
        arriving->resumed_bytes += len;
    else
        atomic_fetch_add_explicit(&arriving->upstream->fetched_bytes, len, memory_order_relaxed);
}

/* Readers may have been given bytes that were wrong: ends the fetch. The next request begins it anew. */
static void on_discarded(void *context)
{
    struct arriving *arriving = context;
    atomic_store(&arriving->intake->is_cancelled, true);
}

/* Computes the SHA-256 of a file. */
static bool hash_file(int fd, uint8_t sum[TD_SHA256_BYTES], struct td_error *err)
{
    enum { STEP = 64 * 1024 };
    uint8_t *bytes = malloc(STEP);
    struct td_digest *digest = bytes == NULL ? NULL : td_digest_create();
    ssize_t n = 0;
    for (off_t off = 0; digest != NULL && (n = pread(fd, bytes, STEP, off)) > 0; off += n)
        td_digest_add_content(digest, bytes, (size_t)n);
    int sys = errno;
    free(bytes);
    bool ok = td_digest_finish_binary(digest, sum) || td_error_no_memory(err);
    return ok && (n == 0 || td_error_sys(err, TD_IO, sys, "cannot read a file that was fetched"));
}

/* Sets the outcome's SHA-256, if the fetch has not: of a file that was there. */
static bool complete_outcome(const struct td_fetch_expected *expected, int fd, struct td_fetch_outcome *outcome,
                             struct td_error *err)
{
    if (!outcome->was_there)
        return true;
    if (!expected->has_sha256)
        return hash_file(fd, outcome->sha256, err);
    memcpy(outcome->sha256, expected->sha256, sizeof outcome->sha256);
    return true;
}

/* Opens the finished file, gives it the model's time and tells the catalog its digest, so that nothing is hashed twice.
 */
static bool settle_file(struct td_upstream *u, const struct td_intake *intake, const struct td_remote_file *file,
                        struct td_fetch_outcome *outcome, int *fd, struct td_error *err)
{
    struct stat st;
    struct td_file_id id;
    const struct timespec times[2] = {{.tv_sec = intake->began_s}, {.tv_sec = intake->began_s}};
    if (!td_root_open_file(intake->folder, file->path, fd, &id, err))
        return false;
    if (futimens(*fd, times) != 0 || fstat(*fd, &st) != 0) {
        int sys = errno;
        (void)close(*fd);
        return td_error_sys(err, TD_IO, sys, "cannot set the time of \"%s\"", file->path);
    }
    id = td_file_id_of(&st);
    if (!complete_outcome(&file->expected, *fd, outcome, err)) {
        (void)close(*fd);
        return false;
    }
    if (u->config.catalog != NULL)
        td_catalog_note_digest(u->config.catalog, &id, outcome->sha256);
    return true;
}

/* Fetches a file. Without the lock. */
static bool fetch_file(struct td_upstream *u, struct td_intake *intake, size_t i, struct arriving *arriving,
                       struct td_fetch_outcome *outcome, struct td_error *err)
{
    const struct td_cancel cancel = {.is_asked = is_cancelled, .context = intake};
    const struct td_upstream_wish wish = {.id = intake->id, .via = intake->via, .cancel = &cancel};
    const struct td_upstream_source *source = &u->config.source;
    const struct td_remote_file *file = &intake->model.listing.files[i];
    const struct td_fetch_events events = {
        .began = on_began, .arrived = on_arrived, .discarded = on_discarded, .context = arriving};
    int fd = -1;
    if (!source->fetch(source->context, &wish, &intake->model, file, intake->folder, &events, outcome, err))
        return false;
    if (!settle_file(u, intake, file, outcome, &fd, err))
        return false;
    if (arriving->is_attached)
        (void)close(fd);
    else
        td_incoming_attach(arriving->blob, fd);
    return true;
}

/* Notes that a file is here: its readers get its end. Under the lock. */
static void take_file(struct td_intake *intake, size_t i, const struct td_fetch_outcome *outcome)
{
    struct td_intake_file *file = &intake->files[i];
    file->state = TD_INTAKE_FILE_IS_HERE;
    file->is_verified = outcome->is_verified || outcome->was_there;
    if (!file->has_sha256) {
        file->has_sha256 = true;
        memcpy(file->sha256, outcome->sha256, sizeof file->sha256);
        if (intake->snapshot != NULL)
            (void)td_file_set_sha256(intake->snapshot->entries[i].file, file->sha256);
    }
    td_incoming_finish(file->blob);
    intake->here_count++;
    intake->early_left -= file->is_early ? 1 : 0;
}

static int path_compare(const void *path, const void *file)
{
    return strcmp(path, ((const struct td_remote_file *)file)->path);
}

static bool is_wanted(void *context, const char *path)
{
    const struct td_remote_listing *listing = context;
    return bsearch(path, listing->files, listing->count, sizeof *listing->files, path_compare) != NULL;
}

/* Publishes a model whose files are all here. Called and returns under the lock. */
static void publish(struct td_upstream *u, struct td_intake *intake)
{
    struct td_error err = TD_ERROR_INIT;
    bool is_verified = td_intake_is_verified(intake);
    intake->phase = TD_INTAKE_PUBLISHING;
    pthread_mutex_unlock(&u->lock);
    bool ok =
        td_upstream_store_publish(u->config.store, intake->id, is_verified, is_wanted, &intake->model.listing, &err);
    if (ok && u->config.catalog != NULL)
        td_catalog_request_scan(u->config.catalog);
    pthread_mutex_lock(&u->lock);
    if (!ok) {
        fail(u, intake, &err);
        return;
    }
    uint64_t took_ns = td_clock_ns() - intake->started_ns;
    intake->phase = TD_INTAKE_PUBLISHED;
    intake->failures = 0;
    intake->until_ns = td_clock_ns() + published_ns;
    u->status.published++;
    td_log(TD_LOG_INFO,
           "upstream: published \"%s\": %" PRIu64 " bytes in %" PRIu64 ".%03" PRIu64 " s, %" PRIu64
           " of them resumed%s",
           intake->id, intake->model.listing.total_bytes, took_ns / NS_PER_S, took_ns % NS_PER_S / 1000000,
           intake->resumed_bytes, is_verified ? "" : "; the upstream had no digests for some files");
    pthread_cond_broadcast(&u->changed);
}

/* Fetches file i and takes the next step if it was the last one of its phase. Called and returns under the lock. */
static void run_file(struct td_upstream *u, struct td_intake *intake, size_t i)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_fetch_outcome outcome = {.was_there = false};
    struct arriving arriving = {.upstream = u, .intake = intake, .blob = td_blob_ref(intake->files[i].blob)};
    intake->files[i].state = TD_INTAKE_FILE_RUNS;
    u->files_running++;
    pthread_mutex_unlock(&u->lock);
    bool ok = fetch_file(u, intake, i, &arriving, &outcome, &err);
    td_frontier_fini(&arriving.frontier);
    pthread_mutex_lock(&u->lock);
    u->files_running--;
    intake->resumed_bytes += arriving.resumed_bytes;
    if (intake->phase == TD_INTAKE_FAILED) {
        td_blob_unref(arriving.blob);
        return;
    }
    if (!ok && err.code == TD_CONFLICT) { /* cancelled by on_discarded */
        td_error_init(&err);
        (void)td_error_set(&err, TD_FAILED_PRECONDITION, "the upstream sent wrong bytes for \"%s\"",
                           intake->model.listing.files[i].path);
    }
    if (ok)
        take_file(intake, i, &outcome);
    td_blob_unref(arriving.blob);
    ok = ok && (intake->phase != TD_INTAKE_PREPARING || intake->early_left > 0 || td_intake_show(intake, &err));
    if (!ok)
        fail(u, intake, &err);
    else if (intake->phase == TD_INTAKE_ARRIVING && intake->here_count == intake->model.listing.count)
        publish(u, intake);
    pthread_cond_broadcast(&u->changed);
}

/* ---- the threads ------------------------------------------------------------------------------------------ */

/* A job: `file` SIZE_MAX lists. */
struct job {
    struct td_intake *intake;
    size_t file;
};

static bool choose_list(struct td_upstream *u, struct job *job)
{
    if (count_active(u) >= TD_UPSTREAM_MODELS)
        return false;
    for (size_t i = 0; i < u->count; i++) {
        if (u->intakes[i]->phase != TD_INTAKE_QUEUED || u->intakes[i]->running > 0)
            continue;
        *job = (struct job){.intake = u->intakes[i], .file = SIZE_MAX};
        return true;
    }
    return false;
}

static bool choose_file(struct td_upstream *u, bool only_wanted, struct job *job)
{
    for (size_t i = 0; i < u->count; i++) {
        size_t file = td_intake_choose(u->intakes[i], only_wanted);
        if (file == SIZE_MAX)
            continue;
        *job = (struct job){.intake = u->intakes[i], .file = file};
        return true;
    }
    return false;
}

static bool choose(struct td_upstream *u, struct job *job)
{
    return choose_list(u, job) || (u->files_running < TD_UPSTREAM_FILES && choose_file(u, true, job)) ||
           (u->files_running < TD_UPSTREAM_BACKGROUND_FILES && choose_file(u, false, job));
}

static bool has_waiting_files(const struct td_upstream *u)
{
    for (size_t i = 0; i < u->count; i++)
        if (td_intake_has_waiting(u->intakes[i]))
            return true;
    return false;
}

/* Writes the times of reads, and compares a model with late digests, about every minute. Called and returns under the
 * lock. */
static void keep_house(struct td_upstream *u)
{
    uint64_t now_ns = td_clock_ns();
    if (now_ns - u->noted_ns < u->config.house_ns)
        return;
    u->noted_ns = now_ns;
    drop_old(u);
    pthread_mutex_unlock(&u->lock);
    td_upstream_store_write_reads(u->config.store);
    td_late_digests_check(&u->late);
    pthread_mutex_lock(&u->lock);
}

static void *worker_main(void *argument)
{
    struct td_upstream *u = argument;
    struct job job;
    pthread_mutex_lock(&u->lock);
    while (!atomic_load(&u->stop)) {
        if (choose(u, &job)) {
            job.intake->running++;
            if (job.file == SIZE_MAX)
                run_list(u, job.intake);
            else
                run_file(u, job.intake, job.file);
            job.intake->running--;
            if (job.intake->phase >= TD_INTAKE_FAILED && job.intake->running == 0)
                put_away(u, job.intake);
            pthread_cond_broadcast(&u->work);
            continue;
        }
        keep_house(u);
        const struct timespec until =
            td_clock_timespec(td_clock_ns() + (has_waiting_files(u) ? look_ns : u->config.house_ns));
        if (!atomic_load(&u->stop))
            (void)pthread_cond_timedwait(&u->work, &u->lock, &until);
    }
    pthread_mutex_unlock(&u->lock);
    return NULL;
}

static bool make_id(struct td_upstream *u)
{
    uint8_t bytes[ID_BYTES / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(u->id + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

bool td_upstream_create(const struct td_upstream_config *config, struct td_upstream **out, struct td_error *err)
{
    struct td_upstream *u = calloc(1, sizeof *u);
    if (u == NULL)
        return td_error_no_memory(err);
    u->config = *config;
    u->noted_ns = td_clock_ns();
    u->late = (struct td_late_digests){.source = config->source,
                                       .store = config->store,
                                       .catalog = config->catalog,
                                       .via = u->id,
                                       .first_ns = 2 * config->house_ns,
                                       .stop = &u->stop};
    bool has_lock = pthread_mutex_init(&u->lock, NULL) == 0;
    bool has_work = has_lock && td_clock_condition_init(&u->work);
    if (!has_work || !td_clock_condition_init(&u->changed) || !make_id(u)) {
        if (has_work)
            (void)pthread_cond_destroy(&u->work);
        if (has_lock)
            (void)pthread_mutex_destroy(&u->lock);
        free(u);
        return td_error_no_memory(err);
    }
    for (; u->worker_count < TD_UPSTREAM_WORKERS; u->worker_count++) {
        int sys = pthread_create(&u->workers[u->worker_count], NULL, worker_main, u);
        if (sys == 0)
            continue;
        td_upstream_destroy(u);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start a thread that fetches");
    }
    *out = u;
    return true;
}

void td_upstream_stop(struct td_upstream *u)
{
    struct td_error why = TD_ERROR_INIT;
    (void)td_error_set(&why, TD_UNAVAILABLE, "the server is stopping");
    pthread_mutex_lock(&u->lock);
    atomic_store(&u->stop, true);
    for (size_t i = 0; i < u->count; i++)
        if (u->intakes[i]->phase < TD_INTAKE_PUBLISHED)
            fail(u, u->intakes[i], &why);
    pthread_cond_broadcast(&u->work);
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
}

void td_upstream_destroy(struct td_upstream *u)
{
    if (u == NULL)
        return;
    td_upstream_stop(u);
    for (size_t i = 0; i < u->worker_count; i++)
        (void)pthread_join(u->workers[i], NULL);
    while (u->count > 0)
        remove_intake(u, 0);
    free(u->intakes);
    (void)pthread_cond_destroy(&u->work);
    (void)pthread_cond_destroy(&u->changed);
    (void)pthread_mutex_destroy(&u->lock);
    free(u);
}

/* ---- asking ----------------------------------------------------------------------------------------------- */

/* Makes the value of TD_UPSTREAM_VIA to send: the request's, and this server. Returns false when this server is in it
 * already, or too many are: then nothing may be fetched for the request. */
static bool make_via(const struct td_upstream *u, struct td_text via, char out[TD_UPSTREAM_VIA_BYTES])
{
    size_t servers = 0;
    struct td_text rest = via;
    while (rest.len > 0) {
        struct td_text one = td_text_take_until(&rest, ',');
        if (td_text_equals(one, u->id) || one.len != ID_BYTES - 1 || ++servers >= TD_UPSTREAM_VIA_MOST)
            return false;
    }
    int n = snprintf(out, TD_UPSTREAM_VIA_BYTES, "%.*s%s%s", (int)via.len, via.p, via.len > 0 ? "," : "", u->id);
    return n > 0 && n < TD_UPSTREAM_VIA_BYTES;
}

/* Begins a fetch; sets *out to its intake. Under the lock. */
static bool begin(struct td_upstream *u, struct td_text id, const char *via, struct td_intake *old,
                  struct td_intake **out, struct td_error *err)
{
    char name[TD_UPSTREAM_ID_BYTES];
    if (count_queued(u) >= TD_UPSTREAM_QUEUE)
        return td_error_set(err, TD_UNAVAILABLE, "%d models wait to be fetched from the upstream already; try again",
                            TD_UPSTREAM_QUEUE);
    if (old != NULL) {
        td_intake_clear(old);
        td_intake_restart(old, via);
        *out = old;
    } else {
        if (u->count >= u->config.max_names && !drop_one(u))
            return td_error_set(err, TD_UNAVAILABLE, "too many models are asked for; try again");
        (void)snprintf(name, sizeof name, "%.*s", (int)id.len, id.p);
        if (!TD_ARRAY_GROW(u->intakes, u->count, u->capacity, err))
            return false;
        struct td_intake *fresh = td_intake_create(name, via);
        if (fresh == NULL)
            return td_error_no_memory(err);
        u->intakes[u->count++] = *out = fresh;
    }
    pthread_cond_broadcast(&u->work);
    return true;
}

/* Answers from an intake, if it has an answer. Under the lock. Returns whether it does; a failure is in *err. */
static bool answer_from(struct td_upstream *u, struct td_intake *intake, enum td_upstream_answer *answer,
                        struct td_snapshot **snapshot, struct td_error *err)
{
    if (intake->phase == TD_INTAKE_FAILED) {
        (void)td_error_set(err, intake->error.code == TD_RESOURCE_EXHAUSTED ? TD_RESOURCE_EXHAUSTED : TD_UNAVAILABLE,
                           "\"%s\" cannot be fetched from the upstream: %s", intake->id, intake->error.message);
        return true;
    }
    if (intake->phase == TD_INTAKE_ABSENT) {
        *answer = TD_UPSTREAM_HAS_NOT;
        return true;
    }
    if (intake->snapshot == NULL)
        return false;
    *answer = TD_UPSTREAM_SENDS;
    *snapshot = td_snapshot_ref(intake->snapshot);
    u->status.early_requests++;
    return true;
}

/* Returns whether the upstream should be asked again although it has said that there is no such model: it was asked on
 * behalf of a request that had passed more servers than this one, and may have refused it for that. So nobody can make
 * a model absent for others by a field that he made up. */
static bool is_doubtful(const struct td_intake *intake, const char *via)
{
    return intake->phase == TD_INTAKE_ABSENT && strlen(via) < strlen(intake->via);
}

/* Warns, once, that a request which this server has sent came back to it. Under the lock. */
static void warn_of_loop(struct td_upstream *u, struct td_text id)
{
    if (!u->has_warned_of_loop)
        td_log(TD_LOG_WARN,
               "upstream: the request for \"%.*s\" came back to this server, or has passed %d others: does --upstream "
               "name this server, or one whose --upstream does?",
               (int)id.len, id.p, TD_UPSTREAM_VIA_MOST);
    u->has_warned_of_loop = true;
}

/* Answers as soon as there is an answer. Under the lock. */
static bool wait_for_answer(struct td_upstream *u, struct td_text id, struct td_text via,
                            enum td_upstream_answer *answer, struct td_snapshot **snapshot, struct td_error *err)
{
    char sent[TD_UPSTREAM_VIA_BYTES];
    uint64_t wait_ns = via.len > 0 && relay_wait_ns < u->config.wait_ns ? relay_wait_ns : u->config.wait_ns;
    const uint64_t until_ns = td_clock_ns() + wait_ns;
    const struct timespec until = td_clock_timespec(until_ns);
    bool may_send = make_via(u, via, sent);
    bool has_begun = false;
    for (;;) {
        struct td_intake *intake = find_intake(u, id);
        bool is_over = intake == NULL;
        if (intake != NULL && is_answer(intake) && !has_begun)
            is_over = td_clock_ns() >= intake->until_ns || (may_send && is_doubtful(intake, sent));
        if (atomic_load(&u->stop))
            return td_error_set(err, TD_UNAVAILABLE, "the server is stopping");
        if (!is_over && answer_from(u, intake, answer, snapshot, err))
            return err->code == TD_OK;
        if (!may_send) { /* this server waits for its own answer */
            warn_of_loop(u, id);
            *answer = TD_UPSTREAM_HAS_NOT;
            return true;
        }
        if (!td_may_wait(err))
            return false;
        if (is_over && !begin(u, id, sent, intake, &intake, err))
            return false;
        has_begun = has_begun || is_over;
        if (td_clock_ns() >= until_ns)
            return td_error_set(err, TD_UNAVAILABLE,
                                "the list of files of \"%s\" is being fetched from the upstream%s; try again",
                                intake->id, intake->retry_why);
        (void)pthread_cond_timedwait(&u->changed, &u->lock, &until);
    }
}

bool td_upstream_ask(struct td_upstream *u, struct td_text id, struct td_text via, enum td_upstream_answer *answer,
                     struct td_snapshot **snapshot, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    *answer = TD_UPSTREAM_HAS_NOT;
    if (!td_kept_id_is_valid(id))
        return true;
    pthread_mutex_lock(&u->lock);
    const struct td_intake *intake = find_intake(u, id);
    bool is_known = intake != NULL && !(is_answer(intake) && td_clock_ns() >= intake->until_ns);
    pthread_mutex_unlock(&u->lock);
    struct td_kept_model kept;
    if (!is_known && td_upstream_store_find(u->config.store, id, &kept)) {
        if (!td_may_wait(err)) /* for a look at the disk */
            return false;
        if (td_upstream_store_is_there(u->config.store, id)) {
            *answer = TD_UPSTREAM_SENT;
            return true;
        }
    }
    pthread_mutex_lock(&u->lock);
    bool ok = wait_for_answer(u, id, via, answer, snapshot, &why);
    pthread_mutex_unlock(&u->lock);
    return ok || td_error_copy(err, &why);
}

bool td_upstream_get_progress(struct td_upstream *u, struct td_text id, struct td_upstream_progress *out)
{
    pthread_mutex_lock(&u->lock);
    const struct td_intake *intake = find_intake(u, id);
    bool found = intake != NULL && intake->phase < TD_INTAKE_PUBLISHED;
    if (found)
        *out =
            (struct td_upstream_progress){.arrived_bytes = td_intake_arrived(intake),
                                          .total_bytes = intake->files == NULL ? 0 : intake->model.listing.total_bytes,
                                          .is_listed = intake->files != NULL};
    pthread_mutex_unlock(&u->lock);
    return found;
}

bool td_upstream_find(struct td_upstream *u, struct td_text id, struct td_kept_model *out)
{
    return td_upstream_store_find(u->config.store, id, out);
}

void td_upstream_note_read(struct td_upstream *u, struct td_text id)
{
    td_upstream_store_note_read(u->config.store, id);
}

void td_upstream_get_status(struct td_upstream *u, struct td_upstream_status *status)
{
    pthread_mutex_lock(&u->lock);
    *status = u->status;
    status->fetching = count_active(u);
    status->waiting = count_queued(u);
    pthread_mutex_unlock(&u->lock);
    status->fetched_bytes = atomic_load_explicit(&u->fetched_bytes, memory_order_relaxed);
    status->kept_bytes = td_upstream_store_bytes(u->config.store, &status->kept_count);
    status->unverified = td_upstream_store_count_unverified(u->config.store);
    status->wrong = td_late_digests_wrong(&u->late);
}
