/* The access log: one line per request, written by a thread of its own. A slow or stopped reader costs lines, which
 * are counted, and never delays a request. */
#ifndef TD_SERVER_ACCESS_LOG_H
#define TD_SERVER_ACCESS_LOG_H

#include "core/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_access_log;

/* target: a file name, "-" for standard output, "off". dropped counts lost lines. */
bool td_access_log_create(const char *target, _Atomic uint64_t *dropped, struct td_access_log **out,
                          struct td_error *err);

/* Writes what is queued, for at most a second, and ends. NULL is fine. */
void td_access_log_destroy(struct td_access_log *log);

bool td_access_log_is_on(const struct td_access_log *log);

/* Queues one line (with its newline). */
void td_access_log_write(struct td_access_log *log, const char *line, size_t len);

#endif
