#include "api/html/shown.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

void td_shown_bytes(struct td_buffer *out, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1023.95; unit++)
        value /= 1024;
    td_buffer_printf(out, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

void td_shown_count(struct td_buffer *out, uint64_t count)
{
    static const char *const units[] = {"", "k", "M", "B", "T", "P", "E"}; /* "B": billions, as models are named */
    double value = (double)count;
    size_t unit = 0;
    if (count < 10000) {
        td_shown_number(out, count);
        return;
    }
    for (; value >= 999.5; unit++)
        value /= 1000;
    td_buffer_printf(out, value < 9.995 ? "%.2f %s" : value < 99.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void td_shown_number(struct td_buffer *out, uint64_t number)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, number);
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            td_buffer_putc(out, ',');
        td_buffer_putc(out, digits[i]);
    }
}

void td_shown_time(struct td_buffer *out, int64_t time_ns)
{
    const time_t seconds = (time_t)(time_ns / 1000000000 - (time_ns % 1000000000 < 0 ? 1 : 0));
    struct tm parts;
    char text[64];
    if (gmtime_r(&seconds, &parts) != NULL && strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts) > 0)
        td_buffer_puts(out, text);
}
