/* Time: a monotonic clock for deadlines, and the wall clock. Thread-safe. */
#ifndef TD_CORE_CLOCK_H
#define TD_CORE_CLOCK_H

#include "core/text.h"

#include <pthread.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define TD_NS_PER_S INT64_C(1000000000)

/* A moment of the wall clock (CLOCK_REALTIME). */
struct td_wall {
    int64_t seconds; /* since 1970-01-01T00:00:00Z */
    uint32_t nanoseconds;
};

/* Returns CLOCK_MONOTONIC in nanoseconds: the only clock that timeouts may use. */
uint64_t td_clock_ns(void);

/* Returns a time of td_clock_ns as a timespec, for pthread_cond_timedwait. */
struct timespec td_clock_timespec(uint64_t ns);

/* Returns the end of a part of a wait until until_ns: at most 0.2 s from now. After each part the waiting thread checks
 * whether anybody still needs the result (core/cancel.h). */
uint64_t td_clock_part_ns(uint64_t until_ns);

/* Initialises a condition variable. Its timed waits take times of td_clock_ns. The caller destroys the variable with
 * pthread_cond_destroy. Returns false, with nothing to destroy, when the system refuses. */
bool td_clock_condition_init(pthread_cond_t *condition);

/* Returns the wall clock's time. */
struct td_wall td_wall_now(void);

/* Returns a file's time, given in nanoseconds since 1970. A time before 1970 becomes 1970, as HTTP's dates and the
 * facades' lists show it. */
struct td_wall td_wall_of_ns(int64_t since_1970_ns);

/* Writes "2026-01-02T03:04:05.678Z" (RFC 3339, UTC) with a NUL. The caller passes a capacity of at least 40 bytes.
 * Returns the length without the NUL. */
size_t td_wall_rfc3339(struct td_wall wall, char *out, size_t capacity);

/* Reads a time of RFC 3339, such as "2026-01-02T03:04:05Z", as seconds since 1970, without its fraction. Offsets are
 * allowed; a leap second is the second after it. Returns false, and does not change *seconds, for any other text, for
 * second 60 of another minute than 23:59 UTC, and for what is before the year 1 or after the year 9999 in UTC, since
 * td_wall_rfc3339 could not write it. */
bool td_wall_read_rfc3339(struct td_text text, int64_t *seconds);

#endif
