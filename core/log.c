#include "core/log.h"

#include "core/clock.h"
#include "core/utf8.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static _Atomic int log_level = TD_LOG_INFO;

void td_log_set_level(enum td_log_level level)
{
    atomic_store(&log_level, (int)level);
}

bool td_log_parse_level(const char *name, enum td_log_level *level)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level = (enum td_log_level)i;
            return true;
        }
    }
    return false;
}

void td_log(enum td_log_level level, const char *format, ...)
{
    if ((int)level > atomic_load(&log_level))
        return;
    char message[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    char line[1200];
    char *to = line;
    struct td_wall now = td_wall_now();
    to += td_wall_rfc3339(now, to, 40);
    to += snprintf(to, 16, " %-5s ", level_names[level]);
    td_utf8_escape(td_text_of(message), to, sizeof line - (size_t)(to - line) - 1);
    to += strlen(to);
    *to++ = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)(to - line));
    (void)written; /* there is nowhere to report a failed log line */
}
