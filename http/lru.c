#include "http/lru.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    struct td_lru_links links; /* must be first: a pointer to the links is one to the entry */
    void *value;
    size_t bytes; /* of the value, the entry and the key */
    char key[];
};

static struct entry *entry_of(struct td_lru_links *links)
{
    return (struct entry *)(void *)links;
}

bool td_lru_init(struct td_lru *lru, const struct td_lru_class *class, size_t max_bytes)
{
    memset(lru, 0, sizeof *lru);
    lru->class = class;
    lru->max_bytes = max_bytes;
    lru->ring.newer = lru->ring.older = &lru->ring;
    return pthread_mutex_init(&lru->lock, NULL) == 0;
}

static void take_out(struct td_lru_links *links)
{
    links->newer->older = links->older;
    links->older->newer = links->newer;
}

static void put_first(struct td_lru *lru, struct td_lru_links *links)
{
    links->newer = &lru->ring;
    links->older = lru->ring.older;
    links->older->newer = links;
    lru->ring.older = links;
}

static void put_last(struct td_lru *lru, struct td_lru_links *links)
{
    links->older = &lru->ring;
    links->newer = lru->ring.newer;
    links->newer->older = links;
    lru->ring.newer = links;
}

static void drop_oldest(struct td_lru *lru)
{
    struct td_lru_links *links = lru->ring.newer;
    struct entry *entry = entry_of(links);
    lru->ring.newer = links->newer;
    links->newer->older = &lru->ring;
    lru->count--;
    lru->bytes -= entry->bytes;
    lru->class->unref(entry->value);
    free(entry);
}

void td_lru_fini(struct td_lru *lru)
{
    while (lru->ring.newer != &lru->ring)
        drop_oldest(lru);
    (void)pthread_mutex_destroy(&lru->lock);
}

/* Returns the entry with this key, or NULL. Under the lock. */
static struct entry *find_entry(struct td_lru *lru, const char *key)
{
    for (struct td_lru_links *links = lru->ring.older; links != &lru->ring; links = links->older)
        if (strcmp(entry_of(links)->key, key) == 0)
            return entry_of(links);
    return NULL;
}

void *td_lru_get(struct td_lru *lru, const char *key)
{
    void *value = NULL;
    pthread_mutex_lock(&lru->lock);
    struct entry *entry = find_entry(lru, key);
    if (entry != NULL) {
        take_out(&entry->links);
        put_first(lru, &entry->links);
        value = lru->class->ref(entry->value);
    }
    pthread_mutex_unlock(&lru->lock);
    return value;
}

size_t td_lru_find(struct td_lru *lru, bool (*matches)(const void *value, const void *context), const void *context,
                   void **out, size_t capacity)
{
    size_t count = 0;
    pthread_mutex_lock(&lru->lock);
    for (struct td_lru_links *links = lru->ring.older; links != &lru->ring && count < capacity; links = links->older)
        if (matches(entry_of(links)->value, context))
            out[count++] = lru->class->ref(entry_of(links)->value);
    pthread_mutex_unlock(&lru->lock);
    return count;
}

/* Evicts the oldest idle value. Returns false when no value is idle. Under the lock. */
static bool drop_idle(struct td_lru *lru)
{
    struct td_lru_links *links = lru->ring.newer;
    while (links != &lru->ring && !lru->class->idle(entry_of(links)->value))
        links = links->newer;
    if (links == &lru->ring)
        return false;
    take_out(links);
    put_last(lru, links);
    drop_oldest(lru);
    return true;
}

bool td_lru_drop_idle(struct td_lru *lru)
{
    pthread_mutex_lock(&lru->lock);
    bool dropped = drop_idle(lru);
    pthread_mutex_unlock(&lru->lock);
    return dropped;
}

/* Drops values beyond the limits. A value that somebody holds takes its memory anyway, so with `idle` it stays and can
 * be shared. */
static void drop_surplus(struct td_lru *lru)
{
    while (lru->bytes > lru->max_bytes && lru->class->idle != NULL && drop_idle(lru))
        ;
    while ((lru->bytes > lru->max_bytes && lru->class->idle == NULL) || lru->count > TD_LRU_MAX_ENTRIES)
        drop_oldest(lru);
}

bool td_lru_put(struct td_lru *lru, const char *key, void *value, size_t bytes)
{
    size_t key_bytes = strlen(key) + 1;
    size_t own_bytes = sizeof(struct entry) + key_bytes;
    if (bytes > lru->max_bytes || own_bytes > lru->max_bytes - bytes)
        return false;
    struct entry *entry = malloc(own_bytes);
    if (entry == NULL)
        return false;
    entry->bytes = bytes + own_bytes;
    memcpy(entry->key, key, key_bytes);
    pthread_mutex_lock(&lru->lock);
    bool is_new = find_entry(lru, key) == NULL;
    if (is_new) {
        entry->value = lru->class->ref(value);
        put_first(lru, &entry->links);
        lru->count++;
        lru->bytes += entry->bytes;
        drop_surplus(lru);
    }
    pthread_mutex_unlock(&lru->lock);
    if (!is_new)
        free(entry);
    return is_new;
}
