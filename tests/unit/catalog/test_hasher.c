#include "core/clock.h"
#include "core/log.h"
#include "tests/unit/catalog/hasher_place.h"
#include "tests/unit/unit.h"

#include <pthread.h>

/* ---- the background ------------------------------------------------------------------------------------ */

static void everything_gets_known(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "root/m/a.txt", "abc");
    tree_text(&place->tree, "root/m/empty", "");
    tree_simple(&place->tree, "root/m/x.safetensors", "a b");
    sparse(place, "m/zeros", 1000000); /* the wanted sum: head -c 1000000 /dev/zero | sha256sum */
    start(place);
    scan(place);
    WAIT_FOR(place->known_calls == 1);
    assert_string_equal(td_file_sha256(file_of(place, "m/a.txt")),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_string_equal(td_file_tag(file_of(place, "m/empty")),
                        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_string_equal(td_file_sha256(file_of(place, "m/zeros")),
                        "d29751f2649b32ff572b5e0a9f541ea660a50f94ff0beedfb0b692b924cc8025");
    struct td_hasher_status status = status_of(place);
    uint64_t bytes = 3 + 1000000 + file_of(place, "m/x.safetensors")->source.id.size_bytes;
    assert_true(status.enabled && !status.stored);
    assert_true(status.file_count == 4 && status.known_count == 4);
    assert_true(status.file_bytes == bytes && status.known_bytes == bytes && status.hashed_bytes == bytes);
    assert_true(status.failed_count == 0 && status.mismatch_count == 0);
    scan(place); /* the same files */
    nap_ms(2);
    assert_int_equal(place->known_calls, 1);
    status = status_of(place);
    assert_true(status.known_count == 4 && status.hashed_bytes == bytes);
}

static void small_files_come_first(void **state)
{
    struct place *place = *state;
    char name[32];
    sparse(place, "a/1", LARGE);
    sparse(place, "a/2", LARGE + 1);
    for (uint64_t i = 0; i < 20; i++) {
        (void)snprintf(name, sizeof name, "%c/%llu", i % 2 == 0 ? 'a' : 'z', (unsigned long long)i + 10);
        sparse(place, name, LARGE - 1 - i);
    }
    start(place);
    scan(place);
    WAIT_FOR(place->known_calls == 1);
    assert_int_equal(disk.begun_count, 22);
    for (size_t i = 0; i < 22; i++)
        CHECK((disk.begun[i] < LARGE) == (i < 20), "number %zu was one of %llu bytes", i,
              (unsigned long long)disk.begun[i]);
}

/* One file with two names, and several threads: the second thread takes the digest that the first computes. */
static void an_identity_is_read_once(void **state)
{
    struct place *place = *state;
    sparse(place, "m/a", LARGE);
    sparse(place, "m/z", LARGE + 1);
    tree_symlink(&place->tree, "root/m/b", "a");
    tree_symlink(&place->tree, "root/n/c", "../m/a");
    place->config.threads = 4;
    start(place);
    disk_close();
    scan(place);
    WAIT_FOR(disk_waiting() == 2); /* one thread on each file */
    scan(place);
    td_hasher_set_snapshot(place->hasher,
                           place->scanner.snapshot); /* the pass starts again while both files are read */
    for (int i = 0; i < 20; i++)
        nap_ms(2);
    assert_int_equal(disk_waiting(), 2);
    disk_open();
    WAIT_FOR(status_of(place).known_count == 4);
    WAIT_FOR(place->known_calls > 0);
    assert_true(is_known(place, "m/b") && is_known(place, "n/c"));
    assert_string_equal(td_file_sha256(file_of(place, "m/a")), td_file_sha256(file_of(place, "n/c")));
    assert_true(times_begun(LARGE) == 1 && times_begun(LARGE + 1) == 1);
    assert_true(status_of(place).hashed_bytes == 2 * LARGE + 1);
}

/* Each thread takes one of the few large files of a model. */
/* A file with more names than jobs that may begin are queued at a time: they do not keep other files from being
 * hashed. */
static void names_of_one_content_hold_up_no_other_file(void **state)
{
    struct place *place = *state;
    enum { NAMES = 300 };
    char path[64];
    place->config.threads = 2;
    sparse(place, "m/a", LARGE + 1);
    for (int i = 0; i < NAMES; i++) {
        (void)snprintf(path, sizeof path, "root/m/name-%03d", i);
        tree_symlink(&place->tree, path, "a");
    }
    disk_hold(0, 1);
    start(place);
    scan(place);
    WAIT_FOR(disk_waiting() == 1);
    sparse(place, "m/other", LARGE + 2);
    scan(place);
    WAIT_FOR(is_known(place, "m/other"));
    assert_false(is_known(place, "m/a") || is_known(place, "m/name-299"));
    disk_open();
    WAIT_FOR(status_of(place).known_count == NAMES + 2);
    assert_true(times_begun(LARGE + 1) == 1 && times_begun(LARGE + 2) == 1);
}

static void large_files_are_shared_out(void **state)
{
    struct place *place = *state;
    place->config.threads = 3;
    for (uint64_t i = 0; i < 5; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "m/%llu", (unsigned long long)i);
        sparse(place, name, LARGE + i);
    }
    start(place);
    disk_close();
    scan(place);
    WAIT_FOR(disk_waiting() == 3);
    disk_open();
    WAIT_FOR(place->known_calls == 1);
    assert_int_equal(status_of(place).known_count, 5);
}

static void a_new_snapshot_in_the_middle(void **state)
{
    struct place *place = *state;
    sparse(place, "m/a", LARGE);
    start(place);
    disk_close();
    scan(place);
    WAIT_FOR(disk_waiting() == 1);
    sparse(place, "m/b", LARGE + 1);
    scan(place);
    assert_int_equal(status_of(place).file_count, 2);
    tree_remove(&place->tree, "root/m/a"); /* removed while the hasher has it open */
    scan(place);
    assert_int_equal(status_of(place).file_count, 1);
    disk_open();
    WAIT_FOR(is_known(place, "m/b"));
    WAIT_FOR(place->known_calls > 0);
    assert_true(times_begun(LARGE) == 1 && times_begun(LARGE + 1) == 1);
    assert_int_equal(status_of(place).known_count, 1);
}

/* A file that cannot be read is not tried for ever, and does not hold up other files. */
/* shows: security.md digest-unreadable */
static void failures_are_counted_once(void **state)
{
    struct place *place = *state;
    sparse(place, "m/bad", LARGE);
    sparse(place, "m/good", 100);
    disk.bad_size = LARGE;
    start(place);
    scan(place);
    WAIT_FOR(place->known_calls == 1);
    WAIT_FOR(status_of(place).failed_count == 1);
    assert_true(is_known(place, "m/good") && !is_known(place, "m/bad"));
    tree_text(&place->tree, "root/m/new", "x");
    scan(place);
    WAIT_FOR(place->known_calls == 2);
    assert_true(status_of(place).failed_count == 1 && times_begun(LARGE) == 1);
    assert_false(wait_for_file(place, "m/bad", 60 * second)); /* reads again and ends when that fails */
    assert_int_equal(status_of(place).failed_count, 2);
    disk_make_good();
    assert_true(wait_for_file(place, "m/bad", 60 * second));
    WAIT_FOR(place->known_calls == 3); /* digests that a wait found are published too */
    assert_int_equal(status_of(place).known_count, 3);
}

static void a_blob_that_is_not_its_name(void **state)
{
    static const char *const blobs[] = {
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", /* the right SHA-256 */
        "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f",                         /* the right oid, by git hash-object */
        "0000000000000000000000000000000000000000000000000000000000000000", "ffffffffffffffffffffffffffffffffffffffff"};
    struct place *place = *state;
    char path[200];
    char target[200];
    for (size_t i = 0; i < COUNT_OF(blobs); i++) {
        (void)snprintf(path, sizeof path, "root/models--a--b/blobs/%s", blobs[i]);
        tree_text(&place->tree, path, "abc");
        (void)snprintf(path, sizeof path, "root/models--a--b/snapshots/c1/%zu.txt", i);
        (void)snprintf(target, sizeof target, "../../blobs/%s", blobs[i]);
        tree_symlink(&place->tree, path, target);
    }
    start(place);
    scan(place);
    WAIT_FOR(place->known_calls == 1);
    struct td_hasher_status status = status_of(place);
    assert_true(status.known_count == 4 && status.mismatch_count == 2);
    assert_string_equal(td_file_sha256(file_of(place, "a/b/2.txt")), blobs[0]); /* of the bytes, not the name */
}

static void without_threads_nothing_is_hashed(void **state)
{
    struct place *place = *state;
    sparse(place, "m/a", 10);
    place->config.threads = 0;
    start(place);
    scan(place);
    assert_false(wait_for_file(place, "m/a", 60 * second));
    assert_false(status_of(place).enabled);
    assert_int_equal(times_begun(10), 0);
    stop(place);
    assert_false(td_hasher_wait(NULL, place->scanner.root, file_of(place, "m/a"), &(struct td_digest_wait){0}));
    td_hasher_recall(NULL, file_of(place, "m/a"));
    td_hasher_set_snapshot(NULL, NULL);
    struct td_hasher_status status = status_of(place);
    assert_true(!status.enabled && status.file_count == 0);
}

/* ---- the log ------------------------------------------------------------------------------------------- */

static void a_restart_reads_nothing(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "root/m/a", "abc");
    sparse(place, "m/b", LARGE);
    place->config.state_dir = place->state;
    for (unsigned run = 0; run < 3; run++) {
        start(place);
        scan(place); /* new td_file objects each time */
        if (run == 0)
            WAIT_FOR(place->known_calls == 1);
        assert_true(status_of(place).stored);
        assert_true(is_known(place, "m/a") && is_known(place, "m/b"));
        assert_true(status_of(place).hashed_bytes == (run == 0 ? 3 + LARGE : 0));
        assert_int_equal(status_of(place).known_count, 2);
        stop(place);
        td_snapshot_unref(place->scanner.snapshot);
        place->scanner.snapshot = NULL;
    }
    start(place);
    tree_poke(&place->tree, "root/m/a", 0, "x", 1); /* a new identity, which is hashed again */
    scan(place);
    WAIT_FOR(status_of(place).known_count == 2);
    assert_int_equal(status_of(place).hashed_bytes, 3);
}

/* Digests of removed files do not stay in the log for ever. */
static void the_log_is_compacted(void **state)
{
    static const uint8_t sum[TD_SHA256_BYTES] = {7};
    struct place *place = *state;
    struct td_digest_log *log;
    assert_true(td_digest_log_open(place->state, NULL, TD_RECORD_LOG_WRITE, &log, NULL));
    for (uint64_t i = 0; i < 10100; i++) {
        const struct td_file_id gone = {.device = 1, .inode = i};
        td_digest_log_add(log, &gone, sum);
    }
    td_digest_log_close(log);
    tree_text(&place->tree, "root/m/a", "abc");
    sparse(place, "m/b", LARGE);
    place->config.state_dir = place->state;
    start(place);
    scan(place);
    WAIT_FOR(place->known_calls == 1);
    assert_true(status_of(place).stored);
    stop(place);
    assert_true(td_digest_log_open(place->state, NULL, TD_RECORD_LOG_READ, &log, NULL));
    assert_int_equal(td_digest_log_count(log), 2);
    uint8_t found[TD_SHA256_BYTES];
    assert_true(td_digest_log_find(log, &file_of(place, "m/a")->source.id, found) && found[0] == 0xba);
    td_digest_log_close(log);
}

/* The identities of this many files need a larger table than the first one, of 1024 slots. */
enum { MANY_FILES = 1000, GONE_FILES = 2 * MANY_FILES + 10100 };

static _Atomic bool second_table_fails;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return count == 2048 && atomic_load(&second_table_fails) ? NULL : __real_calloc(count, size);
}

/* When there is no memory for the set of the files that are there, no digest of theirs is lost. */
static void the_log_stays_when_memory_is_short(void **state)
{
    static const uint8_t sum[TD_SHA256_BYTES] = {7};
    struct place *place = *state;
    struct td_digest_log *log;
    assert_true(td_digest_log_open(place->state, NULL, TD_RECORD_LOG_WRITE, &log, NULL));
    for (uint64_t i = 0; i < GONE_FILES; i++) {
        const struct td_file_id gone = {.device = 1, .inode = i};
        td_digest_log_add(log, &gone, sum);
    }
    td_digest_log_close(log);
    for (unsigned i = 0; i < MANY_FILES; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "m/%u", i);
        sparse(place, name, i);
    }
    place->config.state_dir = place->state;
    start(place);
    atomic_store(&second_table_fails, true);
    scan(place);
    WAIT_FOR(place->known_calls > 0 && status_of(place).known_count == MANY_FILES);
    stop(place);
    atomic_store(&second_table_fails, false);
    assert_true(td_digest_log_open(place->state, NULL, TD_RECORD_LOG_READ, &log, NULL));
    assert_int_equal(td_digest_log_count(log), GONE_FILES + MANY_FILES);
    td_digest_log_close(log);
}

static void a_bad_state_directory_is_told(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    place->config.state_dir = place->root;
    assert_false(td_hasher_create(&place->config, &place->hasher, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    td_hasher_destroy(NULL);
}

/* ---- the end, and all at once -------------------------------------------------------------------------- */

/* shows: security.md digest-sigterm */
static void it_ends_in_the_middle_of_a_file(void **state)
{
    struct place *place = *state;
    sparse(place, "m/a", UINT64_C(1) << 40);
    sparse(place, "m/b", UINT64_C(1) << 30);
    place->config.threads = 2;
    start(place);
    disk.nap_ms = 5;
    scan(place);
    const struct td_digest_wait how = {.until_ns = td_clock_ns(), .takes_any = true};
    (void)td_hasher_wait(place->hasher, place->scanner.root, file_of(place, "m/b"), &how); /* has it read, too */
    WAIT_FOR(times_begun(UINT64_C(1) << 40) == 1 && times_begun(UINT64_C(1) << 30) > 0);
    uint64_t began_ns = td_clock_ns();
    stop(place);
    assert_true(td_clock_ns() - began_ns < 10 * second);
}

struct crowd {
    struct place *place;
    struct td_snapshot *snapshot;
    _Atomic bool stop;
    unsigned seed;
};

static void *crowd_main(void *argument)
{
    struct crowd *crowd = argument;
    for (unsigned i = crowd->seed; !atomic_load(&crowd->stop); i++) {
        struct td_hasher_status status;
        struct td_file *file = crowd->snapshot->entries[i % crowd->snapshot->entry_count].file;
        const struct td_digest_wait how = {.until_ns = td_clock_ns() + (uint64_t)(i % 3) * 1000000};
        (void)td_hasher_wait(crowd->place->hasher, crowd->snapshot->root, file, &how);
        td_hasher_get_status(crowd->place->hasher, &status);
        if (i % 16 == 0)
            td_hasher_set_snapshot(crowd->place->hasher, crowd->snapshot);
    }
    return NULL;
}

static void many_threads_at_once(void **state)
{
    enum { FILES = 60, THREADS = 4 };
    struct place *place = *state;
    struct crowd crowds[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < FILES; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "m/%u", i);
        sparse(place, name, i % 4 == 0 ? LARGE + i : i);
    }
    place->config.threads = 3;
    place->config.state_dir = place->state;
    start(place);
    scan(place);
    for (unsigned i = 0; i < THREADS; i++) {
        crowds[i] = (struct crowd){.place = place, .snapshot = place->scanner.snapshot, .seed = i * 7};
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_main, &crowds[i]), 0);
    }
    for (unsigned i = 0; i < FILES; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "m/%u", i);
        WAIT_FOR(is_known(place, name));
    }
    for (unsigned i = 0; i < THREADS; i++) {
        atomic_store(&crowds[i].stop, true);
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    td_hasher_set_snapshot(place->hasher, place->scanner.snapshot);
    assert_int_equal(status_of(place).known_count, FILES);
    WAIT_FOR(place->known_calls > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(hasher, everything_gets_known),
        TEST_IN(hasher, small_files_come_first),
        TEST_IN(hasher, an_identity_is_read_once),
        TEST_IN(hasher, names_of_one_content_hold_up_no_other_file),
        TEST_IN(hasher, large_files_are_shared_out),
        TEST_IN(hasher, a_new_snapshot_in_the_middle),
        TEST_IN(hasher, failures_are_counted_once),
        TEST_IN(hasher, a_blob_that_is_not_its_name),
        TEST_IN(hasher, without_threads_nothing_is_hashed),
        TEST_IN(hasher, a_restart_reads_nothing),
        TEST_IN(hasher, the_log_is_compacted),
        TEST_IN(hasher, the_log_stays_when_memory_is_short),
        TEST_IN(hasher, a_bad_state_directory_is_told),
        TEST_IN(hasher, it_ends_in_the_middle_of_a_file),
        TEST_IN(hasher, many_threads_at_once),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
