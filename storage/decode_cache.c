/* A hash table of parts, with two lists of idle parts (plain and costly), each in the order of last use. A part is in
 * the table from the moment that a thread begins to make it, so that other threads find it and wait on `made`. A thread
 * that finds no room, or no maker's place, waits on `room`.
 *
 * What is hard: parts are made without the lock. Until a part is made, the maker's reservation (need_bytes) counts as
 * used; it then shrinks to the bytes that are kept. A part whose making failed leaves the table while others still wait
 * for it: the last of them frees it (TD_DECODE_GONE). Every wait ends by its time limit, or when the waiter's cancel is
 * asked; cancel is polled every LOOK_MS without the lock, because the callback takes time. */
#include "storage/decode_cache.h"

#include "core/checked.h"
#include "core/clock.h"

#include <stdlib.h>
#include <string.h>

bool td_decode_cache_init(struct td_decode_cache *cache, size_t max_bytes, struct td_error *err)
{
    memset(cache, 0, sizeof *cache);
    cache->max_bytes = max_bytes;
    cache->wait_ms = TD_DECODE_WAIT_MS;
    cache->made_ms = TD_DECODE_MADE_WAIT_MS;
    if (pthread_mutex_init(&cache->lock, NULL) != 0)
        return td_error_no_memory(err);
    if (td_clock_condition_init(&cache->made)) {
        if (td_clock_condition_init(&cache->room))
            return true;
        (void)pthread_cond_destroy(&cache->made);
    }
    (void)pthread_mutex_destroy(&cache->lock);
    return td_error_no_memory(err);
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
    (void)pthread_cond_destroy(&cache->room);
    (void)pthread_cond_destroy(&cache->made);
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

static struct td_decoded_part *find_part(struct td_decode_cache *cache, const struct td_decode_key *key)
{
    struct td_decoded_part *part = *slot_of(cache, key);
    while (part != NULL && !same_key(&part->key, key))
        part = part->next_in_slot;
    return part;
}

static struct td_decode_idle *idle_of(struct td_decode_cache *cache, const struct td_decoded_part *part)
{
    return part->is_costly ? &cache->costly_idle : &cache->idle;
}

static void idle_remove(struct td_decode_cache *cache, struct td_decoded_part *part)
{
    struct td_decode_idle *idle = idle_of(cache, part);
    *(part->newer != NULL ? &part->newer->older : &idle->newest) = part->older;
    *(part->older != NULL ? &part->older->newer : &idle->oldest) = part->newer;
    part->newer = part->older = NULL;
}

/* Removes and returns the least recently used part of a list that is not empty. */
static struct td_decoded_part *idle_take_oldest(struct td_decode_idle *idle)
{
    struct td_decoded_part *part = idle->oldest;
    idle->oldest = part->newer;
    *(part->newer != NULL ? &part->newer->older : &idle->newest) = NULL;
    part->newer = NULL;
    return part;
}

static void idle_add(struct td_decode_cache *cache, struct td_decoded_part *part)
{
    struct td_decode_idle *idle = idle_of(cache, part);
    part->older = idle->newest;
    part->newer = NULL;
    *(idle->newest != NULL ? &idle->newest->newer : &idle->oldest) = part;
    idle->newest = part;
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

/* Counts a user of the part, and a hit for a part with bytes of a tensor. */
static void use_part(struct td_decode_cache *cache, struct td_decoded_part *part)
{
    cache->hits += part->key.part < TD_DECODE_CHECKED;
    if (part->users++ == 0)
        idle_remove(cache, part);
}

/* Sets the number of bytes that the part takes of the cache's memory. */
static void set_held_bytes(struct td_decode_cache *cache, struct td_decoded_part *part, size_t bytes)
{
    cache->used_bytes = cache->used_bytes - part->held_bytes + bytes;
    if (part->is_costly)
        cache->costly_bytes = cache->costly_bytes - part->held_bytes + bytes;
    part->held_bytes = bytes;
}

/* Removes the part from the table and frees its data. Frees the part itself unless threads still wait for it. */
static void let_go(struct td_decode_cache *cache, struct td_decoded_part *part)
{
    table_remove(cache, part);
    set_held_bytes(cache, part, 0);
    part->state = TD_DECODE_GONE;
    if (part->data != NULL)
        part->destroy(part->data);
    part->data = NULL;
    if (part->waiters == 0)
        free(part);
}

/* Returns the list whose oldest part is to be evicted next, or NULL when both lists are empty. Plain parts are evicted
 * before the costly ones that they are made from, unless costly parts take more than half of the memory. spare_costly:
 * never returns the costly list. */
static struct td_decode_idle *least_wanted(struct td_decode_cache *cache, bool spare_costly)
{
    struct td_decode_idle *idle = cache->idle.oldest != NULL ? &cache->idle : NULL;
    if (cache->costly_idle.oldest == NULL || spare_costly)
        return idle;
    return idle == NULL || cache->costly_bytes > cache->max_bytes / 2 ? &cache->costly_idle : idle;
}

/* Evicts parts until `bytes` are free. Returns whether they are. */
static bool make_room(struct td_decode_cache *cache, size_t bytes, bool spare_costly)
{
    struct td_decode_idle *idle;
    while (bytes > cache->max_bytes - cache->used_bytes && (idle = least_wanted(cache, spare_costly)) != NULL) {
        let_go(cache, idle_take_oldest(idle));
        cache->evictions++;
    }
    return bytes <= cache->max_bytes - cache->used_bytes;
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

enum { LOOK_MS = 100 }; /* how often a waiter asks its cancel */

#define NS_PER_MS UINT64_C(1000000)

/* The limits of one thread's waits for one part. */
struct wait {
    const struct td_cancel *cancel;
    uint64_t made_until_ns, room_until_ns;
    uint64_t look_ns; /* when cancel is asked next */
};

static struct wait wait_begin(const struct td_decode_cache *cache, const struct td_cancel *cancel)
{
    uint64_t now_ns = td_clock_ns();
    return (struct wait){.cancel = cancel,
                         .made_until_ns = now_ns + cache->made_ms * NS_PER_MS,
                         .room_until_ns = now_ns + cache->wait_ms * NS_PER_MS,
                         .look_ns = now_ns + LOOK_MS * NS_PER_MS};
}

/* Waits for the condition, at most until cancel is to be polled again, or polls cancel. Releases the lock while it
 * waits or polls. Errors: TD_RESOURCE_EXHAUSTED, with the words of `late` once until_ns has passed, or when the request
 * is cancelled. */
static bool wait_some(struct td_decode_cache *cache, pthread_cond_t *condition, uint64_t until_ns, struct wait *wait,
                      const char *late, struct td_error *err)
{
    bool cancelled = false;
    uint64_t now_ns = td_clock_ns();
    if (now_ns >= until_ns)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED, "%s; try again later", late);
    if (now_ns >= wait->look_ns) {
        wait->look_ns = now_ns + LOOK_MS * NS_PER_MS;
        pthread_mutex_unlock(&cache->lock);
        cancelled = td_cancel_is_asked(wait->cancel);
        pthread_mutex_lock(&cache->lock);
    } else {
        struct timespec at = td_clock_timespec(wait->look_ns < until_ns ? wait->look_ns : until_ns);
        (void)pthread_cond_timedwait(condition, &cache->lock, &at);
    }
    return !cancelled || td_error_set(err, TD_RESOURCE_EXHAUSTED, "nobody waits for the answer any more");
}

/* Waits until the part's maker is done. Returns true when the caller may look for the part again: it was made, or its
 * making failed for a reason that may pass (TD_RESOURCE_EXHAUSTED). */
static bool wait_for_part(struct td_decode_cache *cache, struct td_decoded_part *part, struct wait *wait,
                          struct td_error *err)
{
    bool ok = true;
    part->waiters++;
    while (ok && part->state == TD_DECODE_MAKING)
        ok = wait_some(cache, &cache->made, wait->made_until_ns, wait, "another request is still unpacking the tensor",
                       err);
    part->waiters--;
    if (part->state != TD_DECODE_GONE)
        return ok;
    if (ok && part->error.code != TD_OK && part->error.code != TD_RESOURCE_EXHAUSTED)
        ok = td_error_copy(err, &part->error);
    if (part->waiters == 0)
        free(part);
    return ok;
}

static bool wait_for_room(struct td_decode_cache *cache, bool has_place, struct wait *wait, struct td_error *err)
{
    cache->room_waiters++;
    bool ok = wait_some(cache, &cache->room, wait->room_until_ns, wait,
                        has_place ? "the memory for decoding is in use (--decode-memory)"
                                  : "too many tensors are being unpacked at once",
                        err);
    cache->room_waiters--;
    return ok;
}

/* Reports the damage of a part as an error, and marks the part as used last. Returns false. */
static bool tell_damage(struct td_decode_cache *cache, struct td_decoded_part *part, struct td_error *err)
{
    idle_remove(cache, part);
    idle_add(cache, part);
    return td_error_copy(err, &part->error);
}

/* Sets *out to the part, counted as used; or enters `fresh` in the table, for the caller to make, and sets *out to
 * NULL. Waits where it must. */
static bool find_or_begin(struct td_decode_cache *cache, const struct td_decode_job *job, struct td_decoded_part *fresh,
                          struct td_decoded_part **out, struct td_error *err)
{
    struct wait wait = wait_begin(cache, job->cancel);
    size_t bytes = job->need_bytes + TD_DECODE_PART_BYTES;
    for (;;) {
        struct td_decoded_part *part = find_part(cache, &job->key);
        *out = NULL;
        if (part != NULL && part->state == TD_DECODE_MAKING) {
            if (!wait_for_part(cache, part, &wait, err))
                return false;
            continue;
        }
        if (part != NULL && part->state == TD_DECODE_DAMAGED)
            return tell_damage(cache, part, err);
        if (part != NULL) {
            use_part(cache, part);
            *out = part;
            return true;
        }
        bool has_place = !job->is_long || cache->makers < TD_DECODE_MAKERS;
        if (has_place && make_room(cache, bytes, false)) {
            cache->makers += job->is_long ? 1 : 0;
            cache->misses++;
            set_held_bytes(cache, fresh, bytes);
            table_add(cache, fresh);
            return true;
        }
        if (!wait_for_room(cache, has_place, &wait, err))
            return false;
    }
}

/* ---- the interface ------------------------------------------------------------------------------------- */

/* Ends the making of a part: keeps it, or its damage, or removes it. `err` says why the job failed. */
static void end_making(struct td_decode_cache *cache, const struct td_decode_job *job, struct td_decoded_part *part,
                       bool made, size_t kept_bytes, const struct td_error *err)
{
    bool damaged = !made && err->code == TD_FAILED_PRECONDITION;
    pthread_mutex_lock(&cache->lock);
    cache->makers -= job->is_long ? 1 : 0;
    if (part->waiters > 0)
        pthread_cond_broadcast(&cache->made);
    if (cache->room_waiters > 0)
        pthread_cond_broadcast(&cache->room);
    part->error = *err;
    set_held_bytes(cache, part, 0);
    if (made || damaged) {
        part->state = made ? TD_DECODE_READY : TD_DECODE_DAMAGED;
        part->is_costly = job->is_long || damaged;
        set_held_bytes(cache, part, kept_bytes + TD_DECODE_PART_BYTES);
        if (damaged) {
            part->users = 0;
            idle_add(cache, part);
        }
    } else {
        let_go(cache, part);
    }
    pthread_mutex_unlock(&cache->lock);
}

bool td_decode_cache_get(struct td_decode_cache *cache, const struct td_decode_job *job, struct td_decoded_part **out,
                         struct td_error *err)
{
    *out = td_decode_cache_find(cache, &job->key);
    if (*out != NULL)
        return true;
    if (td_cancel_is_asked(job->cancel)) /* an answer may need many parts, so ask before each */
        return td_error_set(err, TD_RESOURCE_EXHAUSTED, "nobody waits for the answer any more");
    if (job->need_bytes > cache->max_bytes ||
        cache->max_bytes - job->need_bytes < TD_DECODE_PART_BYTES) /* no wait would help */
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "unpacking a part of it takes %zu bytes of memory, more than the limit of %zu",
                            job->need_bytes, cache->max_bytes);
    struct td_decoded_part *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL)
        return td_error_no_memory(err);
    fresh->key = job->key;
    fresh->users = 1;
    fresh->state = TD_DECODE_MAKING;
    pthread_mutex_lock(&cache->lock);
    bool ok = find_or_begin(cache, job, fresh, out, err);
    pthread_mutex_unlock(&cache->lock);
    if (!ok || *out != NULL) {
        free(fresh);
        return ok;
    }
    size_t kept_bytes = 0;
    struct td_error own = TD_ERROR_INIT;
    bool made = job->make(job->context, fresh, &kept_bytes, &own);
    end_making(cache, job, fresh, made, kept_bytes, &own);
    *out = made ? fresh : NULL;
    return made || td_error_copy(err, &own);
}

struct td_decoded_part *td_decode_cache_find(struct td_decode_cache *cache, const struct td_decode_key *key)
{
    pthread_mutex_lock(&cache->lock);
    struct td_decoded_part *part = find_part(cache, key);
    if (part != NULL && part->state != TD_DECODE_READY)
        part = NULL;
    if (part != NULL)
        use_part(cache, part);
    pthread_mutex_unlock(&cache->lock);
    return part;
}

bool td_decode_cache_is_damaged(struct td_decode_cache *cache, const struct td_decode_key *key, struct td_error *err)
{
    pthread_mutex_lock(&cache->lock);
    struct td_decoded_part *part = find_part(cache, key);
    bool damaged = part != NULL && part->state == TD_DECODE_DAMAGED;
    if (damaged)
        (void)tell_damage(cache, part, err);
    pthread_mutex_unlock(&cache->lock);
    return damaged;
}

bool td_decode_cache_is_wanted(struct td_decode_cache *cache, const struct td_decoded_part *part,
                               const struct td_cancel *cancel)
{
    if (!td_cancel_is_asked(cancel))
        return true;
    pthread_mutex_lock(&cache->lock);
    bool wanted = part->waiters > 0;
    pthread_mutex_unlock(&cache->lock);
    return wanted;
}

void td_decode_cache_offer(struct td_decode_cache *cache, const struct td_decode_key *key, void *data, size_t len)
{
    struct td_decoded_part *part = calloc(1, sizeof *part);
    if (part == NULL) {
        free(data);
        return;
    }
    part->key = *key;
    part->data = data;
    part->len = len;
    part->destroy = free;
    part->state = TD_DECODE_READY;
    size_t bytes = len + TD_DECODE_PART_BYTES;
    pthread_mutex_lock(&cache->lock);
    bool kept = find_part(cache, key) == NULL && make_room(cache, bytes, true);
    if (kept) {
        set_held_bytes(cache, part, bytes);
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
        if (cache->room_waiters > 0)
            pthread_cond_broadcast(&cache->room); /* a thread that waits for memory may drop this part */
    }
    pthread_mutex_unlock(&cache->lock);
}

struct td_decode_counts td_decode_cache_counts(struct td_decode_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    struct td_decode_counts counts = {
        .used_bytes = cache->used_bytes, .hits = cache->hits, .misses = cache->misses, .evictions = cache->evictions};
    pthread_mutex_unlock(&cache->lock);
    return counts;
}

/* ---- codings ------------------------------------------------------------------------------------------- */

bool td_decoding_stored(const struct td_decoding *d, uint64_t off, void *out, size_t len, struct td_error *err)
{
    if (!td_add_u64(off, d->coding->base, &off) || !td_range_within(off, len, d->source->len_bytes))
        return td_error_set(err, TD_FAILED_PRECONDITION, "stored bytes are outside of the file");
    return td_blob_read(d->source, off, out, len, err);
}

bool td_decoding_report(const struct td_decoding *d, const struct td_error *own, struct td_error *err)
{
    if (own->code == TD_FAILED_PRECONDITION && !td_blob_unchanged(d->source))
        return td_error_set(err, TD_UNAVAILABLE, "the file changed while it was read; it is being read again");
    return td_error_copy(err, own);
}

/* A job whose errors go through td_decoding_report. */
struct reported_job {
    const struct td_decoding *d;
    const struct td_decode_job *job;
};

/* Makes a part by the job. Damage in a file that has changed gets another error, so the cache does not keep it. */
static bool make_reported(void *context, struct td_decoded_part *part, size_t *kept_bytes, struct td_error *err)
{
    const struct reported_job *reported = context;
    struct td_error own = TD_ERROR_INIT;
    return reported->job->make(reported->job->context, part, kept_bytes, &own) ||
           td_decoding_report(reported->d, &own, err);
}

bool td_decoding_get(const struct td_decoding *d, uint64_t part, const struct td_decode_job *job,
                     struct td_decoded_part **out, struct td_error *err)
{
    struct reported_job reported = {.d = d, .job = job};
    struct td_decode_job whole = *job;
    whole.key = d->key;
    whole.key.part = part;
    whole.make = make_reported;
    whole.context = &reported;
    whole.cancel = d->cancel;
    return td_decode_cache_get(d->cache, &whole, out, err);
}
