#include "core/error.h"

#include "core/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void td_error_init(struct td_error *err)
{
    err->code = TD_OK;
    err->sys = 0;
    err->pos = TD_ERROR_POS_NONE;
    err->message[0] = '\0';
}

/* Escapes the text into the message; when that is too long, or the text `is_cut`, dots follow what fits. */
static void write_message(struct td_text text, bool is_cut, struct td_error *err)
{
    static const char dots[] = "...";
    char whole[4 * TD_ERROR_MESSAGE_BYTES]; /* a byte becomes \xNN at most */
    td_utf8_escape(text, whole, sizeof whole);
    bool fits = !is_cut && strlen(whole) < sizeof err->message;
    td_utf8_escape(text, err->message, sizeof err->message - (fits ? 0 : sizeof dots - 1));
    if (!fits)
        memcpy(err->message + strlen(err->message), dots, sizeof dots);
}

/* Records a failure unless *err holds one; appends the text of `sys` unless that is 0. Returns false. */
__attribute__((format(printf, 5, 0))) static bool error_record(struct td_error *err, enum td_code code, uint64_t pos,
                                                               int sys, const char *format, va_list args)
{
    if (err == NULL || err->code != TD_OK)
        return false;
    err->code = code;
    err->pos = pos;
    err->sys = sys;
    char raw[TD_ERROR_MESSAGE_BYTES];
    int written = vsnprintf(raw, sizeof raw, format, args);
    if (written < 0)
        raw[0] = '\0';
    size_t len = strlen(raw);
    if (sys != 0 && written < (int)sizeof raw) {
        char text[128];
        const char *known = strerror_r(sys, text, sizeof text);
        written += snprintf(raw + len, sizeof raw - len, ": %s", known);
        len = strlen(raw);
    }
    write_message(td_text_n(raw, len), written >= (int)sizeof raw, err);
    return false;
}

bool td_error_set(struct td_error *err, enum td_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_record(err, code, TD_ERROR_POS_NONE, 0, format, args);
    va_end(args);
    return false;
}

bool td_error_at(struct td_error *err, enum td_code code, uint64_t pos, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_record(err, code, pos, 0, format, args);
    va_end(args);
    return false;
}

bool td_error_sys(struct td_error *err, enum td_code code, int sys, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_record(err, code, TD_ERROR_POS_NONE, sys, format, args);
    va_end(args);
    return false;
}

bool td_error_no_memory(struct td_error *err)
{
    bool is_first = err != NULL && err->code == TD_OK;
    (void)td_error_set(err, TD_RESOURCE_EXHAUSTED, "out of memory");
    if (is_first)
        err->sys = ENOMEM;
    return false;
}

const char *td_error_text(const struct td_error *err, char out[TD_ERROR_TEXT_BYTES])
{
    if (err->pos == TD_ERROR_POS_NONE)
        (void)snprintf(out, TD_ERROR_TEXT_BYTES, "%s", err->message);
    else
        (void)snprintf(out, TD_ERROR_TEXT_BYTES, "%s (at byte %" PRIu64 ")", err->message, err->pos);
    return out;
}

bool td_error_copy(struct td_error *err, const struct td_error *from)
{
    if (err != NULL && err->code == TD_OK)
        *err = *from;
    return false;
}

void td_error_shift(struct td_error *err, uint64_t off)
{
    if (err != NULL && err->code != TD_OK && err->pos != TD_ERROR_POS_NONE && err->pos < UINT64_MAX - off)
        err->pos += off;
}

void td_error_name_it(struct td_error *err, const char *path)
{
    static const char it[] = "it";
    char shown[TD_ERROR_MESSAGE_BYTES];
    char quoted[TD_ERROR_MESSAGE_BYTES + 2];
    td_utf8_escape(td_text_of(path), shown, sizeof shown);
    size_t len = (size_t)snprintf(quoted, sizeof quoted, "\"%s\"", shown);
    char *at = err == NULL || len < sizeof it ? NULL : strstr(err->message, quoted);
    if (at == NULL)
        return;
    memmove(at + sizeof it - 1, at + len, strlen(at + len) + 1);
    memcpy(at, it, sizeof it - 1);
}
