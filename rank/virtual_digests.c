/* Plan: the records lie in an array, in the order in which they were added. Two hash tables (open addressing) hold
 * numbers of records: one by key, one by SHA-256, from which records with an equal SHA-256 are linked, the newest
 * first. A full array loses its older half; both tables are then made anew, and so is the log.
 *
 * Hard: (1) two locks, so that a look-up never waits for a disk, as in catalog/digest_log.c: file_lock is taken first.
 * (2) A record whose key was added again with another digest stays in the array but is no longer found by its key, so
 * an origin alone proves nothing. */
#include "rank/virtual_digests.h"

#include "catalog/record_log.h"
#include "core/array.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The payload of a record in the log; it has no padding. */
struct stored {
    uint8_t key[TD_SHA256_BYTES], sum[TD_SHA256_BYTES];
    uint64_t size_bytes;
    uint32_t kind, engine;
    uint64_t tp_size, rank;
};

static_assert(sizeof(struct stored) == 96, "a record has no padding");

static const struct td_record_log_kind kind = {.name = "virtual-digests",
                                               .new_name = "virtual-digests.new",
                                               .lock_name = "virtual-lock",
                                               .what = "digests of virtual files",
                                               .magic = {'t', 'v', 'i', 'r', 't', 'u', 'a', 'l'},
                                               .version = 1,
                                               .type = 1,
                                               .payload_bytes = sizeof(struct stored)};

enum { NONE = 0 }; /* tables and links hold numbers of records plus 1 */

struct record {
    struct td_virtual_key key;
    struct td_virtual_digest digest;
    uint32_t next; /* the record before with an equal SHA-256, plus 1; or NONE */
};

struct td_virtual_digests {
    pthread_mutex_t lock;
    struct record *records;
    size_t count, capacity;
    uint32_t *by_key, *by_sum; /* slot_count slots each, at most half full */
    size_t slot_count;
    struct stored batch[TD_RECORD_LOG_BATCH]; /* records that the file lacks */
    size_t batch_count;
    bool is_halved; /* older records were dropped, so the log is to be written anew */

    pthread_mutex_t file_lock;
    struct td_record_log *file; /* NULL: none */
    struct stored writing[TD_RECORD_LOG_BATCH];
};

/* ---- the tables ---------------------------------------------------------------------------------------- */

/* Returns the slot that a key or a SHA-256 begins to look at: its first bytes are as good as any hash. */
static size_t first_slot(const struct td_virtual_digests *digests, const uint8_t *bytes)
{
    uint64_t hash;
    memcpy(&hash, bytes, sizeof hash);
    return (size_t)hash & (digests->slot_count - 1);
}

/* Returns the slot of this key, or the free one where it belongs. There is always a free one. */
static uint32_t *slot_of_key(const struct td_virtual_digests *digests, const struct td_virtual_key *key)
{
    size_t at = first_slot(digests, key->bytes);
    while (digests->by_key[at] != NONE &&
           memcmp(digests->records[digests->by_key[at] - 1].key.bytes, key->bytes, sizeof key->bytes) != 0)
        at = (at + 1) & (digests->slot_count - 1);
    return &digests->by_key[at];
}

/* Does the same for a SHA-256. */
static uint32_t *slot_of_sum(const struct td_virtual_digests *digests, const uint8_t *sum)
{
    size_t at = first_slot(digests, sum);
    while (digests->by_sum[at] != NONE &&
           memcmp(digests->records[digests->by_sum[at] - 1].digest.sum, sum, TD_SHA256_BYTES) != 0)
        at = (at + 1) & (digests->slot_count - 1);
    return &digests->by_sum[at];
}

/* Puts record i into both tables. */
static void link_record(struct td_virtual_digests *digests, size_t i)
{
    struct record *record = &digests->records[i];
    uint32_t *newest = slot_of_sum(digests, record->digest.sum);
    *slot_of_key(digests, &record->key) = (uint32_t)i + 1;
    record->next = *newest;
    *newest = (uint32_t)i + 1;
}

static void link_all(struct td_virtual_digests *digests)
{
    memset(digests->by_key, 0, digests->slot_count * sizeof *digests->by_key);
    memset(digests->by_sum, 0, digests->slot_count * sizeof *digests->by_sum);
    for (size_t i = 0; i < digests->count; i++)
        link_record(digests, i);
}

/* Makes both tables anew with this number of slots, a power of two. */
static bool set_slots(struct td_virtual_digests *digests, size_t slot_count)
{
    uint32_t *by_key = calloc(slot_count, sizeof *by_key);
    uint32_t *by_sum = calloc(slot_count, sizeof *by_sum);
    if (by_key == NULL || by_sum == NULL) {
        free(by_key);
        free(by_sum);
        return false;
    }
    free(digests->by_key);
    free(digests->by_sum);
    digests->by_key = by_key;
    digests->by_sum = by_sum;
    digests->slot_count = slot_count;
    link_all(digests);
    return true;
}

/* Drops the older half of the records. */
static void halve(struct td_virtual_digests *digests)
{
    size_t dropped = digests->count / 2;
    digests->count -= dropped;
    memmove(digests->records, digests->records + dropped, digests->count * sizeof *digests->records);
    link_all(digests);
    digests->is_halved = true;
}

/* Makes room for one more record. Returns false for want of memory. */
static bool make_room(struct td_virtual_digests *digests)
{
    if (digests->count == TD_VIRTUAL_DIGESTS_MAX)
        halve(digests);
    return TD_ARRAY_GROW(digests->records, digests->count, digests->capacity, NULL) &&
           (digests->count + 1 <= digests->slot_count / 2 || set_slots(digests, digests->slot_count * 2));
}

/* Adds a record. Returns false when memory is short. Sets *news to whether the key was unknown or had another digest.
 */
static bool put(struct td_virtual_digests *digests, const struct td_virtual_key *key,
                const struct td_virtual_digest *digest, bool *news)
{
    uint32_t known = *slot_of_key(digests, key);
    *news = known == NONE || memcmp(digests->records[known - 1].digest.sum, digest->sum, TD_SHA256_BYTES) != 0;
    if (!*news)
        return true;
    if (!make_room(digests))
        return false;
    digests->records[digests->count] = (struct record){.key = *key, .digest = *digest};
    link_record(digests, digests->count);
    digests->count++;
    return true;
}

/* ---- the log ------------------------------------------------------------------------------------------- */

static struct stored stored_of(const struct td_virtual_key *key, const struct td_virtual_digest *digest)
{
    struct stored stored = {.size_bytes = digest->size_bytes,
                            .kind = (uint32_t)digest->origin.kind,
                            .engine = digest->origin.engine,
                            .tp_size = digest->origin.tp_size,
                            .rank = digest->origin.rank};
    memcpy(stored.key, key->bytes, sizeof stored.key);
    memcpy(stored.sum, digest->sum, sizeof stored.sum);
    return stored;
}

static bool take_stored(void *context, const void *payload)
{
    struct stored stored;
    struct td_virtual_key key;
    bool news;
    memcpy(&stored, payload, sizeof stored);
    struct td_virtual_digest digest = {.size_bytes = stored.size_bytes,
                                       .origin = {.kind = (enum td_revision_kind)stored.kind,
                                                  .engine = stored.engine,
                                                  .tp_size = stored.tp_size,
                                                  .rank = stored.rank}};
    if (!td_virtual_revision_is_possible(&digest.origin)) /* a layer's, or that of a newer version */
        digest.origin = (struct td_virtual_revision){.kind = TD_REVISION_FILES};
    memcpy(key.bytes, stored.key, sizeof key.bytes);
    memcpy(digest.sum, stored.sum, sizeof digest.sum);
    return put(context, &key, &digest, &news);
}

/* A place in the array, while the log is written anew. */
struct writing_place {
    struct td_virtual_digests *digests;
    size_t at;
};

static size_t next_stored(void *context, void *payloads, size_t most)
{
    struct writing_place *place = context;
    struct td_virtual_digests *digests = place->digests;
    struct stored *stored = payloads;
    size_t count = 0;
    pthread_mutex_lock(&digests->lock);
    for (; place->at < digests->count && count < most; place->at++)
        stored[count++] = stored_of(&digests->records[place->at].key, &digests->records[place->at].digest);
    pthread_mutex_unlock(&digests->lock);
    return count;
}

void td_virtual_digests_flush(struct td_virtual_digests *digests)
{
    struct writing_place place = {.digests = digests};
    pthread_mutex_lock(&digests->file_lock);
    pthread_mutex_lock(&digests->lock);
    size_t count = digests->batch_count;
    bool is_halved = digests->is_halved;
    memcpy(digests->writing, digests->batch, count * sizeof *digests->batch);
    digests->batch_count = 0;
    digests->is_halved = false;
    pthread_mutex_unlock(&digests->lock);
    if (digests->file != NULL && is_halved)
        td_record_log_rewrite(digests->file, next_stored, &place); /* the array holds the batch */
    else if (digests->file != NULL)
        td_record_log_append(digests->file, digests->writing, count);
    pthread_mutex_unlock(&digests->file_lock);
}

/* ---- use ----------------------------------------------------------------------------------------------- */

bool td_virtual_digests_create(struct td_virtual_digests **out, struct td_error *err)
{
    enum { FIRST_SLOTS = 256 };
    struct td_virtual_digests *digests = calloc(1, sizeof *digests);
    if (digests == NULL)
        return td_error_no_memory(err);
    if (pthread_mutex_init(&digests->lock, NULL) != 0 || pthread_mutex_init(&digests->file_lock, NULL) != 0 ||
        !set_slots(digests, FIRST_SLOTS)) {
        free(digests);
        return td_error_no_memory(err);
    }
    *out = digests;
    return true;
}

bool td_virtual_digests_keep(struct td_virtual_digests *digests, const char *state_dir, const char *root,
                             struct td_error *err)
{
    return state_dir == NULL ||
           td_record_log_open(&kind, state_dir, root, TD_RECORD_LOG_WRITE, take_stored, digests, &digests->file, err);
}

void td_virtual_digests_destroy(struct td_virtual_digests *digests)
{
    if (digests == NULL)
        return;
    td_virtual_digests_flush(digests);
    td_record_log_close(digests->file);
    (void)pthread_mutex_destroy(&digests->lock);
    (void)pthread_mutex_destroy(&digests->file_lock);
    free(digests->records);
    free(digests->by_key);
    free(digests->by_sum);
    free(digests);
}

bool td_virtual_digests_find(struct td_virtual_digests *digests, const struct td_virtual_key *key,
                             struct td_virtual_digest *out)
{
    pthread_mutex_lock(&digests->lock);
    uint32_t known = *slot_of_key(digests, key);
    if (known != NONE)
        *out = digests->records[known - 1].digest;
    pthread_mutex_unlock(&digests->lock);
    return known != NONE;
}

void td_virtual_digests_add(struct td_virtual_digests *digests, const struct td_virtual_key *key,
                            const struct td_virtual_digest *digest)
{
    bool news;
    pthread_mutex_lock(&digests->lock);
    while (digests->batch_count == TD_RECORD_LOG_BATCH) { /* other threads add faster than the disk writes */
        pthread_mutex_unlock(&digests->lock);
        td_virtual_digests_flush(digests);
        pthread_mutex_lock(&digests->lock);
    }
    if (put(digests, key, digest, &news) && news && digests->file != NULL)
        digests->batch[digests->batch_count++] = stored_of(key, digest);
    bool full = digests->batch_count == TD_RECORD_LOG_BATCH || digests->is_halved;
    pthread_mutex_unlock(&digests->lock);
    if (full)
        td_virtual_digests_flush(digests);
}

static bool is_same(const struct td_virtual_revision *a, const struct td_virtual_revision *b)
{
    return a->kind == b->kind && a->engine == b->engine && a->tp_size == b->tp_size && a->rank == b->rank;
}

size_t td_virtual_digests_origins(struct td_virtual_digests *digests, const uint8_t sum[TD_SHA256_BYTES],
                                  struct td_virtual_revision *out, size_t capacity)
{
    size_t count = 0;
    size_t looks = 0;
    pthread_mutex_lock(&digests->lock);
    for (uint32_t at = *slot_of_sum(digests, sum); at != NONE && count < capacity && looks < TD_VIRTUAL_ORIGINS_MAX;
         at = digests->records[at - 1].next, looks++) {
        const struct td_virtual_revision *origin = &digests->records[at - 1].digest.origin;
        bool is_known = origin->kind == TD_REVISION_FILES;
        for (size_t i = 0; i < count && !is_known; i++)
            is_known = is_same(&out[i], origin);
        if (!is_known)
            out[count++] = *origin;
    }
    pthread_mutex_unlock(&digests->lock);
    return count;
}

size_t td_virtual_digests_count(struct td_virtual_digests *digests)
{
    pthread_mutex_lock(&digests->lock);
    size_t count = digests->count;
    pthread_mutex_unlock(&digests->lock);
    return count;
}
