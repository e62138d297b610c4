/* A line on standard error that says how far something is, for the person who waits: from one second on, renewed in
 * place on a terminal, a new line every few seconds elsewhere. */
#ifndef TD_SERVER_PROGRESS_H
#define TD_SERVER_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct td_progress {
    const char *path;
    void (*describe)(const void *context, char *text, size_t capacity);
    const void *context;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool started, stop, shown, terminal;
};

/* `describe` writes what is going on and how far it is, in a few words; called by a thread of the line. path and
 * context must outlive it. Without a thread to spare there is no line; nothing else fails. */
void td_progress_start(struct td_progress *progress, const char *path,
                       void (*describe)(const void *context, char *text, size_t capacity), const void *context);

/* Between the two nothing is written and the terminal's line is clear: for other lines. */
void td_progress_pause(struct td_progress *progress);
void td_progress_resume(struct td_progress *progress);

/* Ends it and clears the terminal's line. */
void td_progress_stop(struct td_progress *progress);

#endif
