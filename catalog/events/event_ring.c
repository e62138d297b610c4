#include "catalog/events/event_ring.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct td_event_ring {
    char boot[TD_EVENT_BOOT_BYTES];
    size_t most;
    pthread_mutex_t lock;
    /* under the lock */
    uint64_t first, next; /* numbers of the oldest event that is kept, and of the next one; equal: none is kept */
    uint64_t counts[TD_EVENT_TYPES];
    struct td_event *events[]; /* event n is at n % most */
};

const char *td_event_type_name(enum td_event_type type)
{
    static const char *const names[TD_EVENT_TYPES] = {"published", "replaced", "removed"};
    return names[type];
}

struct td_event *td_event_create(enum td_event_type type, bool is_dataset, const char *id, const char *revision,
                                 const char *commit)
{
    size_t id_bytes = strlen(id) + 1;
    size_t revision_bytes = strlen(revision) + 1;
    size_t commit_bytes = strlen(commit) + 1;
    struct td_event *event = malloc(sizeof *event + id_bytes + revision_bytes + commit_bytes);
    if (event == NULL)
        return NULL;
    char *texts = (char *)(event + 1);
    memcpy(texts, id, id_bytes);
    memcpy(texts + id_bytes, revision, revision_bytes);
    memcpy(texts + id_bytes + revision_bytes, commit, commit_bytes);
    *event = (struct td_event){.refs = 1,
                               .time = td_wall_now(),
                               .type = type,
                               .is_dataset = is_dataset,
                               .id = texts,
                               .revision = texts + id_bytes,
                               .commit = texts + id_bytes + revision_bytes};
    return event;
}

void td_event_unref(struct td_event *event)
{
    if (event != NULL && atomic_fetch_sub(&event->refs, 1) == 1)
        free(event);
}

bool td_event_ring_create(size_t most, struct td_event_ring **out, struct td_error *err)
{
    uint64_t boot;
    if (getrandom(&boot, sizeof boot, 0) != (ssize_t)sizeof boot)
        return td_error_sys(err, TD_INTERNAL, errno, "cannot get random bytes from the system");
    struct td_event_ring *ring = calloc(1, sizeof *ring + most * sizeof *ring->events);
    if (ring == NULL || pthread_mutex_init(&ring->lock, NULL) != 0) {
        free(ring);
        return td_error_no_memory(err);
    }
    (void)snprintf(ring->boot, sizeof ring->boot, "%016" PRIx64, boot);
    ring->most = most;
    ring->first = ring->next = 1;
    *out = ring;
    return true;
}

/* Drops the oldest events down to `left`. Under the lock. */
static void drop_oldest(struct td_event_ring *ring, uint64_t left)
{
    for (; ring->next - ring->first > left; ring->first++)
        td_event_unref(ring->events[ring->first % ring->most]);
}

void td_event_ring_destroy(struct td_event_ring *ring)
{
    if (ring == NULL)
        return;
    drop_oldest(ring, 0);
    (void)pthread_mutex_destroy(&ring->lock);
    free(ring);
}

const char *td_event_ring_boot(const struct td_event_ring *ring)
{
    return ring->boot;
}

uint64_t td_event_ring_newest(struct td_event_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    uint64_t newest = ring->next - 1;
    pthread_mutex_unlock(&ring->lock);
    return newest;
}

void td_event_ring_add(struct td_event_ring *ring, struct td_event **events, size_t count)
{
    pthread_mutex_lock(&ring->lock);
    for (size_t i = 0; i < count; i++) {
        drop_oldest(ring, ring->most - 1);
        ring->counts[events[i]->type]++;
        events[i]->number = ring->next;
        ring->events[ring->next % ring->most] = events[i];
        ring->next++;
    }
    pthread_mutex_unlock(&ring->lock);
}

void td_event_ring_lose(struct td_event_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    drop_oldest(ring, 0);
    ring->next++; /* the number of the events that could not be made */
    ring->first = ring->next;
    pthread_mutex_unlock(&ring->lock);
}

enum td_event_look td_event_ring_next(struct td_event_ring *ring, uint64_t position, struct td_event **out)
{
    pthread_mutex_lock(&ring->lock);
    enum td_event_look look = position == ring->next - 1                                ? TD_EVENT_NONE
                              : position < ring->first - 1 || position > ring->next - 1 ? TD_EVENT_LOST
                                                                                        : TD_EVENT_FOUND;
    if (look == TD_EVENT_FOUND) {
        *out = ring->events[(position + 1) % ring->most];
        atomic_fetch_add(&(*out)->refs, 1);
    }
    pthread_mutex_unlock(&ring->lock);
    return look;
}

uint64_t td_event_ring_count(struct td_event_ring *ring, enum td_event_type type)
{
    pthread_mutex_lock(&ring->lock);
    uint64_t count = ring->counts[type];
    pthread_mutex_unlock(&ring->lock);
    return count;
}
