#include "server/cmd/shared/progress.h"

#include "core/clock.h"
#include "server/host/terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_MS = 1000, TERMINAL_MS = 200, PLAIN_MS = 5000 };

/* Called with the lock held. */
static void print_line(struct td_progress *progress, uint64_t elapsed_ms)
{
    char text[120];
    struct td_buffer shown;
    progress->describe(progress->context, text, sizeof text);
    if (text[0] == '\0')
        return;
    td_buffer_init(&shown);
    (void)fprintf(stderr, "%stensord: %s, %" PRIu64 ".%" PRIu64 " s: %s%s", progress->terminal ? "\r" : "", text,
                  elapsed_ms / 1000, elapsed_ms % 1000 / 100, td_terminal_name(progress->path, &shown),
                  progress->terminal ? "\033[K" : "\n");
    (void)fflush(stderr);
    td_buffer_fini(&shown);
    progress->shown = true;
}

/* Called with the lock held. */
static void clear_line(struct td_progress *progress)
{
    if (progress->terminal && progress->shown)
        (void)fputs("\r\033[K", stderr);
    progress->shown = false;
}

/* Waits until a moment (td_clock_ns). Returns false once the progress line is stopped. Called with the lock held. */
static bool wait_until(struct td_progress *progress, uint64_t due_ns)
{
    const struct timespec due = td_clock_timespec(due_ns);
    int waited = 0;
    while (!progress->stop && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&progress->wake, &progress->lock, &due);
    return !progress->stop;
}

static void *progress_main(void *argument)
{
    struct td_progress *progress = argument;
    uint64_t begin_ns = td_clock_ns();
    uint64_t elapsed_ms = FIRST_MS;
    pthread_mutex_lock(&progress->lock);
    while (wait_until(progress, begin_ns + elapsed_ms * 1000000)) {
        print_line(progress, elapsed_ms);
        elapsed_ms += progress->terminal ? TERMINAL_MS : PLAIN_MS;
    }
    clear_line(progress);
    pthread_mutex_unlock(&progress->lock);
    return NULL;
}

void td_progress_start(struct td_progress *progress, const char *path,
                       void (*describe)(const void *context, char *text, size_t capacity), const void *context)
{
    memset(progress, 0, sizeof *progress);
    progress->path = path;
    progress->describe = describe;
    progress->terminal = isatty(STDERR_FILENO) == 1;
    progress->context = context;
    if (!td_clock_condition_init(&progress->wake))
        return;
    (void)pthread_mutex_init(&progress->lock, NULL);
    progress->started = pthread_create(&progress->thread, NULL, progress_main, progress) == 0;
}

void td_progress_pause(struct td_progress *progress)
{
    if (!progress->started)
        return;
    pthread_mutex_lock(&progress->lock);
    clear_line(progress);
    (void)fflush(stderr);
}

void td_progress_resume(struct td_progress *progress)
{
    if (progress->started)
        pthread_mutex_unlock(&progress->lock);
}

void td_progress_stop(struct td_progress *progress)
{
    if (!progress->started)
        return;
    pthread_mutex_lock(&progress->lock);
    progress->stop = true;
    (void)pthread_cond_signal(&progress->wake);
    pthread_mutex_unlock(&progress->lock);
    (void)pthread_join(progress->thread, NULL);
    (void)pthread_cond_destroy(&progress->wake);
    (void)pthread_mutex_destroy(&progress->lock);
    progress->started = false;
}

/* ---- the text of a transfer ---------------------------------------------------------------------------- */

enum { BAR_COLUMNS = 20, STEP_NS = 200 * 1000 * 1000 };

/* Adds a point, unless the last one is less than STEP_NS old. */
static void add_point(struct td_meter *meter, uint64_t now_ns, uint64_t bytes)
{
    size_t last = (meter->next + TD_METER_POINTS - 1) % TD_METER_POINTS;
    if (meter->count > 0 && now_ns - meter->points[last].ns < STEP_NS)
        return;
    meter->points[meter->next].ns = now_ns;
    meter->points[meter->next].bytes = bytes;
    meter->next = (meter->next + 1) % TD_METER_POINTS;
    meter->count += meter->count < TD_METER_POINTS ? 1 : 0;
}

/* Returns the bytes per second since the oldest point; 0: not known. */
static double rate_of(const struct td_meter *meter, uint64_t now_ns, uint64_t bytes)
{
    size_t oldest = meter->count < TD_METER_POINTS ? 0 : meter->next;
    if (meter->count == 0 || now_ns <= meter->points[oldest].ns || bytes < meter->points[oldest].bytes)
        return 0;
    return (double)(bytes - meter->points[oldest].bytes) * 1e9 / (double)(now_ns - meter->points[oldest].ns);
}

/* Returns for how many ns the pull has waited without receiving a byte. */
static uint64_t silence_of(struct td_meter *meter, uint64_t now_ns, uint64_t bytes, bool is_waiting)
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
    double share = total == 0 ? 1 : (double)bytes / (double)total;
    share = share > 1 ? 1 : share;
    size_t filled = (size_t)(share * BAR_COLUMNS);
    memset(bar, ' ', BAR_COLUMNS);
    memset(bar, '=', filled);
    if (filled < BAR_COLUMNS)
        bar[filled] = '>';
    bar[BAR_COLUMNS] = '\0';
    int used = snprintf(text, capacity, "[%s] %3.0f%%, %s of %s", bar, share * 100, td_terminal_size(bytes).text,
                        td_terminal_size(total).text);
    return used < 0 ? 0 : (size_t)used < capacity ? (size_t)used : capacity - 1;
}

void td_meter_write(struct td_meter *meter, uint64_t now_ns, uint64_t bytes, uint64_t total, bool is_waiting,
                    char *text, size_t capacity)
{
    char left[32] = "";
    double rate = rate_of(meter, now_ns, bytes);
    bool is_known = meter->count > 0;
    bool was_still = meter->is_still;
    uint64_t silence_ns = silence_of(meter, now_ns, bytes, is_waiting);
    add_point(meter, now_ns, bytes);
    meter->is_still = silence_ns >= TD_METER_STILL_S * TD_NS_PER_S;
    if (meter->is_log && meter->is_still && was_still) {
        text[0] = '\0';
        return;
    }
    size_t used = write_bar(bytes, total, text, capacity);
    if (rate >= 1)
        write_left((double)(total > bytes ? total - bytes : 0) / rate, left, sizeof left);
    if (meter->is_still)
        (void)snprintf(text + used, capacity - used, ", no bytes for %" PRIu64 " s", silence_ns / TD_NS_PER_S);
    else if (is_known)
        (void)snprintf(text + used, capacity - used, ", %s/s%s%s", td_terminal_size((uint64_t)rate).text,
                       left[0] != '\0' ? ", " : "", left);
}
