/* A bounded store of shared values by text keys: the least recently used value is dropped first. Rank files, registered
 * plans and the indexes of rendered texts are kept in such stores. Thread-safe. */
#ifndef TD_HTTP_LRU_H
#define TD_HTTP_LRU_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { TD_LRU_MAX_ENTRIES = 1024 };

/* How a store takes and drops references on its values. The store calls these functions under its lock, so they must
 * not call the store; nor may what td_lru_find is given. */
struct td_lru_class {
    void *(*ref)(void *value);
    void (*unref)(void *value);
    /* Returns whether only the store holds the value. With `idle`, a store over max_bytes drops idle values only; the
     * holders of the other values bound the memory of these. NULL: such a store drops any value. */
    bool (*idle)(const void *value);
};

/* An entry's place in the ring of all entries. */
struct td_lru_links {
    struct td_lru_links *newer, *older;
};

struct td_lru {
    pthread_mutex_t lock;
    const struct td_lru_class *class;
    struct td_lru_links ring; /* the ring's end: its `older` is the newest entry, its `newer` the oldest */
    size_t count, bytes, max_bytes;
};

/* Starts an empty store of at most TD_LRU_MAX_ENTRIES values and max_bytes, keys and entries included. Borrows class.
 * Returns false when no lock can be made. */
bool td_lru_init(struct td_lru *lru, const struct td_lru_class *class, size_t max_bytes);

/* Drops the store's references on all values, and frees the store. No other thread may use the store any more. */
void td_lru_fini(struct td_lru *lru);

/* Returns the value with this key, or NULL. The caller gets a reference, and the value becomes the most recently used.
 */
void *td_lru_get(struct td_lru *lru, const char *key);

/* Writes the values that `matches` returns true for, the most recently used first, at most `capacity` of them, each
 * with a reference for the caller, and returns their number. Takes time in proportion to the number of entries, under
 * the store's lock, and leaves their order as it is. */
size_t td_lru_find(struct td_lru *lru, bool (*matches)(const void *value, const void *context), const void *context,
                   void **out, size_t capacity);

/* Keeps a value of `bytes` bytes under a copy of the key, takes a reference on the value, and drops others beyond the
 * limits. Returns false, with the store unchanged, when the key is taken, when the value is larger than max_bytes, or
 * when memory is short. */
bool td_lru_put(struct td_lru *lru, const char *key, void *value, size_t bytes);

/* Drops the least recently used of the idle values, whatever the limits. Returns false when none is idle. The class
 * must have `idle`. */
bool td_lru_drop_idle(struct td_lru *lru);

#endif
