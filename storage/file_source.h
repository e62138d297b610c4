/* File sources: files below the served root, as mapped blobs. A file is mapped when it is first used. The cache keeps
 * at most `capacity` mappings and drops the least recently used one, because a process may have 65,530 mappings
 * (vm.max_map_count) and a bounded number of descriptors. Thread-safe, except init and fini. */
#ifndef TD_STORAGE_FILE_SOURCE_H
#define TD_STORAGE_FILE_SOURCE_H

#include "core/input.h"
#include "storage/blob.h"
#include "storage/served_root.h"
#include "storage/write_watch.h"

#include <pthread.h>

struct td_mapping;

/* One file; a member of the object that describes the file. The owner sets path and id; the rest, zero at first,
 * belongs to the cache. */
struct td_file_source {
    const char *path;           /* below the root; borrowed from the owner */
    struct td_file_id id;       /* that the file must have when it is used */
    struct td_blob *incoming;   /* the file's bytes while they are still being fetched (incoming.h), one reference, used
                                   in place of the file; set by the owner, who drops it; NULL: the file is there */
    struct td_mapping *mapping; /* NULL: not mapped; guarded by the cache's lock, like all that follows */
    struct td_file_source *newer, *older;
    unsigned holders; /* calls of td_file_source_hold without one of td_file_source_release */
    int held_fd;      /* valid with holders */
    uint64_t links;   /* of the file when held_fd was opened */
};

struct td_mapping_cache {
    pthread_mutex_t lock;
    struct td_file_source *newest, *oldest;
    size_t count, capacity;   /* of mapped sources */
    int lease_signal;         /* 0: takes no leases */
    bool files_are_immutable; /* the operator promises that files are replaced by rename only */
    size_t leased_count;
    struct td_mapping *leased;       /* all mappings under a lease, cached or only in use */
    uint64_t visits;                 /* number of calls of td_mapping_cache_break_leases */
    _Atomic uint64_t trusted_ns;     /* leases count as held until this time of a coarse monotonic clock */
    struct td_write_watcher watcher; /* of mappings without a lease */
    struct td_mapping *retired;      /* large ones without references, still to be unmapped and closed */
    size_t retired_count;
    void (*on_retired)(void *context); /* NULL: mappings are unmapped where their last reference is dropped */
    void *on_retired_context;
};

/* Initialises an empty cache. lease_signal other than 0: each mapping tries to take a read lease on its file (fcntl
 * F_SETLEASE). The kernel grants a lease when nobody has the file open for writing and this process owns the file or
 * has CAP_LEASE. Under a lease the bytes are pinned: a process that opens the file for writing waits until the lease
 * ends. The kernel asks for the lease's end by lease_signal, which must be blocked in all threads. The thread that
 * receives it calls td_mapping_cache_break_leases, and also calls it every second: the kernel ends a lease by itself
 * when nobody reacts within td_lease_break_ns, so bytes count as pinned only for half of that time after each call. A
 * file that cannot change (td_is_immutable) needs no lease: its bytes are always pinned. files_are_immutable: all files
 * count as such. Errors: TD_INTERNAL. */
bool td_mapping_cache_init(struct td_mapping_cache *cache, size_t capacity, int lease_signal, bool files_are_immutable,
                           struct td_error *err);

/* Drops all mappings. Call when no source is used any more and all blobs are gone. */
void td_mapping_cache_fini(struct td_mapping_cache *cache);

/* Defers unmapping and closing of large files to another thread, since it can take 0.1 s or more and any thread may
 * drop the last reference. The thread that drops it calls on_retired, which has another thread call
 * td_mapping_cache_reap soon. Threads that map files call td_mapping_cache_reap too, when many mappings are retired.
 * Call this before the first file is mapped. */
void td_mapping_cache_on_retired(struct td_mapping_cache *cache, void (*on_retired)(void *context), void *context);

/* Unmaps and closes the retired mappings. For a thread that may wait. */
void td_mapping_cache_reap(struct td_mapping_cache *cache);

/* Figures for metrics: files that are mapped and cached; mappings, cached or only in use, under a lease; and mappings
 * under a write watch that has heard of no write. */
struct td_mapping_counts {
    size_t mapped, leased, watched;
};

/* Returns the figures of this moment. */
struct td_mapping_counts td_mapping_cache_count(struct td_mapping_cache *cache);

typedef bool td_lease_cut(void *context, const struct td_blob *blob, bool is_first, uint64_t since_ns);

/* Gives up the mappings of all files that a process waits to write to. Removes each from the cache, so no new answer
 * uses it, and calls `cut` for its blob, to end the transfers that depend on the lease. When `cut` returns true, none
 * is left, and the lease ends at once: answers that copy check the file themselves, so the writer does not wait for
 * them. When `cut` returns false, the lease stays, at the longest until the blob's last reference is dropped; the
 * caller calls this function again soon, which calls `cut` for that blob again. is_first: the first call for this blob;
 * since_ns: when this function found that a process waits for it (td_clock_ns). Returns whether all those leases have
 * ended. For one thread. */
bool td_mapping_cache_break_leases(struct td_mapping_cache *cache, td_lease_cut *cut, void *context);

/* Sets *out to a blob over the whole file, with one reference for the caller, after a check that the file still has the
 * identity source->id (device, inode, size, mtime, ctime). Of an incoming file it is source->incoming, and root and
 * identity are not looked at. Errors: TD_UNAVAILABLE when the file changed or is gone,
 * TD_PERMISSION_DENIED when this process may not read it, TD_RESOURCE_EXHAUSTED, TD_IO; td_may_wait, for a file that is
 * not mapped yet, and for a look at a file that is not on a local file system.
 *
 * The sender calls td_blob_unchanged of the blob before the last byte of an answer is sent. It returns false when the
 * size, the mtime or the ctime has changed, with one exception: it returns true when only the ctime has changed, and a
 * lease that still holds or a write watch (write_watch.h) shows that nobody wrote. So running answers finish from the
 * old inode when the file is unlinked, replaced by a rename, linked or given other permissions. */
bool td_file_source_map(struct td_mapping_cache *cache, const struct td_root *root, struct td_file_source *source,
                        struct td_blob **out, struct td_error *err);

/* Removes the source from the cache. Call before its owner is freed. Blobs in use stay valid. */
void td_file_source_forget(struct td_mapping_cache *cache, struct td_file_source *source);

/* Holds the file, so that it can be mapped after its last name was removed: from now on the source is mapped by the
 * descriptor and not by its path, and a ctime that differs counts as the same while the file has fewer links than when
 * it was opened, since removing a name changes both. Opens the file unless it is held already. Errors: as
 * td_file_source_map of a file that is not mapped yet. Any thread that may wait. */
bool td_file_source_hold(struct td_mapping_cache *cache, const struct td_root *root, struct td_file_source *source,
                         struct td_error *err);

/* Ends one hold; the last one closes the descriptor, which may take long for a file without names. Mappings stay. */
void td_file_source_release(struct td_mapping_cache *cache, struct td_file_source *source);

/* Returns an input of size_bytes bytes that reads the open descriptor *fd with pread. `fd` is borrowed: the variable
 * must outlive the input, and the caller closes the descriptor. Any number of threads may read the input. */
struct td_input td_input_descriptor(const int *fd, uint64_t size_bytes);

#endif
