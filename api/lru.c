#include "api/lru.h"

#include <stdlib.h>
#include <string.h>

struct td_lru_entry {
    struct td_lru_entry *newer, *older;
    void *value;
    size_t bytes; /* with its own */
    char key[];
};

bool td_lru_init(struct td_lru *lru, const struct td_lru_class *class, size_t max_bytes)
{
    memset(lru, 0, sizeof *lru);
    lru->class = class;
    lru->max_bytes = max_bytes;
    return pthread_mutex_init(&lru->lock, NULL) == 0;
}

static void unlink_entry(struct td_lru *lru, struct td_lru_entry *entry)
{
    *(entry->newer != NULL ? &entry->newer->older : &lru->newest) = entry->older;
    *(entry->older != NULL ? &entry->older->newer : &lru->oldest) = entry->newer;
    lru->count--;
    lru->bytes -= entry->bytes;
}

static void link_newest(struct td_lru *lru, struct td_lru_entry *entry)
{
    entry->newer = NULL;
    entry->older = lru->newest;
    *(lru->newest != NULL ? &lru->newest->newer : &lru->oldest) = entry;
    lru->newest = entry;
    lru->count++;
    lru->bytes += entry->bytes;
}

static void drop(struct td_lru *lru, struct td_lru_entry *entry)
{
    unlink_entry(lru, entry);
    lru->class->unref(entry->value);
    free(entry);
}

void td_lru_fini(struct td_lru *lru)
{
    while (lru->newest != NULL)
        drop(lru, lru->newest);
    (void)pthread_mutex_destroy(&lru->lock);
}

static struct td_lru_entry *find(const struct td_lru *lru, const char *key)
{
    struct td_lru_entry *entry = lru->newest;
    while (entry != NULL && strcmp(entry->key, key) != 0)
        entry = entry->older;
    return entry;
}

void *td_lru_get(struct td_lru *lru, const char *key)
{
    void *value = NULL;
    pthread_mutex_lock(&lru->lock);
    struct td_lru_entry *entry = find(lru, key);
    if (entry != NULL) {
        unlink_entry(lru, entry);
        link_newest(lru, entry);
        value = lru->class->ref(entry->value);
    }
    pthread_mutex_unlock(&lru->lock);
    return value;
}

bool td_lru_put(struct td_lru *lru, const char *key, void *value, size_t bytes)
{
    size_t key_bytes = strlen(key) + 1;
    size_t own_bytes = sizeof(struct td_lru_entry) + key_bytes;
    if (bytes > lru->max_bytes || own_bytes > lru->max_bytes - bytes)
        return false;
    struct td_lru_entry *entry = malloc(own_bytes);
    if (entry == NULL)
        return false;
    entry->bytes = bytes + own_bytes;
    memcpy(entry->key, key, key_bytes);
    pthread_mutex_lock(&lru->lock);
    bool is_new = find(lru, key) == NULL;
    if (is_new) {
        entry->value = lru->class->ref(value);
        link_newest(lru, entry);
        while (lru->bytes > lru->max_bytes || lru->count > TD_LRU_MAX_ENTRIES)
            drop(lru, lru->oldest);
    }
    pthread_mutex_unlock(&lru->lock);
    if (!is_new)
        free(entry);
    return is_new;
}
