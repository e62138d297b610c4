#include "http/http_date.h"

#include "core/clock.h"
#include "core/digits.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const day_names[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
static const char *const long_day_names[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                             "Thursday", "Friday", "Saturday"};
static const char *const month_names[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

void td_http_date_format(int64_t seconds, char out[30])
{
    struct tm tm;
    time_t when = (time_t)seconds;
    if (gmtime_r(&when, &tm) == NULL || tm.tm_year + 1900 > 9999 || tm.tm_year + 1900 < 0) {
        when = 0;
        (void)gmtime_r(&when, &tm);
    }
    char text[64];
    (void)snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT", day_names[tm.tm_wday], tm.tm_mday,
                   month_names[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
    memcpy(out, text, 29);
    out[29] = '\0';
}

/* A cursor over the text of a date; every step fails by itself once `ok` is false. */
struct date_cursor {
    const char *p;
    const char *end;
    bool ok;
};

static int take_digits(struct date_cursor *c, int count)
{
    uint64_t value = 0;
    c->ok = c->end - c->p >= count && td_number_read(td_text_n(c->p, (size_t)count), INT_MAX, &value) && c->ok;
    c->p += c->ok ? count : 0;
    return (int)value;
}

static void take_text(struct date_cursor *c, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, text, n) != 0)
        c->ok = false;
    else
        c->p += n;
}

static int take_name(struct date_cursor *c, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        size_t n = strlen(names[i]);
        if ((size_t)(c->end - c->p) >= n && memcmp(c->p, names[i], n) == 0) {
            c->p += n;
            return i;
        }
    }
    c->ok = false;
    return 0;
}

static void take_time(struct date_cursor *c, struct tm *tm)
{
    tm->tm_hour = take_digits(c, 2);
    take_text(c, ":");
    tm->tm_min = take_digits(c, 2);
    take_text(c, ":");
    tm->tm_sec = take_digits(c, 2);
}

/* Sun, 06 Nov 1994 08:49:37 GMT */
static void take_imf_fixdate(struct date_cursor *c, struct tm *tm)
{
    (void)take_name(c, day_names, 7);
    take_text(c, ", ");
    tm->tm_mday = take_digits(c, 2);
    take_text(c, " ");
    tm->tm_mon = take_name(c, month_names, 12);
    take_text(c, " ");
    tm->tm_year = take_digits(c, 4) - 1900;
    take_text(c, " ");
    take_time(c, tm);
    take_text(c, " GMT");
}

/* Sunday, 06-Nov-94 08:49:37 GMT; a year more than 50 years ahead is in the past century */
static void take_rfc850(struct date_cursor *c, struct tm *tm)
{
    (void)take_name(c, long_day_names, 7);
    take_text(c, ", ");
    tm->tm_mday = take_digits(c, 2);
    take_text(c, "-");
    tm->tm_mon = take_name(c, month_names, 12);
    take_text(c, "-");
    int year = take_digits(c, 2);
    struct tm now;
    time_t seconds = (time_t)td_wall_now().seconds;
    int this_year = gmtime_r(&seconds, &now) == NULL ? 2000 : now.tm_year + 1900;
    year += this_year / 100 * 100;
    if (year > this_year + 50)
        year -= 100;
    tm->tm_year = year - 1900;
    take_text(c, " ");
    take_time(c, tm);
    take_text(c, " GMT");
}

/* Sun Nov  6 08:49:37 1994 */
static void take_asctime(struct date_cursor *c, struct tm *tm)
{
    (void)take_name(c, day_names, 7);
    take_text(c, " ");
    tm->tm_mon = take_name(c, month_names, 12);
    take_text(c, " ");
    if (c->p != c->end && *c->p == ' ') {
        c->p++;
        tm->tm_mday = take_digits(c, 1);
    } else {
        tm->tm_mday = take_digits(c, 2);
    }
    take_text(c, " ");
    take_time(c, tm);
    take_text(c, " ");
    tm->tm_year = take_digits(c, 4) - 1900;
}

bool td_http_date_parse(struct td_text text, int64_t *seconds)
{
    static void (*const forms[])(struct date_cursor *, struct tm *) = {take_imf_fixdate, take_rfc850, take_asctime};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct date_cursor cursor = {.p = text.p, .end = text.p + text.len, .ok = true};
        struct tm tm = {0};
        forms[i](&cursor, &tm);
        if (!cursor.ok || cursor.p != cursor.end)
            continue;
        if (tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
            return false;
        struct tm day = {.tm_year = tm.tm_year, .tm_mon = tm.tm_mon, .tm_mday = tm.tm_mday};
        (void)timegm(&day);
        if (day.tm_mon != tm.tm_mon) /* the 31st of November: timegm made it another day */
            return false;
        *seconds = (int64_t)timegm(&tm);
        return true;
    }
    return false;
}
