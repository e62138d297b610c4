#include "core/clock.h"

#include "core/digits.h"

#include <stdio.h>
#include <string.h>

/* 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z, the first and the last time of RFC 3339 that a year of four digits,
 * from 1 on, can show in UTC. */
static const int64_t first_s = INT64_C(-62135596800);
static const int64_t last_s = INT64_C(253402300799);
enum { DAY_S = 86400 };

uint64_t td_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * TD_NS_PER_S + (uint64_t)now.tv_nsec;
}

struct timespec td_clock_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / TD_NS_PER_S), .tv_nsec = (long)(ns % TD_NS_PER_S)};
}

uint64_t td_clock_part_ns(uint64_t until_ns)
{
    uint64_t part_ns = td_clock_ns() + TD_NS_PER_S / 5;
    return part_ns < until_ns ? part_ns : until_ns;
}

bool td_clock_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return false;
    bool ok =
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 && pthread_cond_init(condition, &attributes) == 0;
    (void)pthread_condattr_destroy(&attributes);
    return ok;
}

struct td_wall td_wall_of_ns(int64_t since_1970_ns)
{
    uint64_t ns = since_1970_ns < 0 ? 0 : (uint64_t)since_1970_ns;
    return (struct td_wall){.seconds = (int64_t)(ns / TD_NS_PER_S), .nanoseconds = (uint32_t)(ns % TD_NS_PER_S)};
}

struct td_wall td_wall_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (struct td_wall){.seconds = now.tv_sec, .nanoseconds = (uint32_t)now.tv_nsec};
}

size_t td_wall_rfc3339(struct td_wall wall, char *out, size_t capacity)
{
    struct tm tm;
    time_t seconds = (time_t)wall.seconds;
    if (gmtime_r(&seconds, &tm) == NULL)
        memset(&tm, 0, sizeof tm);
    int n = snprintf(out, capacity, "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                     tm.tm_hour, tm.tm_min, tm.tm_sec, (unsigned)(wall.nanoseconds / 1000000U));
    return n < 0 ? 0 : (size_t)n;
}

/* Removes exactly `count` digits from the beginning of the text. Returns their value, or -1 when others stand there. */
static int take_digits(struct td_text *text, size_t count)
{
    int value = 0;
    for (size_t i = 0; i < count; i++) {
        if (i >= text->len || text->p[i] < '0' || text->p[i] > '9')
            return -1;
        value = value * 10 + (text->p[i] - '0');
    }
    *text = td_text_skip(*text, count);
    return value;
}

static int days_of_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && is_leap);
}

/* Removes the date and the time up to the seconds. Returns false when the text does not begin with a date and a
 * time. */
static bool take_date_time(struct td_text *text, struct tm *tm)
{
    int year = take_digits(text, 4);
    bool ok = td_text_take_char(text, '-');
    int month = take_digits(text, 2);
    ok = ok && td_text_take_char(text, '-');
    int day = take_digits(text, 2);
    ok = ok && (td_text_take_char(text, 'T') || td_text_take_char(text, 't'));
    *tm = (struct tm){.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
    tm->tm_hour = take_digits(text, 2);
    ok = ok && td_text_take_char(text, ':');
    tm->tm_min = take_digits(text, 2);
    ok = ok && td_text_take_char(text, ':');
    tm->tm_sec = take_digits(text, 2);
    return ok && year >= 0 && month >= 1 && month <= 12 && day >= 1 && day <= days_of_month(year, month) &&
           tm->tm_hour >= 0 && tm->tm_hour <= 23 && tm->tm_min >= 0 && tm->tm_min <= 59 && tm->tm_sec >= 0 &&
           tm->tm_sec <= 60;
}

/* Reads "Z" or an offset such as "+02:00", the rest of the text. */
static bool read_offset(struct td_text text, int *offset_s)
{
    *offset_s = 0;
    if (text.len == 1)
        return text.p[0] == 'Z' || text.p[0] == 'z';
    bool is_minus = td_text_take_char(&text, '-');
    bool ok = is_minus || td_text_take_char(&text, '+');
    int hours = take_digits(&text, 2);
    ok = ok && td_text_take_char(&text, ':');
    int minutes = take_digits(&text, 2);
    *offset_s = (hours * 60 + minutes) * (is_minus ? -60 : 60);
    return ok && text.len == 0 && hours >= 0 && hours <= 23 && minutes >= 0 && minutes <= 59;
}

bool td_wall_read_rfc3339(struct td_text text, int64_t *seconds)
{
    struct tm tm;
    int offset_s;
    uint64_t fraction;
    if (!take_date_time(&text, &tm))
        return false;
    if (td_text_take_char(&text, '.') && td_digits_take(&text, &fraction, NULL) == 0)
        return false;
    if (!read_offset(text, &offset_s))
        return false;
    int tm_sec = tm.tm_sec; /* timegm normalises it */
    int64_t read_s = (int64_t)timegm(&tm) - offset_s;
    if (read_s < first_s || read_s > last_s || (tm_sec == 60 && read_s % DAY_S != 0))
        return false;
    *seconds = read_s;
    return true;
}
