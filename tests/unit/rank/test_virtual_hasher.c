/* The threads that hash virtual files. Bodies are of blobs that this test controls: they wait at a gate, fail, or
 * change. */
#include "rank/virtual_hasher.h"

#include "core/clock.h"
#include "storage/file_source.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOB_BYTES = 1000000, WAITERS = 8 };

/* A generated blob whose byte i is i modulo 251. */
struct gated {
    struct td_blob blob; /* first */
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool is_open, is_read; /* under the lock: reading waits until the gate is open; a read has begun */
    bool fails;
    _Atomic bool has_changed;
    _Atomic uint64_t read_bytes, looks; /* looks: how often somebody asked whether it has changed */
};

static bool gated_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct gated *gated = (struct gated *)(void *)blob;
    pthread_mutex_lock(&gated->lock);
    gated->is_read = true;
    pthread_cond_broadcast(&gated->opened);
    while (!gated->is_open)
        pthread_cond_wait(&gated->opened, &gated->lock);
    pthread_mutex_unlock(&gated->lock);
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)out)[i] = (uint8_t)((off + i) % 251);
    atomic_fetch_add(&gated->read_bytes, len);
    return !gated->fails || td_error_set(err, TD_IO, "the disk is broken");
}

static bool gated_unchanged(struct td_blob *blob)
{
    struct gated *gated = (struct gated *)(void *)blob;
    atomic_fetch_add(&gated->looks, 1);
    return !atomic_load(&gated->has_changed);
}

static void gated_destroy(struct td_blob *blob)
{
    (void)blob; /* the test owns it */
}

static const struct td_blob_class gated_class = {
    .destroy = gated_destroy, .read = gated_read, .unchanged = gated_unchanged};

static void gated_init(struct gated *gated, bool is_open)
{
    memset(gated, 0, sizeof *gated);
    gated->blob.class = &gated_class;
    gated->blob.len_bytes = BLOB_BYTES;
    atomic_init(&gated->blob.refs, 1);
    gated->is_open = is_open;
    assert_int_equal(pthread_mutex_init(&gated->lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&gated->opened, NULL), 0);
}

static void gated_open(struct gated *gated)
{
    pthread_mutex_lock(&gated->lock);
    gated->is_open = true;
    pthread_cond_broadcast(&gated->opened);
    pthread_mutex_unlock(&gated->lock);
}

/* Checks that nobody holds the blob any more. */
static void gated_fini(struct gated *gated)
{
    assert_int_equal(atomic_load(&gated->blob.refs), 1);
    (void)pthread_mutex_destroy(&gated->lock);
    (void)pthread_cond_destroy(&gated->opened);
}

/* A hasher, and a blob that readers wait for. */
struct place {
    struct td_virtual_hasher *hasher;
    struct gated gated;
};

static void open_place(struct place *place)
{
    gated_init(&place->gated, false);
    assert_true(td_virtual_hasher_create(&place->hasher, NULL));
}

static void close_place(struct place *place)
{
    gated_open(&place->gated);
    td_virtual_hasher_destroy(place->hasher);
    gated_fini(&place->gated);
}

FIXTURE(hasher, struct place, open_place, close_place)

static void gated_wait_read(struct gated *gated)
{
    pthread_mutex_lock(&gated->lock);
    while (!gated->is_read)
        pthread_cond_wait(&gated->opened, &gated->lock);
    pthread_mutex_unlock(&gated->lock);
}

static struct td_virtual_key key_of(uint64_t i)
{
    struct td_virtual_key key = {{0}};
    memcpy(key.bytes, &i, sizeof i);
    return key;
}

/* The recipe of a body that is one blob. */
static _Atomic size_t open_bodies; /* that recipes have made so far */

static bool open_blob(void *context, struct td_body *body, struct td_error *err)
{
    struct td_blob *blob = context;
    atomic_fetch_add(&open_bodies, 1);
    return td_body_append(body, blob, 0, blob->len_bytes, err);
}

static void free_blob(void *context)
{
    td_blob_unref(context);
}

static bool begin_as(enum td_revision_kind kind, struct td_virtual_hasher *hasher, uint64_t i, struct td_blob *blob,
                     struct td_error *err)
{
    struct td_virtual_file file = {
        .key = key_of(i),
        .origin = {.kind = kind, .tp_size = 9, .rank = i},
        .size_bytes = blob->len_bytes + TD_VIRTUAL_QUICK_BYTES, /* for the thread of all files */
        .owner = i % 8,
        .client = i % 8,
        .recipe = {.context = td_blob_ref(blob), .open = open_blob, .free = free_blob},
    };
    bool ok = td_virtual_hasher_begin(hasher, &file, err);
    assert_null(file.recipe.context);
    return ok;
}

static bool begin(struct td_virtual_hasher *hasher, uint64_t i, struct td_blob *blob, struct td_error *err)
{
    return begin_as(TD_REVISION_FILES, hasher, i, blob, err);
}

static enum td_virtual_state wait_for(struct td_virtual_hasher *hasher, uint64_t i, uint64_t until_ns,
                                      struct td_virtual_digest *out, struct td_error *err)
{
    struct td_virtual_key key = key_of(i);
    struct td_virtual_progress progress;
    enum td_virtual_state state = td_virtual_hasher_wait(hasher, &key, until_ns, NULL, out, &progress, err);
    assert_true(progress.done_bytes <= progress.total_bytes);
    assert_int_equal(progress.total_bytes > 0, state == TD_VIRTUAL_UNDER_WAY);
    return state;
}

static uint64_t soon(void)
{
    return td_clock_ns() + UINT64_C(60000000000);
}

static void check_digest(const struct td_virtual_digest *digest, uint64_t i)
{
    static uint8_t bytes[BLOB_BYTES];
    uint8_t sum[TD_SHA256_BYTES];
    for (size_t k = 0; k < sizeof bytes; k++)
        bytes[k] = (uint8_t)(k % 251);
    td_sha256(bytes, sizeof bytes, sum);
    assert_memory_equal(digest->sum, sum, sizeof sum);
    assert_int_equal(digest->size_bytes, BLOB_BYTES);
    assert_int_equal(digest->origin.rank, i);
}

struct waiter {
    struct td_virtual_hasher *hasher;
    struct gated *gated;
    pthread_t thread;
    enum td_virtual_state state;
    struct td_virtual_digest digest;
};

static void *waiter_main(void *argument)
{
    struct waiter *waiter = argument;
    (void)begin(waiter->hasher, 1, &waiter->gated->blob, NULL);
    waiter->state = wait_for(waiter->hasher, 1, soon(), &waiter->digest, NULL);
    return NULL;
}

/* shows: security.md oci-many-hashes */
static void many_requests_hash_once(void **state)
{
    struct place *place = *state;
    struct waiter waiters[WAITERS];
    assert_int_equal(wait_for(place->hasher, 1, soon(), &waiters[0].digest, NULL), TD_VIRTUAL_UNKNOWN);
    for (size_t i = 0; i < WAITERS; i++) {
        waiters[i] = (struct waiter){.hasher = place->hasher, .gated = &place->gated};
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, waiter_main, &waiters[i]), 0);
    }
    gated_wait_read(&place->gated);
    gated_open(&place->gated);
    for (size_t i = 0; i < WAITERS; i++) {
        assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
        assert_int_equal(waiters[i].state, TD_VIRTUAL_KNOWN);
        check_digest(&waiters[i].digest, 1);
    }
    assert_int_equal(atomic_load(&place->gated.read_bytes), BLOB_BYTES);
    assert_true(begin(place->hasher, 1, &place->gated.blob, NULL)); /* it is known: nothing is to be done */
    assert_int_equal(wait_for(place->hasher, 1, 0, &waiters[0].digest, NULL), TD_VIRTUAL_KNOWN);
    assert_int_equal(atomic_load(&place->gated.read_bytes), BLOB_BYTES);
}

/* A request that does not wait long enough leaves the work to the next one. */
static void work_goes_on_without_a_waiter(void **state)
{
    struct place *place = *state;
    struct td_virtual_digest digest;
    assert_true(begin(place->hasher, 1, &place->gated.blob, NULL));
    assert_int_equal(wait_for(place->hasher, 1, 0, &digest, NULL), TD_VIRTUAL_UNDER_WAY);
    assert_int_equal(wait_for(place->hasher, 1, td_clock_ns() + 2000000, &digest, NULL), TD_VIRTUAL_UNDER_WAY);
    assert_true(begin(place->hasher, 1, &place->gated.blob, NULL));
    assert_int_equal(wait_for(place->hasher, 1, 1, &digest, NULL), TD_VIRTUAL_UNDER_WAY); /* a time in the past */
    gated_open(&place->gated);
    assert_int_equal(wait_for(place->hasher, 1, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    check_digest(&digest, 1);
}

static bool is_asked(void *context)
{
    return atomic_load((_Atomic bool *)context);
}

static void *ask_later(void *argument)
{
    nap_ms(20); /* either order must work */
    atomic_store((_Atomic bool *)argument, true);
    return NULL;
}

/* A request that nobody needs any more does not wait on. */
/* shows: security.md oci-many-hashes */
static void a_cancelled_request_waits_no_longer(void **state)
{
    struct place *place = *state;
    struct td_virtual_digest digest;
    struct td_virtual_progress progress;
    pthread_t thread;
    struct td_virtual_key key = key_of(1);
    _Atomic bool asked = false;
    const struct td_cancel cancel = {.is_asked = is_asked, .context = &asked};
    assert_true(begin(place->hasher, 1, &place->gated.blob, NULL));
    assert_int_equal(pthread_create(&thread, NULL, ask_later, &asked), 0);
    uint64_t began_ns = td_clock_ns();
    assert_int_equal(td_virtual_hasher_wait(place->hasher, &key, soon(), &cancel, &digest, &progress, NULL),
                     TD_VIRTUAL_UNDER_WAY);
    assert_true(td_clock_ns() - began_ns < UINT64_C(10000000000));
    assert_int_equal(pthread_join(thread, NULL), 0);
    gated_open(&place->gated);
}

/* A body that changes while it is hashed gives no digest; the next try does. */
/* shows: security.md oci-hash-changes */
static void a_change_in_the_middle_gives_no_digest(void **state)
{
    struct place *place = *state;
    struct td_virtual_digest digest;
    struct td_error err = TD_ERROR_INIT;
    struct waiter waiter = {.hasher = place->hasher, .gated = &place->gated};
    assert_int_equal(pthread_create(&waiter.thread, NULL, waiter_main, &waiter), 0);
    gated_wait_read(&place->gated);
    atomic_store(&place->gated.has_changed, true);
    gated_open(&place->gated);
    assert_int_equal(pthread_join(waiter.thread, NULL), 0);
    assert_int_equal(waiter.state, TD_VIRTUAL_FAILED);
    assert_int_equal(wait_for(place->hasher, 1, soon(), &digest, &err), TD_VIRTUAL_FAILED);
    CHECK(err.code == TD_UNAVAILABLE && strstr(err.message, "changed") != NULL, "%s", err.message);
    assert_int_equal(td_virtual_digests_count(td_virtual_hasher_digests(place->hasher)), 0);
    atomic_store(&place->gated.has_changed, false);
    assert_true(begin(place->hasher, 1, &place->gated.blob, NULL));
    assert_int_equal(wait_for(place->hasher, 1, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    check_digest(&digest, 1);
}

static void whoever_waits_learns_why_it_failed(void **state)
{
    (void)state;
    struct td_virtual_hasher *hasher;
    struct td_virtual_digest digest;
    struct td_error err = TD_ERROR_INIT;
    struct gated first;
    struct gated broken;
    gated_init(&first, false);
    gated_init(&broken, true);
    broken.fails = true;
    assert_true(td_virtual_hasher_create(&hasher, NULL));
    assert_true(begin(hasher, 1, &first.blob, NULL));
    assert_true(begin(hasher, 2, &broken.blob, NULL)); /* waits behind the first */
    struct waiter waiter = {.hasher = hasher, .gated = &first};
    assert_int_equal(pthread_create(&waiter.thread, NULL, waiter_main, &waiter), 0);
    gated_open(&first);
    for (int late = 0; late < 2; late++) { /* whether hashing has failed already when the request asks */
        td_error_init(&err);
        assert_int_equal(wait_for(hasher, 2, soon(), &digest, &err), TD_VIRTUAL_FAILED);
        CHECK(err.code == TD_IO && strstr(err.message, "broken") != NULL, "%s", err.message);
    }
    assert_int_equal(pthread_join(waiter.thread, NULL), 0);
    assert_int_equal(waiter.state, TD_VIRTUAL_KNOWN);
    struct td_virtual_key key = key_of(2);
    assert_false(td_virtual_hasher_has(hasher, &key));
    broken.fails = false;
    assert_true(begin(hasher, 2, &broken.blob, NULL)); /* a failure is no reason not to try again */
    assert_int_equal(wait_for(hasher, 2, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    assert_true(td_virtual_hasher_has(hasher, &key));
    td_virtual_hasher_destroy(hasher);
    gated_fini(&first);
    gated_fini(&broken);
}

/* shows: security.md oci-open-files oci-many-hashes */
static void the_queue_is_bounded(void **state)
{
    (void)state;
    struct td_virtual_hasher *hasher;
    struct td_virtual_digest digest;
    struct td_error err = TD_ERROR_INIT;
    struct gated gated;
    struct td_blob *small = NULL;
    gated_init(&gated, false);
    assert_true(td_blob_from_heap(calloc(1, 10), 10, &small, NULL));
    assert_true(td_virtual_hasher_create(&hasher, NULL));
    assert_true(begin(hasher, 0, &gated.blob, NULL));
    gated_wait_read(&gated);
    size_t open_before = atomic_load(&open_bodies);
    for (uint64_t i = 1; i < TD_VIRTUAL_HASHER_QUEUE; i++) {
        bool is_rank = i <= TD_VIRTUAL_HASHER_RANKS;
        assert_true(begin_as(is_rank ? TD_REVISION_RANK : TD_REVISION_FILES, hasher, i, small, NULL));
        if (i == TD_VIRTUAL_HASHER_RANKS)
            assert_false(begin_as(TD_REVISION_RANK, hasher, 1000, small, NULL)); /* other files have room */
    }
    assert_false(begin(hasher, TD_VIRTUAL_HASHER_QUEUE, small, &err));
    CHECK(err.code == TD_RESOURCE_EXHAUSTED, "%s", err.message);
    assert_true(begin(hasher, 5, small, NULL));               /* is in it */
    assert_int_equal(atomic_load(&open_bodies), open_before); /* what waits holds no files open */
    gated_open(&gated);
    assert_int_equal(wait_for(hasher, TD_VIRTUAL_HASHER_QUEUE - 1, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    assert_true(begin(hasher, TD_VIRTUAL_HASHER_QUEUE, small, NULL));
    assert_int_equal(wait_for(hasher, TD_VIRTUAL_HASHER_QUEUE, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    assert_true(begin_as(TD_REVISION_RANK, hasher, 1000, small, NULL));
    assert_int_equal(wait_for(hasher, 1000, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    td_virtual_hasher_destroy(hasher);
    assert_false(td_blob_is_shared(small));
    td_blob_unref(small);
    gated_fini(&gated);
}

/* Begins to hash a large file of this kind, of an owner, for a client. */
static bool begin_for(struct td_virtual_hasher *hasher, enum td_revision_kind kind, uint64_t owner, uint64_t client,
                      uint64_t i, struct td_blob *blob, struct td_error *err)
{
    struct td_virtual_file file = {
        .key = key_of(i),
        .origin = {.kind = kind, .tp_size = 9, .rank = i},
        .size_bytes = UINT64_C(1) << 40,
        .owner = owner,
        .client = client,
        .recipe = {.context = td_blob_ref(blob), .open = open_blob, .free = free_blob},
    };
    return td_virtual_hasher_begin(hasher, &file, err);
}

/* Begins to hash files from number `first` on until one is refused with a message that has `part`. Returns the number
 * of accepted files. */
static size_t begin_until_refused(struct td_virtual_hasher *hasher, enum td_revision_kind kind, uint64_t owners,
                                  uint64_t client, uint64_t first, struct td_blob *blob, const char *part)
{
    struct td_error err = TD_ERROR_INIT;
    size_t count = 0;
    while (begin_for(hasher, kind, client * 1000 + count % owners, client, first + count, blob, &err))
        count++;
    CHECK(err.code == TD_RESOURCE_EXHAUSTED && strstr(err.message, part) != NULL, "%s", err.message);
    return count;
}

/* A client and a model each get a share of the places. A client without files displaces a file of the client with most
 * files. */
/* shows: security.md oci-open-files oci-many-hashes */
static void clients_and_owners_have_shares(void **state)
{
    static const enum td_revision_kind R = TD_REVISION_RANK, F = TD_REVISION_FILES;
    struct place *place = *state;
    struct td_virtual_digest digest;
    struct td_error err = TD_ERROR_INIT;
    assert_true(begin_for(place->hasher, F, 1, 1, 1, &place->gated.blob, NULL)); /* the thread is busy with it */
    gated_wait_read(&place->gated);
    assert_int_equal(begin_until_refused(place->hasher, R, 1, 2, 1000, &place->gated.blob, "32 files of this model"),
                     32);
    assert_true(begin_for(place->hasher, R, 9, 2, 1900, &place->gated.blob, NULL)); /* another model has room */
    assert_int_equal(begin_until_refused(place->hasher, R, 20, 3, 2000, &place->gated.blob, "64 files wait"), 31);
    assert_true(
        begin_for(place->hasher, R, 9, 4, 3000, &place->gated.blob, NULL)); /* displaces the latest of client 2 */
    assert_int_equal(wait_for(place->hasher, 3000, 0, &digest, NULL), TD_VIRTUAL_UNDER_WAY);
    assert_int_equal(wait_for(place->hasher, 1031, 0, &digest, NULL), TD_VIRTUAL_UNKNOWN);
    assert_int_equal(wait_for(place->hasher, 1030, 0, &digest, NULL), TD_VIRTUAL_UNDER_WAY);
    assert_false(
        begin_for(place->hasher, R, 9, 4, 3001, &place->gated.blob, &err)); /* a client with a file displaces none */
    assert_true(begin_for(place->hasher, F, 9, 4, 3002, &place->gated.blob, NULL)); /* other files have room */
    gated_open(&place->gated);
}

/* A client alone gets three quarters of the places, both of all and of those for rank files. */
/* shows: security.md oci-open-files oci-many-hashes */
static void one_client_does_not_take_all(void **state)
{
    struct place *place = *state;
    assert_true(begin_for(place->hasher, TD_REVISION_FILES, 1, 1, 1, &place->gated.blob, NULL));
    gated_wait_read(&place->gated);
    assert_int_equal(
        begin_until_refused(place->hasher, TD_REVISION_RANK, 10, 2, 1000, &place->gated.blob, "48 files that you"),
        TD_VIRTUAL_HASHER_CLIENT_RANKS);
    assert_int_equal(
        begin_until_refused(place->hasher, TD_REVISION_FILES, 10, 2, 2000, &place->gated.blob, "384 files that you"),
        TD_VIRTUAL_HASHER_CLIENT - TD_VIRTUAL_HASHER_CLIENT_RANKS);
    assert_true(begin_for(place->hasher, TD_REVISION_RANK, 1, 3, 5000, &place->gated.blob, NULL));
    gated_open(&place->gated);
}

/* Begins with a blob as number i, with its own size. */
static bool begin_of(struct td_virtual_hasher *hasher, uint64_t owner, bool is_unasked, uint64_t i,
                     struct td_blob *blob, uint64_t size_bytes)
{
    struct td_virtual_file file = {
        .key = key_of(i),
        .origin = {.kind = TD_REVISION_FILES},
        .size_bytes = size_bytes,
        .owner = owner,
        .is_unasked = is_unasked,
        .recipe = {.context = td_blob_ref(blob), .open = open_blob, .free = free_blob},
    };
    return td_virtual_hasher_begin(hasher, &file, NULL);
}

/* Small files do not wait for large ones, and owners take turns. */
/* shows: security.md oci-many-hashes */
static void nobody_waits_for_all_of_another(void **state)
{
    (void)state;
    struct td_virtual_hasher *hasher;
    struct td_virtual_digest digest;
    struct gated gated;
    struct gated second;
    struct td_blob *small = NULL;
    gated_init(&gated, false);
    gated_init(&second, false);
    assert_true(td_blob_from_heap(calloc(1, 10), 10, &small, NULL));
    assert_true(td_virtual_hasher_create(&hasher, NULL));
    assert_true(begin_of(hasher, 1, false, 0, &gated.blob, UINT64_C(1) << 40));
    gated_wait_read(&gated);
    assert_true(begin_of(hasher, 2, false, 1, small, 10));
    assert_int_equal(wait_for(hasher, 1, soon(), &digest, NULL), TD_VIRTUAL_KNOWN); /* the gate is closed */
    for (uint64_t i = 2; i <= TD_VIRTUAL_HASHER_OWN; i++) /* the second of them waits at the other gate */
        assert_true(begin_of(hasher, 1, false, i, i == 3 ? &second.blob : small, UINT64_C(1) << 40));
    assert_false(begin_of(hasher, 1, false, 1000, small, 10)); /* one owner's share is full */
    assert_true(begin_of(hasher, 2, false, 1001, small, UINT64_C(1) << 40));
    gated_open(&gated);
    assert_int_equal(wait_for(hasher, 1001, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    assert_int_equal(wait_for(hasher, TD_VIRTUAL_HASHER_OWN, 0, &digest, NULL), TD_VIRTUAL_UNDER_WAY);
    gated_open(&second);
    td_virtual_hasher_destroy(hasher);
    td_blob_unref(small);
    gated_fini(&gated);
    gated_fini(&second);
}

/* One owner's small files are hashed while its large ones wait. That puts no other owner behind all of them. */
static void small_files_do_not_use_up_the_turns_of_large_ones(void **state)
{
    (void)state;
    enum { LARGE = 40, SMALL = 40 };
    const uint64_t large_bytes = UINT64_C(1) << 40;
    struct td_virtual_hasher *hasher;
    struct td_virtual_digest digest;
    struct gated gates[2];
    struct td_blob *small = NULL;
    gated_init(&gates[0], false);
    gated_init(&gates[1], false);
    assert_true(td_blob_from_heap(calloc(1, 10), 10, &small, NULL));
    assert_true(td_virtual_hasher_create(&hasher, NULL));
    assert_true(begin_of(hasher, 1, false, 0, &gates[0].blob, large_bytes));
    gated_wait_read(&gates[0]);
    for (uint64_t i = 1; i < LARGE; i++)
        assert_true(begin_of(hasher, 1, false, i, &gates[1].blob, large_bytes));
    for (uint64_t i = LARGE; i < LARGE + SMALL; i++)
        assert_true(begin_of(hasher, 1, false, i, small, 10));
    for (uint64_t i = LARGE; i < LARGE + SMALL; i++)
        assert_int_equal(wait_for(hasher, i, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    assert_true(begin_of(hasher, 2, false, 1000, small, large_bytes));
    gated_open(&gates[0]);
    assert_int_equal(wait_for(hasher, 1000, soon(), &digest, NULL), TD_VIRTUAL_KNOWN); /* the other gate is closed */
    assert_int_equal(wait_for(hasher, 1, 0, &digest, NULL), TD_VIRTUAL_UNDER_WAY);
    gated_open(&gates[1]);
    td_virtual_hasher_destroy(hasher);
    td_blob_unref(small);
    gated_fini(&gates[0]);
    gated_fini(&gates[1]);
}

/* A recipe of a body of one blob in 1,000 extents, which are not in its order. */
static bool open_pieces(void *context, struct td_body *body, struct td_error *err)
{
    struct td_blob *blob = context;
    enum { PIECES = 1000, PIECE_BYTES = BLOB_BYTES / PIECES };
    for (uint64_t i = PIECES; i > 0; i--)
        if (!td_body_append(body, blob, (i - 1) * PIECE_BYTES, PIECE_BYTES, err))
            return false;
    assert_int_equal(body->extent_count, PIECES);
    return true;
}

/* Whether a file has changed is asked at the end, and not for each of its extents. */
static void many_extents_need_few_looks(void **state)
{
    (void)state;
    struct td_virtual_hasher *hasher;
    struct td_virtual_digest digest;
    struct gated gated;
    gated_init(&gated, true);
    assert_true(td_virtual_hasher_create(&hasher, NULL));
    struct td_virtual_file file = {
        .key = key_of(1),
        .size_bytes = BLOB_BYTES,
        .recipe = {.context = td_blob_ref(&gated.blob), .open = open_pieces, .free = free_blob},
    };
    assert_true(td_virtual_hasher_begin(hasher, &file, NULL));
    assert_int_equal(wait_for(hasher, 1, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    assert_int_equal(digest.size_bytes, BLOB_BYTES);
    assert_int_equal(atomic_load(&gated.looks), 1); /* the body is shorter than 16 MiB */
    atomic_store(&gated.has_changed, true);
    file.key = key_of(2);
    file.recipe =
        (struct td_virtual_recipe){.context = td_blob_ref(&gated.blob), .open = open_pieces, .free = free_blob};
    assert_true(td_virtual_hasher_begin(hasher, &file, NULL));
    assert_int_equal(wait_for(hasher, 2, soon(), &digest, NULL), TD_VIRTUAL_FAILED);
    td_virtual_hasher_destroy(hasher);
    gated_fini(&gated);
}

/* Digests that nobody knows have the files of one owner hashed at a time. */
/* shows: security.md oci-many-hashes */
static void what_nobody_asked_for_is_of_one_owner(void **state)
{
    struct place *place = *state;
    struct td_virtual_digest digest;
    assert_true(begin_of(place->hasher, 1, true, 0, &place->gated.blob, 10));
    assert_true(begin_of(place->hasher, 1, true, 1, &place->gated.blob, 10));
    assert_false(begin_of(place->hasher, 2, true, 2, &place->gated.blob, 10));
    assert_true(begin_of(place->hasher, 2, false, 2, &place->gated.blob, 10));
    gated_open(&place->gated);
    assert_int_equal(wait_for(place->hasher, 0, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    assert_int_equal(wait_for(place->hasher, 1, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    assert_true(begin_of(place->hasher, 3, true, 3, &place->gated.blob, 10));
}

struct opening {
    struct gated *gated;
    const struct td_cancel *cancel;
};

/* Opens the gate when the hasher is being stopped. */
static void *open_when_stopped(void *argument)
{
    const struct opening *opening = argument;
    while (!td_cancel_is_asked(opening->cancel))
        (void)sched_yield();
    gated_open(opening->gated);
    return NULL;
}

/* The hasher stops in the middle of a file, and drops what waits. */
/* shows: security.md oci-many-hashes */
static void it_stops_in_the_middle(void **state)
{
    (void)state;
    struct td_virtual_hasher *hasher;
    struct gated gated;
    pthread_t thread;
    gated_init(&gated, false);
    assert_true(td_virtual_hasher_create(&hasher, NULL));
    const struct td_cancel *cancel = td_virtual_hasher_cancel(hasher);
    assert_false(td_cancel_is_asked(cancel));
    for (uint64_t i = 0; i < 20; i++)
        assert_true(begin(hasher, i, &gated.blob, NULL));
    gated_wait_read(&gated);
    struct opening opening = {.gated = &gated, .cancel = cancel};
    assert_int_equal(pthread_create(&thread, NULL, open_when_stopped, &opening), 0);
    td_virtual_hasher_destroy(hasher);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&gated.read_bytes) < 20 * (uint64_t)BLOB_BYTES);
    gated_fini(&gated);
    td_virtual_hasher_destroy(NULL);
}

/* ---- the page cache ------------------------------------------------------------------------------------ */

enum { FILE_BYTES = 40 * 1024 * 1024 + 12345 };

/* Returns how many of the file's pages are in memory. */
static size_t resident_pages(const char *path)
{
    static unsigned char pages[FILE_BYTES / 4096 + 1];
    size_t count = 0;
    int fd = open(path, O_RDONLY);
    void *at = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED && mincore(at, FILE_BYTES, pages) == 0);
    for (size_t i = 0; i < sizeof pages; i++)
        count += pages[i] & 1;
    assert_int_equal(munmap(at, FILE_BYTES), 0);
    (void)close(fd);
    return count;
}

/* Drops the file from the page cache. Returns whether its pages left, which they do only if a disk is behind them. */
static bool drop(const char *path)
{
    int fd = open(path, O_RDONLY);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    (void)close(fd);
    return resident_pages(path) == 0;
}

/* Hashes the file, mapped as for an answer, as number i. */
static void hash_file(const struct tree *tree, uint64_t i, const uint8_t wanted[TD_SHA256_BYTES])
{
    struct td_mapping_cache cache;
    struct td_root *root;
    struct td_file_source source = {.path = "f"};
    struct td_virtual_hasher *hasher;
    struct td_virtual_digest digest;
    struct td_blob *blob = NULL;
    int fd;
    assert_true(td_mapping_cache_init(&cache, 8, 0, false, NULL));
    assert_true(td_root_create(tree->path, &root, NULL));
    assert_true(td_root_open_file(root, "f", &fd, &source.id, NULL));
    (void)close(fd);
    assert_true(td_file_source_map(&cache, root, &source, &blob, NULL));
    assert_true(td_virtual_hasher_create(&hasher, NULL));
    assert_true(begin(hasher, i, blob, NULL));
    assert_int_equal(wait_for(hasher, i, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    assert_memory_equal(digest.sum, wanted, TD_SHA256_BYTES);
    td_virtual_hasher_destroy(hasher);
    td_blob_unref(blob);
    td_file_source_forget(&cache, &source);
    td_root_unref(root);
    td_mapping_cache_fini(&cache);
}

/* ---- sets of tensors ----------------------------------------------------------------------------------- */

/* A set of blobs, each a content of its own with a key from SET_KEYS on. */
enum { SET_KEYS = 1000 };

struct set {
    struct gated *gated[3];
    uint64_t sizes[3]; /* bytes of each blob that are its content */
    size_t count, next;
    size_t opened; /* contents that were opened */
    bool is_freed;
};

static bool next_of_set(void *context, struct td_virtual_key *key)
{
    struct set *set = context;
    if (set->next == set->count)
        return false;
    *key = key_of(SET_KEYS + set->next++);
    return true;
}

static bool open_of_set(void *context, struct td_body *body, struct td_error *err)
{
    struct set *set = context;
    assert_int_equal(body->extent_count, 0);
    set->opened++;
    return td_body_append(body, &set->gated[set->next - 1]->blob, 0, set->sizes[set->next - 1], err);
}

static void free_set(void *context)
{
    ((struct set *)context)->is_freed = true;
}

static void begin_set(struct td_virtual_hasher *hasher, uint64_t i, struct set *set)
{
    struct td_virtual_file file = {.key = key_of(i), .size_bytes = 3 * BLOB_BYTES};
    file.recipe =
        (struct td_virtual_recipe){.context = set, .open = open_of_set, .next = next_of_set, .free = free_set};
    assert_true(td_virtual_hasher_begin(hasher, &file, NULL));
}

/* Checks that the digest of content i of the set is that of the first size_bytes bytes of its blob. */
static void check_of_set(struct td_virtual_hasher *hasher, uint64_t i, size_t size_bytes)
{
    static uint8_t bytes[BLOB_BYTES];
    uint8_t sum[TD_SHA256_BYTES];
    struct td_virtual_key key = key_of(SET_KEYS + i);
    struct td_virtual_digest found;
    for (size_t k = 0; k < size_bytes; k++)
        bytes[k] = (uint8_t)(k % 251);
    td_sha256(bytes, size_bytes, sum);
    assert_true(td_virtual_digests_find(td_virtual_hasher_digests(hasher), &key, &found));
    assert_memory_equal(found.sum, sum, sizeof sum);
    assert_true(found.is_tensor && found.size_bytes == size_bytes);
}

/* Each content has a digest of its own, also an empty one; the set itself has none. What is known is not read again. */
static void a_set_has_a_digest_for_each(void **state)
{
    struct place *place = *state;
    struct td_virtual_digest digest;
    struct set set = {
        .gated = {&place->gated, &place->gated, &place->gated}, .sizes = {BLOB_BYTES, 0, 1000}, .count = 3};
    struct set again = set;
    begin_set(place->hasher, 1, &set);
    gated_wait_read(&place->gated);
    assert_int_equal(wait_for(place->hasher, 1, 0, &digest, NULL), TD_VIRTUAL_UNDER_WAY);
    gated_open(&place->gated);
    assert_int_equal(wait_for(place->hasher, 1, soon(), &digest, NULL), TD_VIRTUAL_KNOWN);
    for (size_t i = 0; i < set.count; i++)
        check_of_set(place->hasher, i, set.sizes[i]);
    assert_true(set.is_freed && set.opened == 3);
    assert_int_equal(td_virtual_digests_count(td_virtual_hasher_digests(place->hasher)), 3);
    const uint64_t read_bytes = atomic_load(&place->gated.read_bytes);
    begin_set(place->hasher, 1, &again);
    while (wait_for(place->hasher, 1, soon(), &digest, NULL) == TD_VIRTUAL_UNDER_WAY)
        (void)sched_yield();
    td_virtual_hasher_destroy(place->hasher);
    assert_true(again.is_freed && again.opened == 0 && atomic_load(&place->gated.read_bytes) == read_bytes);
    assert_true(td_virtual_hasher_create(&place->hasher, NULL));
}

/* A content that fails ends the set, and the digests before it stay. */
static void a_set_ends_with_its_first_failure(void **state)
{
    struct place *place = *state;
    struct gated good;
    struct td_virtual_digest digest;
    struct td_error err = TD_ERROR_INIT;
    struct td_virtual_key key = key_of(SET_KEYS + 2);
    gated_init(&good, true);
    place->gated.fails = true;
    gated_open(&place->gated);
    struct set set = {.gated = {&good, &place->gated, &good}, .sizes = {1000, 1000, 1000}, .count = 3};
    begin_set(place->hasher, 1, &set);
    gated_wait_read(&place->gated);
    assert_int_equal(wait_for(place->hasher, 1, soon(), &digest, &err), TD_VIRTUAL_FAILED);
    assert_int_equal(err.code, TD_IO);
    check_of_set(place->hasher, 0, 1000);
    assert_false(td_virtual_digests_find(td_virtual_hasher_digests(place->hasher), &key, &digest));
    assert_true(set.is_freed && set.opened == 2);
    gated_fini(&good);
}

/* Pages that were in the cache stay there; pages that only hashing read leave it. */
static void the_page_cache_is_left_as_it_was(void **state)
{
    (void)state;
    enum { PAGES = FILE_BYTES / 4096 };
    struct tree tree;
    char path[TREE_PATH_BYTES];
    uint8_t wanted[TD_SHA256_BYTES];
    uint8_t *bytes = malloc(FILE_BYTES);
    assert_non_null(bytes);
    for (size_t i = 0; i < FILE_BYTES; i++)
        bytes[i] = tree_data_byte(i, 1);
    tree_open(&tree);
    tree_write(&tree, "f", bytes, FILE_BYTES);
    tree_at(&tree, "f", path);
    td_sha256(bytes, FILE_BYTES, wanted);
    free(bytes);
    size_t before = resident_pages(path);
    CHECK(before > PAGES * 3 / 4, "%zu of %d pages", before, PAGES); /* a busy kernel may take some at any time */
    hash_file(&tree, 1, wanted);
    size_t after = resident_pages(path);
    CHECK(after > PAGES * 3 / 4, "%zu of %d pages stayed", after, PAGES);
    if (drop(path)) {
        hash_file(&tree, 2, wanted);
        size_t left = resident_pages(path);
        CHECK(left < PAGES / 4, "%zu of %d pages stayed", left, PAGES);
    }
    tree_close(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(hasher, many_requests_hash_once),
        TEST_IN(hasher, work_goes_on_without_a_waiter),
        TEST_IN(hasher, a_cancelled_request_waits_no_longer),
        TEST_IN(hasher, a_change_in_the_middle_gives_no_digest),
        cmocka_unit_test(whoever_waits_learns_why_it_failed),
        cmocka_unit_test(the_queue_is_bounded),
        TEST_IN(hasher, clients_and_owners_have_shares),
        TEST_IN(hasher, one_client_does_not_take_all),
        cmocka_unit_test(nobody_waits_for_all_of_another),
        cmocka_unit_test(small_files_do_not_use_up_the_turns_of_large_ones),
        cmocka_unit_test(many_extents_need_few_looks),
        TEST_IN(hasher, what_nobody_asked_for_is_of_one_owner),
        cmocka_unit_test(it_stops_in_the_middle),
        TEST_IN(hasher, a_set_has_a_digest_for_each),
        TEST_IN(hasher, a_set_ends_with_its_first_failure),
        cmocka_unit_test(the_page_cache_is_left_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
