#include "storage/write_watch.h"

#include "storage/file_system.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

/* One event per watch is enough (IN_ONESHOT): the kernel then drops the watch, so a busy writer cannot flood the
 * queue. */
static const uint32_t WRITES = IN_MODIFY | IN_CLOSE_WRITE | IN_ONESHOT;

bool td_write_watcher_init(struct td_write_watcher *watcher, struct td_error *err)
{
    memset(watcher, 0, sizeof *watcher);
    int sys = pthread_mutex_init(&watcher->lock, NULL);
    if (sys != 0)
        return td_error_sys(err, TD_INTERNAL, sys, "cannot create a lock");
    watcher->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    return true;
}

void td_write_watcher_fini(struct td_write_watcher *watcher)
{
    if (watcher->fd >= 0)
        (void)close(watcher->fd);
    (void)pthread_mutex_destroy(&watcher->lock);
}

size_t td_write_watcher_count(struct td_write_watcher *watcher)
{
    pthread_mutex_lock(&watcher->lock);
    size_t count = watcher->count;
    pthread_mutex_unlock(&watcher->lock);
    return count;
}

static struct td_write_watch **bucket_of(struct td_write_watcher *watcher, int number)
{
    return &watcher->buckets[(unsigned)number % TD_WATCH_BUCKETS];
}

/* Marks all watches of this number as written. The kernel has ended its watch. */
static void mark_written(struct td_write_watcher *watcher, int number)
{
    struct td_write_watch **at = bucket_of(watcher, number);
    while (*at != NULL) {
        struct td_write_watch *watch = *at;
        if (watch->number == number) {
            watch->written = true;
            *at = watch->next;
            watcher->count--;
        } else {
            at = &watch->next;
        }
    }
}

/* Marks all watches as written: the queue overflowed or failed, so a write to any file may have been missed. */
static void mark_all_written(struct td_write_watcher *watcher)
{
    for (size_t i = 0; i < TD_WATCH_BUCKETS; i++) {
        for (struct td_write_watch *watch = watcher->buckets[i]; watch != NULL; watch = watch->next) {
            watch->written = true;
            watcher->count--;
            (void)inotify_rm_watch(watcher->fd, watch->number);
        }
        watcher->buckets[i] = NULL;
    }
}

/* Reads and handles the events that the kernel has queued. */
static void read_events(struct td_write_watcher *watcher)
{
    char events[4096];
    ssize_t n;
    while ((n = read(watcher->fd, events, sizeof events)) > 0 || (n < 0 && errno == EINTR)) {
        struct inotify_event event;
        for (size_t at = 0; n > 0 && at < (size_t)n; at += sizeof event + event.len) {
            memcpy(&event, events + at, sizeof event);
            if ((event.mask & IN_Q_OVERFLOW) != 0)
                mark_all_written(watcher);
            else /* for IN_IGNORED and IN_UNMOUNT, too: nothing more will be heard */
                mark_written(watcher, event.wd);
        }
    }
    if (n < 0 && errno != EAGAIN)
        mark_all_written(watcher);
}

bool td_write_watch_begin(struct td_write_watcher *watcher, struct td_write_watch *watch, int fd)
{
    char path[32]; /* leads to the open file, even if its name leads elsewhere */
    if (watcher->fd < 0 || !td_sees_every_writer(fd))
        return false;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    pthread_mutex_lock(&watcher->lock);
    read_events(watcher); /* events from before do not count for this watch */
    int number = inotify_add_watch(watcher->fd, path, WRITES);
    if (number >= 0) {
        struct td_write_watch **bucket = bucket_of(watcher, number);
        *watch = (struct td_write_watch){.number = number, .on = true, .next = *bucket};
        *bucket = watch;
        watcher->count++;
    }
    pthread_mutex_unlock(&watcher->lock);
    return number >= 0;
}

/* Removes the watch from its bucket. Returns whether no other watch has its number. */
static bool remove_watch(struct td_write_watcher *watcher, const struct td_write_watch *watch)
{
    bool last = true;
    struct td_write_watch **at = bucket_of(watcher, watch->number);
    while (*at != NULL) {
        if (*at == watch) {
            *at = watch->next;
            watcher->count--;
        } else {
            last = last && (*at)->number != watch->number;
            at = &(*at)->next;
        }
    }
    return last;
}

void td_write_watch_end(struct td_write_watcher *watcher, struct td_write_watch *watch)
{
    if (!watch->on)
        return;
    pthread_mutex_lock(&watcher->lock);
    if (!watch->written && remove_watch(watcher, watch))
        (void)inotify_rm_watch(watcher->fd, watch->number);
    pthread_mutex_unlock(&watcher->lock);
    watch->on = false;
}

bool td_write_watch_is_quiet(struct td_write_watcher *watcher, struct td_write_watch *watch)
{
    if (!watch->on)
        return false;
    pthread_mutex_lock(&watcher->lock);
    read_events(watcher);
    bool quiet = !watch->written;
    pthread_mutex_unlock(&watcher->lock);
    return quiet;
}
