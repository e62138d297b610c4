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
static _Atomic int log_form = TD_LOG_TEXT;

/* MESSAGE_BYTES: of a message. SHOWN_BYTES: of an escaped one, with its NUL. FRAME_BYTES: of all else in a line. */
enum { MESSAGE_BYTES = 1024, SHOWN_BYTES = 1168, FRAME_BYTES = 96 };

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

void td_log_set_form(enum td_log_form form)
{
    atomic_store(&log_form, (int)form);
}

enum td_log_form td_log_get_form(void)
{
    return (enum td_log_form)atomic_load(&log_form);
}

bool td_log_parse_form(const char *name, enum td_log_form *form)
{
    bool is_json = strcmp(name, "json") == 0;
    *form = is_json ? TD_LOG_JSON : TD_LOG_TEXT;
    return is_json || strcmp(name, "text") == 0;
}

/* Writes the text between the quotes of a JSON string. The text has been through td_utf8_escape, so only quotes and
 * backslashes need an escape. Returns the end, at most twice the text's length further on. */
static char *write_json(char *to, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            *to++ = '\\';
        *to++ = *text;
    }
    return to;
}

void td_log(enum td_log_level level, const char *format, ...)
{
    if ((int)level > atomic_load(&log_level))
        return;
    char message[MESSAGE_BYTES];
    char shown[SHOWN_BYTES];
    char line[2 * SHOWN_BYTES + FRAME_BYTES];
    char time[40];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    td_utf8_escape(td_text_of(message), shown, sizeof shown);
    (void)td_wall_rfc3339(td_wall_now(), time, sizeof time);
    size_t len;
    if (td_log_get_form() == TD_LOG_JSON) {
        char *to = line + snprintf(line, sizeof line, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":\"", time,
                                   level_names[level]);
        to = write_json(to, shown);
        memcpy(to, "\"}\n", 3);
        len = (size_t)(to - line) + 3;
    } else {
        len = (size_t)snprintf(line, sizeof line, "%s %-5s %s\n", time, level_names[level], shown);
    }
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)written; /* there is nowhere to report a failed log line */
}
