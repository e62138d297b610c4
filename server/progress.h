/* A line on standard error that says how far a scan is, for the person who waits: from one second on, renewed in place
 * on a terminal, a new line every few seconds elsewhere. */
#ifndef TD_SERVER_PROGRESS_H
#define TD_SERVER_PROGRESS_H

#include "catalog/scan.h"

#include <pthread.h>

struct td_progress {
    const char *path;
    const struct td_scan_progress *scan;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool started, stop, shown;
};

/* Both path and scan must outlive it. Without a thread to spare there is no line; nothing else fails. */
void td_progress_start(struct td_progress *progress, const char *path, const struct td_scan_progress *scan);

/* Ends it and clears the terminal's line. */
void td_progress_stop(struct td_progress *progress);

#endif
