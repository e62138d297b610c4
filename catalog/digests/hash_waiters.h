/* Hashes the files that callers wait for, on two threads of ordinary priority with a level each. The quick level has
 * the files that will be hashed before their callers' time is over; the slow level has the others. So callers that can
 * be served in time never wait for files of callers that cannot. If another thread hashes a file already and will be
 * done in half the time, the file is left to that thread. Thread-safe. */
#ifndef TD_CATALOG_DIGESTS_HASH_WAITERS_H
#define TD_CATALOG_DIGESTS_HASH_WAITERS_H

#include "catalog/digests/hash_work.h"
#include "core/cancel.h"

/* How long a caller waits for a digest. */
struct td_digest_wait {
    uint64_t until_ns;              /* monotonic */
    const struct td_cancel *cancel; /* ends the wait within 0.2 s; NULL: nothing does */
    bool takes_any;                 /* also hash a file that cannot be hashed in time; the caller asks for it again */
};

struct td_hash_waiters {
    struct td_hash_work *work;
    uint64_t rate; /* of the quick level's thread, bytes per microsecond, at least 1; under the lock of the queue */
};

/* Prepares the estimates. `work` is borrowed. */
void td_hash_waiters_init(struct td_hash_waiters *waiters, struct td_hash_work *work);

/* Starts both threads, in the queue of `work`. Errors as td_work_queue_start. */
bool td_hash_waiters_start(const struct td_hash_waiters *waiters, struct td_error *err);

/* For the queue: returns whether a job of one of the two levels is not left to another thread. Under the lock. */
bool td_hash_waiters_may_begin(const struct td_hash_waiters *waiters, const struct td_hash_job *job);

/* For the queue: runs a job of one of the two levels. Without the lock. */
void td_hash_waiters_run(struct td_hash_waiters *waiters, struct td_hash_job *job);

/* Has a file of this root hashed before all files that nobody waits for, and waits for the digest. Returns whether the
 * SHA-256 is known. When hashing cannot end in time, returns false at once, unless how->takes_any is set: hashing then
 * continues after the wait has ended. Returns false at once when too many files wait, or memory is short. */
bool td_hash_waiters_wait(struct td_hash_waiters *waiters, struct td_root *root, struct td_file *file,
                          const struct td_digest_wait *how);

#endif
