/* Write watches: find out, by inotify, whether anybody may have written to an open file since the watch began. The
 * times of a file do not show that: its ctime changes with every write, but also when the file is linked, renamed,
 * unlinked or given other permissions; its mtime changes with writes alone, but can be set back. A watch sees every
 * write, truncation and clone, and every close of a descriptor that was open for writing. It does not see
 *   - stores into a shared mapping, until that mapping and its descriptor are closed;
 *   - writes by Linux AIO (io_submit), until their descriptor is closed;
 *   - writes on other hosts: files of network file systems and of FUSE are therefore not watched.
 * The kernel ends a watch when a file with several names has lost them all; such a file counts as written.
 * Thread-safe. */
#ifndef TD_STORAGE_WRITE_WATCH_H
#define TD_STORAGE_WRITE_WATCH_H

#include "core/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* One watch; a member of the object that holds the open file. All zeros at first; all members belong to the watcher. */
struct td_write_watch {
    int number;   /* the kernel's, one per inode: watches may share it */
    bool on;      /* begun and not ended */
    bool written; /* or the kernel lost events */
    struct td_write_watch *next;
};

enum { TD_WATCH_BUCKETS = 1024 };

struct td_write_watcher {
    pthread_mutex_t lock;
    int fd;                                           /* of inotify; -1: the kernel gave none */
    size_t count;                                     /* of watches that have heard of no write */
    struct td_write_watch *buckets[TD_WATCH_BUCKETS]; /* those watches, by number */
};

/* Initialises a watcher without watches. When the kernel gives no inotify instance, no file can be watched; that is no
 * error. Errors: TD_INTERNAL. */
bool td_write_watcher_init(struct td_write_watcher *watcher, struct td_error *err);

/* Closes the watcher. All watches must have ended. */
void td_write_watcher_fini(struct td_write_watcher *watcher);

/* Returns the number of watches that are on and have heard of no write. */
size_t td_write_watcher_count(struct td_write_watcher *watcher);

/* Begins to watch the file that fd is open on; fd may be closed later. Returns false, and watches nothing, when that is
 * not possible: the file system may have writers that this kernel does not see (td_sees_every_writer), or the user's
 * inotify limits are reached. */
bool td_write_watch_begin(struct td_write_watcher *watcher, struct td_write_watch *watch, int fd);

/* Ends a watch. Does nothing for a watch that was not begun. */
void td_write_watch_end(struct td_write_watcher *watcher, struct td_write_watch *watch);

/* Returns whether the watch was begun and nobody has written to the file since. A write counts when its system call has
 * returned; during the call the file's mtime shows it. */
bool td_write_watch_is_quiet(struct td_write_watcher *watcher, struct td_write_watch *watch);

#endif
