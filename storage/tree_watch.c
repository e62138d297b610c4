/* Plan: the kernel has one watch per directory inode. `records` has a record of each, sorted by the kernel's number,
 * which increases, so adding is appending. Events are read and handled under the lock, so a thread that has read all of
 * them (hear_events) knows all that happened before. For a new directory the thread sets a watch at once, and for those
 * in it, since the scan that follows may come too late for a rename into it.
 *
 * What is hard: (1) paths are out of date when a directory has moved and no walk has come by since. They are used only
 * to find new directories to watch: a wrong one costs a watch until the next walk. Arrivals are known by the
 * directory's inode. (2) The walk asks for arrivals after it took an item's stat, and all events are read before it is
 * answered. So a write between the rename and the stat is known. */
#include "storage/tree_watch.h"

#include "core/array.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/log.h"
#include "storage/arrivals.h"
#include "storage/file_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <unistd.h>

static const uint32_t NAMES = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF;
static const uint32_t WRITES = IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB;

enum {
    PENDING_MAX = 256, /* new directories that the thread watches for one reading of events; walks watch the rest */
    READS_MAX = 64,    /* of events while the lock is held */
    WRITES_NAP_MS = 5, /* between readings while files are being written: the kernel joins equal events */
    BORN_MAX_S = 10,   /* a directory that is older is not new */
};

struct record {
    int number; /* the kernel's */
    bool local; /* td_sees_every_writer */
    uint64_t device, inode;
    char *path;                       /* below the root, where a walk or the thread found it; owned; NULL: gone */
    uint64_t kept_walk, visited_walk; /* numbers of walks: kept by the end of the one, visited by the other */
    int64_t born_until_ns, born_ns;   /* as in td_watched */
};

struct td_tree_watch {
    struct td_tree_watch_config config;
    int fd;   /* of inotify; -1: the kernel gave none */
    int stop; /* an eventfd that ends the thread */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    /* under the lock */
    struct td_root *root; /* of the last walk; NULL before */
    struct record *records;
    size_t count, capacity;
    size_t gone; /* records whose directories are gone, without a path: taken out when there are many */
    struct td_arrivals arrivals;
    char **pending; /* paths of new directories that the reader of their events will watch */
    size_t pending_count, pending_capacity;
    uint64_t walk;    /* number of the walk that runs or ran last */
    size_t unwatched; /* directories of this walk */
    int failed_sys;   /* errno of the last directory that could not be watched */
    bool has_logged;  /* that some are unwatched; until none is */
    /* read by others without the lock, which is held while a file system answers */
    _Atomic size_t watched_count, unwatched_count;
    _Atomic uint64_t events, overflows;
};

static int64_t wall_ns(void)
{
    struct td_wall wall = td_wall_now();
    return wall.seconds * TD_NS_PER_S + wall.nanoseconds;
}

/* ---- records; all under the lock ----------------------------------------------------------------------- */

/* Returns the place of the first record whose number is not below this one. */
static size_t place_of(const struct td_tree_watch *watch, int number)
{
    size_t low = 0;
    size_t high = watch->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (watch->records[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct record *find_record(struct td_tree_watch *watch, int number)
{
    size_t at = place_of(watch, number);
    bool found = at < watch->count && watch->records[at].number == number && watch->records[at].path != NULL;
    return found ? &watch->records[at] : NULL;
}

/* Returns a new record, all zeros but for its number and path, or NULL without memory. */
static struct record *add_record(struct td_tree_watch *watch, int number, const char *path)
{
    char *copy = strdup(path);
    if (copy == NULL || !TD_ARRAY_GROW(watch->records, watch->count, watch->capacity, NULL)) {
        free(copy);
        return NULL;
    }
    size_t at = place_of(watch, number); /* at the end, but for a number that the kernel gives again */
    memmove(&watch->records[at + 1], &watch->records[at], (watch->count - at) * sizeof *watch->records);
    watch->count++;
    watch->records[at] = (struct record){.number = number, .path = copy};
    return &watch->records[at];
}

/* Removes a record. The others may move, but only once for many that are removed. */
static void remove_record(struct td_tree_watch *watch, struct record *record)
{
    free(record->path);
    record->path = NULL;
    watch->gone++;
    if (watch->gone <= watch->count / 2)
        return;
    size_t kept = 0;
    for (size_t i = 0; i < watch->count; i++)
        if (watch->records[i].path != NULL)
            watch->records[kept++] = watch->records[i];
    watch->count = kept;
    watch->gone = 0;
}

static void set_path(struct record *record, const char *path)
{
    char *copy = strcmp(record->path, path) == 0 ? NULL : strdup(path);
    if (copy == NULL)
        return;
    free(record->path);
    record->path = copy;
}

/* Sets *ns to the time at which the file was created. Returns false when the file system does not record it. */
static bool birth_of(int fd, const char *name, struct statx *st, int64_t *ns)
{
    int flags = AT_SYMLINK_NOFOLLOW | (name[0] == '\0' ? AT_EMPTY_PATH : 0);
    if (statx(fd, name, flags, STATX_INO | STATX_NLINK | STATX_BTIME, st) != 0 || (st->stx_mask & STATX_BTIME) == 0)
        return false;
    return !__builtin_mul_overflow((int64_t)st->stx_btime.tv_sec, TD_NS_PER_S, ns) &&
           !__builtin_add_overflow(*ns, (int64_t)st->stx_btime.tv_nsec, ns);
}

/* Marks the record of a directory whose watch has just begun as new, if the directory was made just before. */
static void note_birth(struct record *record, int fd)
{
    struct statx st;
    int64_t born_ns;
    int64_t now_ns = wall_ns();
    if (!record->local || !birth_of(fd, "", &st, &born_ns) || now_ns - born_ns > BORN_MAX_S * TD_NS_PER_S)
        return;
    record->born_until_ns = now_ns;
    record->born_ns = born_ns;
}

/* Sets a watch on the open directory, or leaves it if there is one. Returns its record, and sets *is_new; returns NULL,
 * with errno, when the directory cannot be watched. is_born: the directory that holds it was watched before. */
static struct record *watch_directory(struct td_tree_watch *watch, const char *path, int fd, const struct stat *st,
                                      bool is_born, bool *is_new)
{
    char link[32]; /* leads to the open directory, even if its path leads elsewhere by now */
    errno = ENOSYS;
    if (watch->fd < 0)
        return NULL;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int number = inotify_add_watch(watch->fd, link, NAMES | WRITES | IN_ONLYDIR | IN_EXCL_UNLINK);
    if (number < 0)
        return NULL;
    struct record *record = find_record(watch, number);
    *is_new = record == NULL;
    if (record == NULL) {
        record = add_record(watch, number, path);
        if (record == NULL) {
            (void)inotify_rm_watch(watch->fd, number);
            errno = ENOMEM;
            return NULL;
        }
        record->device = st->st_dev;
        record->inode = st->st_ino;
        record->local = td_sees_every_writer(fd);
        if (is_born)
            note_birth(record, fd);
    }
    set_path(record, path);
    record->kept_walk = watch->walk;
    return record;
}

/* ---- events -------------------------------------------------------------------------------------------- */

/* The kinds of changes that events have reported. */
struct heard {
    bool names, writes;
};

/* Adds the directory to those to be watched. Without memory or beyond the limit, the next walk watches it. Under the
 * lock. */
static void add_pending(struct td_tree_watch *watch, const struct record *parent, const char *name)
{
    size_t bytes = strlen(parent->path) + strlen(name) + 2;
    if (watch->pending_count >= PENDING_MAX || bytes > PATH_MAX ||
        !TD_ARRAY_GROW(watch->pending, watch->pending_count, watch->pending_capacity, NULL))
        return;
    char *path = malloc(bytes);
    if (path == NULL)
        return;
    (void)snprintf(path, bytes, "%s%s%s", parent->path, parent->path[0] == '\0' ? "" : "/", name);
    watch->pending[watch->pending_count++] = path;
}

/* Handles that the kernel lost events: any file may have been written to since it arrived. Under the lock. */
static void lose_events(struct td_tree_watch *watch, struct heard *heard)
{
    watch->overflows++;
    td_arrivals_forget(&watch->arrivals, UINT64_MAX);
    for (size_t i = 0; i < watch->count; i++)
        watch->records[i].born_until_ns = 0;
    heard->names = true;
}

/* Under the lock. */
static void handle_event(struct td_tree_watch *watch, const struct inotify_event *event, const char *name,
                         struct heard *heard)
{
    struct record *record = find_record(watch, event->wd);
    if ((event->mask & IN_Q_OVERFLOW) != 0) {
        lose_events(watch, heard);
        return;
    }
    watch->events++;
    if (record == NULL)
        return; /* of a watch that has ended */
    if ((event->mask & IN_IGNORED) != 0) {
        remove_record(watch, record);
        heard->names = true;
        return;
    }
    if (name[0] != '\0' && watch->config.ignores(name))
        return;
    const struct td_arrival_key key = {.device = record->device, .inode = record->inode, .name = name};
    if ((event->mask & IN_MOVED_TO) != 0 && record->local)
        td_arrivals_add(&watch->arrivals, &key, wall_ns(), watch->walk);
    else if ((event->mask & (NAMES | IN_MODIFY)) != 0)
        td_arrivals_remove(&watch->arrivals, &key);
    if ((event->mask & IN_ISDIR) != 0 && (event->mask & (IN_CREATE | IN_MOVED_TO)) != 0)
        add_pending(watch, record, name);
    heard->names = heard->names || (event->mask & (NAMES | IN_UNMOUNT)) != 0;
    heard->writes = heard->writes || (event->mask & WRITES) != 0;
}

/* Reads and handles the events that the kernel has queued. Under the lock. */
static void read_events(struct td_tree_watch *watch, struct heard *heard)
{
    char events[16384];
    ssize_t n = 0;
    for (int reads = 0; reads < READS_MAX; reads++) {
        n = read(watch->fd, events, sizeof events);
        struct inotify_event event;
        for (size_t at = 0; n > 0 && at < (size_t)n; at += sizeof event + event.len) {
            memcpy(&event, events + at, sizeof event);
            handle_event(watch, &event, event.len > 0 ? events + at + sizeof event : "",
                         heard); /* the name has a NUL */
        }
        if (n < 0 && errno != EINTR)
            break;
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        lose_events(watch, heard);
}

/* Adds the directories in a directory to those to be watched. Takes over fd. */
static void add_subdirectories(struct td_tree_watch *watch, int number, int fd)
{
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        (void)close(fd);
        return;
    }
    struct stat st;
    const struct dirent *item;
    while ((item = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): each DIR is used by one thread
        if (watch->config.ignores(item->d_name) || (item->d_type != DT_DIR && item->d_type != DT_UNKNOWN) ||
            fstatat(fd, item->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
            continue;
        pthread_mutex_lock(&watch->lock);
        const struct record *record = find_record(watch, number);
        if (record != NULL)
            add_pending(watch, record, item->d_name);
        pthread_mutex_unlock(&watch->lock);
    }
    (void)closedir(dir);
}

/* Sets a watch on a directory that has just appeared. */
static void watch_new(struct td_tree_watch *watch, const struct td_root *root, const char *path)
{
    struct td_error ignored = TD_ERROR_INIT;
    struct stat st;
    int fd;
    if (!td_root_open_directory(root, path, &fd, &ignored))
        return; /* gone, or the next walk says why */
    bool is_new = false;
    const struct record *record = NULL;
    int number = 0;
    if (fstat(fd, &st) == 0) {
        pthread_mutex_lock(&watch->lock);
        record = watch_directory(watch, path, fd, &st, true, &is_new);
        number = record == NULL ? 0 : record->number;
        pthread_mutex_unlock(&watch->lock);
    }
    if (number > 0 && is_new)
        add_subdirectories(watch, number, fd);
    else
        (void)close(fd);
}

/* Watches the directories that events reported, and those in them, up to PENDING_MAX. */
static void watch_pending(struct td_tree_watch *watch)
{
    for (int done = 0; done < PENDING_MAX; done++) {
        pthread_mutex_lock(&watch->lock);
        char *path = watch->pending_count == 0 ? NULL : watch->pending[--watch->pending_count];
        struct td_root *root = path == NULL || watch->root == NULL ? NULL : td_root_ref(watch->root);
        pthread_mutex_unlock(&watch->lock);
        if (root != NULL)
            watch_new(watch, root, path);
        td_root_unref(root);
        if (path == NULL)
            return;
        free(path);
    }
}

/* Reads and handles all events. Returns whether there were writes and nothing else. */
static bool hear_events(struct td_tree_watch *watch)
{
    struct heard heard = {0};
    pthread_mutex_lock(&watch->lock);
    read_events(watch, &heard);
    pthread_mutex_unlock(&watch->lock);
    watch_pending(watch);
    if (heard.names)
        watch->config.on_change(watch->config.context, TD_TREE_NAMES);
    else if (heard.writes)
        watch->config.on_change(watch->config.context, TD_TREE_WRITES);
    return !heard.names && heard.writes;
}

static void *thread_main(void *argument)
{
    struct td_tree_watch *watch = argument;
    struct pollfd ends[] = {{.fd = watch->stop, .events = POLLIN}, {.fd = watch->fd, .events = POLLIN}};
    while (ends[0].revents == 0) {
        int ready = poll(ends, 2, -1);
        if (ready > 0 && ends[0].revents == 0 && hear_events(watch))
            (void)poll(ends, 1, WRITES_NAP_MS);
    }
    return NULL;
}

/* ---- walks --------------------------------------------------------------------------------------------- */

/* Logs once that directories are not watched, and what to do. Under the lock. */
static void log_unwatched(struct td_tree_watch *watch)
{
    enum { WATCHES_LEAST = 1048576 };
    size_t all = watch->count + watch->unwatched;
    bool is_news = watch->unwatched > 0 && watch->fd >= 0 && !watch->has_logged;
    char text[96];
    const char *reason = strerror_r(watch->failed_sys, text, sizeof text);
    watch->has_logged = watch->unwatched > 0;
    if (is_news && watch->failed_sys == ENOSPC)
        td_log(
            TD_LOG_WARN,
            "%zu of %zu directories are not watched, since the user's inotify watches are used up; changes there are "
            "found by scans alone (--rescan-interval). To watch all: sysctl fs.inotify.max_user_watches=%zu",
            watch->unwatched, all, all > WATCHES_LEAST / 2 ? 2 * all : (size_t)WATCHES_LEAST);
    else if (is_news)
        td_log(TD_LOG_WARN,
               "%zu of %zu directories are not watched (%s); changes there are found by scans alone "
               "(--rescan-interval)",
               watch->unwatched, all, reason);
}

bool td_tree_watch_create(const struct td_tree_watch_config *config, struct td_tree_watch **out, struct td_error *err)
{
    struct td_tree_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return td_error_no_memory(err);
    watch->config = *config;
    watch->stop = eventfd(0, EFD_CLOEXEC);
    int sys = watch->stop < 0 ? errno : pthread_mutex_init(&watch->lock, NULL);
    if (sys != 0) {
        if (watch->stop >= 0)
            (void)close(watch->stop);
        free(watch);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot watch directories");
    }
    if (getrandom(&watch->arrivals.key, sizeof watch->arrivals.key, GRND_NONBLOCK) < 0)
        watch->arrivals.key = td_clock_ns();
    watch->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    char text[96];
    const char *reason = strerror_r(errno, text, sizeof text);
    if (watch->fd < 0)
        td_log(TD_LOG_WARN,
               "directories are not watched, since the kernel gives no inotify instance (%s); changes are found by "
               "scans alone (--rescan-interval). To watch: sysctl fs.inotify.max_user_instances=1024, or raise the "
               "limit on open files; then restart",
               reason);
    sys = watch->fd < 0 ? 0 : pthread_create(&watch->thread, NULL, thread_main, watch);
    watch->has_thread = watch->fd >= 0 && sys == 0;
    if (sys != 0) {
        td_tree_watch_destroy(watch);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start the thread that watches directories");
    }
    *out = watch;
    return true;
}

void td_tree_watch_destroy(struct td_tree_watch *watch)
{
    if (watch == NULL)
        return;
    if (watch->has_thread) {
        (void)eventfd_write(watch->stop, 1);
        (void)pthread_join(watch->thread, NULL);
    }
    if (watch->fd >= 0)
        (void)close(watch->fd);
    (void)close(watch->stop);
    for (size_t i = 0; i < watch->count; i++)
        free(watch->records[i].path);
    free(watch->records);
    for (size_t i = 0; i < watch->pending_count; i++)
        free(watch->pending[i]);
    free(watch->pending);
    td_arrivals_forget(&watch->arrivals, UINT64_MAX);
    td_root_unref(watch->root);
    (void)pthread_mutex_destroy(&watch->lock);
    free(watch);
}

void td_tree_watch_begin(struct td_tree_watch *watch, struct td_root *root)
{
    if (watch == NULL)
        return;
    pthread_mutex_lock(&watch->lock);
    struct td_root *before = watch->root;
    watch->root = td_root_ref(root);
    watch->walk++;
    watch->unwatched = 0;
    pthread_mutex_unlock(&watch->lock);
    td_root_unref(before);
}

void td_tree_watch_visit(struct td_tree_watch *watch, const char *path, int fd, const struct stat *st,
                         const struct td_watched *parent, struct td_watched *out)
{
    bool is_born = parent != NULL && parent->is_known;
    bool is_new = false;
    *out = (struct td_watched){.device = st->st_dev, .inode = st->st_ino};
    if (watch == NULL)
        return;
    pthread_mutex_lock(&watch->lock);
    struct record *record = watch_directory(watch, path, fd, st, is_born, &is_new);
    if (record == NULL) {
        watch->unwatched++;
        watch->failed_sys = errno;
    } else {
        record->visited_walk = watch->walk;
        out->is_known = is_born || !is_new;
        out->born_until_ns = record->born_until_ns;
        out->born_ns = record->born_ns;
    }
    pthread_mutex_unlock(&watch->lock);
}

static bool find_arrival(struct td_tree_watch *watch, const struct td_arrival_key *key, int64_t *until_ns)
{
    pthread_mutex_lock(&watch->lock);
    bool found = td_arrivals_find(&watch->arrivals, key, until_ns);
    pthread_mutex_unlock(&watch->lock);
    return found;
}

/* Returns whether the item of a new directory is older than the directory. Only a rename brings such an item there: a
 * link would leave it with two names. */
static bool is_older(const struct td_watched *directory, int fd, const char *name, const struct stat *st)
{
    struct statx item;
    int64_t born_ns;
    return directory->born_until_ns != 0 && fd >= 0 && birth_of(fd, name, &item, &born_ns) &&
           item.stx_ino == st->st_ino && (S_ISDIR(st->st_mode) || item.stx_nlink == 1) && born_ns < directory->born_ns;
}

bool td_tree_watch_arrived(struct td_tree_watch *watch, const struct td_watched *directory, int fd, const char *name,
                           const struct stat *st, int64_t *until_ns)
{
    if (watch == NULL)
        return false;
    const struct td_arrival_key key = {.device = directory->device, .inode = directory->inode, .name = name};
    bool found = find_arrival(watch, &key, until_ns);
    if (found) {
        (void)hear_events(watch);
        found = find_arrival(watch, &key, until_ns);
    } else if (is_older(directory, fd, name, st)) {
        found = true;
        *until_ns = directory->born_until_ns;
    }
    int64_t changed_ns = td_file_id_of(st).ctime_ns; /* of a directory: of the rename, or later */
    if (found && S_ISDIR(st->st_mode) && changed_ns < *until_ns)
        *until_ns = changed_ns;
    return found && (S_ISDIR(st->st_mode) || changed_ns <= *until_ns);
}

void td_tree_watch_end(struct td_tree_watch *watch, bool complete)
{
    if (watch == NULL || !complete)
        return;
    pthread_mutex_lock(&watch->lock);
    size_t kept = 0;
    for (size_t i = 0; i < watch->count; i++) {
        struct record *record = &watch->records[i];
        if (record->path == NULL)
            continue;
        if (record->kept_walk != watch->walk) {
            (void)inotify_rm_watch(watch->fd, record->number);
            free(record->path);
            continue;
        }
        if (record->visited_walk == watch->walk)
            record->born_until_ns = 0;
        watch->records[kept++] = *record;
    }
    watch->count = kept;
    watch->gone = 0;
    td_arrivals_forget(&watch->arrivals, watch->walk);
    watch->watched_count = kept;
    watch->unwatched_count = watch->unwatched;
    log_unwatched(watch);
    pthread_mutex_unlock(&watch->lock);
}

struct td_tree_watch_counts td_tree_watch_get_counts(struct td_tree_watch *watch)
{
    if (watch == NULL)
        return (struct td_tree_watch_counts){0};
    return (struct td_tree_watch_counts){.watched = watch->watched_count,
                                         .unwatched = watch->unwatched_count,
                                         .events = watch->events,
                                         .overflows = watch->overflows};
}
