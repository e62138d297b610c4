#include "core/log.h"
#include "core/waiting.h"
#include "tests/unit/catalog/hasher_place.h"
#include "tests/unit/unit.h"

#include <pthread.h>

static bool is_asked(void *context)
{
    return atomic_load((_Atomic bool *)context);
}

/* Asks for the file as a registry's client does, which asks again: waits for a very short time, and has it hashed. */
static void ask_for(const struct place *place, const char *path)
{
    const struct td_digest_wait how = {.until_ns = td_clock_ns(), .takes_any = true};
    (void)td_hasher_wait(place->hasher, place->scanner.root, file_of(place, path), &how);
}

/* ---- queues -------------------------------------------------------------------------------------------- */

static void waiting(void **state)
{
    struct place *place = *state;
    sparse(place, "m/a", 10);
    sparse(place, "m/b", LARGE);
    sparse(place, "m/c", LARGE + 1);
    sparse(place, "m/zzz", UINT64_C(1) << 40);
    start(place);
    (void)scanner_scan(&place->scanner); /* the background does not get this snapshot */
    assert_true(wait_for_file(place, "m/a", 60 * second));
    assert_true(wait_for_file(place, "m/a", 0)); /* the digest is known, so no time is needed */
    assert_false(wait_for_file(place, "m/b", 0));
    assert_int_equal(times_begun(LARGE), 0);
    assert_true(wait_for_file(place, "m/b", 60 * second));
    uint64_t began_ns = td_clock_ns();
    assert_false(wait_for_file(place, "m/zzz", 60 * second)); /* ends at once, because the file is too large */
    assert_true(td_clock_ns() - began_ns < 20 * second);
    assert_int_equal(times_begun(UINT64_C(1) << 40), 0);
    disk_close();
    began_ns = td_clock_ns();
    assert_false(wait_for_file(place, "m/c", 200000000));
    uint64_t took_ns = td_clock_ns() - began_ns;
    assert_true(took_ns >= 200000000 && took_ns < 20 * second);
    disk_open();
    WAIT_FOR(is_known(place, "m/c")); /* hashing continues, and later waits find the digest */
}

/* A caller with takes_any waits for a file of any size, and does not delay the callers that wait for other files. */
/* shows: security.md oci-slow-hashes */
static void a_large_file_is_waited_for(void **state)
{
    struct place *place = *state;
    _Atomic bool asked = false;
    sparse(place, "m/huge", UINT64_C(1) << 42);
    sparse(place, "m/small", 3 << 20);
    start(place);
    (void)scanner_scan(&place->scanner);
    struct td_digest_wait how = {.until_ns = td_clock_ns() + second / 5, .takes_any = true};
    assert_false(td_hasher_wait(place->hasher, place->scanner.root, file_of(place, "m/huge"), &how));
    assert_true(td_clock_ns() >= how.until_ns);
    assert_true(wait_for_file(place, "m/small", 60 * second)); /* the other file is still being read */
    const struct td_cancel cancel = {.is_asked = is_asked, .context = &asked};
    how = (struct td_digest_wait){.until_ns = td_clock_ns() + 60 * second, .cancel = &cancel, .takes_any = true};
    atomic_store(&asked, true);
    assert_false(td_hasher_wait(place->hasher, place->scanner.root, file_of(place, "m/huge"), &how));
    assert_true(td_clock_ns() < how.until_ns);
}

/* A digest from the log needed no reading and does not count for the speed of reading. */
static void what_was_not_read_is_not_measured(void **state)
{
    static const uint8_t sum[TD_SHA256_BYTES] = {7};
    struct place *place = *state;
    struct td_digest_log *log;
    sparse(place, "m/a", UINT64_C(1) << 30);
    sparse(place, "m/huge", UINT64_C(1) << 42);
    (void)scanner_scan(&place->scanner);
    assert_true(td_digest_log_open(place->state, NULL, TD_RECORD_LOG_WRITE, &log, NULL));
    td_digest_log_add(log, &file_of(place, "m/a")->source.id, sum);
    td_digest_log_close(log);
    place->config.state_dir = place->state;
    start(place);
    assert_true(wait_for_file(place, "m/a", 60 * second));
    td_waiting_forbid();
    assert_true(wait_for_file(place, "m/a", 60 * second)); /* known: there is nothing to wait for */
    assert_false(td_waiting_allow());
    uint64_t began_ns = td_clock_ns();
    assert_false(wait_for_file(place, "m/huge", 30 * second));
    assert_true(td_clock_ns() - began_ns < 20 * second);
    assert_int_equal(status_of(place).hashed_bytes, 0);
}

/* When a queue is full, the next caller does not wait. */
static void more_wait_than_there_is_room_for(void **state)
{
    enum { EACH = 300 };
    struct place *place = *state;
    char name[32];
    for (unsigned i = 0; i < 2 * EACH; i++) {
        (void)snprintf(name, sizeof name, "m/%u", i);
        sparse(place, name, i);
    }
    start(place);
    (void)scanner_scan(&place->scanner);
    disk_close();
    for (unsigned i = 0; i < EACH; i++) {
        (void)snprintf(name, sizeof name, "m/%u", i);
        (void)wait_for_file(place, name, 1000000);
        (void)snprintf(name, sizeof name, "m/%u", EACH + i);
        ask_for(place, name);
    }
    uint64_t began_ns = td_clock_ns();
    const struct td_digest_wait how = {.until_ns = began_ns + 60 * second, .takes_any = true};
    assert_false(wait_for_file(place, "m/299", 60 * second));
    assert_false(td_hasher_wait(place->hasher, place->scanner.root, file_of(place, "m/599"), &how));
    assert_true(td_clock_ns() - began_ns < 20 * second);
    disk_open();
    WAIT_FOR(wait_for_file(place, "m/299", 60 * second));
}

/* A file that others have put into the slow queue cannot be hashed in time because they did. */
/* shows: security.md oci-slow-hashes */
static void nobody_waits_in_vain_for_the_slow_queue(void **state)
{
    struct place *place = *state;
    sparse(place, "m/huge", UINT64_C(1) << 42);
    sparse(place, "m/next", UINT64_C(1) << 41);
    start(place);
    (void)scanner_scan(&place->scanner);
    ask_for(place, "m/huge");
    ask_for(place, "m/next");
    WAIT_FOR(times_begun(UINT64_C(1) << 42) == 1);
    uint64_t began_ns = td_clock_ns();
    assert_false(wait_for_file(place, "m/huge", 30 * second)); /* it is being hashed */
    assert_false(wait_for_file(place, "m/next", 30 * second)); /* it waits for its turn */
    assert_true(td_clock_ns() - began_ns < 20 * second);
}

/* A caller with enough time does not wait in the slow queue with callers that had too little. */
static void a_file_moves_up_to_the_quick_queue(void **state)
{
    struct place *place = *state;
    sparse(place, "m/huge", UINT64_C(1) << 42);
    sparse(place, "m/small", LARGE);
    start(place);
    (void)scanner_scan(&place->scanner);
    ask_for(place, "m/huge");
    ask_for(place, "m/small");
    WAIT_FOR(times_begun(UINT64_C(1) << 42) == 1);
    assert_int_equal(times_begun(LARGE), 0);
    assert_true(wait_for_file(place, "m/small", 30 * second));
    assert_int_equal(times_begun(LARGE), 1);
}

/* ---- beside the background ----------------------------------------------------------------------------- */

enum { LONG_FILE = 64 << 20, CHUNK = 256 << 10 /* what is read at once */ };

struct asking {
    struct place *place;
    const char *path;
    pthread_t thread;
    bool was_known;
};

static void *ask_main(void *argument)
{
    struct asking *asking = argument;
    asking->was_known = wait_for_file(asking->place, asking->path, 60 * second);
    return NULL;
}

static void begin_to_ask(struct asking *asking)
{
    assert_int_equal(pthread_create(&asking->thread, NULL, ask_main, asking), 0);
}

static bool end_to_ask(struct asking *asking)
{
    assert_int_equal(pthread_join(asking->thread, NULL), 0);
    return asking->was_known;
}

/* A background thread that is nearly done with the file, or with the same content under another name, is waited for. */
/* shows: security.md oci-slow-hashes */
static void a_background_thread_is_joined(void **state)
{
    (void)state;
    struct place place;
    struct asking same = {.place = &place, .path = "m/a"};
    struct asking alias = {.place = &place, .path = "m/b"};
    place_open(&place);
    sparse(&place, "m/a", LONG_FILE);
    tree_symlink(&place.tree, "root/m/b", "a");
    start(&place);
    disk_hold(LONG_FILE - CHUNK, SIZE_MAX);
    scan(&place);
    WAIT_FOR(disk_waiting() == 1);
    begin_to_ask(&same);
    begin_to_ask(&alias);
    for (int i = 0; i < 20; i++) /* time enough for a thread that would read the file again */
        nap_ms(2);
    assert_int_equal(times_begun(LONG_FILE), 1);
    disk_open();
    assert_true(end_to_ask(&same) && end_to_ask(&alias));
    assert_int_equal(times_begun(LONG_FILE), 1);
    assert_true(status_of(&place).hashed_bytes == LONG_FILE);
    finish(&place);
}

/* A caller waits for a file that cannot be hashed from its start in time, if a background thread will finish it in
 * time. */
static void what_is_nearly_done_is_in_time(void **state)
{
    static const uint64_t short_ns = 100000000; /* for 64 MiB, 160 ms are estimated */
    struct place *place = *state;
    sparse(place, "m/a", LONG_FILE);
    start(place);
    (void)scanner_scan(&place->scanner);
    assert_false(wait_for_file(place, "m/a", short_ns)); /* ends at once */
    assert_int_equal(times_begun(LONG_FILE), 0);
    disk_hold(LONG_FILE - CHUNK, SIZE_MAX);
    scan(place);
    WAIT_FOR(disk_waiting() == 1);
    uint64_t began_ns = td_clock_ns();
    assert_false(wait_for_file(place, "m/a", short_ns)); /* it would have come, but for the disk */
    assert_true(td_clock_ns() - began_ns >= short_ns);
    assert_true(status_of(place).hashed_bytes == LONG_FILE - CHUNK);
    assert_false(wait_for_file(place, "m/a", 1)); /* too little for the rest, too */
    disk_open();
}

/* A background thread that does not get on is not waited for. */
static void a_stuck_background_thread_is_not_waited_for(void **state)
{
    struct place *place = *state;
    sparse(place, "m/a", LONG_FILE);
    start(place);
    disk_hold(CHUNK, 1);
    scan(place);
    WAIT_FOR(disk_waiting() == 1);
    assert_true(wait_for_file(place, "m/a", 60 * second));
    assert_int_equal(disk_waiting(), 1);
    assert_int_equal(times_begun(LONG_FILE), 2);
    disk_open();
}

/* The background does not read what is being read for a caller, and takes the digest for other names of it. */
static void the_background_passes_over_what_is_waited_for(void **state)
{
    (void)state;
    struct place place;
    struct asking asking = {.place = &place, .path = "m/a"};
    place_open(&place);
    sparse(&place, "m/a", LARGE);
    tree_symlink(&place.tree, "root/m/b", "a");
    sparse(&place, "m/c", LARGE + 1);
    start(&place);
    (void)scanner_scan(&place.scanner);
    disk_hold(0, 1);
    begin_to_ask(&asking);
    WAIT_FOR(disk_waiting() == 1);
    scan(&place);
    WAIT_FOR(is_known(&place, "m/c")); /* the background has come to m/c, and so past m/a and m/b */
    assert_int_equal(times_begun(LARGE), 1);
    disk_open();
    assert_true(end_to_ask(&asking));
    WAIT_FOR(is_known(&place, "m/b"));
    assert_int_equal(times_begun(LARGE), 1);
    finish(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(hasher, waiting),
        TEST_IN(hasher, a_large_file_is_waited_for),
        TEST_IN(hasher, what_was_not_read_is_not_measured),
        TEST_IN(hasher, more_wait_than_there_is_room_for),
        TEST_IN(hasher, nobody_waits_in_vain_for_the_slow_queue),
        TEST_IN(hasher, a_file_moves_up_to_the_quick_queue),
        cmocka_unit_test(a_background_thread_is_joined),
        TEST_IN(hasher, what_is_nearly_done_is_in_time),
        TEST_IN(hasher, a_stuck_background_thread_is_not_waited_for),
        cmocka_unit_test(the_background_passes_over_what_is_waited_for),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
