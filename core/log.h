/* Log lines for operators on standard error: `2026-01-02T03:04:05.678Z info message`, or the same as an object of JSON,
 * `{"time":"2026-01-02T03:04:05.678Z","level":"info","message":"message"}`. Each line is one write(2). Control bytes
 * are escaped, so a hostile name cannot forge a line. Thread-safe. */
#ifndef TD_CORE_LOG_H
#define TD_CORE_LOG_H

#include <stdbool.h>

enum td_log_level { TD_LOG_ERROR, TD_LOG_WARN, TD_LOG_INFO, TD_LOG_DEBUG };

/* Sets the most detailed level that is written. The level at start is TD_LOG_INFO. */
void td_log_set_level(enum td_log_level level);

/* The form of the lines of all logs. */
enum td_log_form { TD_LOG_TEXT, TD_LOG_JSON };

/* Set and return the form of the lines. At start it is TD_LOG_TEXT. */
void td_log_set_form(enum td_log_form form);
enum td_log_form td_log_get_form(void);

/* Sets *form to the form with this name: "text" or "json". Returns false for any other name. */
bool td_log_parse_form(const char *name, enum td_log_form *form);

/* Sets *level to the level with this name: "error", "warn", "info" or "debug". Returns false for any other name. */
bool td_log_parse_level(const char *name, enum td_log_level *level);

/* Writes a line of this level, or nothing when the level is more detailed than the one that was set. The message needs
 * no newline. Cuts the message to 1,023 bytes, and the escaped line to 1,200, or 2,400 in JSON. A failed write is
 * ignored. */
void td_log(enum td_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
