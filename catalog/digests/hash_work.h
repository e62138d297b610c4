/* Hashing one file, and what the threads that hash files share: the hasher's background threads and those for callers
 * that wait. They have one lock, the list of files that are being hashed and how far each is, the log of digests, and
 * counts. */
#ifndef TD_CATALOG_DIGESTS_HASH_WORK_H
#define TD_CATALOG_DIGESTS_HASH_WORK_H

#include "catalog/digests/digest_log.h"
#include "catalog/digests/idle_thread.h"
#include "catalog/model/snapshot.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A file and the root that it is in. */
struct td_hash_job {
    struct td_root *root;
    struct td_file *file;
};

/* The file that one thread hashes now. Each thread that hashes has a run as long as it lives. */
struct td_hash_run {
    const struct td_file *file; /* NULL: nothing; under the lock, as what follows */
    uint64_t since_ns;
    struct td_hash_run *next;
    _Atomic uint64_t done_bytes; /* of this file; any thread */
};

/* Counts for the current snapshot and, from `hashed_bytes` on, since the start of the process. */
struct td_hash_counts {
    size_t known_count;
    uint64_t known_bytes;
    uint64_t hashed_bytes;   /* of files that are no longer being hashed */
    uint64_t failed_count;   /* files that could not be read, or changed meanwhile */
    uint64_t mismatch_count; /* blobs of a cache whose content does not have the hash in their name */
};

struct td_hash_work {
    struct td_digest_log *log; /* NULL until the owner opens it; closed by td_hash_work_fini */
    _Atomic bool stop;         /* all threads are to end */
    _Atomic uint64_t last_flush_ns;

    pthread_mutex_t lock;
    pthread_cond_t work; /* there may be something to hash; timed waits take times of td_clock_ns, as for `done` */
    pthread_cond_t done; /* a thread is done with a file */
    /* under the lock */
    struct td_hash_run *runs; /* of all threads that hash something */
    bool has_news;            /* a digest became known that the owner has not reported yet */
    bool end_is_awaited;      /* a thread waits for `work` until any run ends; set again before each wait */
    struct td_hash_counts counts;
};

/* Makes a work of zeros ready. Returns false, with nothing to undo, when the system refuses. */
bool td_hash_work_init(struct td_hash_work *work);

/* Closes the log, and frees the rest. All threads have ended. */
void td_hash_work_fini(struct td_hash_work *work);

/* Has all threads stop, and wakes them. */
void td_hash_work_stop(struct td_hash_work *work);

/* Notes that a thread hashes the file from now on. Under the lock. */
void td_hash_work_begin(struct td_hash_work *work, struct td_hash_run *run, const struct td_file *file);

/* Notes that the thread is done with its file, and wakes whoever waits for that. Under the lock. */
void td_hash_work_end(struct td_hash_work *work, struct td_hash_run *run);

/* Returns whether a thread hashes content of this identity, by any name. Under the lock. */
bool td_hash_work_is_running(const struct td_hash_work *work, const struct td_file_id *id);

/* Returns in how many microseconds a thread will have hashed content of this identity if it goes on as fast as it did
 * until now; UINT64_MAX when that is unknown, or no thread hashes it. Under the lock. */
uint64_t td_hash_work_left_us(const struct td_hash_work *work, const struct td_file_id *id, uint64_t now_ns);

/* Returns the bytes that are hashed so far, since the start of the process. Under the lock. */
uint64_t td_hash_work_hashed_bytes(const struct td_hash_work *work);

/* Makes the digest of the run's file, which is the job's, known: from the log or, if that lacks it, by reading the
 * file. Reads on the idle thread, or on this one when `idle` is NULL. Returns whether the file was read to its end.
 * Without the lock. */
bool td_hash_work_do(struct td_hash_work *work, struct td_hash_run *run, const struct td_hash_job *job,
                     struct td_idle_thread *idle);

#endif
