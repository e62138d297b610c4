/* The access log: one line for each request, written by a thread of its own from a queue of at most 1 MiB. The thread
 * collects lines for 25 ms, or until 64 KiB are queued, and writes them at once: it is not woken for every line. When
 * the log's reader is slow or stopped, lines are dropped and counted; a request never waits. */
#ifndef TD_SERVER_LOG_ACCESS_LOG_H
#define TD_SERVER_LOG_ACCESS_LOG_H

#include "core/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_access_log;

/* Opens the log. `target` is a file name (lines are appended), "-" for standard output, or "off" for a log that writes
 * nothing. *dropped, which must outlive the log, counts lost lines. Errors: TD_IO when the file cannot be opened,
 * TD_RESOURCE_EXHAUSTED. */
bool td_access_log_create(const char *target, _Atomic uint64_t *dropped, struct td_access_log **out,
                          struct td_error *err);

/* Reopens the log's file by its name, creates it if it was renamed or removed, and continues there. No line is lost;
 * lines that are being written may still reach the old file. Does nothing for a log without a file. Sets *reopened. Any
 * thread, one at a time. Errors: TD_IO when the file cannot be opened, or is a named pipe without a reader; the log
 * then keeps the old file. */
bool td_access_log_reopen(struct td_access_log *log, bool *reopened, struct td_error *err);

/* Writes the queued lines, for at most 1 s, stops the thread, and frees the log, which no other thread may use any
 * more. NULL is allowed. */
void td_access_log_destroy(struct td_access_log *log);

/* Returns whether lines are written at all: false for "off". Any thread. */
bool td_access_log_is_on(const struct td_access_log *log);

/* Queues one line, which includes its newline. Does not block. Any thread. */
void td_access_log_write(struct td_access_log *log, const char *line, size_t len);

#endif
