/* Plan: jobs wait in one level of a queue (work/work_queue), whose owners are the clients. A job holds its snapshot and
 * its plan, and no file: the thread opens the files when it begins the job. The errors of the last failures are kept
 * for requests that come after the job has ended; a request takes the error, and the one after it begins a new job.
 *
 * What is hard: patches that are being sent count towards the limit of the disk until their last reference is dropped.
 * So the store only drops patches that nobody else refers to (the `idle` of its td_lru). */
#include "rank/patch/patch_store.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/waiting.h"
#include "http/lru.h"
#include "work/work_queue.h"

#include <stdlib.h>
#include <string.h>

enum { FAILURES = 32 };

struct failure {
    char name[TD_TAG_BYTES];
    struct td_error err; /* TD_OK: the place is free */
};

struct job {
    struct td_work_job work; /* first */
    char name[TD_TAG_BYTES];
    uint64_t client;
    struct td_patch_order order;  /* borrows from the next three */
    struct td_snapshot *snapshot; /* one reference */
    struct td_stored_plan *plan;  /* likewise; or NULL */
    char plan_id[TD_TAG_BYTES];
    struct td_patch_progress progress;
    /* when the job is done; under the lock of the queue */
    struct td_patch *patch; /* one reference; NULL: it failed */
    struct td_error err;
};

struct td_patch_store {
    struct td_rank_store *ranks;
    struct td_patch_disk disk;
    struct td_lru patches; /* struct td_patch by name */
    struct td_work_queue *queue;
    struct td_cancel cancel;
    /* under the lock of the queue */
    struct failure failures[FAILURES]; /* a ring */
    size_t next_failure;
};

/* ---- kept patches --------------------------------------------------------------------------------------- */

static struct td_patch *ref_patch(struct td_patch *patch)
{
    (void)td_blob_ref(&patch->blob);
    return patch;
}

static void unref_patch(struct td_patch *patch)
{
    if (patch != NULL)
        td_blob_unref(&patch->blob);
}

static void *patch_ref(void *value)
{
    return ref_patch(value);
}

static void patch_unref(void *value)
{
    unref_patch(value);
}

static bool patch_idle(const void *value)
{
    return !td_blob_is_shared(&((const struct td_patch *)value)->blob);
}

static const struct td_lru_class patch_class = {.ref = patch_ref, .unref = patch_unref, .idle = patch_idle};

/* Drops a patch that no answer uses: first those of earlier processes. */
static bool drop_patch(void *context)
{
    struct td_patch_store *store = context;
    return td_patch_disk_drop_found(&store->disk) || td_lru_drop_idle(&store->patches);
}

/* ---- jobs ----------------------------------------------------------------------------------------------- */

static struct job *job_of(const struct td_work_job *work)
{
    return (struct job *)(uintptr_t)work;
}

/* Releases what the job needs to run, so that old snapshots can be freed. */
static void drop_order(struct job *job)
{
    td_snapshot_unref(job->snapshot);
    td_stored_plan_unref(job->plan);
    job->snapshot = NULL;
    job->plan = NULL;
}

static void free_job(struct td_work_job *work)
{
    struct job *job = job_of(work);
    drop_order(job);
    unref_patch(job->patch);
    free(job);
}

/* Creates a job for the order. Returns NULL when memory is short. */
static struct job *create_job(const struct td_patch_order *order, struct td_stored_plan *plan, const char *name,
                              uint64_t client)
{
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return NULL;
    td_work_job_init(&job->work, client, 0);
    memcpy(job->name, name, sizeof job->name);
    job->client = client;
    job->order = *order;
    job->snapshot = td_snapshot_ref(order->version.snapshot);
    job->plan = plan == NULL ? NULL : td_plan_store_class.ref(plan);
    const struct td_text id = order->version.name.id; /* shorter than a tag, as td_native_plan_key checks */
    if (id.len > 0)
        memcpy(job->plan_id, id.p, id.len);
    job->order.since.name.id = job->order.version.name.id = td_text_n(job->plan_id, id.len);
    td_error_init(&job->err);
    return job;
}

/* Returns the job of this name, or NULL, and sets *count to the number of jobs and *own to those of the client. Under
 * the lock. */
static struct job *find_job(const struct td_patch_store *store, const char *name, uint64_t client, size_t *count,
                            size_t *own)
{
    struct job *found = NULL;
    *count = *own = 0;
    for (struct td_work_job *work = td_work_queue_next(store->queue, NULL); work != NULL;
         work = td_work_queue_next(store->queue, work)) {
        struct job *job = job_of(work);
        *count += 1;
        *own += job->client == client ? 1 : 0;
        found = strcmp(job->name, name) == 0 ? job : found;
    }
    return found;
}

/* Takes the error of the last failure of this patch. Returns false when there is none. Under the lock. */
static bool take_failure(struct td_patch_store *store, const char *name, struct td_error *err)
{
    for (size_t i = 0; i < FAILURES; i++) {
        struct failure *failure = &store->failures[i];
        if (failure->err.code == TD_OK || strcmp(failure->name, name) != 0)
            continue;
        (void)td_error_copy(err, &failure->err);
        td_error_init(&failure->err);
        return true;
    }
    return false;
}

static void note_failure(struct td_patch_store *store, const struct job *job)
{
    struct failure *failure = &store->failures[store->next_failure];
    store->next_failure = (store->next_failure + 1) % FAILURES;
    memcpy(failure->name, job->name, sizeof failure->name);
    failure->err = job->err;
}

/* Finds the patch on the disk, or makes it. */
static bool run_job(void *context, struct td_work_job *work, const struct td_work_thread *thread)
{
    struct td_patch_store *store = context;
    struct job *job = job_of(work);
    struct td_error err = TD_ERROR_INIT;
    (void)thread;
    struct td_patch *patch = td_patch_disk_load(&store->disk, job->name);
    if (patch == NULL && !td_patch_make(store->ranks, &store->disk, &job->order, job->name, &store->cancel,
                                        &job->progress, &patch, &err))
        td_log(err.code == TD_IO ? TD_LOG_WARN : TD_LOG_DEBUG, "cannot make a patch from %.200s to %.200s: %s",
               job->order.since_name, job->order.version_name, err.message);
    if (patch != NULL)
        (void)td_lru_put(&store->patches, job->name, patch, patch->mapped_bytes);
    drop_order(job);
    td_work_queue_lock(store->queue);
    job->patch = patch;
    job->err = err;
    if (patch == NULL)
        note_failure(store, job);
    td_work_queue_unlock(store->queue);
    return true;
}

/* ---- requests ------------------------------------------------------------------------------------------- */

/* Adds a job unless the queue is full. Under the lock. */
static struct job *add_job(struct td_patch_store *store, const struct td_patch_order *order,
                           struct td_stored_plan *plan, const char *name, uint64_t client, size_t count, size_t own,
                           struct td_error *err)
{
    if (own >= TD_PATCH_CLIENT || count >= TD_PATCH_QUEUE) {
        (void)td_error_set(err, TD_RESOURCE_EXHAUSTED, "%zu patches%s wait to be made; try again later",
                           own >= TD_PATCH_CLIENT ? own : count, own >= TD_PATCH_CLIENT ? " that you asked for" : "");
        return NULL;
    }
    struct job *job = create_job(order, plan, name, client);
    if (job == NULL)
        (void)td_error_no_memory(err);
    else
        td_work_queue_add(store->queue, &job->work, 0);
    return job;
}

/* Returns the job of the patch, with a reference for the caller; adds it if it is not in the queue. Returns NULL with
 * the error. Under the lock. */
static struct job *begin(struct td_patch_store *store, const struct td_patch_order *order, struct td_stored_plan *plan,
                         const char *name, uint64_t client, struct td_error *err)
{
    size_t count;
    size_t own;
    struct job *job = find_job(store, name, client, &count, &own);
    if (job == NULL && !take_failure(store, name, err))
        job = add_job(store, order, plan, name, client, count, own, err);
    if (job != NULL)
        (void)td_work_job_ref(&job->work);
    return job;
}

enum td_patch_state td_patch_store_get(struct td_patch_store *store, const struct td_patch_order *order,
                                       struct td_stored_plan *plan, uint64_t client, uint64_t until_ns,
                                       const struct td_cancel *cancel, struct td_patch **out, uint64_t *left_bytes,
                                       uint64_t *done_bytes, struct td_error *err)
{
    char name[TD_TAG_BYTES];
    enum td_patch_state state = TD_PATCH_FAILED;
    *left_bytes = *done_bytes = 0;
    if (!td_may_wait(err) || !td_patch_name(order, name, err))
        return TD_PATCH_FAILED;
    *out = td_lru_get(&store->patches, name);
    if (*out != NULL)
        return TD_PATCH_READY;
    td_work_queue_lock(store->queue);
    struct job *job = begin(store, order, plan, name, client, err);
    if (job != NULL) {
        const uint64_t before = atomic_load(&job->progress.done_bytes);
        bool waits = true;
        while (waits && job->work.state != TD_WORK_DONE)
            waits = td_work_queue_wait(store->queue, until_ns, cancel);
        if (job->work.state != TD_WORK_DONE) {
            const uint64_t done = atomic_load(&job->progress.done_bytes);
            const uint64_t total = atomic_load(&job->progress.total_bytes);
            *done_bytes = done - before;
            *left_bytes = total > done ? total - done : 0;
            state = TD_PATCH_UNDER_WAY;
        } else if (job->patch != NULL) {
            *out = ref_patch(job->patch);
            state = TD_PATCH_READY;
        } else {
            (void)td_error_copy(err, &job->err);
            (void)take_failure(store, name, &(struct td_error)TD_ERROR_INIT);
        }
    }
    td_work_queue_unlock(store->queue);
    if (job != NULL)
        td_work_job_unref(store->queue, &job->work);
    return state;
}

/* ---- the store ------------------------------------------------------------------------------------------ */

static bool is_stopping(void *context)
{
    const struct td_patch_store *store = context;
    return td_work_queue_is_stopping(store->queue);
}

bool td_patch_store_create(struct td_rank_store *ranks, struct td_patch_store **out, struct td_error *err)
{
    static const struct td_work_pool pool = {
        .purpose = "make patches", .thread_count = 1, .levels = {0}, .level_count = 1};
    struct td_patch_store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return td_error_no_memory(err);
    const struct td_work_config config = {.run = run_job, .free = free_job, .context = store};
    store->ranks = ranks;
    store->cancel = (struct td_cancel){.is_asked = is_stopping, .context = store};
    if (!td_patch_disk_init(&store->disk)) {
        free(store);
        return td_error_set(err, TD_INTERNAL, "cannot create a lock");
    }
    store->disk.bytes.make_room = drop_patch;
    store->disk.bytes.context = store;
    if (!td_lru_init(&store->patches, &patch_class, SIZE_MAX)) { /* the disk has the limit */
        td_patch_disk_fini(&store->disk);
        free(store);
        return td_error_set(err, TD_INTERNAL, "cannot create a lock");
    }
    if (!td_work_queue_create(&config, &store->queue, err) || !td_work_queue_start(store->queue, &pool, err)) {
        td_patch_store_destroy(store);
        return false;
    }
    *out = store;
    return true;
}

void td_patch_store_keep(struct td_patch_store *store, uint64_t max_bytes, const char *state_dir, const char *root)
{
    td_patch_disk_keep(&store->disk, max_bytes, state_dir, root);
}

void td_patch_store_destroy(struct td_patch_store *store)
{
    if (store == NULL)
        return;
    td_work_queue_destroy(store->queue);
    store->disk.leaves_names = store->disk.is_kept;
    td_lru_fini(&store->patches);
    td_patch_disk_fini(&store->disk);
    free(store);
}
