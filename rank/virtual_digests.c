/* Plan: each share is a table of records (catalog/digests/record_log) with an index by key, and one by SHA-256, from
 * which records with an equal SHA-256 are linked, the newest first. A full share drops half of its records, and the log
 * on disk (catalog/digests/record_log) is then rewritten. The log's lock also guards the tables.
 *
 * What is hard: when a key is added again with another digest, the old record stays in the table, but a search by key
 * does not find it. So an origin alone proves nothing. */
#include "rank/virtual_digests.h"

#include "catalog/digests/record_log.h"

#include <assert.h>
#include <stddef.h>
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

enum { OF_DOCUMENT = 256, OF_TENSOR = 512 }; /* one of them is added to the kind */

static const struct td_record_log_kind kind = {.name = "virtual-digests",
                                               .lock_name = "virtual-lock",
                                               .what = "digests of virtual files",
                                               .magic = {'t', 'v', 'i', 'r', 't', 'u', 'a', 'l'},
                                               .version = 1,
                                               .type = 1,
                                               .payload_bytes = sizeof(struct stored)};

struct record {
    struct td_virtual_key key;
    struct td_virtual_digest digest;
    uint64_t last_use; /* grows with each use of any record of the share; 0: is to be dropped */
    bool is_recent;    /* while records are chosen to be dropped: it is one of the last TD_VIRTUAL_RECENT_USES */
    uint32_t link;     /* for the index by SHA-256 */
};

/* The indexes of a table. */
enum { BY_KEY, BY_SUM, INDEXES };

enum { LAYERS, RANKS, DOCUMENTS, TENSORS, SHARES };

static const size_t most_records[SHARES] = {
    [LAYERS] = TD_VIRTUAL_LAYERS_MAX,
    [RANKS] = TD_VIRTUAL_RANKS_MAX,
    [DOCUMENTS] = TD_VIRTUAL_DOCUMENTS_MAX,
    [TENSORS] = TD_VIRTUAL_TENSORS_MAX,
};

struct td_virtual_digests {
    struct td_record_log log;
    /* under the lock of `log` */
    struct td_record_table tables[SHARES];
    uint64_t uses[SHARES]; /* of the records of each share, so that uses of one make those of others no older */
};

/* ---- the tables ---------------------------------------------------------------------------------------- */

static struct record *record_at(const struct td_record_table *table, size_t i)
{
    return (struct record *)(void *)table->records + i;
}

static bool is_large(const struct record *record)
{
    return record->digest.size_bytes >= TD_VIRTUAL_LARGE_BYTES;
}

/* Orders records by which is dropped first: records not used recently, of these small contents before large ones, then
 * the least recently used. */
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

/* Marks `number` records to be dropped: the first ones by compare_worth, or the oldest when memory is short. */
static void mark_dropped(const struct td_record_table *table, size_t number)
{
    struct record **by_worth = malloc(table->count * sizeof(struct record *));
    uint64_t newest = 0;
    for (size_t i = 0; i < table->count; i++)
        newest = record_at(table, i)->last_use > newest ? record_at(table, i)->last_use : newest;
    for (size_t i = 0; i < table->count; i++)
        record_at(table, i)->is_recent = newest - record_at(table, i)->last_use < TD_VIRTUAL_RECENT_USES;
    for (size_t i = 0; by_worth != NULL && i < table->count; i++)
        by_worth[i] = record_at(table, i);
    if (by_worth != NULL)
        qsort(by_worth, table->count, sizeof(struct record *), compare_worth);
    for (size_t i = 0; i < number; i++)
        (by_worth != NULL ? by_worth[i] : record_at(table, i))->last_use = 0;
    free(by_worth);
}

static bool is_kept(void *context, const void *record)
{
    (void)context;
    return ((const struct record *)record)->last_use != 0;
}

static size_t share_of(const struct td_virtual_digest *digest)
{
    if (digest->is_document || digest->is_tensor)
        return digest->is_document ? DOCUMENTS : TENSORS;
    return digest->origin.kind == TD_REVISION_FILES ? LAYERS : RANKS;
}

/* Adds a record. A full share drops half of its records first. Returns false when memory is short. Sets *news to
 * whether the key was unknown or had another digest. */
static bool put_record(struct td_virtual_digests *digests, const struct td_virtual_key *key,
                       const struct td_virtual_digest *digest, bool *news)
{
    const size_t share = share_of(digest);
    struct td_record_table *table = &digests->tables[share];
    const struct record *known = td_record_table_find(table, BY_KEY, key);
    *news = known == NULL || memcmp(known->digest.sum, digest->sum, TD_SHA256_BYTES) != 0;
    if (!*news)
        return true;
    if (table->count == most_records[share]) {
        mark_dropped(table, table->count / 2);
        td_record_table_sift(table, is_kept, NULL);
        digests->log.is_stale = true;
    }
    const struct record record = {.key = *key, .digest = *digest, .last_use = ++digests->uses[share]};
    return td_record_table_add(table, &record);
}

/* Returns the record with this key, which is then its share's most recently used one, or NULL. */
static struct record *use_record(struct td_virtual_digests *digests, const struct td_virtual_key *key)
{
    struct record *record = NULL;
    for (size_t i = 0; record == NULL && i < SHARES; i++) {
        record = td_record_table_find(&digests->tables[i], BY_KEY, key);
        if (record != NULL)
            record->last_use = ++digests->uses[i];
    }
    return record;
}

/* ---- the log ------------------------------------------------------------------------------------------- */

static struct stored stored_of(const struct td_virtual_key *key, const struct td_virtual_digest *digest)
{
    struct stored stored = {.size_bytes = digest->size_bytes,
                            .kind = (uint32_t)digest->origin.kind + (digest->is_document ? OF_DOCUMENT : 0) +
                                    (digest->is_tensor ? OF_TENSOR : 0),
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
    const bool is_tensor = stored.kind >= OF_TENSOR;
    const bool is_document = !is_tensor && stored.kind >= OF_DOCUMENT;
    const uint32_t revision_kind = stored.kind - (is_tensor ? OF_TENSOR : is_document ? OF_DOCUMENT : 0);
    struct td_virtual_digest digest = {.size_bytes = stored.size_bytes,
                                       .is_document = is_document,
                                       .is_tensor = is_tensor,
                                       .origin = {.kind = (enum td_revision_kind)revision_kind,
                                                  .engine = stored.engine,
                                                  .tp_size = stored.tp_size,
                                                  .rank = stored.rank}};
    if (!td_virtual_revision_is_possible(&digest.origin)) /* a layer's, or that of a newer version */
        digest.origin = (struct td_virtual_revision){.kind = TD_REVISION_FILES};
    memcpy(key.bytes, stored.key, sizeof key.bytes);
    memcpy(digest.sum, stored.sum, sizeof digest.sum);
    return put_record(context, &key, &digest, &news);
}

/* Copies the next records of all tables. *at counts through the tables one after the other. */
static size_t next_stored(void *context, uint64_t *at, void *payloads, size_t most)
{
    const struct td_virtual_digests *digests = context;
    struct stored *stored = payloads;
    uint64_t before = 0;
    size_t count = 0;
    for (size_t share = 0; share < SHARES; share++) {
        const struct td_record_table *table = &digests->tables[share];
        for (; *at < before + table->count && count < most; ++*at) {
            const struct record *record = record_at(table, (size_t)(*at - before));
            stored[count++] = stored_of(&record->key, &record->digest);
        }
        before += table->count;
    }
    return count;
}

void td_virtual_digests_flush(struct td_virtual_digests *digests)
{
    td_record_log_flush(&digests->log);
}

void td_virtual_digests_flush_if_due(struct td_virtual_digests *digests)
{
    td_record_log_flush_if_due(&digests->log);
}

/* ---- use ----------------------------------------------------------------------------------------------- */

static bool init_tables(struct td_virtual_digests *digests)
{
    bool ok = true;
    for (size_t i = 0; ok && i < SHARES; i++) {
        digests->tables[i] = (struct td_record_table){
            .record_bytes = sizeof(struct record),
            .index_count = INDEXES,
            .parts = {[BY_KEY] = {.off = offsetof(struct record, key), .bytes = sizeof(struct td_virtual_key)},
                      [BY_SUM] = {.off = offsetof(struct record, digest.sum),
                                  .bytes = TD_SHA256_BYTES,
                                  .link_off = offsetof(struct record, link)}}};
        ok = td_record_table_init(&digests->tables[i]);
    }
    return ok;
}

static void fini_tables(struct td_virtual_digests *digests)
{
    for (size_t i = 0; i < SHARES; i++)
        td_record_table_fini(&digests->tables[i]);
}

bool td_virtual_digests_create(struct td_virtual_digests **out, struct td_error *err)
{
    struct td_virtual_digests *digests = calloc(1, sizeof *digests);
    const struct td_record_log_owner owner = {
        .kind = &kind, .take = take_stored, .next = next_stored, .context = digests};
    if (digests == NULL)
        return td_error_no_memory(err);
    if (!init_tables(digests) || !td_record_log_init(&digests->log, &owner)) {
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
    return state_dir == NULL || td_record_log_open(&digests->log, state_dir, root, TD_RECORD_LOG_WRITE, err);
}

void td_virtual_digests_destroy(struct td_virtual_digests *digests)
{
    if (digests == NULL)
        return;
    td_record_log_fini(&digests->log);
    fini_tables(digests);
    free(digests);
}

bool td_virtual_digests_find(struct td_virtual_digests *digests, const struct td_virtual_key *key,
                             struct td_virtual_digest *out)
{
    pthread_mutex_lock(&digests->log.lock);
    const struct record *record = use_record(digests, key);
    if (record != NULL)
        *out = record->digest;
    pthread_mutex_unlock(&digests->log.lock);
    return record != NULL;
}

void td_virtual_digests_add(struct td_virtual_digests *digests, const struct td_virtual_key *key,
                            const struct td_virtual_digest *digest)
{
    bool news;
    struct stored stored = stored_of(key, digest);
    td_record_log_begin_add(&digests->log);
    bool is_new = put_record(digests, key, digest, &news) && news;
    td_record_log_end_add(&digests->log, is_new ? &stored : NULL);
}

static bool is_same(const struct td_virtual_revision *a, const struct td_virtual_revision *b)
{
    return a->kind == b->kind && a->engine == b->engine && a->tp_size == b->tp_size && a->rank == b->rank;
}

size_t td_virtual_digests_origins(struct td_virtual_digests *digests, bool of_documents,
                                  const uint8_t sum[TD_SHA256_BYTES], struct td_virtual_revision *out, size_t capacity)
{
    const size_t share = of_documents ? DOCUMENTS : RANKS;
    const struct td_record_table *table = &digests->tables[share];
    size_t count = 0;
    size_t looks = 0;
    pthread_mutex_lock(&digests->log.lock);
    for (struct record *record = td_record_table_find(table, BY_SUM, sum);
         record != NULL && count < capacity && looks < TD_VIRTUAL_ORIGINS_MAX;
         record = td_record_table_before(table, BY_SUM, record), looks++) {
        const struct td_virtual_revision *origin = &record->digest.origin;
        bool is_known = origin->kind == TD_REVISION_FILES;
        record->last_use = ++digests->uses[share];
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
