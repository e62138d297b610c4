/* Plan: jobs form a list, sorted by turns; a thread takes the first one that it may, hashes it and then removes it. A
 * job's turn is one more than that of its owner's job before, and at least that of the job that was taken last. So the
 * n-th jobs of all owners come before the next ones, and none waits forever. Requests that wait hold a reference on
 * their job, so that they learn its end although it has left the list. The thread makes the body of a job when it
 * begins with it, so that the queue holds neither descriptors nor mappings, however many files the jobs are made of.
 * The errors of the last failures are kept, for requests that ask only after the job has ended.
 *
 * Hard: (1) a body may be of files that change. The digest counts only if td_body_unchanged holds after the last byte
 * was read, as it must before the last byte of an answer is sent. (2) Hashing reads more than anything else. Long runs
 * of files that were not in the page cache are dropped from it again, so that they do not push out what is served. (3)
 * Small jobs are hashed long before large ones of the same owner. So both have turns of their own: if a small job's
 * turn counted for large ones, the large jobs of others would come behind all of this owner's. The thread that takes
 * all jobs takes large ones first, since the other one takes none of them. */
#include "rank/virtual_hasher.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/waiting.h"
#include "storage/composed.h"
#include "storage/file_source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_BYTES = 256 * 1024, SPAN_BYTES = 16 * 1024 * 1024, WORKERS = 2 };

static const uint64_t flush_ns = 1000000000;

/* The errors that are remembered. A request begins with at most so many files before it waits. */
enum { FAILURES = TD_VIRTUAL_HASHER_OWN };

struct failure {
    struct td_virtual_key key;
    struct td_error err; /* TD_OK: the place is free */
};

/* Small jobs and large ones, which have turns of their own. */
enum { SMALL, LARGE, SIZES };

struct job {
    struct td_virtual_file file; /* with a reference on the snapshot */
    struct td_body body;         /* of the thread; empty before it begins */
    uint64_t unchecked_bytes;    /* of the thread; read since it last looked whether a file has changed */
    _Atomic uint64_t size_bytes, done_bytes;
    _Atomic int refs; /* the list's one, and one for each request that waits */
    uint64_t turn;
    struct job *next; /* under the hasher's lock, as what follows */
    bool is_taken, is_done, is_known;
    struct td_virtual_digest digest; /* when it is known */
    struct td_error err;             /* when it is done and not known */
};

/* A thread. */
struct worker {
    struct td_virtual_hasher *hasher;
    pthread_t thread;
    bool has_thread;
    bool takes_large; /* it takes all jobs; else small ones alone */
    uint8_t *window;
    uint64_t last_flush_ns;
};

struct td_virtual_hasher {
    struct td_virtual_digests *digests;
    struct worker workers[WORKERS];
    _Atomic bool stop;
    _Atomic uint64_t hashed_bytes;
    struct td_cancel cancel;

    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct job *first;                 /* under the lock */
    size_t job_count, rank_count;      /* under the lock; of all jobs, and of those for rank files */
    uint64_t turns[SIZES];             /* under the lock; of the small and of the large job that were taken last */
    struct failure failures[FAILURES]; /* under the lock; a ring */
    size_t next_failure;               /* under the lock; the place of the next one */
};

/* ---- jobs ---------------------------------------------------------------------------------------------- */

static void drop_recipe(struct td_virtual_recipe *recipe)
{
    if (recipe->free != NULL)
        recipe->free(recipe->context);
    *recipe = (struct td_virtual_recipe){.context = NULL};
}

/* Drops what the job is made of, so that files can be written to and snapshots end. */
static void drop_file(struct job *job)
{
    td_body_fini(&job->body);
    drop_recipe(&job->file.recipe);
    td_snapshot_unref(job->file.snapshot);
    job->file.snapshot = NULL;
}

/* Drops a reference; the last one frees the job. */
static void job_unref(struct job *job)
{
    if (job == NULL || atomic_fetch_sub(&job->refs, 1) > 1)
        return;
    drop_file(job);
    free(job);
}

/* Returns the job with this key, or NULL. Under the lock. */
static struct job *find_job(const struct td_virtual_hasher *hasher, const struct td_virtual_key *key)
{
    struct job *job = hasher->first;
    while (job != NULL && memcmp(job->file.key.bytes, key->bytes, sizeof key->bytes) != 0)
        job = job->next;
    return job;
}

/* Makes a job, which takes the file's recipe over. Returns NULL when memory is short. */
static struct job *create_job(struct td_virtual_file *file)
{
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return NULL;
    job->file = *file;
    if (file->snapshot != NULL)
        (void)td_snapshot_ref(file->snapshot);
    file->recipe = (struct td_virtual_recipe){.context = NULL};
    td_body_init(&job->body);
    atomic_init(&job->size_bytes, file->size_bytes);
    atomic_init(&job->refs, 1);
    td_error_init(&job->err);
    return job;
}

static bool is_rank_file(const struct td_virtual_file *file)
{
    return file->origin.kind != TD_REVISION_FILES;
}

/* Numbers of jobs of an owner or of a client: all jobs, and those for rank files. */
struct share {
    size_t files, ranks;
};

static void count(struct share *share, const struct job *job)
{
    share->files++;
    share->ranks += is_rank_file(&job->file) ? 1 : 0;
}

static struct share share_of_client(const struct td_virtual_hasher *hasher, uint64_t client)
{
    struct share share = {0};
    for (const struct job *job = hasher->first; job != NULL; job = job->next)
        if (job->file.client == client)
            count(&share, job);
    return share;
}

/* Refuses a file that nobody asked for by name while such a file of another owner is in the queue. Under the lock. */
static bool check_unasked(const struct td_virtual_hasher *hasher, const struct td_virtual_file *file,
                          struct td_error *err)
{
    const struct job *job = file->is_unasked ? hasher->first : NULL;
    while (job != NULL && (!job->file.is_unasked || job->file.owner == file->owner))
        job = job->next;
    return job == NULL || td_error_set(err, TD_RESOURCE_EXHAUSTED,
                                       "files of another repository are being hashed for a digest that was not known; "
                                       "try again, or ask for the tag first");
}

/* Checks that the shares of the file's owner and client have room for it. Under the lock. */
static bool has_share(const struct td_virtual_hasher *hasher, const struct td_virtual_file *file, struct td_error *err)
{
    bool is_rank = is_rank_file(file);
    struct share own = {0};
    struct share client = share_of_client(hasher, file->client);
    for (const struct job *job = hasher->first; job != NULL; job = job->next)
        if (job->file.owner == file->owner)
            count(&own, job);
    if (own.files >= TD_VIRTUAL_HASHER_OWN || (is_rank && own.ranks >= TD_VIRTUAL_HASHER_OWN_RANKS))
        return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                            "%zu files of this model wait to be put together and hashed; try again later",
                            is_rank ? own.ranks : own.files);
    if (client.files >= TD_VIRTUAL_HASHER_CLIENT || (is_rank && client.ranks >= TD_VIRTUAL_HASHER_CLIENT_RANKS))
        return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                            "%zu files that you asked for wait to be put together and hashed; try again later",
                            is_rank ? client.ranks : client.files);
    return true;
}

/* Returns whether the queue has no place for the file, or none for a rank file. Under the lock. */
static bool is_full(const struct td_virtual_hasher *hasher, const struct td_virtual_file *file)
{
    return hasher->job_count >= TD_VIRTUAL_HASHER_QUEUE ||
           (is_rank_file(file) && hasher->rank_count >= TD_VIRTUAL_HASHER_RANKS);
}

/* A job and its place in the list. */
struct placed {
    struct job *job;
    size_t place;
};

/* Orders by client, then by place. */
static int placed_compare(const void *a, const void *b)
{
    const struct placed *x = a;
    const struct placed *y = b;
    const uint64_t x_client = x->job->file.client;
    const uint64_t y_client = y->job->file.client;
    int order = (x_client > y_client) - (x_client < y_client);
    return order != 0 ? order : (x->place > y->place) - (x->place < y->place);
}

/* Returns the last of the jobs [0, count) that no thread has taken, or NULL. */
static const struct placed *last_waiting(const struct placed *jobs, size_t count)
{
    while (count > 0 && jobs[count - 1].job->is_taken)
        count--;
    return count == 0 ? NULL : &jobs[count - 1];
}

/* Returns the job that the file may displace from the full queue: the last job, not yet taken by a thread, of the
 * client that has the most jobs in the queue, at least two. Returns NULL if there is none, or if the file's own client
 * has jobs there. Under the lock. */
static struct job *find_displaced(const struct td_virtual_hasher *hasher, const struct td_virtual_file *file)
{
    const bool of_ranks = is_rank_file(file) && hasher->rank_count >= TD_VIRTUAL_HASHER_RANKS;
    struct placed jobs[TD_VIRTUAL_HASHER_QUEUE];
    size_t count = 0;
    for (struct job *job = hasher->first; job != NULL; job = job->next) {
        if (of_ranks && !is_rank_file(&job->file))
            continue;
        if (job->file.client == file->client)
            return NULL;
        jobs[count] = (struct placed){.job = job, .place = count};
        count++;
    }
    qsort(jobs, count, sizeof *jobs, placed_compare);
    const struct placed *found = NULL;
    size_t most = 2;
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && jobs[end].job->file.client == jobs[first].job->file.client;)
            end++;
        const struct placed *last = last_waiting(&jobs[first], end - first);
        if (last == NULL || end - first < most)
            continue;
        if (found == NULL || end - first > most || last->place > found->place)
            found = last;
        most = end - first;
    }
    return found == NULL ? NULL : found->job;
}

/* Returns whether a job is SMALL or LARGE. */
static int size_of(const struct job *job)
{
    return job->file.size_bytes <= TD_VIRTUAL_QUICK_BYTES ? SMALL : LARGE;
}

/* Inserts a job into the list, by its turn. Under the lock. */
static void insert_job(struct td_virtual_hasher *hasher, struct job *job)
{
    job->turn = hasher->turns[size_of(job)];
    for (const struct job *other = hasher->first; other != NULL; other = other->next)
        if (other->file.owner == job->file.owner && size_of(other) == size_of(job) && other->turn >= job->turn)
            job->turn = other->turn + 1;
    struct job **at = &hasher->first;
    while (*at != NULL && (*at)->turn <= job->turn)
        at = &(*at)->next;
    job->next = *at;
    *at = job;
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

/* Notes why hashing failed, in the place of the oldest failure. Under the lock. */
static void note_failure(struct td_virtual_hasher *hasher, const struct job *job)
{
    hasher->failures[hasher->next_failure] = (struct failure){.key = job->file.key, .err = job->err};
    hasher->next_failure = (hasher->next_failure + 1) % FAILURES;
}

/* ---- the queue ----------------------------------------------------------------------------------------- */

/* Removes a job from the list. Under the lock. */
static void remove_job(struct td_virtual_hasher *hasher, const struct job *job)
{
    struct job **at = &hasher->first;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    hasher->job_count--;
    hasher->rank_count -= is_rank_file(&job->file) ? 1 : 0;
}

/* Makes room for the file. Sets *displaced to the job that was removed for it, or to NULL. The caller drops the job's
 * reference after it has released the lock. Under the lock. */
static bool make_room(struct td_virtual_hasher *hasher, const struct td_virtual_file *file, struct job **displaced,
                      struct td_error *err)
{
    *displaced = NULL;
    if (!check_unasked(hasher, file, err) || !has_share(hasher, file, err))
        return false;
    if (!is_full(hasher, file))
        return true;
    struct job *job = find_displaced(hasher, file);
    if (job == NULL)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED, "%zu files wait to be put together and hashed; try again later",
                            is_rank_file(file) ? hasher->rank_count : hasher->job_count);
    (void)td_error_set(&job->err, TD_RESOURCE_EXHAUSTED,
                       "files that other clients asked for wait to be put together and hashed; try again later");
    job->is_done = true;
    remove_job(hasher, job);
    (void)pthread_cond_broadcast(&hasher->done);
    *displaced = job;
    return true;
}

/* Adds the file's job to the list. Sets *displaced as make_room does. Under the lock. */
static bool add_job(struct td_virtual_hasher *hasher, struct td_virtual_file *file, struct job **displaced,
                    struct td_error *err)
{
    if (!make_room(hasher, file, displaced, err))
        return false;
    struct job *job = create_job(file);
    if (job == NULL)
        return td_error_no_memory(err);
    forget_failure(hasher, &file->key);
    insert_job(hasher, job);
    hasher->job_count++;
    hasher->rank_count += is_rank_file(file) ? 1 : 0;
    (void)pthread_cond_broadcast(&hasher->work);
    return true;
}

/* Returns the first job of this size that no thread has taken, or NULL. Under the lock. */
static struct job *first_waiting(const struct td_virtual_hasher *hasher, int size)
{
    struct job *job = hasher->first;
    while (job != NULL && (job->is_taken || size_of(job) != size))
        job = job->next;
    return job;
}

/* Takes the first job for a thread. Returns NULL when there is none. Under the lock. */
static struct job *take_job(struct worker *worker)
{
    struct td_virtual_hasher *hasher = worker->hasher;
    struct job *job = worker->takes_large ? first_waiting(hasher, LARGE) : NULL;
    if (job == NULL)
        job = first_waiting(hasher, SMALL);
    if (job != NULL) {
        job->is_taken = true;
        hasher->turns[size_of(job)] = job->turn; /* the list is sorted: no job of this size had a later one */
    }
    return job;
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
    pthread_mutex_lock(&hasher->lock);
    if (find_job(hasher, &file->key) == NULL && !td_virtual_digests_find(hasher->digests, &file->key, &known))
        ok = add_job(hasher, file, &displaced, err);
    pthread_mutex_unlock(&hasher->lock);
    job_unref(displaced);
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
static bool hash_bytes(struct worker *worker, struct job *job, struct td_body_cursor *cursor, bool by_descriptor,
                       uint64_t len, struct td_digest *digest, struct td_error *err)
{
    for (uint64_t done = 0; done < len;) {
        size_t n = len - done < WINDOW_BYTES ? (size_t)(len - done) : WINDOW_BYTES;
        if (atomic_load(&worker->hasher->stop))
            return td_error_set(err, TD_UNAVAILABLE, "the server is stopping");
        if (!read_bytes(job, cursor, by_descriptor, worker->window, n, err))
            return false;
        td_digest_add_content(digest, worker->window, n);
        atomic_fetch_add(&job->done_bytes, n);
        atomic_fetch_add(&worker->hasher->hashed_bytes, n);
        done += n;
    }
    return true;
}

/* Looks at the file once for each SPAN_BYTES that were read, so that reading a long file ends soon after a change. A
 * body has thousands of short extents; all its files are looked at when the last byte was read. */
static bool check_now_and_then(struct job *job, struct td_blob *blob, uint64_t read_bytes, struct td_error *err)
{
    job->unchecked_bytes += read_bytes;
    if (job->unchecked_bytes < SPAN_BYTES)
        return true;
    job->unchecked_bytes = 0;
    return td_blob_unchanged(blob) || has_changed(err);
}

/* Hashes one extent of the body, span by span. Drops a span of a file from the page cache if it was not in it. */
static bool hash_extent(struct worker *worker, struct job *job, const struct td_extent *extent,
                        struct td_body_cursor *cursor, struct td_digest *digest, struct td_error *err)
{
    struct td_blob *blob = extent->blob;
    bool is_file = extent->count == 1 && blob->class->descriptor != NULL;
    uint64_t total = extent->len * extent->count; /* part of the body, whose total fits */
    for (uint64_t done = 0; done < total;) {
        uint64_t n = total - done < SPAN_BYTES ? total - done : SPAN_BYTES;
        bool drops = is_file && !td_blob_is_resident(blob, extent->off + done, n);
        if (!hash_bytes(worker, job, cursor, drops, n, digest, err) || !check_now_and_then(job, blob, n, err))
            return false;
        if (drops)
            (void)posix_fadvise(blob->class->descriptor(blob), (off_t)(extent->off + done), (off_t)n,
                                POSIX_FADV_DONTNEED);
        done += n;
    }
    return true;
}

static bool hash_body(struct worker *worker, struct job *job, uint8_t sum[TD_SHA256_BYTES], struct td_error *err)
{
    struct td_body *body = &job->body;
    struct td_body_cursor cursor = {0};
    struct td_digest *digest = td_digest_create();
    bool ok = digest != NULL || td_error_no_memory(err);
    ok = ok && job->file.recipe.open(job->file.recipe.context, body, err);
    atomic_store(&job->size_bytes, body->total_bytes);
    ok = ok && td_body_resolve(body, err);
    for (size_t i = 0; ok && i < body->extent_count; i++)
        ok = hash_extent(worker, job, &body->extents[i], &cursor, digest, err);
    ok = ok && (td_body_unchanged(body) || has_changed(err));
    uint8_t made[TD_SHA256_BYTES];
    if (!td_digest_finish_binary(digest, made))
        return td_error_no_memory(err);
    if (ok)
        memcpy(sum, made, sizeof made);
    return ok;
}

static void flush_now_and_then(struct worker *worker)
{
    uint64_t now_ns = td_clock_ns();
    if (now_ns - worker->last_flush_ns < flush_ns)
        return;
    worker->last_flush_ns = now_ns;
    td_virtual_digests_flush(worker->hasher->digests);
}

/* Hashes the job's file and notes the result. */
static void do_job(struct worker *worker, struct job *job)
{
    struct td_virtual_hasher *hasher = worker->hasher;
    struct td_error err = TD_ERROR_INIT;
    struct td_virtual_digest digest = {.origin = job->file.origin};
    bool ok = hash_body(worker, job, digest.sum, &err);
    digest.size_bytes = job->body.total_bytes;
    if (ok)
        td_virtual_digests_add(hasher->digests, &job->file.key, &digest);
    else
        td_log(err.code == TD_IO ? TD_LOG_WARN : TD_LOG_DEBUG, "cannot hash a virtual file of %" PRIu64 " bytes: %s",
               digest.size_bytes, err.message);
    drop_file(job);
    pthread_mutex_lock(&hasher->lock);
    job->is_done = true;
    job->is_known = ok;
    job->digest = digest;
    job->err = err;
    if (!ok)
        note_failure(hasher, job);
    remove_job(hasher, job);
    (void)pthread_cond_broadcast(&hasher->done);
    pthread_mutex_unlock(&hasher->lock);
    job_unref(job);
    flush_now_and_then(worker);
}

static void *hasher_main(void *argument)
{
    struct worker *worker = argument;
    struct td_virtual_hasher *hasher = worker->hasher;
    bool has_news = false; /* digests may wait to be written */
    pthread_mutex_lock(&hasher->lock);
    while (!atomic_load(&hasher->stop)) {
        struct job *job = take_job(worker);
        if (job == NULL && !has_news) {
            (void)pthread_cond_wait(&hasher->work, &hasher->lock);
            continue;
        }
        pthread_mutex_unlock(&hasher->lock);
        if (job != NULL)
            do_job(worker, job);
        else
            td_virtual_digests_flush(hasher->digests);
        has_news = job != NULL;
        pthread_mutex_lock(&hasher->lock);
    }
    pthread_mutex_unlock(&hasher->lock);
    return NULL;
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

uint64_t td_virtual_hasher_hashed_bytes(const struct td_virtual_hasher *hasher)
{
    return atomic_load(&hasher->hashed_bytes);
}

bool td_virtual_hasher_has(struct td_virtual_hasher *hasher, const struct td_virtual_key *key)
{
    struct td_virtual_digest known;
    pthread_mutex_lock(&hasher->lock);
    bool has = find_job(hasher, key) != NULL || td_virtual_digests_find(hasher->digests, key, &known);
    pthread_mutex_unlock(&hasher->lock);
    return has;
}

/* Waits for the end of a job, on which the caller holds a reference. Looks now and then whether anybody needs the
 * result. Under the lock. */
static void wait_end(struct td_virtual_hasher *hasher, const struct job *job, uint64_t until_ns,
                     const struct td_cancel *cancel)
{
    if (until_ns == 0 || !td_may_wait(NULL))
        return;
    while (!job->is_done && !atomic_load(&hasher->stop) && td_clock_ns() < until_ns && !td_cancel_is_asked(cancel)) {
        const struct timespec until = td_clock_timespec(td_clock_part_ns(until_ns));
        (void)pthread_cond_timedwait(&hasher->done, &hasher->lock, &until);
    }
}

/* Returns the state of a job, which is in the queue or has just left it. Under the lock. */
static enum td_virtual_state report_job(const struct job *job, struct td_virtual_digest *out,
                                        struct td_virtual_progress *progress, struct td_error *err)
{
    if (!job->is_done) {
        *progress = (struct td_virtual_progress){atomic_load(&job->done_bytes), atomic_load(&job->size_bytes)};
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
    pthread_mutex_lock(&hasher->lock);
    struct job *job = find_job(hasher, key);
    if (job != NULL) {
        atomic_fetch_add(&job->refs, 1);
        wait_end(hasher, job, until_ns, cancel);
        state = report_job(job, out, progress, err);
    } else if (td_virtual_digests_find(hasher->digests, key, out)) {
        state = TD_VIRTUAL_KNOWN;
    } else if (find_failure(hasher, key) != NULL) {
        (void)td_error_copy(err, &find_failure(hasher, key)->err);
        state = TD_VIRTUAL_FAILED;
    }
    pthread_mutex_unlock(&hasher->lock);
    job_unref(job);
    return state;
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

static bool is_stopping(void *context)
{
    const struct td_virtual_hasher *hasher = context;
    return atomic_load(&hasher->stop);
}

struct td_virtual_digests *td_virtual_hasher_digests(struct td_virtual_hasher *hasher)
{
    return hasher->digests;
}

const struct td_cancel *td_virtual_hasher_cancel(const struct td_virtual_hasher *hasher)
{
    return &hasher->cancel;
}

static bool init_sync(struct td_virtual_hasher *hasher)
{
    return pthread_cond_init(&hasher->work, NULL) == 0 && td_clock_condition_init(&hasher->done) &&
           pthread_mutex_init(&hasher->lock, NULL) == 0;
}

/* Starts a thread for all files, or for small ones alone. */
static bool start_worker(struct td_virtual_hasher *hasher, struct worker *worker, bool takes_large,
                         struct td_error *err)
{
    worker->hasher = hasher;
    worker->takes_large = takes_large;
    worker->window = malloc(WINDOW_BYTES);
    if (worker->window == NULL)
        return td_error_no_memory(err);
    worker->has_thread = pthread_create(&worker->thread, NULL, hasher_main, worker) == 0;
    return worker->has_thread ||
           td_error_set(err, TD_RESOURCE_EXHAUSTED, "cannot start a thread that hashes virtual files");
}

bool td_virtual_hasher_create(struct td_virtual_hasher **out, struct td_error *err)
{
    struct td_virtual_hasher *hasher = calloc(1, sizeof *hasher);
    if (hasher == NULL)
        return td_error_no_memory(err);
    hasher->cancel = (struct td_cancel){.is_asked = is_stopping, .context = hasher};
    if (!init_sync(hasher)) {
        free(hasher);
        return td_error_no_memory(err);
    }
    bool ok = td_virtual_digests_create(&hasher->digests, err) &&
              start_worker(hasher, &hasher->workers[0], true, err) &&
              start_worker(hasher, &hasher->workers[1], false, err);
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
    pthread_mutex_lock(&hasher->lock);
    atomic_store(&hasher->stop, true);
    (void)pthread_cond_broadcast(&hasher->work);
    (void)pthread_cond_broadcast(&hasher->done);
    pthread_mutex_unlock(&hasher->lock);
    for (size_t i = 0; i < WORKERS; i++)
        if (hasher->workers[i].has_thread)
            (void)pthread_join(hasher->workers[i].thread, NULL);
    while (hasher->first != NULL) {
        struct job *job = hasher->first;
        hasher->first = job->next;
        job_unref(job);
    }
    td_virtual_digests_destroy(hasher->digests);
    for (size_t i = 0; i < WORKERS; i++)
        free(hasher->workers[i].window);
    (void)pthread_cond_destroy(&hasher->work);
    (void)pthread_cond_destroy(&hasher->done);
    (void)pthread_mutex_destroy(&hasher->lock);
    free(hasher);
}
