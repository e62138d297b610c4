/* Logs of records of one size, in the state directory: what the program has computed and need not compute again. A log
 * is only a cache. Everything from its first bad record on is ignored and overwritten; when the disk fails, the log is
 * given up for this run, and its owner goes on with what it has in memory.
 *
 * A file holds a header of 16 bytes (magic, version, byte order), then records: length and type (4 bytes each), the
 * payload, the CRC-32 of all of this, and four zero bytes.
 *
 * Threads: one at a time per log, except for td_record_log_is_stored. */
#ifndef TD_CATALOG_DIGESTS_RECORD_LOG_H
#define TD_CATALOG_DIGESTS_RECORD_LOG_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

struct td_record_log;

/* Opens the log in state_dir and calls take(context, payload) for each good record, in their order. `take` returns
 * false when memory is short. state_dir NULL: the log stores nothing. Creates a missing directory (not in mode
 * TD_RECORD_LOG_READ), and uses a sub-directory when others can write to it (catalog/model/state_dir.h). The file must
 * belong to the user of this process and be writable by nobody else, because whoever can write there decides what the
 * program takes for true. It must not lie in `root` (NULL: not checked). Errors: TD_PERMISSION_DENIED,
 * TD_FAILED_PRECONDITION, TD_IO, TD_RESOURCE_EXHAUSTED. Damaged content and a disk that cannot be written are no
 * errors; they are logged. */
bool td_record_log_open(const struct td_record_log_kind *kind, const char *state_dir, const char *root,
                        enum td_record_log_mode mode, bool (*take)(void *context, const void *payload), void *context,
                        struct td_record_log **out, struct td_error *err);

/* Frees the log. NULL: does nothing. */
void td_record_log_close(struct td_record_log *log);

/* Appends `count` payloads, at most TD_RECORD_LOG_BATCH, which lie one behind the other, and waits until they are on
 * the disk. Does nothing for a log that stores nothing. */
void td_record_log_append(struct td_record_log *log, const void *payloads, size_t count);

/* Writes the log anew and puts that in place of the old one. `next` writes the next payloads, at most `most`, and
 * returns their number; fewer than `most` are the last. Does nothing for a log that stores nothing. */
void td_record_log_rewrite(struct td_record_log *log, size_t (*next)(void *context, void *payloads, size_t most),
                           void *context);

/* Returns whether appended records reach a disk. Any thread. */
bool td_record_log_is_stored(const struct td_record_log *log);

#endif
