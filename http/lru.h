/* A bounded store of shared values by text keys: what was used least recently goes. Holds the shard files that were
 * computed before and the plans that clients registered. Thread-safe. */
#ifndef TD_HTTP_LRU_H
#define TD_HTTP_LRU_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { TD_LRU_MAX_ENTRIES = 1024 };

/* How references on a value are taken and dropped. */
struct td_lru_class {
    void *(*ref)(void *value);
    void (*unref)(void *value);
    /* Nobody has it but the store. With it only such values are dropped for their bytes, and those of the others are
     * somebody else's to bound; NULL: none is spared. */
    bool (*idle)(const void *value);
};

struct td_lru_links {
    struct td_lru_links *newer, *older;
};

struct td_lru {
    pthread_mutex_t lock;
    const struct td_lru_class *class;
    struct td_lru_links ring; /* older than this is the newest entry, newer than this the oldest */
    size_t count, bytes, max_bytes;
};

/* class is borrowed. False when no lock can be made. */
bool td_lru_init(struct td_lru *lru, const struct td_lru_class *class, size_t max_bytes);
void td_lru_fini(struct td_lru *lru);

/* The value with this key, a reference for the caller; NULL when there is none. */
void *td_lru_get(struct td_lru *lru, const char *key);

/* Keeps the value (a reference is taken), which takes `bytes`; one with that key that is there already stays, and one
 * larger than the bound, or for which there is no memory, is not kept. Whether it was put in. */
bool td_lru_put(struct td_lru *lru, const char *key, void *value, size_t bytes);

/* Drops the least recently used of the values that are idle. False when none is. */
bool td_lru_drop_idle(struct td_lru *lru);

#endif
