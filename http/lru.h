/* A bounded store of shared values by text keys: the least recently used value is dropped first. Holds computed rank
 * files and the plans that clients registered. Thread-safe. */
#ifndef TD_HTTP_LRU_H
#define TD_HTTP_LRU_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { TD_LRU_MAX_ENTRIES = 1024 };

/* How a store takes and drops references on its values. */
struct td_lru_class {
    void *(*ref)(void *value);
    void (*unref)(void *value);
    /* Returns whether only the store holds the value. With `idle`, the limit of bytes drops only such values; the
     * memory of others is bounded by their holders. NULL: drops any value. */
    bool (*idle)(const void *value);
};

struct td_lru_links {
    struct td_lru_links *newer, *older;
};

struct td_lru {
    pthread_mutex_t lock;
    const struct td_lru_class *class;
    struct td_lru_links ring; /* the ring's end: its `older` is the newest entry, its `newer` the oldest */
    size_t count, bytes, max_bytes;
};

/* Starts an empty store of at most max_bytes. Borrows class. Returns false when no lock can be made. */
bool td_lru_init(struct td_lru *lru, const struct td_lru_class *class, size_t max_bytes);

/* Drops all values. No other thread may use the store any more. */
void td_lru_fini(struct td_lru *lru);

/* Returns the value with this key with a reference for the caller, or NULL. */
void *td_lru_get(struct td_lru *lru, const char *key);

/* Keeps a value of `bytes` bytes and takes a reference on it. Does not keep it when the key is taken, when it is larger
 * than the limit, or when memory is short. Returns whether it was kept. */
bool td_lru_put(struct td_lru *lru, const char *key, void *value, size_t bytes);

/* Drops the least recently used of the idle values. Returns false when none is idle. The class must have `idle`. */
bool td_lru_drop_idle(struct td_lru *lru);

#endif
