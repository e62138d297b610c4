/* Hashes one file, and holds the data that all hashing threads share: the queue, the log of digests, and counts. These
 * threads are the hasher's background threads and the threads for callers that wait. */
#ifndef TD_CATALOG_DIGESTS_HASH_WORK_H
#define TD_CATALOG_DIGESTS_HASH_WORK_H

#include "catalog/digests/digest_log.h"
#include "catalog/model/snapshot.h"
#include "work/work_queue.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The levels of the queue; each of the first two has a thread of its own. */
enum { TD_HASH_QUICK, TD_HASH_SLOW, TD_HASH_BACKGROUND };

/* A file that is to be hashed, and the root that it is in. */
struct td_hash_job {
    struct td_work_job work; /* first */
    struct td_root *root;
    struct td_file *file;
};

/* Counts for the current snapshot and, from `failed_count` on, since the start of the process. */
struct td_hash_counts {
    size_t known_count;
    uint64_t known_bytes;
    uint64_t failed_count;   /* files that could not be read, or changed while they were read */
    uint64_t mismatch_count; /* blobs of a cache whose content does not have the hash in their name */
};

struct td_hash_work {
    struct td_digest_log *log;
    struct td_work_queue *queue;
    /* under the lock of the queue */
    bool has_news; /* a digest became known that the owner has not reported yet */
    struct td_hash_counts counts;
};

/* Returns the job that the queue knows as `work`. */
struct td_hash_job *td_hash_job_of(const struct td_work_job *work);

/* Creates a job with references on root and file. Returns NULL when memory is short. */
struct td_hash_job *td_hash_job_create(struct td_root *root, struct td_file *file);

/* Drops the job's references, and frees it. */
void td_hash_job_free(struct td_work_job *job);

/* Returns whether a thread hashes content of this identity, by any name. Under the lock. */
bool td_hash_work_is_running(const struct td_hash_work *work, const struct td_file_id *id);

/* Returns in how many microseconds a thread will have hashed content of this identity if it continues at its mean rate
 * so far. Returns UINT64_MAX when that is unknown, or no thread hashes it. Under the lock. */
uint64_t td_hash_work_left_us(const struct td_hash_work *work, const struct td_file_id *id, uint64_t now_ns);

/* Makes the digest of the job's file known: from the log or, if that lacks it, by reading the file. Reads on the idle
 * thread, or on this one when `idle` is NULL. Returns whether the file was read to its end. Without the lock. */
bool td_hash_work_do(struct td_hash_work *work, struct td_hash_job *job, struct td_idle_thread *idle);

#endif
