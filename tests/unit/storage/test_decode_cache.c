/* The cache of decoded parts under threads: parts are made once, some are kept, and waiting ends. */
#include "storage/decode_cache.h"

#include "tests/unit/unit.h"

#include <poll.h>
#include <stdatomic.h>

enum { THREADS = 16, NEVER_MS = 600000 };

/* ---- makers and those who ask them --------------------------------------------------------------------- */

/* The behaviour of a maker, shared by all threads that request one key. */
struct act {
    _Atomic unsigned begun, now, most; /* calls: begun, running, and the most that ran at once */
    _Atomic bool may_end;
    enum td_code fails; /* TD_OK: the maker succeeds */
    size_t kept_bytes;
};

static bool play(void *context, struct td_decoded_part *part, size_t *kept_bytes, struct td_error *err)
{
    struct act *act = context;
    atomic_fetch_add(&act->begun, 1);
    unsigned now = atomic_fetch_add(&act->now, 1) + 1;
    unsigned most = atomic_load(&act->most);
    while (now > most && !atomic_compare_exchange_weak(&act->most, &most, now))
        ;
    while (!atomic_load(&act->may_end))
        (void)poll(NULL, 0, 1);
    atomic_fetch_sub(&act->now, 1);
    part->len = 7;
    *kept_bytes = act->kept_bytes;
    return act->fails == TD_OK || td_error_at(err, act->fails, 42, "the maker says why");
}

struct asker {
    pthread_t thread;
    struct td_decode_cache *cache;
    struct td_decode_job job;
    bool ok;
    struct td_error err;
};

static void *ask(void *argument)
{
    struct asker *asker = argument;
    struct td_decoded_part *part;
    td_error_init(&asker->err);
    asker->ok = td_decode_cache_get(asker->cache, &asker->job, &part, &asker->err);
    if (asker->ok) {
        asker->ok = part->len == 7;
        td_decode_cache_release(asker->cache, part);
    }
    return NULL;
}

static struct td_decode_job job_of(struct act *act, uint64_t part, size_t need_bytes)
{
    return (struct td_decode_job){
        .key = {.file = 1, .part = part}, .need_bytes = need_bytes, .make = play, .context = act};
}

static void begin(struct asker *asker, struct td_decode_cache *cache, const struct td_decode_job *job)
{
    *asker = (struct asker){.cache = cache, .job = *job};
    assert_int_equal(pthread_create(&asker->thread, NULL, ask, asker), 0);
}

static void end(struct asker *asker)
{
    assert_int_equal(pthread_join(asker->thread, NULL), 0);
}

/* Waits until `count` threads wait for the part that is being made. */
static void await_waiters(struct td_decode_cache *cache, const struct td_decode_key *key, unsigned count)
{
    unsigned waiters = 0;
    while (waiters != count) {
        pthread_mutex_lock(&cache->lock);
        waiters = 0;
        for (size_t i = 0; i < TD_DECODE_TABLE_SLOTS; i++)
            for (struct td_decoded_part *part = cache->slots[i]; part != NULL; part = part->next_in_slot)
                waiters += part->key.part == key->part ? part->waiters : 0;
        pthread_mutex_unlock(&cache->lock);
        (void)poll(NULL, 0, 1);
    }
}

static struct td_decode_cache *open_cache(size_t bytes)
{
    static struct td_decode_cache cache;
    assert_true(td_decode_cache_init(&cache, bytes, NULL));
    cache.wait_ms = cache.made_ms = NEVER_MS;
    return &cache;
}

/* All threads request one part; returns when `act` has ended and all have their answer. */
static void ask_together(struct td_decode_cache *cache, struct act *act, struct asker *askers)
{
    const struct td_decode_job job = job_of(act, 1, 1000);
    for (size_t i = 0; i < THREADS; i++)
        begin(&askers[i], cache, &job);
    await_waiters(cache, &job.key, THREADS - 1);
    atomic_store(&act->may_end, true);
    for (size_t i = 0; i < THREADS; i++)
        end(&askers[i]);
}

/* ---- one making for all -------------------------------------------------------------------------------- */

/* shows: security.md content-damaged-requests */
static void a_part_is_made_once(void **state)
{
    (void)state;
    static struct asker askers[THREADS];
    struct td_decode_cache *cache = open_cache(10000);
    struct act act = {.kept_bytes = 500};
    ask_together(cache, &act, askers);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(askers[i].ok, "%zu: %s", i, askers[i].err.message);
    assert_int_equal(act.begun, 1);
    assert_int_equal(td_decode_cache_counts(cache).used_bytes, 500 + TD_DECODE_PART_BYTES);
    td_decode_cache_fini(cache);
}

static void check_failed(const struct asker *asker, enum td_code code)
{
    CHECK(!asker->ok && asker->err.code == code && asker->err.pos == 42, "code %d at %llu: %s", asker->err.code,
          (unsigned long long)asker->err.pos, asker->err.message);
    assert_string_equal(asker->err.message, "the maker says why");
}

/* Damage is reported to all waiting and later requests with the whole error, and the part is not decoded again. */
/* shows: security.md content-damaged-requests */
static void damage_is_found_once(void **state)
{
    (void)state;
    static struct asker askers[THREADS];
    struct td_decode_cache *cache = open_cache(10000);
    struct act act = {.fails = TD_FAILED_PRECONDITION};
    struct td_decode_key key = job_of(&act, 1, 1).key;
    ask_together(cache, &act, askers);
    for (size_t i = 0; i < THREADS; i++)
        check_failed(&askers[i], TD_FAILED_PRECONDITION);
    ask(&askers[0]);
    check_failed(&askers[0], TD_FAILED_PRECONDITION);
    assert_int_equal(act.begun, 1);
    assert_null(td_decode_cache_find(cache, &key));
    assert_int_equal(td_decode_cache_counts(cache).used_bytes, TD_DECODE_PART_BYTES);
    td_decode_cache_fini(cache);
}

/* Another failure is reported to all waiting requests; a later request tries again. */
static void what_may_pass_is_tried_again_later(void **state)
{
    (void)state;
    static const enum td_code codes[] = {TD_UNAVAILABLE, TD_IO};
    for (size_t k = 0; k < COUNT_OF(codes); k++) {
        static struct asker askers[THREADS];
        struct td_decode_cache *cache = open_cache(10000);
        struct act act = {.fails = codes[k]};
        ask_together(cache, &act, askers);
        for (size_t i = 0; i < THREADS; i++)
            check_failed(&askers[i], codes[k]);
        assert_int_equal(act.begun, 1);
        assert_int_equal(td_decode_cache_counts(cache).used_bytes, 0);
        act.fails = TD_OK;
        ask(&askers[0]);
        assert_true(askers[0].ok);
        assert_int_equal(act.begun, 2);
        td_decode_cache_fini(cache);
    }
}

/* A lack of memory fails only the request that made the part: each waiting request tries itself. */
static void want_of_memory_is_tried_by_each(void **state)
{
    (void)state;
    static struct asker askers[THREADS];
    struct td_decode_cache *cache = open_cache(10000);
    struct act act = {.fails = TD_RESOURCE_EXHAUSTED};
    ask_together(cache, &act, askers);
    for (size_t i = 0; i < THREADS; i++)
        check_failed(&askers[i], TD_RESOURCE_EXHAUSTED);
    assert_int_equal(act.begun, THREADS);
    td_decode_cache_fini(cache);
}

/* At most TD_DECODE_MAKERS threads decode whole streams at once; a short part is not limited. */
/* shows: security.md content-damaged-requests */
static void long_makings_are_few(void **state)
{
    (void)state;
    static struct asker askers[THREADS];
    struct td_decode_cache *cache = open_cache(1000000);
    struct act act = {0};
    struct act short_act = {.may_end = true};
    for (size_t i = 0; i < THREADS; i++) {
        struct td_decode_job job = job_of(&act, i, 1000);
        job.is_long = true;
        begin(&askers[i], cache, &job);
    }
    while (atomic_load(&act.now) < TD_DECODE_MAKERS)
        (void)poll(NULL, 0, 1);
    struct asker other = {.cache = cache, .job = job_of(&short_act, 1000, 1000)};
    ask(&other);
    assert_true(other.ok);
    atomic_store(&act.may_end, true);
    for (size_t i = 0; i < THREADS; i++) {
        end(&askers[i]);
        assert_true(askers[i].ok);
    }
    assert_int_equal(act.begun, THREADS);
    assert_int_equal(act.most, TD_DECODE_MAKERS);
    td_decode_cache_fini(cache);
}

/* ---- the end of waiting -------------------------------------------------------------------------------- */

static void check_gave_up(struct td_decode_cache *cache, const struct td_decode_job *job, const char *why)
{
    struct asker asker = {.cache = cache, .job = *job};
    ask(&asker);
    CHECK(!asker.ok && asker.err.code == TD_RESOURCE_EXHAUSTED && strstr(asker.err.message, why) != NULL, "code %d: %s",
          asker.err.code, asker.err.message);
}

/* Waits for memory, for another thread's part and for a maker's place end with an error that may pass. A part in use is
 * never evicted. */
/* shows: security.md content-damaged-requests */
static void waiting_ends(void **state)
{
    (void)state;
    static struct asker makers[TD_DECODE_MAKERS];
    struct td_decode_cache *cache = open_cache(40000);
    struct act act = {0};
    struct act quick = {.may_end = true, .kept_bytes = 30000};
    struct td_decoded_part *held;
    struct td_decode_job large = job_of(&quick, 1, 30000);
    cache->wait_ms = cache->made_ms = 20;
    assert_true(td_decode_cache_get(cache, &large, &held, NULL));
    struct td_decode_job other = job_of(&quick, 2, 30000);
    check_gave_up(cache, &other, "--decode-memory");
    td_decode_cache_release(cache, held);
    assert_true(td_decode_cache_get(cache, &other, &held, NULL));
    assert_null(td_decode_cache_find(cache, &large.key)); /* evicted to make room */
    td_decode_cache_release(cache, held);
    for (size_t i = 0; i < TD_DECODE_MAKERS; i++) {
        struct td_decode_job job = job_of(&act, 10 + i, 100);
        job.is_long = true;
        begin(&makers[i], cache, &job);
    }
    while (atomic_load(&act.now) < TD_DECODE_MAKERS)
        (void)poll(NULL, 0, 1);
    check_gave_up(cache, &makers[0].job, "another request is still unpacking the tensor");
    struct td_decode_job fifth = job_of(&act, 20, 100);
    fifth.is_long = true;
    check_gave_up(cache, &fifth, "too many");
    atomic_store(&act.may_end, true);
    for (size_t i = 0; i < TD_DECODE_MAKERS; i++) {
        end(&makers[i]);
        assert_true(makers[i].ok);
    }
    td_decode_cache_fini(cache);
}

static bool is_set(void *context)
{
    return atomic_load((_Atomic bool *)context);
}

/* A cancelled request stops waiting; the part that it waited for is still made. */
static void cancelled_requests_stop_waiting(void **state)
{
    (void)state;
    struct td_decode_cache *cache = open_cache(10000);
    struct act act = {0};
    _Atomic bool asked = false;
    const struct td_cancel cancel = {.is_asked = is_set, .context = &asked};
    struct asker maker;
    struct asker waiters[2];
    struct td_decode_job job = job_of(&act, 1, 5000);
    struct td_decode_job other = job_of(&act, 2, 5000);
    begin(&maker, cache, &job);
    while (atomic_load(&act.now) == 0)
        (void)poll(NULL, 0, 1);
    job.cancel = other.cancel = &cancel;
    begin(&waiters[0], cache, &job);   /* waits for the part */
    begin(&waiters[1], cache, &other); /* waits for memory */
    await_waiters(cache, &job.key, 1);
    atomic_store(&asked, true);
    for (size_t i = 0; i < 2; i++) {
        end(&waiters[i]);
        assert_false(waiters[i].ok);
        assert_int_equal(waiters[i].err.code, TD_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(waiters[i].err.message, "nobody waits"));
    }
    atomic_store(&act.may_end, true);
    end(&maker);
    assert_true(maker.ok);
    td_decode_cache_fini(cache);
}

struct wanted {
    struct td_decode_cache *cache;
    struct td_cancel cancel;
    _Atomic int seen; /* 0: not checked yet; 1: wanted; 2: not wanted */
    _Atomic bool may_look, may_end;
};

static bool look_whether_wanted(void *context, struct td_decoded_part *part, size_t *kept_bytes, struct td_error *err)
{
    struct wanted *w = context;
    (void)err;
    while (!atomic_load(&w->may_look))
        (void)poll(NULL, 0, 1);
    atomic_store(&w->seen, td_decode_cache_is_wanted(w->cache, part, &w->cancel) ? 1 : 2);
    part->len = 7;
    *kept_bytes = 0;
    return true;
}

/* A maker whose request is cancelled continues while another request waits for the part. */
static void a_part_is_wanted_by_who_waits(void **state)
{
    (void)state;
    for (int others = 0; others <= 1; others++) {
        struct td_decode_cache *cache = open_cache(10000);
        _Atomic bool asked = true;
        struct wanted w = {.cache = cache, .cancel = {.is_asked = is_set, .context = &asked}};
        struct td_decode_job job = {.key = {.part = 1}, .need_bytes = 10, .make = look_whether_wanted, .context = &w};
        struct asker askers[2];
        for (int i = 0; i <= others; i++)
            begin(&askers[i], cache, &job);
        await_waiters(cache, &job.key, (unsigned)others);
        atomic_store(&w.may_look, true);
        for (int i = 0; i <= others; i++)
            end(&askers[i]);
        assert_int_equal(w.seen, others == 1 ? 1 : 2);
        td_decode_cache_fini(cache);
    }
}

/* ---- what is kept -------------------------------------------------------------------------------------- */

static bool is_there(struct td_decode_cache *cache, uint64_t number)
{
    const struct td_decode_key key = {.file = 1, .part = number};
    struct td_decoded_part *part = td_decode_cache_find(cache, &key);
    if (part != NULL)
        td_decode_cache_release(cache, part);
    return part != NULL;
}

static void make_now(struct td_decode_cache *cache, uint64_t number, size_t bytes, bool is_long)
{
    struct act act = {.may_end = true, .kept_bytes = bytes};
    struct asker asker = {.cache = cache, .job = job_of(&act, number, bytes)};
    asker.job.is_long = is_long;
    ask(&asker);
    CHECK(asker.ok, "%s", asker.err.message);
}

static void offer(struct td_decode_cache *cache, uint64_t number, size_t bytes)
{
    const struct td_decode_key key = {.file = 1, .part = number};
    char *data = malloc(bytes);
    assert_non_null(data);
    td_decode_cache_offer(cache, &key, data, bytes);
}

/* Parts of one stream do not evict costly parts, and costly parts do not take all of the memory. */
static void costly_parts_stay_longer(void **state)
{
    (void)state;
    enum { KIB = 1024 };
    struct td_decode_cache *cache = open_cache((size_t)100 * KIB);
    make_now(cache, 0, (size_t)19 * KIB, true); /* 20 KiB each, with the size of the part's entry */
    make_now(cache, 1, (size_t)19 * KIB, true);
    for (uint64_t i = 100; i < 120; i++) { /* fills the rest of the memory several times */
        if (i % 2 == 0)
            offer(cache, i, (size_t)9 * KIB);
        else
            make_now(cache, i, (size_t)9 * KIB, false);
    }
    assert_true(is_there(cache, 0) && is_there(cache, 1));
    assert_true(is_there(cache, 119) && is_there(cache, 118) && !is_there(cache, 100));
    make_now(cache, 2, (size_t)19 * KIB, true); /* costly parts have 60 of 100 KiB; now the oldest goes first */
    make_now(cache, 120, (size_t)50 * KIB, false);
    assert_true(!is_there(cache, 0) && is_there(cache, 1) && is_there(cache, 2) && is_there(cache, 120));
    offer(cache, 121, (size_t)95 * KIB); /* an offer evicts no costly parts */
    assert_true(is_there(cache, 1) && is_there(cache, 2) && !is_there(cache, 121));
    td_decode_cache_fini(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_is_made_once),
        cmocka_unit_test(damage_is_found_once),
        cmocka_unit_test(what_may_pass_is_tried_again_later),
        cmocka_unit_test(want_of_memory_is_tried_by_each),
        cmocka_unit_test(long_makings_are_few),
        cmocka_unit_test(waiting_ends),
        cmocka_unit_test(cancelled_requests_stop_waiting),
        cmocka_unit_test(a_part_is_wanted_by_who_waits),
        cmocka_unit_test(costly_parts_stay_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
