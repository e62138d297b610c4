#include "server/cmd/pull_meter.h"

#include "server/terminal.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { BAR_COLUMNS = 20, STEP_NS = 200 * 1000 * 1000 };

/* Keeps a point, unless one was kept just now. */
static void keep(struct td_pull_meter *meter, uint64_t now_ns, uint64_t bytes)
{
    size_t last = (meter->next + TD_PULL_METER_POINTS - 1) % TD_PULL_METER_POINTS;
    if (meter->count > 0 && now_ns - meter->points[last].ns < STEP_NS)
        return;
    meter->points[meter->next].ns = now_ns;
    meter->points[meter->next].bytes = bytes;
    meter->next = (meter->next + 1) % TD_PULL_METER_POINTS;
    meter->count += meter->count < TD_PULL_METER_POINTS ? 1 : 0;
}

/* Returns the bytes per second since the oldest point; 0: not known. */
static double rate_of(const struct td_pull_meter *meter, uint64_t now_ns, uint64_t bytes)
{
    size_t oldest = meter->count < TD_PULL_METER_POINTS ? 0 : meter->next;
    if (meter->count == 0 || now_ns <= meter->points[oldest].ns || bytes < meter->points[oldest].bytes)
        return 0;
    return (double)(bytes - meter->points[oldest].bytes) * 1e9 / (double)(now_ns - meter->points[oldest].ns);
}

static void write_left(double seconds, char *out, size_t capacity)
{
    uint64_t s = seconds < 360000 ? (uint64_t)(seconds + 0.5) : 360000;
    if (s < 100)
        (void)snprintf(out, capacity, "%" PRIu64 " s left", s);
    else if (s < 6000)
        (void)snprintf(out, capacity, "%" PRIu64 " min left", (s + 30) / 60);
    else
        (void)snprintf(out, capacity, "%" PRIu64 " h left", (s + 1800) / 3600);
}

void td_pull_meter_write(struct td_pull_meter *meter, uint64_t now_ns, uint64_t bytes, uint64_t total, char *text,
                         size_t capacity)
{
    char bar[BAR_COLUMNS + 1];
    char done[TD_TERMINAL_BYTES];
    char all[TD_TERMINAL_BYTES];
    char speed[TD_TERMINAL_BYTES];
    char left[32] = "";
    double share = total == 0 ? 1 : (double)bytes / (double)total;
    double rate = rate_of(meter, now_ns, bytes);
    bool is_known = meter->count > 0;
    keep(meter, now_ns, bytes);
    share = share > 1 ? 1 : share;
    size_t filled = (size_t)(share * BAR_COLUMNS);
    memset(bar, ' ', BAR_COLUMNS);
    memset(bar, '=', filled);
    if (filled < BAR_COLUMNS)
        bar[filled] = '>';
    bar[BAR_COLUMNS] = '\0';
    td_terminal_bytes(bytes, done, sizeof done);
    td_terminal_bytes(total, all, sizeof all);
    if (rate >= 1)
        write_left((double)(total > bytes ? total - bytes : 0) / rate, left, sizeof left);
    int used = snprintf(text, capacity, "[%s] %3.0f%%, %s of %s", bar, share * 100, done, all);
    if (!is_known || used < 0 || (size_t)used >= capacity)
        return;
    td_terminal_bytes((uint64_t)rate, speed, sizeof speed);
    (void)snprintf(text + used, capacity - (size_t)used, ", %s/s%s%s", speed, left[0] != '\0' ? ", " : "", left);
}
