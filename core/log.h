/* Log lines for operators on standard error: `2026-01-02T03:04:05.678Z info  message`. One write per line;
 * control bytes are escaped, so a hostile name cannot forge a line. Safe from any thread. */
#ifndef TD_CORE_LOG_H
#define TD_CORE_LOG_H

#include <stdbool.h>

enum td_log_level { TD_LOG_ERROR, TD_LOG_WARN, TD_LOG_INFO, TD_LOG_DEBUG };

/* Lines above this level are dropped; TD_LOG_INFO at start. */
void td_log_set_level(enum td_log_level level);

/* "error", "warn", "info" or "debug". */
bool td_log_parse_level(const char *name, enum td_log_level *level);

void td_log(enum td_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
