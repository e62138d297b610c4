/* Runs intakes: lists a model's files, fetches one of them, publishes the model after the last one, and ends an intake
 * that fails. The threads of upstream.c call these functions under the upstream's lock, which is released while a
 * function waits, and taken again before it returns. */
#ifndef TD_CATALOG_UPSTREAM_FETCHING_H
#define TD_CATALOG_UPSTREAM_FETCHING_H

#include "catalog/upstream/intake_queue.h"
#include "catalog/upstream/renewals.h"
#include "catalog/upstream/upstream_config.h"
#include "core/digest.h"
#include "core/text.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { TD_WRONG_TAGS = 512 };

/* The latest entity tags of responses with bytes that turned out to be wrong: a client must not resume such a response
 * where it was cut off. All zeros: none. */
struct td_wrong_tags {
    char tags[TD_WRONG_TAGS][TD_SHA256_TEXT_BYTES];
    size_t next;
};

struct td_fetching {
    pthread_mutex_t lock;         /* of all members after `changed`, except atomic ones and the config */
    pthread_cond_t work, changed; /* for workers: there may be a job; for requests: there may be an answer */
    struct td_upstream_config config;
    _Atomic bool stop;
    _Atomic uint64_t fetched_bytes;
    struct td_intake_queue queue;
    struct td_renewals renewals;
    struct td_upstream_status status; /* the counters */
    struct td_wrong_tags wrong_tags;
};

/* The files of a kept model or version in a snapshot: a run of its entries, whose paths begin with prefix_len bytes
 * that paths below the model lack. */
struct td_kept_files_run {
    size_t first, count, prefix_len;
};

/* Finds the files of a kept model or version. Returns false when the snapshot has none. */
bool td_fetching_find_files(const struct td_snapshot *snapshot, const char *id, struct td_kept_files_run *out);

/* Lists the files of a queued model, and makes room for them. For an intake that renews, compares the list with the
 * kept model first, and removes that if it differs. */
void td_fetching_list(struct td_fetching *fetching, struct td_intake *intake);

/* Fetches file i, and takes the next step if it was the last one of its phase. */
void td_fetching_file(struct td_fetching *fetching, struct td_intake *intake, size_t i);

/* Ends an intake with an error and logs it. Does not release the lock. */
void td_fetching_fail(struct td_fetching *fetching, struct td_intake *intake, const struct td_error *why);

/* Returns the kind of a failure that the upstream has not caused: TD_UPSTREAM_FAILED_SPACE or
 * TD_UPSTREAM_FAILED_OTHER. */
enum td_upstream_failure td_fetching_own_failure(const struct td_error *why);

/* Cleans up an intake that has failed or whose model is absent, once no thread works for it: its files stay on disk to
 * be resumed, or are removed when the disk is full. Queues it again if another server is to be asked. */
void td_fetching_put_away(struct td_fetching *fetching, struct td_intake *intake);

/* Adds a tag without its quotes. In a full table it replaces the oldest tag. Under the lock, as td_wrong_tags_has. */
void td_wrong_tags_add(struct td_wrong_tags *tags, const char *tag);

/* Returns whether an entity tag, with its quotes, begins with one of the tags: a facade may have added a suffix. */
bool td_wrong_tags_has(const struct td_wrong_tags *tags, struct td_text etag);

#endif
