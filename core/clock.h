/* Time: a monotonic clock for deadlines, and the wall clock. */
#ifndef TD_CORE_CLOCK_H
#define TD_CORE_CLOCK_H

#include <pthread.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct td_wall {
    int64_t seconds; /* since 1970-01-01T00:00:00Z */
    uint32_t nanoseconds;
};

/* CLOCK_MONOTONIC in nanoseconds: the only clock that timeouts may use. */
uint64_t td_clock_ns(void);

/* The same as the waits of the system take it. */
struct timespec td_clock_timespec(uint64_t ns);

/* Makes a condition whose timed waits end by this clock. False, and nothing to destroy, when the system refuses. */
bool td_clock_condition_init(pthread_cond_t *condition);

struct td_wall td_wall_now(void);

/* A file's time; before 1970 it is taken for 1970, as HTTP's dates and the facades' lists show it. */
struct td_wall td_wall_of_ns(int64_t since_1970_ns);

/* "2026-01-02T03:04:05.678Z" (RFC 3339, UTC). Returns the length without the NUL; capacity 40 suffices. */
size_t td_wall_rfc3339(struct td_wall wall, char *out, size_t capacity);

#endif
