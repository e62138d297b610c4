#include "storage/decode_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool td_decode_cache_init(struct td_decode_cache *cache, size_t max_bytes, struct td_error *err)
{
    pthread_condattr_t attributes;
    memset(cache, 0, sizeof *cache);
    cache->max_bytes = max_bytes;
    cache->wait_ms = TD_DECODE_WAIT_MS;
    if (pthread_mutex_init(&cache->lock, NULL) != 0)
        return td_error_no_memory(err);
    bool ok = pthread_condattr_init(&attributes) == 0;
    if (ok) {
        ok = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
             pthread_cond_init(&cache->changed, &attributes) == 0;
        (void)pthread_condattr_destroy(&attributes);
    }
    if (!ok) {
        (void)pthread_mutex_destroy(&cache->lock);
        return td_error_no_memory(err);
    }
    return true;
}

static void part_free(struct td_decoded_part *part)
{
    if (part->data != NULL)
        part->destroy(part->data);
    free(part);
}

void td_decode_cache_fini(struct td_decode_cache *cache)
{
    for (size_t i = 0; i < TD_DECODE_TABLE_SLOTS; i++)
        while (cache->slots[i] != NULL) {
            struct td_decoded_part *next = cache->slots[i]->next_in_slot;
            part_free(cache->slots[i]);
            cache->slots[i] = next;
        }
    (void)pthread_cond_destroy(&cache->changed);
    (void)pthread_mutex_destroy(&cache->lock);
}

/* ---- under the lock ------------------------------------------------------------------------------------ */

static bool same_key(const struct td_decode_key *a, const struct td_decode_key *b)
{
    return a->part == b->part && a->coding == b->coding && a->file == b->file;
}

static struct td_decoded_part **slot_of(struct td_decode_cache *cache, const struct td_decode_key *key)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    hash = (hash ^ key->file) * UINT64_C(1099511628211); /* FNV-1a */
    hash = (hash ^ key->coding) * UINT64_C(1099511628211);
    hash = (hash ^ key->part) * UINT64_C(0x9e3779b97f4a7c15);
    return &cache->slots[(hash >> 32) % TD_DECODE_TABLE_SLOTS];
}

static struct td_decoded_part *find(struct td_decode_cache *cache, const struct td_decode_key *key)
{
    struct td_decoded_part *part = *slot_of(cache, key);
    while (part != NULL && !same_key(&part->key, key))
        part = part->next_in_slot;
    return part;
}

static void idle_remove(struct td_decode_cache *cache, struct td_decoded_part *part)
{
    *(part->newer != NULL ? &part->newer->older : &cache->newest) = part->older;
    *(part->older != NULL ? &part->older->newer : &cache->oldest) = part->newer;
    part->newer = part->older = NULL;
}

static void idle_add(struct td_decode_cache *cache, struct td_decoded_part *part)
{
    part->older = cache->newest;
    part->newer = NULL;
    *(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = part;
    cache->newest = part;
}

static void table_remove(struct td_decode_cache *cache, struct td_decoded_part *part)
{
    struct td_decoded_part **at = slot_of(cache, &part->key);
    while (*at != part)
        at = &(*at)->next_in_slot;
    *at = part->next_in_slot;
}

static void table_add(struct td_decode_cache *cache, struct td_decoded_part *part)
{
    struct td_decoded_part **slot = slot_of(cache, &part->key);
    part->next_in_slot = *slot;
    *slot = part;
}

static void use(struct td_decode_cache *cache, struct td_decoded_part *part)
{
    cache->hits += part->key.part < TD_DECODE_CHECKED;
    if (part->users++ == 0)
        idle_remove(cache, part);
}

/* Takes so many bytes, letting go of what was used longest ago. */
static bool reserve(struct td_decode_cache *cache, size_t bytes)
{
    while (bytes > cache->max_bytes - cache->used_bytes && cache->oldest != NULL) {
        struct td_decoded_part *part = cache->oldest;
        idle_remove(cache, part);
        table_remove(cache, part);
        cache->used_bytes -= part->held_bytes;
        cache->evictions++;
        part_free(part);
    }
    if (bytes > cache->max_bytes - cache->used_bytes)
        return false;
    cache->used_bytes += bytes;
    return true;
}

static struct timespec deadline_of(const struct td_decode_cache *cache)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += cache->wait_ms / 1000;
    at.tv_nsec += (long)(cache->wait_ms % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

/* Finds the part (*out, in use), or takes the memory to make it (*out is NULL). */
static bool find_or_reserve(struct td_decode_cache *cache, const struct td_decode_key *key, size_t need_bytes,
                            struct td_decoded_part **out, struct td_error *err)
{
    struct timespec deadline = deadline_of(cache);
    for (;;) {
        struct td_decoded_part *part = find(cache, key);
        *out = NULL;
        if (part != NULL && part->being_made) { /* that ends by itself */
            (void)pthread_cond_wait(&cache->changed, &cache->lock);
            continue;
        }
        if (part != NULL) {
            use(cache, part);
            *out = part;
            return true;
        }
        if (reserve(cache, need_bytes))
            return true;
        if (pthread_cond_timedwait(&cache->changed, &cache->lock, &deadline) == ETIMEDOUT)
            return td_error_set(err, TD_UNAVAILABLE,
                                "the memory for decoding is in use (--decode-memory); try again");
    }
}

/* ---- the interface ------------------------------------------------------------------------------------- */

static void make_part(struct td_decode_cache *cache, struct td_decoded_part *part, bool made,
                      size_t kept_bytes)
{
    pthread_mutex_lock(&cache->lock);
    size_t kept = made ? kept_bytes + TD_DECODE_PART_BYTES : 0;
    cache->used_bytes -= part->held_bytes - kept;
    part->held_bytes = kept;
    part->being_made = false;
    if (!made)
        table_remove(cache, part);
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->lock);
}

bool td_decode_cache_get(struct td_decode_cache *cache, const struct td_decode_key *key, size_t need_bytes,
                         td_decode_maker *make, void *context, struct td_decoded_part **out,
                         struct td_error *err)
{
    *out = td_decode_cache_find(cache, key);
    if (*out != NULL)
        return true;
    if (need_bytes > cache->max_bytes ||
        cache->max_bytes - need_bytes < TD_DECODE_PART_BYTES) /* waiting would not help */
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "to unpack a part of it takes %zu bytes of memory, more than the limit of %zu",
                            need_bytes, cache->max_bytes);
    struct td_decoded_part *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL)
        return td_error_no_memory(err);
    pthread_mutex_lock(&cache->lock);
    bool ok = find_or_reserve(cache, key, need_bytes + TD_DECODE_PART_BYTES, out, err);
    if (ok && *out == NULL) {
        fresh->key = *key;
        fresh->held_bytes = need_bytes + TD_DECODE_PART_BYTES;
        fresh->users = 1;
        fresh->being_made = true;
        cache->misses++;
        table_add(cache, fresh);
    }
    pthread_mutex_unlock(&cache->lock);
    if (!ok || *out != NULL) {
        free(fresh);
        return ok;
    }
    size_t kept_bytes = 0;
    bool made = make(context, fresh, &kept_bytes, err);
    make_part(cache, fresh, made, kept_bytes);
    if (!made) {
        part_free(fresh);
        return false;
    }
    *out = fresh;
    return true;
}

struct td_decoded_part *td_decode_cache_find(struct td_decode_cache *cache, const struct td_decode_key *key)
{
    pthread_mutex_lock(&cache->lock);
    struct td_decoded_part *part = find(cache, key);
    if (part != NULL && part->being_made)
        part = NULL;
    if (part != NULL)
        use(cache, part);
    pthread_mutex_unlock(&cache->lock);
    return part;
}

void td_decode_cache_offer(struct td_decode_cache *cache, const struct td_decode_key *key, void *data,
                           size_t len)
{
    struct td_decoded_part *part = calloc(1, sizeof *part);
    if (part == NULL) {
        free(data);
        return;
    }
    *part = (struct td_decoded_part){
        .key = *key, .data = data, .len = len, .destroy = free, .held_bytes = len + TD_DECODE_PART_BYTES};
    pthread_mutex_lock(&cache->lock);
    bool kept = find(cache, key) == NULL && reserve(cache, part->held_bytes);
    if (kept) {
        table_add(cache, part);
        idle_add(cache, part);
    }
    pthread_mutex_unlock(&cache->lock);
    if (!kept)
        part_free(part);
}

void td_decode_cache_release(struct td_decode_cache *cache, struct td_decoded_part *part)
{
    pthread_mutex_lock(&cache->lock);
    if (--part->users == 0) {
        idle_add(cache, part);
        pthread_cond_broadcast(&cache->changed); /* whoever waits for memory may let go of it */
    }
    pthread_mutex_unlock(&cache->lock);
}

struct td_decode_counts td_decode_cache_counts(struct td_decode_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    struct td_decode_counts counts = {.used_bytes = cache->used_bytes,
                                      .hits = cache->hits,
                                      .misses = cache->misses,
                                      .evictions = cache->evictions};
    pthread_mutex_unlock(&cache->lock);
    return counts;
}

size_t td_decode_cache_used(struct td_decode_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    size_t used = cache->used_bytes;
    pthread_mutex_unlock(&cache->lock);
    return used;
}
