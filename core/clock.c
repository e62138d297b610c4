#include "core/clock.h"

#include <stdio.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)

uint64_t td_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

struct timespec td_clock_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};
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
    return (struct td_wall){.seconds = (int64_t)(ns / SECOND_NS), .nanoseconds = (uint32_t)(ns % SECOND_NS)};
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
