/* File sources: one file below the root, mapped on first use and unmapped by an LRU under a cap, because a
 * process may hold 65,530 maps (vm.max_map_count) and a bounded number of descriptors. */
#ifndef TD_STORAGE_FILE_SOURCE_H
#define TD_STORAGE_FILE_SOURCE_H

#include "core/input.h"
#include "storage/blob.h"
#include "storage/served_root.h"
#include "storage/write_watch.h"

#include <pthread.h>

struct td_mapping;

/* Embedded in whatever stands for the file. All members but path and id belong to the cache. */
struct td_file_source {
    const char *path; /* below the root; borrowed from the embedding object */
    struct td_file_id id;
    struct td_mapping *mapping; /* guarded by the cache's lock */
    struct td_file_source *newer, *older;
};

struct td_mapping_cache {
    pthread_mutex_t lock;
    struct td_file_source *newest, *oldest;
    size_t count, capacity; /* mapped sources, and how many may be */
    int lease_signal;       /* 0: take no leases */
    size_t leased_count;
    struct td_mapping *leased;       /* every mapping under a lease, cached or only in use */
    struct td_write_watcher watcher; /* of the mappings without a lease */
};

/* lease_signal != 0: each mapping tries to take a read lease on its file (fcntl F_SETLEASE), which succeeds when
 * nobody has the file open for writing and we own it or have CAP_LEASE. Under a lease the bytes are pinned: whoever
 * opens the file for writing waits until we let go. The kernel asks for that with lease_signal, which must be
 * blocked in all threads; whoever receives it calls td_mapping_cache_break_leases. */
bool td_mapping_cache_init(struct td_mapping_cache *cache, size_t capacity, int lease_signal, struct td_error *err);
void td_mapping_cache_fini(struct td_mapping_cache *cache);

/* How many files are mapped and cached; how many mappings, cached or only in use, are under a lease or under a write
 * watch. */
struct td_mapping_counts {
    size_t mapped, leased, watched;
};

struct td_mapping_counts td_mapping_cache_count(struct td_mapping_cache *cache);

/* Lets go of every mapping that somebody waits to write to: no new answer gets it, and `cut` is called for its blob, to
 * end the transfers that send straight from it. Where it returns true, there are none any more, and the lease goes at
 * once: answers that copy check the file themselves, and the writer does not wait for them. Else the lease goes with
 * the last reference. */
void td_mapping_cache_break_leases(struct td_mapping_cache *cache,
                                   bool (*cut)(void *context, const struct td_blob *blob), void *context);

/* A blob over the whole file, one reference for the caller, after checking that the file is still the one that
 * `id` names (device, inode, size, mtime, ctime). Thread-safe. Errors: TD_UNAVAILABLE when it changed or is
 * gone, TD_PERMISSION_DENIED when we may not read it, TD_RESOURCE_EXHAUSTED, TD_IO.
 * The blob's `unchanged` (checked before the last byte is sent) is false when the size, the mtime or the ctime moved.
 * One exception lets running answers finish from the old inode when the file is unlinked, renamed over, linked or gets
 * other rights: only the ctime moved, and a lease that still stands or a write watch (write_watch.h) shows that nobody
 * wrote. */
bool td_file_source_map(struct td_mapping_cache *cache, const struct td_root *root, struct td_file_source *source,
                        struct td_blob **out, struct td_error *err);

/* Takes the source out of the cache; call before the embedding object is freed. Blobs in use stay valid. */
void td_file_source_forget(struct td_mapping_cache *cache, struct td_file_source *source);

/* An input that reads the open descriptor *fd by pread; fd must outlive it. */
struct td_input td_input_descriptor(const int *fd, uint64_t size_bytes);

#endif
