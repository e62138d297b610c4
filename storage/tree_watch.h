/* Tree watch: reports by inotify that something changed in directories that a walk visits, and which files and
 * directories were renamed into one of them. A thread reads the events. Thread-safe.
 *
 * A walk registers each directory with the watch before it lists the directory, so no change is missed: a change after
 * the visit is an event, and the listing shows earlier changes. Directories that a complete walk no longer visits lose
 * their watch.
 *
 * An arrival is an item that came into its directory by a rename and was not written to since. A rename that happened
 * just before the directory itself was watched has no event. In a directory that was made less than 10 s before, an
 * item with one name that is older than the directory is an arrival, too: only a rename brings such an item there. In a
 * directory that was renamed, a write cannot be distinguished from one before the rename if it comes within a tick of
 * the file system's clock (10 ms at most) or, when a name in the directory changes as well, before the event is read.
 * On file systems with writers elsewhere (td_sees_every_writer) changes are reported, but nothing is an arrival.
 *
 * Every function takes NULL for no watch: nothing is watched then, and nothing is an arrival. */
#ifndef TD_STORAGE_TREE_WATCH_H
#define TD_STORAGE_TREE_WATCH_H

#include "core/error.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

enum td_tree_change {
    TD_TREE_NAMES,  /* a name appeared, vanished or moved; or events were lost */
    TD_TREE_WRITES, /* a file was written to, or the times or the mode of an item changed */
};

struct td_tree_watch_config {
    bool (*ignores)(const char *name); /* whether walks pass over items of this name: their events are ignored */
    /* Called without locks, from the watch's thread or within td_tree_watch_arrived. */
    void (*on_change)(void *context, enum td_tree_change change);
    void *context;
};

struct td_tree_watch_counts {
    size_t watched, unwatched; /* directories that the last complete walk visited, with and without a watch */
    uint64_t events;           /* that the kernel reported */
    uint64_t overflows;        /* times that the kernel lost events */
};

/* A directory that a walk has visited. All zeros: none. */
struct td_watched {
    uint64_t device, inode;
    bool is_known;         /* was watched before this walk, or is new in a directory that was */
    int64_t born_until_ns; /* of a new directory: wall clock when its watch began, ns since 1970; 0: not new */
    int64_t born_ns;       /* when it was made; valid with born_until_ns */
};

struct td_tree_watch;

/* Creates a watch without directories and starts its thread. When the kernel gives no inotify instance, logs that and
 * watches nothing; that is not an error. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_tree_watch_create(const struct td_tree_watch_config *config, struct td_tree_watch **out, struct td_error *err);

/* Ends the thread and all watches. No walk may run. */
void td_tree_watch_destroy(struct td_tree_watch *watch);

/* Begins a walk of the root. Takes a reference on the root. One walk runs at a time. */
void td_tree_watch_begin(struct td_tree_watch *watch, struct td_root *root);

/* Visits the directory that is open as `fd`, before it is listed. `path` is its path below the root, `st` its stat,
 * `parent` (may be NULL) the directory that holds it. Sets *out. A directory that cannot be watched is counted, and
 * logged once. */
void td_tree_watch_visit(struct td_tree_watch *watch, const char *path, int fd, const struct stat *st,
                         const struct td_watched *parent, struct td_watched *out);

/* Returns whether the item `name` of a visited directory is an arrival. `st` is the item's stat, taken before this call
 * and without following a symlink. `fd` is open on the directory; -1: renames without an event are not looked for. Sets
 * *until_ns to the wall clock's time (ns since 1970) before which the rename happened: a file with a later change time,
 * in an arrived directory too, was changed since and is not an arrival. */
bool td_tree_watch_arrived(struct td_tree_watch *watch, const struct td_watched *directory, int fd, const char *name,
                           const struct stat *st, int64_t *until_ns);

/* Ends the walk. A complete walk ends the watches of directories that it did not visit, and forgets the arrivals from
 * before its beginning. */
void td_tree_watch_end(struct td_tree_watch *watch, bool complete);

/* Returns the numbers for metrics. Waits for nothing. */
struct td_tree_watch_counts td_tree_watch_get_counts(struct td_tree_watch *watch);

#endif
