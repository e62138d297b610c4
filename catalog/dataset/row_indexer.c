/* Plan: set_snapshot lists the files without an index as jobs, small files first. Threads take one job after the other
 * under the lock and work without it: make_index() looks into the store, else builds, and publishes by the state of the
 * td_file_rows, written with release order. A job whose file cannot be read just now is tried again after retry_ns. A
 * job whose file a new snapshot does not show is stopped. The first of several threads takes short files alone, so that
 * long ones hold up nobody else.
 *
 * Hard: an index must be that of the identity under which the file is shown. So the file is opened once, its identity
 * is compared before and after it was read, and all reading goes by that descriptor. */
#include "catalog/dataset/row_indexer.h"

#include "catalog/dataset/dataset.h"
#include "catalog/dataset/row_store.h"
#include "core/clock.h"
#include "core/log.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const uint64_t retry_ns = 10000000000;

enum { NICE = 5, SAMPLE_PLACES = 64, SAMPLE_BYTES = 4096, SHORT_BYTES = 256 * 1024 * 1024 };

struct job {
    const struct td_split_file *file;
    uint64_t not_before_ns; /* monotonic; 0: it does not wait to be tried again */
    bool was_tried;
};

/* A thread of the indexer. */
struct worker {
    struct td_row_indexer *indexer;
    pthread_t thread;
    bool takes_short; /* leaves files of more than SHORT_BYTES to other threads */
    _Atomic bool stop;
    const struct td_file_rows *rows; /* whose index it makes; under the lock; NULL: none */
};

struct td_row_indexer {
    struct td_row_indexer_config config;
    struct td_row_store *store;
    struct worker workers[TD_ROW_INDEXER_MAX_THREADS];
    size_t worker_count;
    _Atomic bool stop;
    _Atomic uint64_t read_bytes;

    pthread_mutex_t lock;
    pthread_cond_t work;
    /* under the lock */
    struct td_snapshot *snapshot; /* whose jobs these are */
    struct job *jobs;
    size_t job_count, next_job;
    size_t retry_count; /* jobs that wait for their time, all before next_job */
    size_t file_count;
};

/* ---- one index ---- */

/* The open files of a job. */
struct opened {
    int data_fd, table_fd; /* -1: none */
    struct td_row_files files;
};

static bool open_one(const struct td_root *root, const struct td_file *file, int *fd, struct td_input *input,
                     struct td_error *err)
{
    struct td_file_id id;
    if (!td_root_open_file(root, file->source.path, fd, &id, err))
        return false;
    if (!td_file_id_equal(&id, &file->source.id))
        return td_error_set(err, TD_UNAVAILABLE, "the file changed since the last scan");
    *input = td_input_descriptor(fd, id.size_bytes);
    return true;
}

static bool is_unchanged(int fd, const struct td_file *file)
{
    return fd < 0 || td_file_id_is(fd, &file->source.id);
}

/* Hashes the size, the number of rows, and SAMPLE_BYTES at up to SAMPLE_PLACES places at equal distances. */
static bool make_sample(const struct td_input *data, uint64_t row_count, char sample[TD_TAG_BYTES],
                        struct td_error *err)
{
    uint8_t bytes[SAMPLE_BYTES];
    struct td_digest *digest = td_digest_create();
    uint64_t size = data->size_bytes, places = size / SAMPLE_BYTES + 1;
    bool ok = true;
    places = places < SAMPLE_PLACES ? places : SAMPLE_PLACES;
    td_digest_add(digest, &size, sizeof size);
    td_digest_add(digest, &row_count, sizeof row_count);
    for (uint64_t i = 0; i < places && ok; i++) {
        uint64_t most = size < SAMPLE_BYTES ? size : SAMPLE_BYTES;
        uint64_t off = places == 1 ? 0 : (size - most) / (places - 1) * i;
        ok = td_input_read(data, off, bytes, (size_t)most, err);
        td_digest_add(digest, bytes, ok ? (size_t)most : 0);
    }
    bool finished = td_digest_finish(digest, sample) || td_error_no_memory(err);
    return ok && finished;
}

static void write_key(const struct td_split_file *file, char out[160])
{
    (void)snprintf(out, 160, "%s-%s%s%s", file->entry->file->identity_tag, file->rows->format->name,
                   file->table == NULL ? "" : "-", file->table == NULL ? "" : file->table->file->identity_tag);
}

/* Makes the index, or takes it from the store. */
static bool make_index(struct worker *worker, const struct td_split_file *file, const struct opened *opened,
                       struct td_row_index *index, char sample[TD_TAG_BYTES], struct td_error *err)
{
    struct td_row_indexer *indexer = worker->indexer;
    char key[160];
    const struct td_row_build build = {.files = &opened->files,
                                       .name = td_base_name(file->entry->path),
                                       .limits = &indexer->config.limits,
                                       .done_bytes = &file->rows->done_bytes,
                                       .stop = &worker->stop};
    write_key(file, key);
    if (td_row_store_load(indexer->store, key, index, sample)) {
        if (index->format == file->rows->format && index->data_bytes == opened->files.data.size_bytes &&
            index->table_bytes == opened->files.table.size_bytes)
            return true;
        td_row_index_fini(index);
    }
    if (!td_parse_pool_rows(indexer->config.parsers, opened->data_fd, opened->table_fd, file->rows->format, &build,
                            index, err))
        return false;
    bool ok = make_sample(&opened->files.data, index->row_count, sample, err) &&
              ((is_unchanged(opened->data_fd, file->entry->file) &&
                is_unchanged(opened->table_fd, file->table == NULL ? NULL : file->table->file)) ||
               td_error_set(err, TD_UNAVAILABLE, "the file changed while it was read"));
    if (ok)
        td_row_store_save(indexer->store, key, index, sample);
    else
        td_row_index_fini(index);
    atomic_fetch_add(&indexer->read_bytes, ok ? opened->files.data.size_bytes : 0);
    return ok;
}

/* Takes the memory of the index from the account of all files. */
static bool take_memory(struct td_row_indexer *indexer, struct td_file_rows *rows, const struct td_row_index *index,
                        struct td_error *err)
{
    struct td_memory *memory = indexer->config.memory;
    uint64_t bytes = td_row_index_bytes(index);
    if (memory == NULL)
        return true;
    uint64_t used = atomic_fetch_add(&memory->used_bytes, bytes);
    if (used <= memory->max_bytes && bytes <= memory->max_bytes - used) {
        rows->memory = &memory->used_bytes;
        rows->memory_bytes = bytes;
        return true;
    }
    atomic_fetch_sub(&memory->used_bytes, bytes);
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "its index needs %" PRIu64 " bytes, and of --max-memory too little is left", bytes);
}

/* Publishes why there is no index. Returns false when memory is short. */
static bool publish_failure(const struct td_split_file *file, const struct td_error *why)
{
    char message[TD_ERROR_TEXT_BYTES];
    file->rows->error = strdup(td_error_text(why, message));
    if (file->rows->error == NULL)
        return false;
    td_log(TD_LOG_WARN, "\"%s\" has no rows: %s", file->entry->path, message);
    atomic_store_explicit(&file->rows->state, TD_ROWS_FAILED, memory_order_release);
    return true;
}

/* Makes and publishes the index of a file. Returns false when it should be tried again later. */
static bool index_file(struct worker *worker, const struct td_root *root, const struct td_split_file *file,
                       bool is_first)
{
    struct td_row_indexer *indexer = worker->indexer;
    struct td_row_index index = {0};
    struct td_error err = TD_ERROR_INIT;
    struct opened opened = {.data_fd = -1, .table_fd = -1};
    char sample[TD_TAG_BYTES];
    bool ok = open_one(root, file->entry->file, &opened.data_fd, &opened.files.data, &err) &&
              (file->table == NULL || open_one(root, file->table->file, &opened.table_fd, &opened.files.table, &err)) &&
              make_index(worker, file, &opened, &index, sample, &err);
    if (ok && !take_memory(indexer, file->rows, &index, &err)) {
        td_row_index_fini(&index);
        ok = false;
    }
    if (opened.data_fd >= 0)
        (void)close(opened.data_fd);
    if (opened.table_fd >= 0)
        (void)close(opened.table_fd);
    if (ok) {
        file->rows->index = index;
        memcpy(file->rows->sample, sample, sizeof sample);
        atomic_store_explicit(&file->rows->state, TD_ROWS_READY, memory_order_release);
        return true;
    }
    bool passes = err.code == TD_IO || err.code == TD_UNAVAILABLE || err.code == TD_NOT_FOUND;
    if (!passes)
        return publish_failure(file, &err);
    if (!atomic_load(&worker->stop) && is_first)
        td_log(TD_LOG_INFO, "the rows of \"%s\" cannot be found just now: %s", file->entry->path, err.message);
    return false;
}

/* Does a job, unless another thread does it, which an earlier snapshot gave it. Returns false when it should be tried
 * again later. */
static bool do_job(struct worker *worker, const struct td_root *root, const struct td_split_file *file, bool is_first)
{
    struct td_file_rows *rows = file->rows;
    if (atomic_load_explicit(&rows->state, memory_order_acquire) != TD_ROWS_PENDING)
        return true;
    if (atomic_exchange(&rows->is_claimed, true))
        return false;
    bool is_done = index_file(worker, root, file, is_first);
    atomic_store(&rows->is_claimed, false);
    return is_done;
}

/* ---- jobs ---- */

/* Takes the next job that is due. Sets *due_ns to when the next one is, UINT64_MAX when none waits. Under the lock. */
static struct job *take_job(struct worker *worker, uint64_t *due_ns)
{
    struct td_row_indexer *indexer = worker->indexer;
    uint64_t now_ns = td_clock_ns();
    *due_ns = UINT64_MAX;
    struct job *next = indexer->next_job < indexer->job_count ? &indexer->jobs[indexer->next_job] : NULL;
    if (next != NULL && (!worker->takes_short || next->file->entry->file->source.id.size_bytes <= SHORT_BYTES)) {
        indexer->next_job++;
        return next;
    }
    for (size_t i = 0; i < indexer->job_count && indexer->retry_count > 0; i++) {
        struct job *job = &indexer->jobs[i];
        if (job->not_before_ns == 0) // NOLINT(clang-analyzer-core.*): there are jobs
            continue;
        if (job->not_before_ns <= now_ns) {
            indexer->retry_count--;
            job->not_before_ns = 0;
            return job;
        }
        *due_ns = job->not_before_ns < *due_ns ? job->not_before_ns : *due_ns;
    }
    return NULL;
}

static void wait_for_work(struct td_row_indexer *indexer, uint64_t due_ns)
{
    if (due_ns == UINT64_MAX) {
        (void)pthread_cond_wait(&indexer->work, &indexer->lock);
        return;
    }
    const struct timespec until = td_clock_timespec(due_ns);
    (void)pthread_cond_timedwait(&indexer->work, &indexer->lock, &until);
}

static void *thread_main(void *argument)
{
    struct worker *worker = argument;
    struct td_row_indexer *indexer = worker->indexer;
    (void)setpriority(PRIO_PROCESS, 0, NICE); /* of this thread alone */
    pthread_mutex_lock(&indexer->lock);
    while (!atomic_load(&indexer->stop)) {
        uint64_t due_ns;
        struct job *job = take_job(worker, &due_ns);
        if (job == NULL) {
            wait_for_work(indexer, due_ns);
            continue;
        }
        struct td_snapshot *snapshot = td_snapshot_ref(indexer->snapshot);
        const struct td_split_file *file = job->file;
        size_t number = (size_t)(job - indexer->jobs);
        bool is_first = !job->was_tried;
        job->was_tried = true;
        worker->rows = file->rows;
        pthread_mutex_unlock(&indexer->lock);
        bool is_done = do_job(worker, snapshot->root, file, is_first);
        pthread_mutex_lock(&indexer->lock);
        worker->rows = NULL;
        atomic_store(&worker->stop, atomic_load(&indexer->stop));
        if (indexer->snapshot == snapshot) { /* else the jobs are those of another one */
            indexer->jobs[number].not_before_ns = is_done ? 0 : td_clock_ns() + retry_ns;
            indexer->retry_count += is_done ? 0 : 1;
        }
        pthread_mutex_unlock(&indexer->lock);
        td_snapshot_unref(snapshot);
        pthread_mutex_lock(&indexer->lock);
    }
    pthread_mutex_unlock(&indexer->lock);
    return NULL;
}

static int job_compare(const void *a, const void *b)
{
    uint64_t x = ((const struct job *)a)->file->entry->file->source.id.size_bytes;
    uint64_t y = ((const struct job *)b)->file->entry->file->source.id.size_bytes;
    return (x > y) - (x < y);
}

/* Calls visit for every file of the snapshot's datasets that has an index, or will. */
static void each_file(const struct td_snapshot *snapshot,
                      void (*visit)(void *context, const struct td_split_file *file), void *context)
{
    for (size_t d = 0; d < snapshot->dataset_count; d++)
        for (size_t s = 0; s < snapshot->datasets[d].split_count; s++) {
            const struct td_split *split = &snapshot->datasets[d].splits[s];
            for (size_t i = 0; i < split->file_count; i++)
                if (split->files[i].rows != NULL)
                    visit(context, &split->files[i]);
        }
}

struct listing {
    struct job *jobs;
    size_t job_count, file_count;
    const struct td_file_rows *running[TD_ROW_INDEXER_MAX_THREADS]; /* that threads make; NULL once the file was seen */
    size_t running_count;
};

static void list_file(void *context, const struct td_split_file *file)
{
    struct listing *listing = context;
    listing->file_count++;
    for (size_t i = 0; i < listing->running_count; i++)
        if (listing->running[i] == file->rows)
            listing->running[i] = NULL;
    if (atomic_load_explicit(&file->rows->state, memory_order_acquire) != TD_ROWS_PENDING)
        return;
    if (listing->jobs != NULL)
        listing->jobs[listing->job_count] = (struct job){.file = file};
    listing->job_count++;
}

bool td_row_indexer_set_snapshot(struct td_row_indexer *indexer, struct td_snapshot *snapshot, struct td_error *err)
{
    struct listing listing = {0};
    if (indexer == NULL)
        return true;
    each_file(snapshot, list_file, &listing);
    struct job *jobs = calloc(listing.job_count + 1, sizeof *jobs);
    if (jobs == NULL)
        return td_error_no_memory(err);
    listing = (struct listing){.jobs = jobs, .running_count = indexer->worker_count};
    pthread_mutex_lock(&indexer->lock);
    for (size_t i = 0; i < indexer->worker_count; i++)
        listing.running[i] = indexer->workers[i].rows;
    pthread_mutex_unlock(&indexer->lock);
    each_file(snapshot, list_file, &listing); /* a thread may have made some ready since: then these are fewer */
    qsort(jobs, listing.job_count, sizeof *jobs, job_compare);
    pthread_mutex_lock(&indexer->lock);
    struct td_snapshot *old = indexer->snapshot;
    struct job *old_jobs = indexer->jobs;
    indexer->snapshot = td_snapshot_ref(snapshot);
    indexer->jobs = jobs;
    indexer->job_count = listing.job_count;
    indexer->next_job = 0;
    indexer->retry_count = 0;
    indexer->file_count = listing.file_count;
    for (size_t i = 0; i < indexer->worker_count; i++) /* of files that are gone */
        if (listing.running[i] != NULL && indexer->workers[i].rows == listing.running[i])
            atomic_store(&indexer->workers[i].stop, true);
    pthread_cond_broadcast(&indexer->work);
    pthread_mutex_unlock(&indexer->lock);
    free(old_jobs);
    td_snapshot_unref(old);
    return true;
}

static void count_file(void *context, const struct td_split_file *file)
{
    struct td_row_indexer_status *status = context;
    enum td_rows_state state = atomic_load_explicit(&file->rows->state, memory_order_acquire);
    status->file_count++;
    status->failed_count += state == TD_ROWS_FAILED ? 1 : 0;
    if (state != TD_ROWS_READY)
        return;
    status->ready_count++;
    status->row_count += file->rows->index.row_count;
    status->memory_bytes += td_row_index_bytes(&file->rows->index);
}

void td_row_indexer_get_status(struct td_row_indexer *indexer, struct td_row_indexer_status *status)
{
    *status = (struct td_row_indexer_status){0};
    if (indexer == NULL)
        return;
    pthread_mutex_lock(&indexer->lock);
    struct td_snapshot *snapshot = indexer->snapshot == NULL ? NULL : td_snapshot_ref(indexer->snapshot);
    pthread_mutex_unlock(&indexer->lock);
    if (snapshot != NULL)
        each_file(snapshot, count_file, status);
    status->read_bytes = atomic_load(&indexer->read_bytes);
    td_snapshot_unref(snapshot);
}

bool td_row_indexer_create(const struct td_row_indexer_config *config, struct td_row_indexer **out,
                           struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_row_indexer *indexer = calloc(1, sizeof *indexer);
    if (indexer == NULL)
        return td_error_no_memory(err);
    indexer->config = *config;
    if (!td_clock_condition_init(&indexer->work) || pthread_mutex_init(&indexer->lock, NULL) != 0) {
        free(indexer);
        return td_error_no_memory(err);
    }
    if (config->state_dir != NULL && !td_row_store_open(config->state_dir, config->root, &indexer->store, &why))
        td_log(TD_LOG_WARN, "indexes of rows are kept in memory alone: %s", why.message);
    int sys = 0;
    while (sys == 0 && indexer->worker_count < config->threads && indexer->worker_count < TD_ROW_INDEXER_MAX_THREADS) {
        struct worker *worker = &indexer->workers[indexer->worker_count];
        worker->indexer = indexer;
        worker->takes_short = indexer->worker_count == 0 && config->threads > 1;
        sys = pthread_create(&worker->thread, NULL, thread_main, worker);
        indexer->worker_count += sys == 0 ? 1 : 0;
    }
    if (sys != 0) {
        td_row_indexer_destroy(indexer);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start the threads that index datasets");
    }
    *out = indexer;
    return true;
}

void td_row_indexer_destroy(struct td_row_indexer *indexer)
{
    if (indexer == NULL)
        return;
    pthread_mutex_lock(&indexer->lock);
    atomic_store(&indexer->stop, true);
    for (size_t i = 0; i < indexer->worker_count; i++)
        atomic_store(&indexer->workers[i].stop, true);
    pthread_cond_broadcast(&indexer->work);
    pthread_mutex_unlock(&indexer->lock);
    for (size_t i = 0; i < indexer->worker_count; i++)
        (void)pthread_join(indexer->workers[i].thread, NULL);
    td_snapshot_unref(indexer->snapshot);
    free(indexer->jobs);
    td_row_store_close(indexer->store);
    (void)pthread_cond_destroy(&indexer->work);
    (void)pthread_mutex_destroy(&indexer->lock);
    free(indexer);
}
