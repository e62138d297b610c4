/* A progress line on standard error for a task that takes longer than 1 s. A thread writes it: on a terminal it renews
 * one line every 0.2 s, elsewhere it writes a new line every 5 s. */
#ifndef TD_SERVER_CMD_PROGRESS_H
#define TD_SERVER_CMD_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* All members are private. */
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

#endif
