/* A mapping is a blob over a whole file, with its descriptor kept open. The cache is an LRU list of the sources that
 * have a mapping; it holds one reference on each, and every answer holds another.
 *
 * What is hard: the file may change at any time. Three defences: a read lease, under which writers wait (the bytes are
 * pinned); else a write watch; and a comparison of the file's identity when a mapping is made, when it is used again
 * and, unless the bytes are pinned, before an answer's last byte (mapping_unchanged). The order matters: take the lease
 * or the watch first, then look at the identity, since a write between a look and the lease would be missed.
 *
 * Nothing is unmapped or closed under the cache's lock: to unmap 10 GB that were read takes 0.1 s. To close a file that
 * has been unlinked frees its blocks, which takes seconds. Any thread may drop the last reference, also one that serves
 * many connections; so large mappings are retired, and unmapped by td_mapping_cache_reap. */
#include "storage/file_source.h"

#include "core/clock.h"
#include "core/file_io.h"
#include "core/waiting.h"
#include "storage/fault_guard.h"
#include "storage/file_system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The number of cachestat(2) on every architecture but Alpha; older headers lack it. */
enum { CACHESTAT = 451 };

struct td_mapping {
    struct td_blob blob; /* first: a mapping is a blob */
    int fd;              /* kept open, so that fstat reports changes without a path walk */
    struct td_file_id id;
    struct td_mapping_cache *cache;
    bool is_local;        /* on a local file system, where a look at the file's times does not wait */
    bool immutable;       /* nobody can write to the file */
    bool hides_residence; /* the kernel does not report to this user which pages are in memory */
    bool leased;
    _Atomic uint64_t links;      /* of a held file, as in td_file_source; 0: the file is not held */
    _Atomic bool broken;         /* the lease is being given up, so the bytes are no longer pinned */
    _Atomic uint64_t looked_ns;  /* when the file was last looked at, by coarse_clock_ns */
    bool ended;                  /* the lease was released; used by the thread that breaks leases */
    uint64_t visit;              /* the last call of td_mapping_cache_break_leases that saw the mapping */
    uint64_t broken_ns;          /* when such a call found that a process waits for the lease; 0: not yet */
    struct td_write_watch watch; /* active without a lease */
    struct td_mapping *next_leased, *previous_leased;
    struct td_mapping *next_retired; /* in the list of retired mappings */
};

/* Shorter files are unmapped and closed where the last reference is dropped: that takes less than 0.4 ms. */
enum { RETIRED_BYTES = 1024 * 1024 };

/* The most retired mappings before a thread that maps a further file reaps them. */
enum { MOST_RETIRED = 64 };

static struct td_mapping *mapping_of(struct td_blob *blob)
{
    return (struct td_mapping *)(void *)blob;
}

/* Takes a read lease on the file, if the kernel grants one and sees every writer. */
static void lease_take(struct td_mapping *mapping)
{
    struct td_mapping_cache *cache = mapping->cache;
    /* Without F_SETOWN the signal would go to this thread, which may end long before the lease does. */
    if (cache->lease_signal == 0 || !mapping->is_local || fcntl(mapping->fd, F_SETOWN, getpid()) != 0 ||
        fcntl(mapping->fd, F_SETSIG, cache->lease_signal) != 0 || fcntl(mapping->fd, F_SETLEASE, F_RDLCK) != 0)
        return;
    mapping->leased = true;
    pthread_mutex_lock(&cache->lock);
    mapping->next_leased = cache->leased;
    if (cache->leased != NULL)
        cache->leased->previous_leased = mapping;
    cache->leased = mapping;
    cache->leased_count++;
    pthread_mutex_unlock(&cache->lock);
}

/* Removes the mapping from the list of leased ones. */
static void lease_forget(struct td_mapping *mapping)
{
    struct td_mapping_cache *cache = mapping->cache;
    if (!mapping->leased)
        return;
    pthread_mutex_lock(&cache->lock);
    *(mapping->previous_leased != NULL ? &mapping->previous_leased->next_leased : &cache->leased) =
        mapping->next_leased;
    if (mapping->next_leased != NULL)
        mapping->next_leased->previous_leased = mapping->previous_leased;
    cache->leased_count--;
    pthread_mutex_unlock(&cache->lock);
}

static void mapping_end(struct td_mapping *mapping)
{
    if (mapping->blob.len_bytes > 0)
        (void)munmap((void *)(uintptr_t)mapping->blob.bytes, (size_t)mapping->blob.len_bytes);
    (void)close(mapping->fd);
    free(mapping);
}

static void mapping_retire(struct td_mapping *mapping)
{
    struct td_mapping_cache *cache = mapping->cache;
    if (mapping->leased)
        (void)fcntl(mapping->fd, F_SETLEASE, F_UNLCK); /* writers do not wait for the end of the mapping */
    pthread_mutex_lock(&cache->lock);
    mapping->next_retired = cache->retired;
    cache->retired = mapping;
    cache->retired_count++;
    pthread_mutex_unlock(&cache->lock);
    cache->on_retired(cache->on_retired_context);
}

static void mapping_destroy(struct td_blob *blob)
{
    struct td_mapping *mapping = mapping_of(blob);
    lease_forget(mapping); /* the lease ends with the descriptor at the latest */
    td_write_watch_end(&mapping->cache->watcher, &mapping->watch);
    if (blob->len_bytes < RETIRED_BYTES || mapping->cache->on_retired == NULL)
        mapping_end(mapping);
    else
        mapping_retire(mapping);
}

void td_mapping_cache_reap(struct td_mapping_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    struct td_mapping *list = cache->retired;
    cache->retired = NULL;
    cache->retired_count = 0;
    pthread_mutex_unlock(&cache->lock);
    while (list != NULL) {
        struct td_mapping *next = list->next_retired;
        mapping_end(list);
        list = next;
    }
}

void td_mapping_cache_on_retired(struct td_mapping_cache *cache, void (*on_retired)(void *context), void *context)
{
    cache->on_retired_context = context;
    cache->on_retired = on_retired;
}

/* Reads all of [off, off+len) from the descriptor. */
static bool read_fully(int fd, uint64_t off, void *out, size_t len, struct td_error *err)
{
    ssize_t n = td_read_at(fd, out, len, off);
    if (n < 0)
        return td_error_sys(err, TD_IO, errno, "cannot read the file");
    return (size_t)n == len || td_error_at(err, TD_UNAVAILABLE, off + (uint64_t)n, "the file shrank while it was read");
}

#define LOOK_NS UINT64_C(100000000)

/* Returns a monotonic time that is exact to some 4 ms and costs no more than a load. */
static uint64_t coarse_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * TD_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Shorter reads are copied from the mapping without a look at what is in memory. */
enum { LONG_BYTES = 32 * 1024 };

/* Returns the first page of [off, off+len), which is within the mapping, and adds the bytes before off to *len. */
static void *page_range(const struct td_blob *blob, uint64_t off, uint64_t *len)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t start = off / page * page;
    *len += off - start;
    return (void *)(uintptr_t)(blob->bytes + start);
}

/* Reads all of [off, off+len) without waiting for the disk. Returns false when some of it is not in memory, or when the
 * file system cannot report that. */
static bool read_at_once(int fd, uint64_t off, void *out, size_t len)
{
    struct iovec to = {.iov_base = out, .iov_len = len};
    return preadv2(fd, &to, 1, (off_t)off, RWF_NOWAIT) == (ssize_t)len;
}

/* Returns whether a byte of each 64 KiB of the range is in memory: read-ahead brings in that much and more. */
static bool samples_are_in_memory(const struct td_mapping *mapping, uint64_t off, uint64_t len)
{
    enum { STEP_BYTES = 64 * 1024 };
    char byte;
    for (uint64_t at = 0; at < len; at += STEP_BYTES)
        if (!read_at_once(mapping->fd, off + at, &byte, 1))
            return false;
    return read_at_once(mapping->fd, off + len - 1, &byte, 1);
}

/* Counts the pages of the range, which ends before 2^63, in the page cache, where the kernel has cachestat(2), Linux
 * 6.5, and lets this process call it. Returns -1 where not. */
static int64_t count_cached_pages(int fd, uint64_t off, uint64_t len)
{
    static _Atomic bool is_absent;
    struct {
        uint64_t off, len;
    } range = {off, len};
    struct {
        uint64_t cached, dirty, written_back, evicted, recently_evicted;
    } pages = {0};
    if (atomic_load_explicit(&is_absent, memory_order_relaxed))
        return -1;
    if (syscall(CACHESTAT, fd, &range, &pages, 0) == 0)
        return (int64_t)pages.cached;
    if (errno == ENOSYS || errno == EPERM) /* of the kernel, or of a filter of system calls */
        atomic_store_explicit(&is_absent, true, memory_order_relaxed);
    return -1;
}

/* Returns whether every page of the range is in memory, by a look at each, which takes 4 times as long as a count. */
static bool pages_are_in_memory(struct td_blob *blob, uint64_t off, uint64_t len)
{
    enum { PAGES = 128 };
    unsigned char resident[PAGES];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *at = page_range(blob, off, &len);
    while (len > 0) {
        size_t part = len < PAGES * page ? (size_t)len : PAGES * page;
        if (mincore(at, part, resident) != 0)
            return false;
        for (size_t i = 0; i < (part + page - 1) / page; i++)
            if ((resident[i] & 1) == 0)
                return false;
        at += part;
        len -= part;
    }
    return true;
}

/* Returns whether every page of the range is in memory, as far as the kernel reports that to this user. A page also
 * counts while the kernel still reads it; pages are read in order, so reading the last byte of the range without a wait
 * shows that all have been read. */
static bool mapping_resident(struct td_blob *blob, uint64_t off, uint64_t len)
{
    const struct td_mapping *mapping = mapping_of(blob);
    if (mapping->hides_residence)
        return samples_are_in_memory(mapping, off, len);
    int64_t cached = count_cached_pages(mapping->fd, off, len);
    if (cached < 0)
        return pages_are_in_memory(blob, off, len);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    char last;
    return (uint64_t)cached == (off + len - 1) / page - off / page + 1 &&
           read_at_once(mapping->fd, off + len - 1, &last, 1);
}

/* Copies [off, off+len) without waiting for the disk. Returns false when some of it may not be in memory. */
static bool copy_at_once(struct td_blob *blob, uint64_t off, void *out, size_t len)
{
    const struct td_mapping *mapping = mapping_of(blob);
    if (read_at_once(mapping->fd, off, out, len))
        return true;
    return errno == EOPNOTSUPP && !mapping->hides_residence && mapping_resident(blob, off, len) &&
           td_fault_guard_copy(out, blob->bytes + off, len);
}

/* Returns whether a run is read through the descriptor: it is long and not in memory, so that the kernel reads ahead as
 * for any file. A run in memory costs a quarter less processor time when it is copied from the mapping. */
static bool is_for_descriptor(struct td_blob *blob, uint64_t off, uint64_t len)
{
    return len >= LONG_BYTES && !mapping_resident(blob, off, len);
}

static bool refuse_shrunk(struct td_error *err)
{
    return td_error_set(err, TD_UNAVAILABLE, "the file shrank or cannot be read any more");
}

static bool mapping_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    if (td_waiting_is_forbidden())
        return copy_at_once(blob, off, out, len) || td_may_wait(err);
    if (is_for_descriptor(blob, off, len))
        return read_fully(mapping_of(blob)->fd, off, out, len, err);
    return td_fault_guard_copy(out, blob->bytes + off, len) || refuse_shrunk(err);
}

static bool mapping_gather(struct td_blob *blob, uint64_t off, uint64_t len, uint64_t count, uint64_t stride, void *out,
                           struct td_error *err)
{
    enum { AT_ONCE_RUNS = 64 };
    uint8_t *to = out;
    if (count > AT_ONCE_RUNS && td_waiting_is_forbidden())
        return td_may_wait(err);
    if (len < LONG_BYTES && !td_waiting_is_forbidden())
        return td_fault_guard_gather(out, blob->bytes + off, (size_t)len, (size_t)count, (size_t)stride) ||
               refuse_shrunk(err);
    for (uint64_t i = 0; i < count; i++, to += len)
        if (!mapping_read(blob, off + i * stride, to, (size_t)len, err))
            return false;
    return true;
}

/* Lets leases count as held until td_lease_break_ns() / 2 after since_ns, when the last look at all leases began. After
 * that the kernel may have ended leases without a sign, while the process was stopped (SIGSTOP, a frozen container). */
static void trust_leases(struct td_mapping_cache *cache, uint64_t since_ns)
{
    atomic_store_explicit(&cache->trusted_ns, since_ns + td_lease_break_ns() / 2, memory_order_relaxed);
}

/* Returns whether nobody has written to the file since its identity was checked, although its ctime has changed. Under
 * a lease that still holds, nobody could open the file for writing. A watch does not hear of writes by Linux AIO
 * (io_submit) and by shared mappings, so it counts only while nobody is known to have the file open for writing. */
static bool is_unwritten(struct td_mapping *mapping)
{
    struct td_mapping_cache *cache = mapping->cache;
    if (mapping->immutable)
        return true;
    if (mapping->leased)
        return fcntl(mapping->fd, F_GETLEASE) == F_RDLCK;
    return td_write_watch_is_quiet(&cache->watcher, &mapping->watch) &&
           (cache->lease_signal == 0 || td_find_writers(mapping->fd, cache->lease_signal) != TD_WRITERS_SOME);
}

/* Returns whether the names of a held file were removed since it was opened. */
static bool has_lost_links(const struct td_mapping *mapping, const struct stat *st)
{
    return st->st_nlink < atomic_load_explicit(&mapping->links, memory_order_relaxed);
}

/* Compares the times before it asks the watch. A write that is under way has changed the mtime, but the watch has not
 * heard of it yet; by the time the mtime can be set back, the watch has. */
static bool mapping_unchanged(struct td_blob *blob)
{
    struct stat st;
    struct td_mapping *mapping = mapping_of(blob);
    if (fstat(mapping->fd, &st) != 0)
        return false;
    struct td_file_id now = td_file_id_of(&st);
    if (now.size_bytes != mapping->id.size_bytes || now.mtime_ns != mapping->id.mtime_ns)
        return false;
    return now.ctime_ns == mapping->id.ctime_ns || has_lost_links(mapping, &st) || is_unwritten(mapping);
}

static bool mapping_pinned(struct td_blob *blob)
{
    const struct td_mapping *mapping = mapping_of(blob);
    return mapping->immutable ||
           (mapping->leased && !atomic_load(&mapping->broken) &&
            coarse_clock_ns() < atomic_load_explicit(&mapping->cache->trusted_ns, memory_order_relaxed));
}

static bool mapping_fixed(const struct td_blob *blob)
{
    return ((const struct td_mapping *)(const void *)blob)->immutable;
}

static int mapping_descriptor(const struct td_blob *blob)
{
    return ((const struct td_mapping *)(const void *)blob)->fd;
}

static void mapping_prefetch(struct td_blob *blob, uint64_t off, uint64_t len)
{
    void *start = page_range(blob, off, &len);
    if (madvise(start, (size_t)len, MADV_POPULATE_READ) != 0 && errno == EINVAL) /* before Linux 5.14 */
        (void)madvise(start, (size_t)len, MADV_WILLNEED);
}

static const struct td_blob_class mapping_class = {.destroy = mapping_destroy,
                                                   .read = mapping_read,
                                                   .gather = mapping_gather,
                                                   .unchanged = mapping_unchanged,
                                                   .pinned = mapping_pinned,
                                                   .fixed = mapping_fixed,
                                                   .resident = mapping_resident,
                                                   .prefetch = mapping_prefetch,
                                                   .descriptor = mapping_descriptor};

/* Sets the error for a file that has changed. Returns false. */
static bool refuse_changed(const char *path, struct td_error *err)
{
    return td_error_set(err, TD_UNAVAILABLE, "\"%s\" changed since it was indexed; it is being read again", path);
}

/* Returns whether mincore(2) hides residence from this user, and reports every page as in memory: only the owner, and
 * users who may write to the file, get the truth. This check may wait for the file system, so call it when the mapping
 * is made. */
static bool hides_residence(int fd)
{
    char path[40];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return fstat(fd, &st) != 0 || (st.st_uid != geteuid() && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0);
}

/* Reaps the retired mappings if there are many. */
static void limit_retired(struct td_mapping_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    bool are_many = cache->retired_count >= MOST_RETIRED;
    pthread_mutex_unlock(&cache->lock);
    if (are_many)
        td_mapping_cache_reap(cache);
}

/* Opens the file at the source's path and checks that it is the one that was scanned. */
static bool open_by_path(const struct td_root *root, const struct td_file_source *source, int *fd, struct td_error *err)
{
    struct td_file_id id;
    struct td_error why = TD_ERROR_INIT;
    if (!td_root_open_file(root, source->path, fd, &id, &why)) {
        bool no_right = why.code == TD_PERMISSION_DENIED && (why.sys == EACCES || why.sys == EPERM);
        if (why.code == TD_RESOURCE_EXHAUSTED || why.code == TD_IO || no_right)
            return td_error_set(err, why.code, "%s", why.message);
        return refuse_changed(source->path, err);
    }
    if (td_file_id_equal(&id, &source->id))
        return true;
    (void)close(*fd);
    return refuse_changed(source->path, err);
}

/* Returns whether the open file is the one with this identity: all is equal, or the ctime alone differs, and the file
 * has fewer than `links` names. */
static bool is_file(int fd, const struct td_file_id *id, uint64_t links)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return false;
    struct td_file_id now = td_file_id_of(&st);
    if (st.st_nlink < links)
        now.ctime_ns = id->ctime_ns;
    return td_file_id_equal(&now, id);
}

/* Opens a held file again: a descriptor of its own, since a lease is one of all copies of a descriptor. Sets *links.
 * Returns false when the source is not held, or there is no /proc. */
static bool open_held(struct td_mapping_cache *cache, const struct td_file_source *source, int *fd, uint64_t *links)
{
    char path[40];
    pthread_mutex_lock(&cache->lock);
    int copy = source->holders > 0 ? fcntl(source->held_fd, F_DUPFD_CLOEXEC, 0) : -1;
    *links = source->holders > 0 ? source->links : 0;
    pthread_mutex_unlock(&cache->lock);
    if (copy < 0)
        return false;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", copy);
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    (void)close(copy);
    return *fd >= 0;
}

/* Opens the source's file, which has `links` names at most when it is held; else *links is 0. */
static bool open_source(struct td_mapping_cache *cache, const struct td_root *root, const struct td_file_source *source,
                        int *fd, uint64_t *links, struct td_error *err)
{
    if (!open_held(cache, source, fd, links)) {
        *links = 0;
        return open_by_path(root, source, fd, err);
    }
    if (is_file(*fd, &source->id, *links))
        return true;
    (void)close(*fd);
    return refuse_changed(source->path, err);
}

/* Opens, checks and maps the file, then takes the lease or the watch and checks the file again. */
static bool mapping_create(struct td_mapping_cache *cache, const struct td_root *root,
                           const struct td_file_source *source, struct td_mapping **out, struct td_error *err)
{
    int fd;
    uint64_t links;
    const struct td_file_id id = source->id;
    if (!td_may_wait(err))
        return false;
    limit_retired(cache);
    if (!open_source(cache, root, source, &fd, &links, err))
        return false;
    struct td_mapping *mapping = NULL;
    mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL) {
        (void)td_error_no_memory(err);
        goto fail;
    }
    void *bytes = NULL;
    if (id.size_bytes > SIZE_MAX / 2) {
        (void)td_error_set(err, TD_RESOURCE_EXHAUSTED, "\"%s\" is too large to map", source->path);
        goto fail;
    }
    if (id.size_bytes > 0) {
        bytes = mmap(NULL, (size_t)id.size_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (bytes == MAP_FAILED) {
            (void)td_error_sys(err, TD_RESOURCE_EXHAUSTED, errno, "cannot map \"%s\"", source->path);
            goto fail;
        }
    }
    td_blob_init(&mapping->blob, &mapping_class, id.size_bytes);
    mapping->blob.bytes = bytes;
    mapping->fd = fd;
    mapping->id = id;
    mapping->cache = cache;
    atomic_init(&mapping->links, links);
    atomic_init(&mapping->looked_ns, coarse_clock_ns());
    mapping->is_local = td_sees_every_writer(fd);
    mapping->hides_residence = hides_residence(fd);
    mapping->immutable = cache->files_are_immutable || td_is_immutable(fd);
    if (!mapping->immutable)
        lease_take(mapping);
    bool guarded = mapping->immutable || mapping->leased || td_write_watch_begin(&cache->watcher, &mapping->watch, fd);
    /* A write between the first look and the lease or the watch would be missed: look again. */
    if (guarded && !is_file(fd, &id, links)) {
        td_blob_unref(&mapping->blob); /* not free: td_mapping_cache_break_leases may have a reference */
        return refuse_changed(source->path, err);
    }
    *out = mapping;
    return true;
fail:
    free(mapping);
    (void)close(fd);
    return false;
}

bool td_mapping_cache_init(struct td_mapping_cache *cache, size_t capacity, int lease_signal, bool files_are_immutable,
                           struct td_error *err)
{
    memset(cache, 0, sizeof *cache);
    cache->lease_signal = lease_signal;
    cache->files_are_immutable = files_are_immutable;
    cache->capacity = capacity < 1 ? 1 : capacity;
    trust_leases(cache, coarse_clock_ns());
    if (!td_write_watcher_init(&cache->watcher, err))
        return false;
    int sys = pthread_mutex_init(&cache->lock, NULL);
    if (sys == 0)
        return true;
    td_write_watcher_fini(&cache->watcher);
    return td_error_sys(err, TD_INTERNAL, sys, "cannot create a lock");
}

static void lru_unlink(struct td_mapping_cache *cache, struct td_file_source *source)
{
    *(source->newer != NULL ? &source->newer->older : &cache->newest) = source->older;
    *(source->older != NULL ? &source->older->newer : &cache->oldest) = source->newer;
    source->newer = source->older = NULL;
}

static void lru_push(struct td_mapping_cache *cache, struct td_file_source *source)
{
    source->newer = NULL;
    source->older = cache->newest;
    *(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = source;
    cache->newest = source;
}

/* Removes the source's mapping from the cache. Returns it, for the caller to unref without the lock, or NULL. */
static struct td_mapping *cache_remove(struct td_mapping_cache *cache, struct td_file_source *source)
{
    struct td_mapping *mapping = source->mapping;
    if (mapping == NULL)
        return NULL;
    lru_unlink(cache, source);
    source->mapping = NULL;
    cache->count--;
    return mapping;
}

/* Takes a reference, unless the last one was dropped already. Returns whether it did. */
static bool blob_ref_if_alive(struct td_blob *blob)
{
    int refs = atomic_load(&blob->refs);
    while (refs > 0)
        if (atomic_compare_exchange_weak(&blob->refs, &refs, refs + 1))
            return true;
    return false;
}

static void mapping_unref(struct td_mapping *mapping)
{
    if (mapping != NULL)
        td_blob_unref(&mapping->blob);
}

void td_mapping_cache_fini(struct td_mapping_cache *cache)
{
    while (cache->newest != NULL)
        mapping_unref(cache_remove(cache, cache->newest));
    td_mapping_cache_reap(cache);
    td_write_watcher_fini(&cache->watcher);
    (void)pthread_mutex_destroy(&cache->lock);
}

struct td_mapping_counts td_mapping_cache_count(struct td_mapping_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    struct td_mapping_counts counts = {.mapped = cache->count, .leased = cache->leased_count};
    pthread_mutex_unlock(&cache->lock);
    counts.watched = td_write_watcher_count(&cache->watcher);
    return counts;
}

/* Removes the mapping from the cache, if a source has it. */
static void cache_drop_mapping(struct td_mapping_cache *cache, const struct td_mapping *mapping)
{
    struct td_mapping *dropped = NULL;
    pthread_mutex_lock(&cache->lock);
    for (struct td_file_source *source = cache->newest; source != NULL && dropped == NULL; source = source->older)
        if (source->mapping == mapping)
            dropped = cache_remove(cache, source);
    pthread_mutex_unlock(&cache->lock);
    mapping_unref(dropped);
}

/* Takes references to at most `capacity` mappings whose leases are being broken, and that this visit has not seen.
 * Returns their number. */
static size_t collect_broken(struct td_mapping_cache *cache, uint64_t visit, struct td_mapping **out, size_t capacity)
{
    size_t count = 0;
    uint64_t now_ns = td_clock_ns();
    pthread_mutex_lock(&cache->lock);
    for (struct td_mapping *mapping = cache->leased; mapping != NULL && count < capacity;
         mapping = mapping->next_leased) {
        if (mapping->ended || mapping->visit == visit)
            continue;
        /* While a break is pending, F_GETLEASE returns what the lease must become. */
        if (!atomic_load(&mapping->broken) && fcntl(mapping->fd, F_GETLEASE) == F_RDLCK)
            continue;
        if (!blob_ref_if_alive(&mapping->blob))
            continue; /* being destroyed, which ends its lease */
        mapping->visit = visit;
        if (mapping->broken_ns == 0)
            mapping->broken_ns = now_ns;
        out[count++] = mapping;
    }
    pthread_mutex_unlock(&cache->lock);
    return count;
}

bool td_mapping_cache_break_leases(struct td_mapping_cache *cache, td_lease_cut *cut, void *context)
{
    enum { BATCH = 64 };
    struct td_mapping *broken[BATCH];
    bool all_ended = true;
    size_t count;
    uint64_t since_ns = coarse_clock_ns();
    uint64_t visit = ++cache->visits;
    do {
        count = collect_broken(cache, visit, broken, BATCH);
        for (size_t i = 0; i < count; i++) {
            bool is_first = !atomic_exchange(&broken[i]->broken, true);
            if (is_first)
                cache_drop_mapping(cache, broken[i]);
            broken[i]->ended = cut(context, &broken[i]->blob, is_first, broken[i]->broken_ns);
            if (broken[i]->ended)
                (void)fcntl(broken[i]->fd, F_SETLEASE, F_UNLCK);
            all_ended = all_ended && broken[i]->ended;
            mapping_unref(broken[i]);
        }
    } while (count == BATCH);
    trust_leases(cache, since_ns); /* the process may have been stopped after the looks */
    return all_ended;
}

/* Evicts the least recently used mapping, and reaps the retired mappings. Returns false when there was nothing to evict
 * or reap. */
static bool evict_oldest(struct td_mapping_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    bool some_retired = cache->retired != NULL;
    struct td_mapping *evicted = cache->oldest == NULL ? NULL : cache_remove(cache, cache->oldest);
    pthread_mutex_unlock(&cache->lock);
    mapping_unref(evicted);
    td_mapping_cache_reap(cache);
    return evicted != NULL || some_retired;
}

/* Returns the source's mapping with a reference for the caller, or NULL. Marks it as used last. */
static struct td_mapping *cache_find(struct td_mapping_cache *cache, struct td_file_source *source)
{
    pthread_mutex_lock(&cache->lock);
    struct td_mapping *mapping = source->mapping;
    if (mapping != NULL) {
        (void)td_blob_ref(&mapping->blob);
        if (cache->newest != source) {
            lru_unlink(cache, source);
            lru_push(cache, source);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return mapping;
}

/* Enters a new mapping in the cache, unless another thread was first. Returns the mapping to use, with a reference for
 * the caller, and takes over the caller's reference to `fresh`. */
static struct td_mapping *cache_insert(struct td_mapping_cache *cache, struct td_file_source *source,
                                       struct td_mapping *fresh)
{
    struct td_mapping *surplus = NULL;
    struct td_mapping *evicted = NULL;
    pthread_mutex_lock(&cache->lock);
    if (source->mapping != NULL) {
        surplus = fresh;
        fresh = source->mapping;
        (void)td_blob_ref(&fresh->blob);
    } else if (!atomic_load(&fresh->broken)) { /* a writer waits: end the lease with this use */
        if (cache->count >= cache->capacity)
            evicted = cache_remove(cache, cache->oldest);
        source->mapping = fresh;
        lru_push(cache, source);
        cache->count++;
        (void)td_blob_ref(&fresh->blob);
    }
    pthread_mutex_unlock(&cache->lock);
    mapping_unref(surplus);
    mapping_unref(evicted);
    return fresh;
}

/* Returns whether the file must be looked at before the mapping is used again: while nobody can write, the file is
 * looked at every LOOK_NS only, to notice that it was unlinked or renamed over. */
static bool is_look_due(struct td_mapping *mapping)
{
    return !mapping_pinned(&mapping->blob) ||
           coarse_clock_ns() - atomic_load_explicit(&mapping->looked_ns, memory_order_relaxed) >= LOOK_NS;
}

/* Returns whether the mapping is that of the file with this identity, as far as is known. */
static bool is_current(struct td_mapping *mapping, const struct td_file_id *id, bool look)
{
    if (!look)
        return td_file_id_equal(&mapping->id, id);
    atomic_store_explicit(&mapping->looked_ns, coarse_clock_ns(), memory_order_relaxed);
    return is_file(mapping->fd, id, atomic_load_explicit(&mapping->links, memory_order_relaxed));
}

bool td_file_source_map(struct td_mapping_cache *cache, const struct td_root *root, struct td_file_source *source,
                        struct td_blob **out, struct td_error *err)
{
    if (source->incoming != NULL) {
        *out = td_blob_ref(source->incoming);
        return true;
    }
    struct td_mapping *mapping = cache_find(cache, source);
    if (mapping == NULL) {
        struct td_mapping *fresh = NULL;
        struct td_error why = TD_ERROR_INIT;
        /* Out of mappings or descriptors: drop the oldest and try once more, as journald does. */
        if (!mapping_create(cache, root, source, &fresh, &why)) {
            bool retry = why.code == TD_RESOURCE_EXHAUSTED && evict_oldest(cache);
            if (!retry || !mapping_create(cache, root, source, &fresh, err))
                return retry ? false : td_error_set(err, why.code, "%s", why.message);
        }
        *out = &cache_insert(cache, source, fresh)->blob;
        return true;
    }
    bool look = is_look_due(mapping);
    if (look && !mapping->is_local && !td_may_wait(err)) { /* NFS and FUSE answer when they like */
        mapping_unref(mapping);
        return false;
    }
    if (!is_current(mapping, &source->id, look)) {
        mapping_unref(mapping);
        td_file_source_forget(cache, source);
        return refuse_changed(source->path, err);
    }
    *out = &mapping->blob;
    return true;
}

void td_file_source_forget(struct td_mapping_cache *cache, struct td_file_source *source)
{
    pthread_mutex_lock(&cache->lock);
    struct td_mapping *mapping = cache_remove(cache, source);
    pthread_mutex_unlock(&cache->lock);
    mapping_unref(mapping);
}

bool td_file_source_hold(struct td_mapping_cache *cache, const struct td_root *root, struct td_file_source *source,
                         struct td_error *err)
{
    int fd;
    struct stat st;
    pthread_mutex_lock(&cache->lock);
    bool is_held = source->holders > 0;
    source->holders += is_held ? 1 : 0;
    pthread_mutex_unlock(&cache->lock);
    if (is_held)
        return true;
    if (!td_may_wait(err) || !open_by_path(root, source, &fd, err))
        return false;
    if (fstat(fd, &st) != 0) {
        (void)close(fd);
        return refuse_changed(source->path, err);
    }
    pthread_mutex_lock(&cache->lock);
    bool is_first = source->holders++ == 0; /* another thread may have been quicker */
    if (is_first) {
        source->held_fd = fd;
        source->links = st.st_nlink;
    }
    if (source->mapping != NULL)
        atomic_store_explicit(&source->mapping->links, source->links, memory_order_relaxed);
    pthread_mutex_unlock(&cache->lock);
    if (!is_first)
        (void)close(fd);
    return true;
}

void td_file_source_release(struct td_mapping_cache *cache, struct td_file_source *source)
{
    pthread_mutex_lock(&cache->lock);
    bool is_last = --source->holders == 0;
    int fd = source->held_fd;
    if (is_last && source->mapping != NULL)
        atomic_store_explicit(&source->mapping->links, 0, memory_order_relaxed);
    pthread_mutex_unlock(&cache->lock);
    if (is_last)
        (void)close(fd);
}

static bool descriptor_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    return read_fully(*(const int *)context, off, out, len, err);
}

struct td_input td_input_descriptor(const int *fd, uint64_t size_bytes)
{
    return (struct td_input){.size_bytes = size_bytes, .read = descriptor_read, .context = fd};
}
