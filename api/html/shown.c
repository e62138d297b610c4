#include "api/html/shown.h"

#include "core/digits.h"

#include <time.h>

/* Tables have three numbers in each of their rows, so numbers are written without printf. */

void td_shown_bytes(struct td_buffer *out, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    uint64_t tenths = 0;
    unsigned unit = 0;
    if (bytes < 1024) {
        td_buffer_u64(out, bytes);
        td_buffer_puts(out, " B");
        return;
    }
    do { /* of the first unit that shows less than 1024.0 */
        const unsigned shift = 10 * ++unit;
        const uint64_t one = UINT64_C(1) << shift;
        const uint64_t part = bytes % one * 10; /* at most 10 * 2^60 */
        tenths = bytes / one * 10 + part / one;
        if (part % one > one / 2 || (part % one == one / 2 && tenths % 2 == 1)) /* half to even, as printf rounds */
            tenths++;
    } while (tenths >= 10240);
    td_buffer_u64(out, tenths / 10);
    td_buffer_putc(out, '.');
    td_buffer_putc(out, (char)('0' + tenths % 10));
    td_buffer_putc(out, ' ');
    td_buffer_puts(out, units[unit]);
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
    char digits[TD_NUMBER_BYTES];
    const size_t len = td_number_write(number, digits);
    size_t at = (len - 1) % 3 + 1; /* of the first group */
    td_buffer_append(out, digits, at);
    for (; at < len; at += 3) {
        td_buffer_putc(out, ',');
        td_buffer_append(out, digits + at, 3);
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
