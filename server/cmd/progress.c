#include "server/cmd/progress.h"

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
static void print_line(struct td_progress *progress, bool terminal, uint64_t elapsed_ms)
{
    char text[120];
    struct td_buffer shown;
    progress->describe(progress->context, text, sizeof text);
    if (text[0] == '\0')
        return;
    td_buffer_init(&shown);
    (void)fprintf(stderr, "%stensord: %s, %" PRIu64 ".%" PRIu64 " s: %s%s", terminal ? "\r" : "", text,
                  elapsed_ms / 1000, elapsed_ms % 1000 / 100, td_terminal_name(progress->path, &shown),
                  terminal ? "\033[K" : "\n");
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

/* Adds ms to *due and waits until then. Returns false once the progress line is stopped. Called with the lock held. */
static bool wait_ms(struct td_progress *progress, struct timespec *due, uint64_t ms)
{
    due->tv_sec += (time_t)(ms / 1000);
    due->tv_nsec += (long)(ms % 1000) * 1000000;
    if (due->tv_nsec >= 1000000000) {
        due->tv_sec++;
        due->tv_nsec -= 1000000000;
    }
    int waited = 0;
    while (!progress->stop && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&progress->wake, &progress->lock, due);
    return !progress->stop;
}

static void *progress_main(void *argument)
{
    struct td_progress *progress = argument;
    bool terminal = progress->terminal;
    struct timespec due;
    uint64_t elapsed_ms = FIRST_MS;
    (void)clock_gettime(CLOCK_MONOTONIC, &due);
    pthread_mutex_lock(&progress->lock);
    for (uint64_t step_ms = FIRST_MS; wait_ms(progress, &due, step_ms); elapsed_ms += step_ms) {
        print_line(progress, terminal, elapsed_ms);
        step_ms = terminal ? TERMINAL_MS : PLAIN_MS;
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
}
