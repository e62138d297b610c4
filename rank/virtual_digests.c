/* Plan: each share has its records in an array, in the order in which they were added. Two hash tables (open
 * addressing) hold numbers of records: one by key, one by SHA-256, from which records with an equal SHA-256 are linked,
 * the newest first. A full array loses a half; both tables are then made anew, and so is the log on disk
 * (catalog/digests/batched_log), whose lock guards the tables, too.
 *
 * Hard: a record whose key was added again with another digest stays in the array but is no longer found by its key, so
 * an origin alone proves nothing. */
#include "rank/virtual_digests.h"

#include "catalog/digests/batched_log.h"
#include "core/array.h"

#include <assert.h>
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
static_assert(TD_VIRTUAL_RECENT_USES <= TD_VIRTUAL_RANKS_MAX / 4, "the half that stays has room for others");

enum { OF_DOCUMENT = 256 }; /* is added to the kind */

static const struct td_record_log_kind kind = {.name = "virtual-digests",
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
    uint64_t last_use; /* grows with each use of any record; 0: is to be dropped */
    bool is_recent;    /* while records are chosen to be dropped: it is one of the last TD_VIRTUAL_RECENT_USES */
    uint32_t next;     /* the record before with an equal SHA-256, plus 1; or NONE */
};

/* The records of one share. */
struct table {
    struct record *records;
    size_t count, capacity, most;
    uint32_t *by_key, *by_sum; /* slot_count slots each, at most half full */
    size_t slot_count;
};

enum { LAYERS, RANKS, DOCUMENTS, SHARES };

static const size_t most_records[SHARES] = {
    [LAYERS] = TD_VIRTUAL_LAYERS_MAX, [RANKS] = TD_VIRTUAL_RANKS_MAX, [DOCUMENTS] = TD_VIRTUAL_DOCUMENTS_MAX};

struct td_virtual_digests {
    struct td_batched_log log;
    /* under the lock of `log` */
    struct table tables[SHARES];
    uint64_t uses;
};

/* ---- the tables ---------------------------------------------------------------------------------------- */

/* Returns the slot that a key or a SHA-256 begins to look at: its first bytes are as good as any hash. */
static size_t first_slot(const struct table *table, const uint8_t *bytes)
{
    uint64_t hash;
    memcpy(&hash, bytes, sizeof hash);
    return (size_t)hash & (table->slot_count - 1);
}

/* Returns the slot of this key, or the free one where it belongs. There is always a free one. */
static uint32_t *slot_of_key(const struct table *table, const struct td_virtual_key *key)
{
    size_t at = first_slot(table, key->bytes);
    while (table->by_key[at] != NONE &&
           memcmp(table->records[table->by_key[at] - 1].key.bytes, key->bytes, sizeof key->bytes) != 0)
        at = (at + 1) & (table->slot_count - 1);
    return &table->by_key[at];
}

/* Does the same for a SHA-256. */
static uint32_t *slot_of_sum(const struct table *table, const uint8_t *sum)
{
    size_t at = first_slot(table, sum);
    while (table->by_sum[at] != NONE &&
           memcmp(table->records[table->by_sum[at] - 1].digest.sum, sum, TD_SHA256_BYTES) != 0)
        at = (at + 1) & (table->slot_count - 1);
    return &table->by_sum[at];
}

/* Puts record i into both tables. */
static void link_record(struct table *table, size_t i)
{
    struct record *record = &table->records[i];
    uint32_t *newest = slot_of_sum(table, record->digest.sum);
    *slot_of_key(table, &record->key) = (uint32_t)i + 1;
    record->next = *newest;
    *newest = (uint32_t)i + 1;
}

static void link_all(struct table *table)
{
    memset(table->by_key, 0, table->slot_count * sizeof *table->by_key);
    memset(table->by_sum, 0, table->slot_count * sizeof *table->by_sum);
    for (size_t i = 0; i < table->count; i++)
        link_record(table, i);
}

/* Makes both tables anew with this number of slots, a power of two. */
static bool set_slots(struct table *table, size_t slot_count)
{
    uint32_t *by_key = calloc(slot_count, sizeof *by_key);
    uint32_t *by_sum = calloc(slot_count, sizeof *by_sum);
    if (by_key == NULL || by_sum == NULL) {
        free(by_key);
        free(by_sum);
        return false;
    }
    free(table->by_key);
    free(table->by_sum);
    table->by_key = by_key;
    table->by_sum = by_sum;
    table->slot_count = slot_count;
    link_all(table);
    return true;
}

static bool is_large(const struct record *record)
{
    return record->digest.size_bytes >= TD_VIRTUAL_LARGE_BYTES;
}

/* Sorts by what may be dropped first: what was not used just now, small contents before large ones, then what was not
 * used for longest. */
static int compare_worth(const void *a, const void *b)
{
    const struct record *x = *(struct record *const *)a;
    const struct record *y = *(struct record *const *)b;
    if (x->is_recent != y->is_recent)
        return x->is_recent ? 1 : -1;
    if (is_large(x) != is_large(y))
        return is_large(x) ? 1 : -1;
    return x->last_use < y->last_use ? -1 : 1; /* no two are equal */
}

/* Marks a number of records to be dropped: those of the least worth, or the oldest where memory is short. */
static void mark_dropped(struct table *table, size_t number)
{
    struct record **by_worth = malloc(table->count * sizeof(struct record *));
    uint64_t newest = 0;
    for (size_t i = 0; i < table->count; i++)
        newest = table->records[i].last_use > newest ? table->records[i].last_use : newest;
    for (size_t i = 0; i < table->count; i++)
        table->records[i].is_recent = newest - table->records[i].last_use < TD_VIRTUAL_RECENT_USES;
    for (size_t i = 0; by_worth != NULL && i < table->count; i++)
        by_worth[i] = &table->records[i];
    if (by_worth != NULL)
        qsort(by_worth, table->count, sizeof(struct record *), compare_worth);
    for (size_t i = 0; i < number; i++)
        (by_worth != NULL ? by_worth[i] : &table->records[i])->last_use = 0;
    free(by_worth);
}

/* Drops a half of the records. */
static void halve(struct table *table)
{
    size_t kept = 0;
    mark_dropped(table, table->count / 2);
    for (size_t i = 0; i < table->count; i++)
        if (table->records[i].last_use != 0)
            table->records[kept++] = table->records[i];
    table->count = kept;
    link_all(table);
}

/* Makes room for one more record. Returns false for want of memory. Sets *halved if others were dropped. */
static bool make_room(struct table *table, bool *halved)
{
    if (table->count == table->most) {
        halve(table);
        *halved = true;
    }
    return TD_ARRAY_GROW(table->records, table->count, table->capacity, NULL) &&
           (table->count + 1 <= table->slot_count / 2 || set_slots(table, table->slot_count * 2));
}

static struct table *table_of(struct td_virtual_digests *digests, const struct td_virtual_digest *digest)
{
    if (digest->is_document)
        return &digests->tables[DOCUMENTS];
    return &digests->tables[digest->origin.kind == TD_REVISION_FILES ? LAYERS : RANKS];
}

/* Adds a record. Returns false when memory is short. Sets *news to whether the key was unknown or had another digest.
 */
static bool put(struct td_virtual_digests *digests, const struct td_virtual_key *key,
                const struct td_virtual_digest *digest, bool *news)
{
    struct table *table = table_of(digests, digest);
    uint32_t known = *slot_of_key(table, key);
    *news = known == NONE || memcmp(table->records[known - 1].digest.sum, digest->sum, TD_SHA256_BYTES) != 0;
    if (!*news)
        return true;
    if (!make_room(table, &digests->log.is_stale))
        return false;
    table->records[table->count] = (struct record){.key = *key, .digest = *digest, .last_use = ++digests->uses};
    link_record(table, table->count);
    table->count++;
    return true;
}

/* Returns the record with this key, or NULL. */
static struct record *find(struct td_virtual_digests *digests, const struct td_virtual_key *key)
{
    struct record *record = NULL;
    for (size_t i = 0; record == NULL && i < SHARES; i++) {
        uint32_t known = *slot_of_key(&digests->tables[i], key);
        if (known != NONE)
            record = &digests->tables[i].records[known - 1];
    }
    return record;
}

/* ---- the log ------------------------------------------------------------------------------------------- */

static struct stored stored_of(const struct td_virtual_key *key, const struct td_virtual_digest *digest)
{
    struct stored stored = {.size_bytes = digest->size_bytes,
                            .kind = (uint32_t)digest->origin.kind + (digest->is_document ? OF_DOCUMENT : 0),
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
    bool is_document = stored.kind >= OF_DOCUMENT;
    uint32_t revision_kind = is_document ? stored.kind - OF_DOCUMENT : stored.kind;
    struct td_virtual_digest digest = {.size_bytes = stored.size_bytes,
                                       .is_document = is_document,
                                       .origin = {.kind = (enum td_revision_kind)revision_kind,
                                                  .engine = stored.engine,
                                                  .tp_size = stored.tp_size,
                                                  .rank = stored.rank}};
    if (!td_virtual_revision_is_possible(&digest.origin)) /* a layer's, or that of a newer version */
        digest.origin = (struct td_virtual_revision){.kind = TD_REVISION_FILES};
    memcpy(key.bytes, stored.key, sizeof key.bytes);
    memcpy(digest.sum, stored.sum, sizeof digest.sum);
    return put(context, &key, &digest, &news);
}

/* Copies the next records of all arrays, which count as one behind the other. */
static size_t next_stored(void *context, uint64_t *at, void *payloads, size_t most)
{
    const struct td_virtual_digests *digests = context;
    struct stored *stored = payloads;
    uint64_t before = 0;
    size_t count = 0;
    for (size_t share = 0; share < SHARES; share++) {
        const struct table *table = &digests->tables[share];
        for (; *at < before + table->count && count < most; ++*at) {
            const struct record *record = &table->records[*at - before];
            stored[count++] = stored_of(&record->key, &record->digest);
        }
        before += table->count;
    }
    return count;
}

void td_virtual_digests_flush(struct td_virtual_digests *digests)
{
    td_batched_log_flush(&digests->log);
}

/* ---- use ----------------------------------------------------------------------------------------------- */

static bool init_tables(struct td_virtual_digests *digests)
{
    enum { FIRST_SLOTS = 256 };
    bool ok = true;
    for (size_t i = 0; ok && i < SHARES; i++) {
        digests->tables[i].most = most_records[i];
        ok = set_slots(&digests->tables[i], FIRST_SLOTS);
    }
    return ok;
}

static void fini_tables(struct td_virtual_digests *digests)
{
    for (size_t i = 0; i < SHARES; i++) {
        free(digests->tables[i].records);
        free(digests->tables[i].by_key);
        free(digests->tables[i].by_sum);
    }
}

bool td_virtual_digests_create(struct td_virtual_digests **out, struct td_error *err)
{
    struct td_virtual_digests *digests = calloc(1, sizeof *digests);
    const struct td_batched_log_owner owner = {
        .kind = &kind, .take = take_stored, .next = next_stored, .context = digests};
    if (digests == NULL)
        return td_error_no_memory(err);
    if (!init_tables(digests) || !td_batched_log_init(&digests->log, &owner)) {
        fini_tables(digests);
        free(digests);
        return td_error_no_memory(err);
    }
    *out = digests;
    return true;
}

bool td_virtual_digests_keep(struct td_virtual_digests *digests, const char *state_dir, const char *root,
                             struct td_error *err)
{
    return state_dir == NULL || td_batched_log_open(&digests->log, state_dir, root, TD_RECORD_LOG_WRITE, err);
}

void td_virtual_digests_destroy(struct td_virtual_digests *digests)
{
    if (digests == NULL)
        return;
    td_batched_log_fini(&digests->log);
    fini_tables(digests);
    free(digests);
}

bool td_virtual_digests_find(struct td_virtual_digests *digests, const struct td_virtual_key *key,
                             struct td_virtual_digest *out)
{
    pthread_mutex_lock(&digests->log.lock);
    struct record *record = find(digests, key);
    if (record != NULL) {
        record->last_use = ++digests->uses;
        *out = record->digest;
    }
    pthread_mutex_unlock(&digests->log.lock);
    return record != NULL;
}

void td_virtual_digests_add(struct td_virtual_digests *digests, const struct td_virtual_key *key,
                            const struct td_virtual_digest *digest)
{
    bool news;
    struct stored stored = stored_of(key, digest);
    td_batched_log_begin_add(&digests->log);
    bool is_new = put(digests, key, digest, &news) && news;
    td_batched_log_end_add(&digests->log, is_new ? &stored : NULL);
}

static bool is_same(const struct td_virtual_revision *a, const struct td_virtual_revision *b)
{
    return a->kind == b->kind && a->engine == b->engine && a->tp_size == b->tp_size && a->rank == b->rank;
}

size_t td_virtual_digests_origins(struct td_virtual_digests *digests, bool of_documents,
                                  const uint8_t sum[TD_SHA256_BYTES], struct td_virtual_revision *out, size_t capacity)
{
    struct table *table = &digests->tables[of_documents ? DOCUMENTS : RANKS];
    size_t count = 0;
    size_t looks = 0;
    pthread_mutex_lock(&digests->log.lock);
    for (uint32_t at = *slot_of_sum(table, sum); at != NONE && count < capacity && looks < TD_VIRTUAL_ORIGINS_MAX;
         at = table->records[at - 1].next, looks++) {
        const struct td_virtual_revision *origin = &table->records[at - 1].digest.origin;
        bool is_known = origin->kind == TD_REVISION_FILES;
        table->records[at - 1].last_use = ++digests->uses;
        for (size_t i = 0; i < count && !is_known; i++)
            is_known = is_same(&out[i], origin);
        if (!is_known)
            out[count++] = *origin;
    }
    pthread_mutex_unlock(&digests->log.lock);
    return count;
}

size_t td_virtual_digests_count(struct td_virtual_digests *digests)
{
    pthread_mutex_lock(&digests->log.lock);
    size_t count = 0;
    for (size_t i = 0; i < SHARES; i++)
        count += digests->tables[i].count;
    pthread_mutex_unlock(&digests->log.lock);
    return count;
}
