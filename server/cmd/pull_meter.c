#include "server/cmd/pull_meter.h"

#include "core/clock.h"
#include "server/host/terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BAR_COLUMNS = 20, STEP_NS = 200 * 1000 * 1000 };

/* Adds a point, unless the last one is less than STEP_NS old. */
static void add_point(struct td_pull_meter *meter, uint64_t now_ns, uint64_t bytes)
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

/* Returns for how many ns the pull has waited without receiving a byte. */
static uint64_t silence_of(struct td_pull_meter *meter, uint64_t now_ns, uint64_t bytes, bool is_waiting)
{
    if (meter->count == 0 || bytes != meter->latest_bytes || !is_waiting) {
        meter->latest_bytes = bytes;
        meter->latest_ns = now_ns;
    }
    return now_ns - meter->latest_ns;
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

/* Writes the bar and the bytes. Returns the length of the text. */
static size_t write_bar(uint64_t bytes, uint64_t total, char *text, size_t capacity)
{
    char bar[BAR_COLUMNS + 1];
    char done[TD_TERMINAL_BYTES];
    char all[TD_TERMINAL_BYTES];
    double share = total == 0 ? 1 : (double)bytes / (double)total;
    share = share > 1 ? 1 : share;
    size_t filled = (size_t)(share * BAR_COLUMNS);
    memset(bar, ' ', BAR_COLUMNS);
    memset(bar, '=', filled);
    if (filled < BAR_COLUMNS)
        bar[filled] = '>';
    bar[BAR_COLUMNS] = '\0';
    td_terminal_bytes(bytes, done, sizeof done);
    td_terminal_bytes(total, all, sizeof all);
    int used = snprintf(text, capacity, "[%s] %3.0f%%, %s of %s", bar, share * 100, done, all);
    return used < 0 ? 0 : (size_t)used < capacity ? (size_t)used : capacity - 1;
}

void td_pull_meter_write(struct td_pull_meter *meter, uint64_t now_ns, uint64_t bytes, uint64_t total, bool is_waiting,
                         char *text, size_t capacity)
{
    char speed[TD_TERMINAL_BYTES];
    char left[32] = "";
    double rate = rate_of(meter, now_ns, bytes);
    bool is_known = meter->count > 0;
    bool was_still = meter->is_still;
    uint64_t silence_ns = silence_of(meter, now_ns, bytes, is_waiting);
    add_point(meter, now_ns, bytes);
    meter->is_still = silence_ns >= TD_PULL_METER_STILL_S * TD_NS_PER_S;
    if (meter->is_log && meter->is_still && was_still) {
        text[0] = '\0';
        return;
    }
    size_t used = write_bar(bytes, total, text, capacity);
    if (rate >= 1)
        write_left((double)(total > bytes ? total - bytes : 0) / rate, left, sizeof left);
    td_terminal_bytes((uint64_t)rate, speed, sizeof speed);
    if (meter->is_still)
        (void)snprintf(text + used, capacity - used, ", no bytes for %" PRIu64 " s", silence_ns / TD_NS_PER_S);
    else if (is_known)
        (void)snprintf(text + used, capacity - used, ", %s/s%s%s", speed, left[0] != '\0' ? ", " : "", left);
}
