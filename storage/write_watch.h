/* Write watches: whether anybody may have written to an open file since a moment, by inotify. A file's ctime moves with
 * every write, but also when the file is linked, renamed, unlinked or gets other rights; and its mtime, which moves
 * with writes alone, can be put back. A watch tells these apart: it hears of every write, truncation and clone, and of
 * the end of every descriptor that was open for writing. It does not hear of
 *   - stores into a shared mapping, until that mapping and its descriptor are closed;
 *   - writes by Linux AIO (io_submit), until their descriptor is closed;
 *   - writes on other hosts: files of network file systems and of FUSE are therefore not watched.
 * The kernel ends a watch when a file with several names has lost them all; such a file counts as written. Thread-safe.
 */
#ifndef TD_STORAGE_WRITE_WATCH_H
#define TD_STORAGE_WRITE_WATCH_H

#include "core/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Embedded in whatever holds the open file; zero-initialise. All members belong to the watcher. */
struct td_write_watch {
    int number;   /* the kernel's, of the file's inode: several watches may have one */
    bool on;      /* begun and not ended */
    bool written; /* or the kernel lost count */
    struct td_write_watch *next;
};

enum { TD_WATCH_BUCKETS = 1024 };

struct td_write_watcher {
    pthread_mutex_t lock;
    int fd;                                           /* of inotify; -1: the kernel gives none */
    size_t count;                                     /* watches that nothing was heard of yet */
    struct td_write_watch *buckets[TD_WATCH_BUCKETS]; /* those, by number */
};

/* Where the kernel gives no inotify instance, no file is watched; that is no error. */
bool td_write_watcher_init(struct td_write_watcher *watcher, struct td_error *err);

/* Every watch must have ended. */
void td_write_watcher_fini(struct td_write_watcher *watcher);

/* How many watches are on of which nothing was heard. */
size_t td_write_watcher_count(struct td_write_watcher *watcher);

/* Watches the file that fd is open on; fd may be closed later. False when that is not possible: the file system may
 * have writers that this kernel does not see, or the user's limits on inotify are reached. */
bool td_write_watch_begin(struct td_write_watcher *watcher, struct td_write_watch *watch, int fd);

/* Does nothing for a watch that was not begun. */
void td_write_watch_end(struct td_write_watcher *watcher, struct td_write_watch *watch);

/* True when the file was watched since the beginning and nobody has written to it. A write counts once its system call
 * has returned: while one is under way, the file's mtime tells. */
bool td_write_watch_is_quiet(struct td_write_watcher *watcher, struct td_write_watch *watch);

#endif
