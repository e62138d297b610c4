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

/* The rest of a date's text. A step that fails sets `ok` to false. */
struct date_cursor {
    struct td_text rest;
    bool ok;
};

static int take_digits(struct date_cursor *c, int count)
{
    uint64_t value = 0;
    size_t n = (size_t)count;
    c->ok = c->rest.len >= n && td_number_read(td_text_n(c->rest.p, n), INT_MAX, &value) && c->ok;
    c->rest = td_text_skip(c->rest, c->ok ? n : 0);
    return (int)value;
}

static void take_text(struct date_cursor *c, const char *text)
{
    c->ok = td_text_begins(c->rest, td_text_of(text)) && c->ok;
    c->rest = td_text_skip(c->rest, c->ok ? strlen(text) : 0);
}

static int take_name(struct date_cursor *c, const char *const *names, int count)
{
    int i = 0;
    while (i + 1 < count && !td_text_begins(c->rest, td_text_of(names[i])))
        i++;
    take_text(c, names[i]);
    return i;
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
    tm->tm_mday = take_digits(c, td_text_take_char(&c->rest, ' ') ? 1 : 2);
    take_text(c, " ");
    take_time(c, tm);
    take_text(c, " ");
    tm->tm_year = take_digits(c, 4) - 1900;
}

bool td_http_date_parse(struct td_text text, int64_t *seconds)
{
    static void (*const forms[])(struct date_cursor *, struct tm *) = {take_imf_fixdate, take_rfc850, take_asctime};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct date_cursor cursor = {.rest = text, .ok = true};
        struct tm tm = {0};
        forms[i](&cursor, &tm);
        if (!cursor.ok || cursor.rest.len > 0)
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
