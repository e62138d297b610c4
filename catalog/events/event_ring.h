/* Events: what changed from one snapshot to the next, and the ring that keeps the latest of them in memory. Each event
 * has a number, one more than the event before. A reader remembers the number of the last event that it has seen, its
 * position, and asks for the one after it. Thread-safe. */
#ifndef TD_CATALOG_EVENTS_EVENT_RING_H
#define TD_CATALOG_EVENTS_EVENT_RING_H

#include "core/clock.h"
#include "core/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_EVENTS_MAX = 4096 }; /* events that a ring keeps */

enum td_event_type {
    TD_EVENT_PUBLISHED, /* there was nothing of this name before */
    TD_EVENT_REPLACED,  /* the content is another one */
    TD_EVENT_REMOVED,   /* there is nothing of this name any more */
    TD_EVENT_TYPES
};

/* Returns "published", "replaced" or "removed". Static. */
const char *td_event_type_name(enum td_event_type type);

/* An event; immutable once it is in a ring, reference-counted. */
struct td_event {
    _Atomic int refs;
    uint64_t number; /* from 1; set by td_event_ring_add */
    struct td_wall time;
    enum td_event_type type;
    bool is_dataset;      /* else a model */
    const char *id;       /* of the model or the dataset; a dataset's lacks datasets/ */
    const char *revision; /* the branch or tag of a Hugging Face cache that moved; empty: not in a cache */
    const char *commit;   /* that the revision names now, or named when it was removed; empty: not in a cache */
};

/* Returns an event of this moment with one reference and copies of the texts, or NULL when memory is short. */
struct td_event *td_event_create(enum td_event_type type, bool is_dataset, const char *id, const char *revision,
                                 const char *commit);

/* Drops a reference; the last one frees the event. NULL: does nothing. */
void td_event_unref(struct td_event *event);

struct td_event_ring;

enum { TD_EVENT_BOOT_BYTES = 17 }; /* of a ring's name, with its NUL */

/* Creates an empty ring, which keeps the latest `most` events, and chooses its name. Errors: TD_RESOURCE_EXHAUSTED;
 * TD_INTERNAL without random bytes. */
bool td_event_ring_create(size_t most, struct td_event_ring **out, struct td_error *err);

/* Frees the ring, and its references on events. NULL is allowed. */
void td_event_ring_destroy(struct td_event_ring *ring);

/* Returns the ring's name, 16 random hexadecimal digits, which no ring of another process has. */
const char *td_event_ring_boot(const struct td_event_ring *ring);

/* Returns the number of the newest event, which is the position of a reader that has missed nothing; 0 before the first
 * event. */
uint64_t td_event_ring_newest(struct td_event_ring *ring);

/* Numbers `count` events and appends them; takes over the caller's references. Older events make room. */
void td_event_ring_add(struct td_event_ring *ring, struct td_event **events, size_t count);

/* Makes every position that readers have now too old, because events could not be made. */
void td_event_ring_lose(struct td_event_ring *ring);

enum td_event_look {
    TD_EVENT_FOUND,
    TD_EVENT_NONE, /* there is no event after this position yet */
    TD_EVENT_LOST, /* events after this position are gone, or the ring never gave this number */
};

/* Looks for the event after a position. TD_EVENT_FOUND: *out is the event with a reference for the caller. */
enum td_event_look td_event_ring_next(struct td_event_ring *ring, uint64_t position, struct td_event **out);

/* Returns how many events of this type were added since the start. */
uint64_t td_event_ring_count(struct td_event_ring *ring, enum td_event_type type);

#endif
