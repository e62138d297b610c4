/* Writes the progress of a transfer as a line for people: a bar, the bytes, the rate of the last seconds, and the time
 * left; or for how long no bytes have come. Pure; one thread. */
#ifndef TD_SERVER_CMD_PULL_METER_H
#define TD_SERVER_CMD_PULL_METER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_PULL_METER_POINTS = 32,
    TD_PULL_METER_STILL_S = 3, /* shortest silence that the line shows */
};

/* Zeroed at the start, but for is_log. */
struct td_pull_meter {
    bool is_log;                      /* lines stay, so a standstill is shown once */
    bool is_still;                    /* no bytes have come for TD_PULL_METER_STILL_S */
    uint64_t latest_bytes, latest_ns; /* when bytes came last, or were not waited for */
    struct {
        uint64_t ns, bytes;
    } points[TD_PULL_METER_POINTS]; /* a ring of the latest points, at least 0.2 s apart */
    size_t count, next;
};

/* Writes the line: "[=====>              ]  27%, 1.08 GiB of 4.00 GiB, 512.00 MiB/s, 6 s left"; the first one
 * without the rate, which is not known yet; "..., no bytes for 7 s" when bytes are waited for (is_waiting) and none
 * have come for TD_PULL_METER_STILL_S; nothing in a log that has such a line already. now_ns is td_clock_ns; bytes have
 * been there of total; rates count from the bytes at the first call. Call it now and then. */
void td_pull_meter_write(struct td_pull_meter *meter, uint64_t now_ns, uint64_t bytes, uint64_t total, bool is_waiting,
                         char *text, size_t capacity);

#endif
