/* A progress line on standard error for a task that takes longer than 1 s. A thread writes it: on a terminal it renews
 * one line every 0.2 s, elsewhere it writes a new line every 5 s. And the text of such a line for a transfer. */
#ifndef TD_SERVER_CMD_SHARED_PROGRESS_H
#define TD_SERVER_CMD_SHARED_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All members are private. Without td_progress_start, a struct of zeros is a progress line that is not shown. */
struct td_progress {
    const char *path;
    void (*describe)(const void *context, char *text, size_t capacity);
    const void *context;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool started, stop, shown, terminal;
};

/* Starts the thread. It calls `describe`, which writes the task and its progress in a few words, and prints this text
 * with the time and `path`. When the text is empty, it prints no line; a terminal keeps the line before. path and
 * context must outlive the progress line. When no thread can be started, no progress is shown, and the other functions
 * do nothing. */
void td_progress_start(struct td_progress *progress, const char *path,
                       void (*describe)(const void *context, char *text, size_t capacity), const void *context);

/* Between pause and resume no progress is written and the terminal's line is clear, so that the caller can print. */
void td_progress_pause(struct td_progress *progress);
void td_progress_resume(struct td_progress *progress);

/* Stops the thread and clears the terminal's line. */
void td_progress_stop(struct td_progress *progress);

/* ---- the text of a transfer ---------------------------------------------------------------------------- */

enum {
    TD_METER_POINTS = 32,
    TD_METER_STILL_S = 3, /* shortest silence that the line shows */
};

/* Zeroed at the start, but for is_log. */
struct td_meter {
    bool is_log;                      /* lines stay, so a standstill is shown once */
    bool is_still;                    /* no bytes have come for TD_METER_STILL_S */
    uint64_t latest_bytes, latest_ns; /* when bytes came last, or were not waited for */
    struct {
        uint64_t ns, bytes;
    } points[TD_METER_POINTS]; /* a ring of the latest points, at least 0.2 s apart */
    size_t count, next;
};

/* Writes the progress of a transfer for people, with the rate of the last seconds: "[=====>              ]  27%, 1.08
 * GiB of 4.00 GiB, 512.00 MiB/s, 6 s left"; the first one without the rate, which is not known yet; "..., no bytes for
 * 7 s" when bytes are waited for (is_waiting) and none have come for TD_METER_STILL_S; nothing in a log that has
 * such a line already. now_ns is td_clock_ns; bytes have been there of total; rates count from the bytes at the first
 * call. Call it now and then. */
void td_meter_write(struct td_meter *meter, uint64_t now_ns, uint64_t bytes, uint64_t total, bool is_waiting,
                    char *text, size_t capacity);

#endif
