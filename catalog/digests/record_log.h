/* Tables of records of one size in memory, and logs of them in the state directory, for results that need not be
 * computed again. A log is only a cache. Everything from its first bad record on is ignored and overwritten; when the
 * disk fails, the log is given up for this run, and its owner works with the table in memory.
 *
 * A file holds a header of 16 bytes (magic, version, byte order), then records: length and type (4 bytes each), the
 * payload, the CRC-32 of all of this, and four zero bytes.
 *
 * The owner keeps a table in memory, to which several threads add. New records wait in a batch, so that many are
 * synchronised together, and a look-up in the table never waits for a disk. Two locks: `lock` guards the owner's table
 * and the batch, and is never held while the disk is used; `file_lock`, which is taken first, guards the file and the
 * records that are being written. */
#ifndef TD_CATALOG_DIGESTS_RECORD_LOG_H
#define TD_CATALOG_DIGESTS_RECORD_LOG_H

#include "core/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- tables -------------------------------------------------------------------------------------------- */

enum { TD_RECORD_TABLE_INDEXES = 2 };

/* The part of a record that is the key of an index, and the field that links records with equal keys. */
struct td_record_part {
    size_t off, bytes; /* `bytes` is a multiple of 8 */
    size_t link_off;   /* of a uint32_t in the record, for td_record_table_before; 0: no link */
};

/* A table of records of one size, with hash indexes over parts of them. Records keep the order in which they were
 * added. Not thread-safe. */
struct td_record_table {
    /* set by the owner before the first call; all else is zero */
    size_t record_bytes;
    size_t index_count;
    struct td_record_part parts[TD_RECORD_TABLE_INDEXES];

    size_t count, capacity;
    uint8_t *records; /* `count` of them */
    uint32_t *slots[TD_RECORD_TABLE_INDEXES];
    size_t slot_count; /* of each index: a power of two, at least twice `count` */
};

/* Prepares an empty table. Returns false, with nothing to undo, when memory is short. */
bool td_record_table_init(struct td_record_table *table);

/* Frees the table. */
void td_record_table_fini(struct td_record_table *table);

/* Returns the record that was added last among those with these bytes in the part of the index, or NULL. It is valid
 * until the next change of the table. */
void *td_record_table_find(const struct td_record_table *table, size_t index, const void *bytes);

/* Returns the record that was added before this one and has the same bytes, or NULL. The index must have a link. */
void *td_record_table_before(const struct td_record_table *table, size_t index, const void *record);

/* Adds a copy of the record. Returns false when memory is short. */
bool td_record_table_add(struct td_record_table *table, const void *record);

/* Drops all records for which `keep` returns false. */
void td_record_table_sift(struct td_record_table *table, bool (*keep)(void *context, const void *record),
                          void *context);

/* ---- logs ---------------------------------------------------------------------------------------------- */

enum {
    TD_RECORD_LOG_BATCH = 256,        /* most records that are written at once */
    TD_RECORD_LOG_FRAME_BYTES = 16,   /* of a record, besides its payload */
    TD_RECORD_LOG_MAX_PAYLOAD = 1024, /* bytes */
};

/* A kind of log: the form of its records. Static. */
struct td_record_log_kind {
    const char *name;      /* of the file */
    const char *lock_name; /* of the file that keeps other processes from writing to the log */
    const char *what;      /* the records, for messages: "digests" */
    char magic[8];
    uint32_t version, type; /* of the file, and of its records */
    size_t payload_bytes;   /* of each record, without padding; at most TD_RECORD_LOG_MAX_PAYLOAD */
};

enum td_record_log_mode {
    TD_RECORD_LOG_WRITE, /* takes the log for this process alone; when another process has it, reads it and does not
                            write */
    TD_RECORD_LOG_READ,  /* never writes or creates anything */
};

/* The owner of the table, and its functions. */
struct td_record_log_owner {
    const struct td_record_log_kind *kind;

    /* Takes a record while the log is opened, in the order of the file. Returns false when memory is short. */
    bool (*take)(void *context, const void *payload);

    /* Copies at most `most` records of the table to `payloads`, beginning at the cursor *at, and moves the cursor. It
     * begins at 0; the owner chooses its unit. Returns the number of records; fewer than `most` are the last. Called
     * under `lock`. */
    size_t (*next)(void *context, uint64_t *at, void *payloads, size_t most);

    void *context;
};

struct td_record_log {
    struct td_record_log_owner owner;
    pthread_mutex_t lock;
    uint8_t *batch; /* room for TD_RECORD_LOG_BATCH payloads that are not in the file yet */
    size_t batch_count;
    bool is_stale; /* the table has lost records, so the log must be rewritten. The owner sets this */

    pthread_mutex_t file_lock;
    int dir_fd, fd, lock_fd;     /* -1: none; fd is -1 also once the log was given up */
    uint8_t *writing;            /* room for a batch of payloads that are being written */
    uint8_t *frames;             /* room for a batch of records */
    _Atomic bool stored;         /* whether fd is open; read without a lock */
    _Atomic uint64_t flushed_ns; /* when td_record_log_flush_if_due last flushed */
};

/* Prepares a log that stores nothing yet. Returns false, with nothing to undo, when memory is short. */
bool td_record_log_init(struct td_record_log *log, const struct td_record_log_owner *owner);

/* Opens the file in state_dir, and gives the owner its records, without `lock`. Call at most once, before other threads
 * use the log. state_dir NULL: the log stores nothing. Creates a missing directory (not in mode TD_RECORD_LOG_READ),
 * and uses a sub-directory when others can write to it (catalog/model/state_dir.h). The file must belong to the user of
 * this process and be writable by nobody else, because this process trusts the content of the log. It must not be in
 * `root` (NULL: not checked). Errors: TD_PERMISSION_DENIED, TD_FAILED_PRECONDITION, TD_IO, TD_RESOURCE_EXHAUSTED.
 * Damaged content and a disk that cannot be written are no errors; they are logged. */
bool td_record_log_open(struct td_record_log *log, const char *state_dir, const char *root,
                        enum td_record_log_mode mode, struct td_error *err);

/* Writes the records that still wait, and frees the log. */
void td_record_log_fini(struct td_record_log *log);

/* Takes `lock` for adding a record to the table. Waits for the disk while the batch is full. */
void td_record_log_begin_add(struct td_record_log *log);

/* Adds the record to the batch, unless it is NULL or nothing is stored, and releases `lock`. Flushes a batch that is
 * full, and a log that is stale. */
void td_record_log_end_add(struct td_record_log *log, const void *payload);

/* Writes the waiting records, or rewrites a stale log, and waits until all of it is on the disk. */
void td_record_log_flush(struct td_record_log *log);

/* Flushes in the same way, unless this function has done so in the last second. */
void td_record_log_flush_if_due(struct td_record_log *log);

/* Returns whether added records reach a disk. */
bool td_record_log_is_stored(const struct td_record_log *log);

#endif
