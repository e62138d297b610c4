/* Plan: set_snapshot replaces the jobs of the queue (work/work_queue) by one job for each file without an index, small
 * files first. make_index() loads the index from the store or builds it. The state of the td_file_rows, written with
 * release order, publishes it. When a file cannot be read just now, the job is retried after retry_ns. A running job is
 * stopped when the new snapshot does not show its file. The first of several threads takes short files alone, so that
 * long ones do not hold them up.
 *
 * What is hard: (1) an index must belong to the identity under which the file is shown. So the file is opened once, its
 * identity is compared before and after it is read, and all reads use that descriptor. (2) A job of the snapshot before
 * may still run when the new snapshot has a job for the same file. The new job may not begin before the old one
 * ends. */
#include "catalog/dataset/row_indexer.h"

#include "catalog/dataset/dataset.h"
#include "catalog/dataset/row_store.h"
#include "core/clock.h"
#include "core/log.h"
#include "work/work_queue.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t retry_ns = 10000000000;

enum { NICE = 5, SAMPLE_PLACES = 64, SAMPLE_BYTES = 4096, SHORT_BYTES = 256 * 1024 * 1024 };

/* The levels of the queue. */
enum { SHORT_FILES, LONG_FILES, RETRIED_FILES, LEVELS };

struct job {
    struct td_work_job work; /* first */
    struct batch *batch;     /* that the job is in; the job has a reference on it */
    const struct td_split_file *file;
    bool was_tried; /* of the thread that runs the job */
};

/* The jobs of one snapshot. */
struct batch {
    struct td_snapshot *snapshot;
    _Atomic size_t refs; /* of jobs that are not freed */
    struct job jobs[];
};

struct td_row_indexer {
    struct td_row_indexer_config config;
    struct td_row_store *store;
    struct td_work_queue *queue;
    _Atomic uint64_t read_bytes;
    struct td_snapshot *snapshot; /* the current one; under the lock of the queue */
};

static struct job *job_of(const struct td_work_job *work)
{
    return (struct job *)(uintptr_t)work;
}

static void batch_unref(struct batch *batch)
{
    if (atomic_fetch_sub(&batch->refs, 1) > 1)
        return;
    td_snapshot_unref(batch->snapshot);
    free(batch);
}

static void free_job(struct td_work_job *work)
{
    batch_unref(job_of(work)->batch);
}

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

/* Loads the index from the store, or builds it. */
static bool make_index(struct td_row_indexer *indexer, const struct job *job, const struct opened *opened,
                       struct td_row_index *index, char sample[TD_TAG_BYTES], struct td_error *err)
{
    const struct td_split_file *file = job->file;
    char key[160];
    const struct td_row_build build = {.files = &opened->files,
                                       .name = td_base_name(file->entry->path),
                                       .limits = &indexer->config.limits,
                                       .done_bytes = &file->rows->done_bytes,
                                       .stop = &job->work.stop};
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
    size_t bytes = td_row_index_bytes(index);
    if (!td_budget_take(indexer->config.memory, bytes))
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "its index needs %zu bytes, and of --max-memory too little is left", bytes);
    rows->memory = indexer->config.memory;
    rows->memory_bytes = bytes;
    return true;
}

/* Publishes the error instead of an index. Returns false when memory is short. */
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

/* Builds and publishes the index of the job's file. Returns false when it should be retried later. */
static bool index_file(struct td_row_indexer *indexer, struct job *job)
{
    const struct td_split_file *file = job->file;
    const struct td_root *root = job->batch->snapshot->root;
    bool is_first = !job->was_tried;
    job->was_tried = true;
    struct td_row_index index = {0};
    struct td_error err = TD_ERROR_INIT;
    struct opened opened = {.data_fd = -1, .table_fd = -1};
    char sample[TD_TAG_BYTES];
    bool ok = open_one(root, file->entry->file, &opened.data_fd, &opened.files.data, &err) &&
              (file->table == NULL || open_one(root, file->table->file, &opened.table_fd, &opened.files.table, &err)) &&
              make_index(indexer, job, &opened, &index, sample, &err);
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
    if (!atomic_load(&job->work.stop) && is_first)
        td_log(TD_LOG_INFO, "the rows of \"%s\" cannot be found just now: %s", file->entry->path, err.message);
    return false;
}

/* ---- jobs ---- */

static bool is_pending(const struct td_file_rows *rows)
{
    return atomic_load_explicit(&rows->state, memory_order_acquire) == TD_ROWS_PENDING;
}

static bool run_job(void *context, struct td_work_job *work, const struct td_work_thread *thread)
{
    struct job *job = job_of(work);
    (void)thread;
    return !is_pending(job->file->rows) || index_file(context, job);
}

/* Returns whether no thread makes the index of the job's file. Under the lock. */
static bool may_begin(void *context, const struct td_work_job *work)
{
    const struct td_row_indexer *indexer = context;
    const struct td_work_job *running = td_work_queue_running(indexer->queue);
    while (running != NULL && job_of(running)->file->rows != job_of(work)->file->rows)
        running = running->next;
    return running == NULL;
}

static int job_compare(const void *a, const void *b)
{
    uint64_t x = ((const struct job *)a)->file->entry->file->source.id.size_bytes;
    uint64_t y = ((const struct job *)b)->file->entry->file->source.id.size_bytes;
    return (x > y) - (x < y);
}

/* Calls visit for every file of the snapshot's datasets that has an index or will get one. */
static void each_file(const struct td_snapshot *snapshot,
                      void (*visit)(void *context, const struct td_split_file *file), void *context)
{
    const struct td_datasets *datasets = td_datasets_of(snapshot);
    for (size_t d = 0; d < datasets->count; d++)
        for (size_t s = 0; s < datasets->items[d].split_count; s++) {
            const struct td_split *split = &datasets->items[d].splits[s];
            for (size_t i = 0; i < split->file_count; i++)
                if (split->files[i].rows != NULL)
                    visit(context, &split->files[i]);
        }
}

struct listing {
    struct batch *batch; /* NULL: jobs are counted only */
    size_t job_count;
    struct job *running[TD_ROW_INDEXER_MAX_THREADS]; /* with a reference on each */
    bool is_shown[TD_ROW_INDEXER_MAX_THREADS];       /* the snapshot shows the file of the running job */
    size_t running_count;
};

static void list_file(void *context, const struct td_split_file *file)
{
    struct listing *listing = context;
    for (size_t i = 0; i < listing->running_count; i++)
        listing->is_shown[i] = listing->is_shown[i] || listing->running[i]->file->rows == file->rows;
    if (!is_pending(file->rows))
        return;
    if (listing->batch != NULL)
        listing->batch->jobs[listing->job_count] = (struct job){.file = file, .batch = listing->batch};
    listing->job_count++;
}

static void list_running(struct td_row_indexer *indexer, struct listing *listing)
{
    td_work_queue_lock(indexer->queue);
    for (struct td_work_job *job = td_work_queue_running(indexer->queue); job != NULL; job = job->next)
        listing->running[listing->running_count++] = job_of(td_work_job_ref(job));
    td_work_queue_unlock(indexer->queue);
}

/* Replaces the jobs of the queue by those of the listing. Stops running jobs if the snapshot does not show their files.
 * Under the lock. Sets gone[] to the jobs that were removed. */
static void replace_jobs(struct td_row_indexer *indexer, const struct listing *listing,
                         struct td_work_job *gone[LEVELS])
{
    for (unsigned level = 0; level < LEVELS; level++)
        gone[level] = td_work_queue_clear(indexer->queue, level);
    for (size_t i = 0; i < listing->job_count; i++) {
        struct td_work_job *work = &listing->batch->jobs[i].work;
        td_work_queue_add(indexer->queue, work,
                          atomic_load(&work->size_bytes) <= SHORT_BYTES ? SHORT_FILES : LONG_FILES);
    }
    for (size_t i = 0; i < listing->running_count; i++)
        if (!listing->is_shown[i])
            atomic_store(&listing->running[i]->work.stop, true);
}

bool td_row_indexer_set_snapshot(struct td_row_indexer *indexer, struct td_snapshot *snapshot, struct td_error *err)
{
    struct listing listing = {0};
    struct td_work_job *gone[LEVELS];
    if (indexer == NULL)
        return true;
    each_file(snapshot, list_file, &listing);
    struct batch *batch = calloc(1, sizeof *batch + listing.job_count * sizeof(struct job));
    if (batch == NULL)
        return td_error_no_memory(err);
    batch->snapshot = td_snapshot_ref(snapshot);
    atomic_init(&batch->refs, 1); /* this function's own */
    listing = (struct listing){.batch = batch};
    list_running(indexer, &listing);
    /* A thread may have finished some files since, so the second list can be shorter. */
    each_file(snapshot, list_file, &listing);
    qsort(batch->jobs, listing.job_count, sizeof(struct job), job_compare);
    for (size_t i = 0; i < listing.job_count; i++)
        td_work_job_init(&batch->jobs[i].work, 0, batch->jobs[i].file->entry->file->source.id.size_bytes);
    atomic_fetch_add(&batch->refs, listing.job_count);
    td_work_queue_lock(indexer->queue);
    replace_jobs(indexer, &listing, gone);
    struct td_snapshot *old = indexer->snapshot;
    indexer->snapshot = td_snapshot_ref(snapshot);
    td_work_queue_unlock(indexer->queue);
    for (unsigned level = 0; level < LEVELS; level++)
        td_work_jobs_drop(indexer->queue, gone[level]);
    for (size_t i = 0; i < listing.running_count; i++)
        td_work_job_unref(indexer->queue, &listing.running[i]->work);
    batch_unref(batch);
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
    td_work_queue_lock(indexer->queue);
    struct td_snapshot *snapshot = indexer->snapshot == NULL ? NULL : td_snapshot_ref(indexer->snapshot);
    td_work_queue_unlock(indexer->queue);
    if (snapshot != NULL)
        each_file(snapshot, count_file, status);
    status->read_bytes = atomic_load(&indexer->read_bytes);
    td_snapshot_unref(snapshot);
}

/* Starts the threads. If there are several, one of them takes no long files. */
static bool start_threads(struct td_row_indexer *indexer, struct td_error *err)
{
    size_t count =
        indexer->config.threads < TD_ROW_INDEXER_MAX_THREADS ? indexer->config.threads : TD_ROW_INDEXER_MAX_THREADS;
    size_t short_count = count > 1 ? 1 : 0;
    const struct td_work_pool for_short = {"index datasets (--index-threads)", .thread_count = short_count,
                                           .levels = {SHORT_FILES, RETRIED_FILES}, .level_count = 2, .nice = NICE};
    const struct td_work_pool for_all = {"index datasets (--index-threads)", .thread_count = count - short_count,
                                         .levels = {SHORT_FILES, LONG_FILES, RETRIED_FILES}, .level_count = 3,
                                         .nice = NICE};
    return td_work_queue_start(indexer->queue, &for_short, err) && td_work_queue_start(indexer->queue, &for_all, err);
}

bool td_row_indexer_create(const struct td_row_indexer_config *config, struct td_row_indexer **out,
                           struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_row_indexer *indexer = calloc(1, sizeof *indexer);
    if (indexer == NULL)
        return td_error_no_memory(err);
    const struct td_work_config queue = {.run = run_job,
                                         .free = free_job,
                                         .may_begin = may_begin,
                                         .context = indexer,
                                         .retry_ns = retry_ns,
                                         .retry_level = RETRIED_FILES};
    indexer->config = *config;
    if (config->state_dir != NULL && !td_row_store_open(config->state_dir, config->root, &indexer->store, &why))
        td_log(TD_LOG_WARN, "indexes of rows are kept in memory alone: %s", why.message);
    if (!td_work_queue_create(&queue, &indexer->queue, err) || !start_threads(indexer, err)) {
        td_row_indexer_destroy(indexer);
        return false;
    }
    *out = indexer;
    return true;
}

void td_row_indexer_destroy(struct td_row_indexer *indexer)
{
    if (indexer == NULL)
        return;
    td_work_queue_destroy(indexer->queue);
    td_snapshot_unref(indexer->snapshot);
    td_row_store_close(indexer->store);
    free(indexer);
}
