/* A log of records (catalog/digests/record_log.h) that several threads add to, for a table in memory that its owner
 * keeps: new records wait in a batch, so that many are synchronised together, and a look-up in the table never waits
 * for a disk.
 *
 * Two locks: `lock` guards the owner's table and the batch, and is never held while the disk is used; `file_lock`,
 * which is taken first, guards the log on disk and the records that are being written. */
#ifndef TD_CATALOG_DIGESTS_BATCHED_LOG_H
#define TD_CATALOG_DIGESTS_BATCHED_LOG_H

#include "catalog/digests/record_log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The owner of the table, and its functions. */
struct td_batched_log_owner {
    const struct td_record_log_kind *kind;

    /* Takes a record while the log is opened, as td_record_log_open. */
    bool (*take)(void *context, const void *payload);

    /* Writes the table's records from number *at on, at most `most`, and moves *at, which begins at 0 and counts as the
     * owner likes. Returns their number; fewer than `most` are the last. Called under `lock`. */
    size_t (*next)(void *context, uint64_t *at, void *payloads, size_t most);

    void *context;
};

struct td_batched_log {
    struct td_batched_log_owner owner;
    pthread_mutex_t lock;
    uint8_t *batch; /* room for TD_RECORD_LOG_BATCH payloads that the log lacks */
    size_t batch_count;
    bool is_stale; /* the table has lost records: the log is to be written anew. The owner sets this */

    pthread_mutex_t file_lock;
    struct td_record_log *file;  /* NULL until it is opened */
    uint8_t *writing;            /* room for a batch */
    _Atomic uint64_t flushed_ns; /* when td_batched_log_flush_if_due has done so last */
};

/* Makes a log that stores nothing yet. Returns false, with nothing to undo, when memory is short. */
bool td_batched_log_init(struct td_batched_log *log, const struct td_batched_log_owner *owner);

/* Opens the file, and gives the owner its records, without `lock`. Call at most once, before other threads use the log.
 * Arguments and errors as td_record_log_open. */
bool td_batched_log_open(struct td_batched_log *log, const char *state_dir, const char *root,
                         enum td_record_log_mode mode, struct td_error *err);

/* Writes the records that still wait, and frees the log. */
void td_batched_log_fini(struct td_batched_log *log);

/* Takes `lock` for adding a record to the table. Waits for the disk while the batch is full. */
void td_batched_log_begin_add(struct td_batched_log *log);

/* Adds the record to the batch, unless it is NULL or nothing is stored, and releases `lock`. Flushes a batch that is
 * full, and a log that is stale. */
void td_batched_log_end_add(struct td_batched_log *log, const void *payload);

/* Writes the waiting records, or a stale log anew, and waits until all is on the disk. */
void td_batched_log_flush(struct td_batched_log *log);

/* Does the same unless this function has done so in the last second. */
void td_batched_log_flush_if_due(struct td_batched_log *log);

/* Returns whether added records reach a disk. */
bool td_batched_log_is_stored(const struct td_batched_log *log);

#endif
