/* Plan: jobs wait in a queue (work/work_queue) with a level for small files and one for large ones, in which owners
 * take turns. Requests that wait hold a reference on their job, so that they learn its result after the queue has
 * removed it. The thread builds the body of a job when it begins the job, so that waiting jobs hold neither descriptors
 * nor mappings. The errors of the last failures are kept for requests that come after the job has ended.
 *
 * What is hard: (1) the files of a body may change. The digest counts only if td_body_unchanged holds after the last
 * byte was read; a response makes the same check before its last byte is sent. (2) Hashing reads more than anything
 * else. Long runs of files that were not in the page cache are dropped from it again, so that they do not evict files
 * that are being served. (3) Small jobs are hashed long before large ones of the same owner. So both have turns of
 * their own: if a small job's turn counted for large ones, the large jobs of others would come behind all of this
 * owner's. The thread that takes all jobs takes large ones first, since the other one takes none of them. */
#include "rank/virtual_hasher.h"

#include "core/log.h"
#include "core/waiting.h"
#include "storage/composed.h"
#include "storage/file_source.h"
#include "work/work_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_BYTES = 256 * 1024, SPAN_BYTES = 16 * 1024 * 1024, THREADS = 2 };

/* Most errors that are remembered. A request begins at most as many files before it waits. */
enum { FAILURES = TD_VIRTUAL_HASHER_OWN };

struct failure {
    struct td_virtual_key key;
    struct td_error err; /* TD_OK: the place is free */
};

/* The levels of the queue. */
enum { SMALL, LARGE };

struct job {
    struct td_work_job work;     /* first */
    struct td_virtual_file file; /* with a reference on the snapshot; its recipe is dropped when it has been followed */
    bool is_rank_file;           /* as is_rank_file returned for the file */
    /* of the thread that runs the job */
    struct td_body body;
    uint8_t *window;          /* WINDOW_BYTES; borrowed */
    uint64_t unchecked_bytes; /* bytes read since the last check whether a file has changed */
    /* when the job is done; under the lock of the queue */
    bool is_known;
    struct td_virtual_digest digest; /* when it is known */
    struct td_error err;             /* when it is not */
};

struct td_virtual_hasher {
    struct td_virtual_digests *digests;
    struct td_work_queue *queue;
    uint8_t *windows; /* WINDOW_BYTES for each thread */
    struct td_cancel cancel;
    /* under the lock of the queue */
    bool has_news;                     /* digests may wait to be written */
    struct failure failures[FAILURES]; /* a ring */
    size_t next_failure;               /* the place of the next one */
};

/* ---- jobs ---------------------------------------------------------------------------------------------- */

static struct job *job_of(const struct td_work_job *work)
{
    return (struct job *)(uintptr_t)work;
}

/* Returns the job after this one, running or waiting; job NULL: the first one. Under the lock. */
static struct job *next_job(const struct td_virtual_hasher *hasher, const struct job *job)
{
    return job_of(td_work_queue_next(hasher->queue, job == NULL ? NULL : &job->work));
}

static void drop_recipe(struct td_virtual_recipe *recipe)
{
    if (recipe->free != NULL)
        recipe->free(recipe->context);
    *recipe = (struct td_virtual_recipe){.context = NULL};
}

/* Releases the body, the recipe and the snapshot, so that leases on files end and old snapshots can be freed. */
static void drop_file(struct job *job)
{
    td_body_fini(&job->body);
    drop_recipe(&job->file.recipe);
    td_snapshot_unref(job->file.snapshot);
    job->file.snapshot = NULL;
}

static void free_job(struct td_work_job *work)
{
    struct job *job = job_of(work);
    drop_file(job);
    free(job);
}

/* Returns the job with this key, or NULL. Under the lock. */
static struct job *find_job(const struct td_virtual_hasher *hasher, const struct td_virtual_key *key)
{
    struct job *job = next_job(hasher, NULL);
    while (job != NULL && memcmp(job->file.key.bytes, key->bytes, sizeof key->bytes) != 0)
        job = next_job(hasher, job);
    return job;
}

/* Returns whether the file is a rank file or a set of tensors, which take memory of the rank store. */
static bool is_rank_file(const struct td_virtual_file *file)
{
    return file->origin.kind != TD_REVISION_FILES || file->recipe.next != NULL;
}

/* Creates a job, and moves the file's recipe to it. Returns NULL when memory is short. */
static struct job *create_job(struct td_virtual_file *file)
{
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return NULL;
    td_work_job_init(&job->work, file->owner, file->size_bytes);
    job->file = *file;
    job->is_rank_file = is_rank_file(file);
    if (file->snapshot != NULL)
        (void)td_snapshot_ref(file->snapshot);
    file->recipe = (struct td_virtual_recipe){.context = NULL};
    td_body_init(&job->body);
    td_error_init(&job->err);
    return job;
}

/* ---- limits; all under the lock ------------------------------------------------------------------------ */

/* Numbers of jobs: all, and those for rank files. */
struct share {
    size_t files, ranks;
};

/* Counts of the jobs in the queue, before a file is added. */
struct shares {
    struct share all, own, client; /* all jobs, those of the file's owner, those of its client */
    bool has_unasked;              /* a file of another owner that nobody asked for by name */
};

static void count(struct share *share, const struct job *job, bool counts)
{
    share->files += counts ? 1 : 0;
    share->ranks += counts && job->is_rank_file ? 1 : 0;
}

static struct shares count_shares(const struct td_virtual_hasher *hasher, const struct td_virtual_file *file)
{
    struct shares shares = {.has_unasked = false};
    for (const struct job *job = next_job(hasher, NULL); job != NULL; job = next_job(hasher, job)) {
        bool is_own = job->file.owner == file->owner;
        count(&shares.all, job, true);
        count(&shares.own, job, is_own);
        count(&shares.client, job, job->file.client == file->client);
        shares.has_unasked = shares.has_unasked || (job->file.is_unasked && !is_own);
    }
    return shares;
}

/* Checks that the shares of the file's owner and client have room for it. Refuses a file that nobody asked for by name
 * while such a file of another owner is in the queue. */
static bool has_share(const struct shares *shares, const struct td_virtual_file *file, struct td_error *err)
{
    const struct share *own = &shares->own;
    const struct share *client = &shares->client;
    bool is_rank = is_rank_file(file);
    if (file->is_unasked && shares->has_unasked)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                            "files of another repository are being hashed for a digest that was not known; try again, "
                            "or ask for the tag first");
    if (own->files >= TD_VIRTUAL_HASHER_OWN || (is_rank && own->ranks >= TD_VIRTUAL_HASHER_OWN_RANKS))
        return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                            "%zu files of this model wait to be put together and hashed; try again later",
                            is_rank ? own->ranks : own->files);
    if (client->files >= TD_VIRTUAL_HASHER_CLIENT || (is_rank && client->ranks >= TD_VIRTUAL_HASHER_CLIENT_RANKS))
        return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                            "%zu files that you asked for wait to be put together and hashed; try again later",
                            is_rank ? client->ranks : client->files);
    return true;
}

/* Orders jobs by client, then as the queue orders them. */
static int job_compare(const void *a, const void *b)
{
    const struct job *x = *(struct job *const *)a;
    const struct job *y = *(struct job *const *)b;
    if (x->file.client != y->file.client)
        return x->file.client < y->file.client ? -1 : 1;
    return td_work_job_compare(&x->work, &y->work);
}

/* Returns the last of the jobs [0, count) that no thread has taken, or NULL. */
static struct job *last_waiting(struct job *const *jobs, size_t count)
{
    while (count > 0 && jobs[count - 1]->work.state != TD_WORK_WAITING)
        count--;
    return count == 0 ? NULL : jobs[count - 1];
}

/* Returns the job that a file may displace from the full queue: the last job, not yet taken by a thread, of the client
 * that has the most jobs in the queue, at least two. of_ranks: among the jobs for rank files. Returns NULL if there is
 * none. */
static struct job *find_displaced(const struct td_virtual_hasher *hasher, bool of_ranks)
{
    struct job *jobs[TD_VIRTUAL_HASHER_QUEUE];
    size_t count = 0;
    for (struct job *job = next_job(hasher, NULL); job != NULL; job = next_job(hasher, job))
        if (!of_ranks || job->is_rank_file)
            jobs[count++] = job;
    qsort(jobs, count, sizeof(struct job *), job_compare);
    struct job *found = NULL;
    size_t most = 2;
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && jobs[end]->file.client == jobs[first]->file.client;)
            end++;
        struct job *last = last_waiting(&jobs[first], end - first);
        if (last == NULL || end - first < most)
            continue;
        if (found == NULL || end - first > most || td_work_job_compare(&last->work, &found->work) > 0)
            found = last;
        most = end - first;
    }
    return found;
}

/* ---- failures ------------------------------------------------------------------------------------------ */

/* Returns the error of the file with this key, or NULL. Under the lock. */
static struct failure *find_failure(struct td_virtual_hasher *hasher, const struct td_virtual_key *key)
{
    for (size_t i = 0; i < FAILURES; i++)
        if (hasher->failures[i].err.code != TD_OK &&
            memcmp(hasher->failures[i].key.bytes, key->bytes, sizeof key->bytes) == 0)
            return &hasher->failures[i];
    return NULL;
}

static void forget_failure(struct td_virtual_hasher *hasher, const struct td_virtual_key *key)
{
    struct failure *failure = find_failure(hasher, key);
    if (failure != NULL)
        td_error_init(&failure->err);
}

/* Records why hashing failed, in place of the oldest failure. Under the lock. */
static void note_failure(struct td_virtual_hasher *hasher, const struct job *job)
{
    hasher->failures[hasher->next_failure] = (struct failure){.key = job->file.key, .err = job->err};
    hasher->next_failure = (hasher->next_failure + 1) % FAILURES;
}

/* ---- the queue ----------------------------------------------------------------------------------------- */

/* Makes room for the file. Sets *displaced to the job that was removed for it, or to NULL. The caller drops the job's
 * reference after it has released the lock. A client with jobs in the queue displaces none. Under the lock. */
static bool make_room(struct td_virtual_hasher *hasher, const struct td_virtual_file *file, struct job **displaced,
                      struct td_error *err)
{
    const struct shares shares = count_shares(hasher, file);
    const bool is_rank = is_rank_file(file);
    const bool of_ranks = is_rank && shares.all.ranks >= TD_VIRTUAL_HASHER_RANKS;
    if (!has_share(&shares, file, err))
        return false;
    if (shares.all.files < TD_VIRTUAL_HASHER_QUEUE && !of_ranks)
        return true;
    bool has_none = (of_ranks ? shares.client.ranks : shares.client.files) == 0;
    struct job *job = has_none ? find_displaced(hasher, of_ranks) : NULL;
    if (job == NULL)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED, "%zu files wait to be put together and hashed; try again later",
                            is_rank ? shares.all.ranks : shares.all.files);
    (void)td_error_set(&job->err, TD_RESOURCE_EXHAUSTED,
                       "files that other clients asked for wait to be put together and hashed; try again later");
    td_work_queue_withdraw(hasher->queue, &job->work);
    *displaced = job;
    return true;
}

/* Adds the file's job. Sets *displaced as make_room does. Under the lock. */
static bool add_job(struct td_virtual_hasher *hasher, struct td_virtual_file *file, struct job **displaced,
                    struct td_error *err)
{
    if (!make_room(hasher, file, displaced, err))
        return false;
    struct job *job = create_job(file);
    if (job == NULL)
        return td_error_no_memory(err);
    forget_failure(hasher, &file->key);
    td_work_queue_add(hasher->queue, &job->work, file->size_bytes <= TD_VIRTUAL_QUICK_BYTES ? SMALL : LARGE);
    return true;
}

uint64_t td_virtual_owner(const char *id)
{
    uint8_t sum[TD_SHA256_BYTES];
    uint64_t owner;
    td_sha256((const uint8_t *)id, strlen(id), sum);
    memcpy(&owner, sum, sizeof owner);
    return owner;
}

bool td_virtual_hasher_begin(struct td_virtual_hasher *hasher, struct td_virtual_file *file, struct td_error *err)
{
    struct td_virtual_digest known;
    struct job *displaced = NULL;
    bool ok = true;
    td_work_queue_lock(hasher->queue);
    if (find_job(hasher, &file->key) == NULL && !td_virtual_digests_find(hasher->digests, &file->key, &known))
        ok = add_job(hasher, file, &displaced, err);
    td_work_queue_unlock(hasher->queue);
    if (displaced != NULL)
        td_work_job_unref(hasher->queue, &displaced->work);
    drop_recipe(&file->recipe);
    return ok;
}

/* ---- hashing ------------------------------------------------------------------------------------------- */

static bool has_changed(struct td_error *err)
{
    return td_error_set(err, TD_UNAVAILABLE, "a file changed while it was hashed; try again");
}

/* Copies the next len bytes of the body, which are of one run, to out. by_descriptor: reads the file, so that no page
 * of the mapping is used, for the kernel does not drop those from the page cache. */
static bool read_bytes(const struct job *job, struct td_body_cursor *cursor, bool by_descriptor, uint8_t *out,
                       size_t len, struct td_error *err)
{
    struct td_blob *blob;
    uint64_t off;
    uint64_t piece;
    if (!by_descriptor)
        return td_body_read(&job->body, cursor, out, len, err);
    td_body_next(&job->body, cursor, len, &blob, &off, &piece);
    const int fd = blob->class->descriptor(blob);
    const struct td_input input = td_input_descriptor(&fd, blob->len_bytes);
    return td_input_read(&input, off, out, (size_t)piece, err);
}

/* Hashes the next len bytes of the body, window by window; by_descriptor as in read_bytes. */
static bool hash_bytes(struct job *job, struct td_body_cursor *cursor, bool by_descriptor, uint64_t len,
                       struct td_digest *digest, struct td_error *err)
{
    for (uint64_t done = 0; done < len;) {
        size_t n = len - done < WINDOW_BYTES ? (size_t)(len - done) : WINDOW_BYTES;
        if (atomic_load(&job->work.stop))
            return td_error_set(err, TD_UNAVAILABLE, "the server is stopping");
        if (!read_bytes(job, cursor, by_descriptor, job->window, n, err))
            return false;
        td_digest_add_content(digest, job->window, n);
        atomic_fetch_add(&job->work.done_bytes, n);
        done += n;
    }
    return true;
}

/* Checks the file once for each SPAN_BYTES that were read, so that reading a long file ends soon after a change. A body
 * may have thousands of short extents, so not each of them is checked; hash_content checks all files after the last
 * byte. */
static bool check_now_and_then(struct job *job, struct td_blob *blob, uint64_t read_bytes, struct td_error *err)
{
    job->unchecked_bytes += read_bytes;
    if (job->unchecked_bytes < SPAN_BYTES)
        return true;
    job->unchecked_bytes = 0;
    return td_blob_unchanged(blob) || has_changed(err);
}

/* Hashes one extent of the body, span by span. Drops a span of a file from the page cache if it was not in it. */
static bool hash_extent(struct job *job, const struct td_extent *extent, struct td_body_cursor *cursor,
                        struct td_digest *digest, struct td_error *err)
{
    struct td_blob *blob = extent->blob;
    bool is_file = extent->count == 1 && blob->class->descriptor != NULL;
    uint64_t total = extent->len * extent->count; /* part of the body, whose total fits */
    for (uint64_t done = 0; done < total;) {
        uint64_t n = total - done < SPAN_BYTES ? total - done : SPAN_BYTES;
        bool drops = is_file && !td_blob_is_resident(blob, extent->off + done, n);
        if (!hash_bytes(job, cursor, drops, n, digest, err) || !check_now_and_then(job, blob, n, err))
            return false;
        if (drops)
            (void)posix_fadvise(blob->class->descriptor(blob), (off_t)(extent->off + done), (off_t)n,
                                POSIX_FADV_DONTNEED);
        done += n;
    }
    return true;
}

/* Opens a content, and computes its SHA-256. */
static bool hash_content(struct job *job, uint8_t sum[TD_SHA256_BYTES], struct td_error *err)
{
    struct td_body *body = &job->body;
    struct td_body_cursor cursor = {0};
    struct td_digest *digest = td_digest_create();
    bool ok = digest != NULL || td_error_no_memory(err);
    ok = ok && job->file.recipe.open(job->file.recipe.context, body, err);
    if (job->file.recipe.next == NULL)
        atomic_store(&job->work.size_bytes, body->total_bytes);
    ok = ok && td_body_resolve(body, err);
    for (size_t i = 0; ok && i < body->extent_count; i++)
        ok = hash_extent(job, &body->extents[i], &cursor, digest, err);
    ok = ok && (td_body_unchanged(body) || has_changed(err));
    uint8_t computed[TD_SHA256_BYTES];
    if (!td_digest_finish_binary(digest, computed))
        return td_error_no_memory(err);
    if (ok)
        memcpy(sum, computed, sizeof computed);
    return ok;
}

/* Hashes the content with this key, and records its digest in *digest and in the table. */
static bool hash_one(struct td_virtual_hasher *hasher, struct job *job, const struct td_virtual_key *key,
                     struct td_virtual_digest *digest, struct td_error *err)
{
    bool ok = hash_content(job, digest->sum, err);
    digest->size_bytes = job->body.total_bytes;
    if (ok)
        td_virtual_digests_add(hasher->digests, key, digest);
    else
        td_log(err->code == TD_IO ? TD_LOG_WARN : TD_LOG_DEBUG, "cannot hash a virtual file of %" PRIu64 " bytes: %s",
               digest->size_bytes, err->message);
    td_body_fini(&job->body);
    return ok;
}

/* Hashes those tensors of the job's set whose digests are not known, one after the other. Begins with none once the
 * job is to stop. */
static bool hash_set(struct td_virtual_hasher *hasher, struct job *job, struct td_error *err)
{
    struct td_virtual_key key;
    bool ok = true;
    while (ok && job->file.recipe.next(job->file.recipe.context, &key)) {
        struct td_virtual_digest digest = {.is_tensor = true, .origin = {.kind = TD_REVISION_FILES}};
        struct td_virtual_digest known;
        if (atomic_load(&job->work.stop))
            ok = td_error_set(err, TD_UNAVAILABLE, "the server is stopping");
        else if (!td_virtual_digests_find(hasher->digests, &key, &known))
            ok = hash_one(hasher, job, &key, &digest, err);
        td_virtual_digests_flush_if_due(hasher->digests);
    }
    return ok;
}

/* Hashes the job's file and records the result. Writes earlier digests to the disk first; no request waits for these
 * any more. */
static bool run_job(void *context, struct td_work_job *work, const struct td_work_thread *thread)
{
    struct td_virtual_hasher *hasher = context;
    struct job *job = job_of(work);
    struct td_error err = TD_ERROR_INIT;
    struct td_virtual_digest digest = {.origin = job->file.origin};
    td_virtual_digests_flush_if_due(hasher->digests);
    job->window = hasher->windows + thread->number * WINDOW_BYTES;
    bool ok = job->file.recipe.next != NULL ? hash_set(hasher, job, &err)
                                            : hash_one(hasher, job, &job->file.key, &digest, &err);
    drop_file(job);
    td_work_queue_lock(hasher->queue);
    job->is_known = ok;
    job->digest = digest;
    job->err = err;
    if (!ok)
        note_failure(hasher, job);
    hasher->has_news = true;
    td_work_queue_unlock(hasher->queue);
    return true;
}

/* Writes the last digests when a thread finds no job. Call under the lock; the function releases it while it writes,
 * and takes it again. */
static bool write_news(void *context)
{
    struct td_virtual_hasher *hasher = context;
    if (!hasher->has_news)
        return false;
    hasher->has_news = false;
    td_work_queue_unlock(hasher->queue);
    td_virtual_digests_flush(hasher->digests);
    td_work_queue_lock(hasher->queue);
    return true;
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

uint64_t td_virtual_hasher_hashed_bytes(const struct td_virtual_hasher *hasher)
{
    td_work_queue_lock(hasher->queue);
    uint64_t bytes = td_work_queue_done_bytes(hasher->queue);
    td_work_queue_unlock(hasher->queue);
    return bytes;
}

bool td_virtual_hasher_has(struct td_virtual_hasher *hasher, const struct td_virtual_key *key)
{
    struct td_virtual_digest known;
    td_work_queue_lock(hasher->queue);
    bool has = find_job(hasher, key) != NULL || td_virtual_digests_find(hasher->digests, key, &known);
    td_work_queue_unlock(hasher->queue);
    return has;
}

/* Returns the state of a job, which is in the queue or has just left it. Under the lock. */
static enum td_virtual_state report_job(const struct job *job, struct td_virtual_digest *out,
                                        struct td_virtual_progress *progress, struct td_error *err)
{
    if (job->work.state != TD_WORK_DONE) {
        *progress =
            (struct td_virtual_progress){atomic_load(&job->work.done_bytes), atomic_load(&job->work.size_bytes)};
        return TD_VIRTUAL_UNDER_WAY;
    }
    *out = job->digest;
    if (job->is_known)
        return TD_VIRTUAL_KNOWN;
    (void)td_error_copy(err, &job->err);
    return TD_VIRTUAL_FAILED;
}

enum td_virtual_state td_virtual_hasher_wait(struct td_virtual_hasher *hasher, const struct td_virtual_key *key,
                                             uint64_t until_ns, const struct td_cancel *cancel,
                                             struct td_virtual_digest *out, struct td_virtual_progress *progress,
                                             struct td_error *err)
{
    enum td_virtual_state state = TD_VIRTUAL_UNKNOWN;
    *progress = (struct td_virtual_progress){0};
    td_work_queue_lock(hasher->queue);
    struct job *job = find_job(hasher, key);
    if (job != NULL) {
        (void)td_work_job_ref(&job->work);
        bool waits = until_ns != 0 && td_may_wait(NULL);
        while (waits && job->work.state != TD_WORK_DONE)
            waits = td_work_queue_wait(hasher->queue, until_ns, cancel);
        state = report_job(job, out, progress, err);
    } else if (td_virtual_digests_find(hasher->digests, key, out)) {
        state = TD_VIRTUAL_KNOWN;
    } else if (find_failure(hasher, key) != NULL) {
        (void)td_error_copy(err, &find_failure(hasher, key)->err);
        state = TD_VIRTUAL_FAILED;
    }
    td_work_queue_unlock(hasher->queue);
    if (job != NULL)
        td_work_job_unref(hasher->queue, &job->work);
    return state;
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

static bool is_stopping(void *context)
{
    const struct td_virtual_hasher *hasher = context;
    return td_work_queue_is_stopping(hasher->queue);
}

struct td_virtual_digests *td_virtual_hasher_digests(struct td_virtual_hasher *hasher)
{
    return hasher->digests;
}

const struct td_cancel *td_virtual_hasher_cancel(const struct td_virtual_hasher *hasher)
{
    return &hasher->cancel;
}

/* Starts a thread for all files, and one for small ones alone. */
static bool start_threads(struct td_virtual_hasher *hasher, struct td_error *err)
{
    static const struct td_work_pool pools[THREADS] = {
        {"hash virtual files", .thread_count = 1, .levels = {LARGE, SMALL}, .level_count = 2, .more = write_news},
        {"hash virtual files", .thread_count = 1, .levels = {SMALL}, .level_count = 1, .more = write_news}};
    return td_work_queue_start(hasher->queue, &pools[0], err) && td_work_queue_start(hasher->queue, &pools[1], err);
}

bool td_virtual_hasher_create(struct td_virtual_hasher **out, struct td_error *err)
{
    struct td_virtual_hasher *hasher = calloc(1, sizeof *hasher);
    if (hasher == NULL)
        return td_error_no_memory(err);
    const struct td_work_config config = {.run = run_job, .free = free_job, .context = hasher};
    hasher->cancel = (struct td_cancel){.is_asked = is_stopping, .context = hasher};
    hasher->windows = malloc((size_t)THREADS * WINDOW_BYTES);
    bool ok = (hasher->windows != NULL || td_error_no_memory(err)) &&
              td_virtual_digests_create(&hasher->digests, err) && td_work_queue_create(&config, &hasher->queue, err) &&
              start_threads(hasher, err);
    if (!ok) {
        td_virtual_hasher_destroy(hasher);
        return false;
    }
    *out = hasher;
    return true;
}

void td_virtual_hasher_destroy(struct td_virtual_hasher *hasher)
{
    if (hasher == NULL)
        return;
    td_work_queue_destroy(hasher->queue);
    td_virtual_digests_destroy(hasher->digests);
    free(hasher->windows);
    free(hasher);
}
