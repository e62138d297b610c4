#include "catalog/catalog.h"

#include "core/log.h"
#include "tests/unit/catalog/catalog_place.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static void a_root_is_needed(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    tree_remove(&place->tree, "root");
    assert_false(td_catalog_create(&place->config, &place->catalog, &err));
    assert_int_equal(err.code, TD_NOT_FOUND);
    tree_text(&place->tree, "root", "a file");
    td_error_init(&err);
    assert_false(td_catalog_create(&place->config, &place->catalog, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    td_catalog_destroy(NULL);
}

static void the_first_scan_makes_ready(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "root/m/a.safetensors", "a b c");
    tree_simple(&place->tree, "root/n/a.safetensors", "a b");
    tree_text(&place->tree, "root/n/bad.safetensors", "x");
    tree_text(&place->tree, "root/\xff", "x");
    start(place);
    WAIT_FOR(place, status.ready);
    WAIT_FOR(place, status.scan_count == 1 && !status.scanning);
    struct td_catalog_status status = status_of(place);
    assert_true(status.counts.models == 2 && status.counts.tensors == 5 && status.counts.files == 3);
    assert_true(status.counts.refused == 1 && status.counts.problems == 1 && status.counts.unsettled == 0);
    assert_true(status.generation == 1 && status.failed_scan_count == 0 && !status.root_missing);
    assert_true(status.files_found == 3 && status.files_to_read == 3 && status.files_read == 3);
    assert_string_equal(status.message, "");
    struct td_snapshot *first = td_catalog_acquire(place->catalog);
    struct td_snapshot *again = td_catalog_acquire(place->catalog);
    assert_ptr_equal(first, again);
    td_snapshot_unref(again);
    td_snapshot_unref(first);
}

static void an_empty_root_is_ready_too(void **state)
{
    struct place *place = *state;
    start(place);
    WAIT_FOR(place, status.ready);
    assert_int_equal(status_of(place).counts.models, 0);
}

static void scans_come_when_asked_for(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "root/m/a.safetensors", "a");
    start(place);
    WAIT_FOR(place, status.ready);
    struct td_snapshot *first = td_catalog_acquire(place->catalog);
    scan_and_wait(place); /* nothing changed, so nothing is published */
    struct td_snapshot *second = td_catalog_acquire(place->catalog);
    assert_ptr_equal(first, second);
    assert_true(status_of(place).generation == 1);
    tree_simple(&place->tree, "root/n/a.safetensors", "a");
    uint64_t scans = status_of(place).scan_count;
    nap_ms(300);
    assert_true(status_of(place).scan_count == scans); /* no scan without a request */
    assert_false(has_model(place, "n"));
    scan_and_wait(place);
    assert_true(has_model(place, "n"));
    assert_null(td_snapshot_find_model(first, TD_TEXT("n"))); /* a snapshot never changes */
    td_snapshot_unref(first);
    td_snapshot_unref(second);
}

/* Captures standard error between catch_log and end_catch. */
struct caught {
    int saved, ends[2];
};

static void catch_log(struct caught *caught)
{
    caught->saved = dup(STDERR_FILENO);
    td_log_set_level(TD_LOG_INFO);
    assert_true(pipe(caught->ends) == 0 && dup2(caught->ends[1], STDERR_FILENO) >= 0);
}

static void end_catch(struct caught *caught, char *text, size_t capacity)
{
    assert_true(dup2(caught->saved, STDERR_FILENO) >= 0);
    td_log_set_level(TD_LOG_ERROR);
    (void)close(caught->saved);
    (void)close(caught->ends[1]);
    ssize_t n = read(caught->ends[0], text, capacity - 1);
    (void)close(caught->ends[0]);
    assert_true(n > 0);
    text[n] = '\0';
}

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word))
        count++;
    return count;
}

/* The bound is huggingface_hub's: constants.py MAX_HTTP_DOWNLOAD_SIZE, 50 * 1000**3. */
static void files_that_the_hubs_clients_refuse_are_told_once(void **state)
{
    struct place *place = *state;
    struct caught caught;
    char text[16384];
    tree_text(&place->tree, "root/m/allowed.dat", "");
    tree_truncate(&place->tree, "root/m/allowed.dat", UINT64_C(50000000000));
    tree_text(&place->tree, "root/m/large.dat", "");
    tree_truncate(&place->tree, "root/m/large.dat", UINT64_C(50000000001));
    catch_log(&caught);
    start(place);
    WAIT_FOR(place, status.ready);
    tree_text(&place->tree, "root/m/news.txt", "x");
    scan_and_wait(place);
    assert_int_equal(status_of(place).generation, 2);
    for (int i = 0; i < 12; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "root/m/more-%02d.dat", i);
        tree_text(&place->tree, name, "");
        tree_truncate(&place->tree, name, UINT64_C(60000000000));
    }
    scan_and_wait(place);
    end_catch(&caught, text, sizeof text);
    assert_int_equal(count_of(text, "m/large.dat: 50000000001 bytes; huggingface_hub"), 1);
    assert_int_equal(count_of(text, "allowed.dat"), 0);
    assert_int_equal(count_of(text, "more-"), 10);
    assert_int_equal(count_of(text, "and 2 more files"), 1);
}

struct said {
    const char *word;
    size_t count;
};

/* Scans, and checks how often each word is in the log's messages about the scan. A NULL ends the words. */
static void check_log(const struct place *place, const struct said *said)
{
    struct caught caught;
    char text[16384];
    catch_log(&caught);
    scan_and_wait(place);
    end_catch(&caught, text, sizeof text);
    for (; said->word != NULL; said++)
        CHECK(count_of(text, said->word) == said->count, "not %zu times \"%s\":\n%s", said->count, said->word, text);
}

/* A refusal is logged when it is new, changes or ends; otherwise it is only counted. */
static void refusals_are_told_when_they_change(void **state)
{
    struct place *place = *state;
    struct caught caught;
    char text[16384];
    tree_simple(&place->tree, "root/m/good.safetensors", "a");
    tree_text(&place->tree, "root/m/first.safetensors", "x");
    tree_text(&place->tree, "root/m/second.safetensors", "x");
    tree_text(&place->tree, "root/n/third.safetensors", "x");
    tree_symlink(&place->tree, "root/link.txt", "/etc/hostname");
    catch_log(&caught);
    start(place);
    loopback_wait_scans(place->catalog, 1);
    end_catch(&caught, text, sizeof text);
    assert_int_equal(count_of(text, " warn  "), 4);
    assert_int_equal(count_of(text, "model \"m\": first.safetensors: "), 1);
    assert_int_equal(count_of(text, "link.txt: "), 1);
    assert_int_equal(count_of(text, "as before"), 0);
    tree_simple(&place->tree, "root/m/more.safetensors", "b");
    check_log(place, (struct said[]){{" warn  ", 0},
                                     {"4 files are still refused, for the reasons logged above", 1},
                                     {"no longer", 0},
                                     {NULL, 0}});
    tree_text(&place->tree, "root/m/second.safetensors", "123456789"); /* another fault */
    tree_text(&place->tree, "root/m/fourth.safetensors", "x");
    check_log(place, (struct said[]){{" warn  ", 2},
                                     {"warn  model \"m\": fourth.safetensors: ", 1},
                                     {"warn  model \"m\": second.safetensors: ", 1},
                                     {"3 files are still refused, for the reasons logged above", 1},
                                     {"no longer", 0},
                                     {NULL, 0}});
    tree_simple(&place->tree, "root/m/first.safetensors", "c");
    tree_remove(&place->tree, "root/m/second.safetensors");
    tree_remove(&place->tree, "root/n");
    tree_remove(&place->tree, "root/link.txt");
    check_log(place, (struct said[]){{" warn  ", 0},
                                     {"info  model \"m\": first.safetensors: is no longer refused", 1},
                                     {"info  model \"m\": second.safetensors: was refused, and is gone", 1},
                                     {"info  model \"n\": third.safetensors: was refused, and is gone", 1},
                                     {"info  link.txt: is no longer refused", 1},
                                     {"1 file is still refused, for the reason logged above", 1},
                                     {NULL, 0}});
    tree_remove(&place->tree, "root/m/fourth.safetensors");
    check_log(place, (struct said[]){{" warn  ", 0}, {"still refused", 0}, {NULL, 0}});
}

static void scans_come_by_themselves(void **state)
{
    struct place *place = *state;
    place->config.interval_ns = 100000000;
    start(place);
    WAIT_FOR(place, status.ready);
    tree_simple(&place->tree, "root/m/a.safetensors", "a");
    WAIT_FOR(place, has_model(place, "m"));
    tree_remove(&place->tree, "root/m");
    tree_simple(&place->tree, "root/n/a.safetensors", "a");
    WAIT_FOR(place, has_model(place, "n") && !has_model(place, "m"));
}

/* Each new setting shows in what the catalog does from then on, without a further request. */
static void settings_change_while_it_runs(void **state)
{
    struct td_catalog_tuning tuning = {.settle_ns = UINT64_C(3600) * SECOND, .max_files = 100};
    struct place *place = *state;
    place->config.scan.settle_ns = tuning.settle_ns;
    tree_simple(&place->tree, "root/m/a.safetensors", "a"); /* a minute old */
    start(place);
    WAIT_FOR(place, status.scan_count == 1 && status.counts.unsettled == 1);
    tuning.settle_ns = UINT64_C(1) * SECOND;
    td_catalog_tune(place->catalog, &tuning);
    WAIT_FOR(place, status.ready && has_model(place, "m"));
    tuning.require_models = 2;
    td_catalog_tune(place->catalog, &tuning);
    WAIT_FOR(place, !status.ready && status.too_few_models);
    tuning.require_models = 1;
    tuning.interval_ns = 20000000;
    td_catalog_tune(place->catalog, &tuning);
    WAIT_FOR(place, status.ready);
    uint64_t scans = status_of(place).scan_count;
    WAIT_FOR(place, status.scan_count >= scans + 4);
    assert_int_equal(status_of(place).counts.problems, 0);
    tree_simple(&place->tree, "root/n/a.safetensors", "a");
    tuning.max_files = 1;
    td_catalog_tune(place->catalog, &tuning);
    WAIT_FOR(place, status.counts.problems == 1 && status.counts.files == 1);
}

/* A storm of requests causes few scans, and the last request always causes one. */
static void many_requests_are_few_scans(void **state)
{
    struct place *place = *state;
    start(place);
    WAIT_FOR(place, status.ready);
    uint64_t scans = status_of(place).scan_count;
    uint64_t began_ns = td_clock_ns();
    for (int i = 0; i < 5000; i++)
        td_catalog_request_scan(place->catalog);
    tree_simple(&place->tree, "root/m/a.safetensors", "a");
    td_catalog_request_scan(place->catalog);
    WAIT_FOR(place, has_model(place, "m"));
    uint64_t most = 3 + (td_clock_ns() - began_ns) / 50000000; /* one scan in 50 ms */
    assert_true(status_of(place).scan_count - scans <= most);
}

/* A young file causes a scan when it has settled, and readiness waits for that scan. */
static void settling_needs_no_request(void **state)
{
    struct place *place = *state;
    place->config.scan.settle_ns = 500000000;
    tree_simple(&place->tree, "root/old/a.safetensors", "a");
    tree_simple(&place->tree, "root/m/a.safetensors", "a");
    uint64_t began_ns = td_clock_ns();
    tree_set_age(&place->tree, "root/m/a.safetensors", 0);
    start(place);
    WAIT_FOR(place, has_model(place, "old"));
    if (td_clock_ns() - began_ns < 300000000) { /* otherwise the machine was too slow for this check */
        struct td_catalog_status status = status_of(place);
        assert_true(status.counts.unsettled == 1 && !status.ready);
    }
    WAIT_FOR(place, has_model(place, "m"));
    assert_true(td_clock_ns() - began_ns >= 400000000);
    WAIT_FOR(place, status.ready);
    assert_int_equal(status_of(place).counts.unsettled, 0);
}

/* The stage advances when young files settle and when there are enough models. It never goes back. */
static void stages_go_on(void **state)
{
    struct place *place = *state;
    place->config.scan.settle_ns = 500000000;
    place->config.require_models = 2;
    tree_simple(&place->tree, "root/m/a.safetensors", "a");
    tree_set_age(&place->tree, "root/m/a.safetensors", 0);
    start(place);
    assert_int_equal(td_catalog_get_stage(place->catalog), TD_CATALOG_STARTING);
    WAIT_FOR(place, has_model(place, "m"));
    assert_int_equal(td_catalog_get_stage(place->catalog), TD_CATALOG_LACKING);
    tree_simple(&place->tree, "root/n/a.safetensors", "a");
    td_catalog_request_scan(place->catalog);
    WAIT_FOR(place, has_model(place, "n"));
    assert_int_equal(td_catalog_get_stage(place->catalog), TD_CATALOG_COMPLETE);
    tree_remove(&place->tree, "root/m");
    td_catalog_request_scan(place->catalog);
    WAIT_FOR(place, status.too_few_models);
    assert_int_equal(td_catalog_get_stage(place->catalog), TD_CATALOG_COMPLETE);
}

/* A snapshot lists the files that are too young to be published. */
static void young_files_are_named(void **state)
{
    struct place *place = *state;
    place->config.scan.settle_ns = UINT64_C(3600) * SECOND;
    tree_simple(&place->tree, "root/a/b/x.safetensors", "a");
    tree_simple(&place->tree, "root/a-c/x.safetensors", "a");
    start(place);
    WAIT_FOR(place, status.scan_count == 1);
    struct td_snapshot *snapshot = td_catalog_acquire(place->catalog);
    assert_int_equal(snapshot->unsettled.count, 2);
    static const char *const lacking[] = {"", "a", "a/b", "a-c"}, *const whole[] = {"b", "a/b/x.safetensors", "a-",
                                                                                    "c"};
    for (size_t i = 0; i < COUNT_OF(lacking); i++) {
        assert_true(td_snapshot_lacks_below(snapshot, td_text_of(lacking[i])));
        assert_false(td_snapshot_lacks_below(snapshot, td_text_of(whole[i])));
    }
    td_snapshot_unref(snapshot);
}

struct waiter {
    const struct place *place;
    _Atomic bool *stop;
    pthread_t thread;
    struct td_rescan rescan;
    bool ok, sees_model;
};

static void *rescan(void *argument)
{
    struct waiter *w = argument;
    struct td_error err = TD_ERROR_INIT;
    w->ok = td_catalog_rescan(w->place->catalog, w->stop, &w->rescan, &err);
    w->sees_model = has_model(w->place, "m");
    return NULL;
}

/* Without leases, only time shows whether a young file is finished: requests for a scan wait until it has settled, and
 * end at once when they are stopped. */
static void waiting_for_a_scan(void **state)
{
    (void)state;
    enum { WAITERS = 8 };
    struct waiter waiters[WAITERS];
    for (int round = 0; round < 2; round++) {
        struct place place;
        _Atomic bool stop = false;
        bool stopped = round == 1;
        prepare(&place);
        place.config.scan.settle_ns = stopped ? UINT64_C(15) * SECOND : 300000000;
        start(&place);
        WAIT_FOR(&place, status.ready);
        tree_simple(&place.tree, "root/m/a.safetensors", "a");
        tree_set_age(&place.tree, "root/m/a.safetensors", 0);
        for (size_t i = 0; i < WAITERS; i++) {
            waiters[i] = (struct waiter){.place = &place, .stop = &stop};
            assert_int_equal(pthread_create(&waiters[i].thread, NULL, rescan, &waiters[i]), 0);
        }
        if (stopped)
            WAIT_FOR(&place, status.counts.unsettled == 1);
        atomic_store(&stop, stopped);
        for (size_t i = 0; i < WAITERS; i++) {
            assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
            assert_true(waiters[i].ok && !waiters[i].rescan.failed);
            assert_int_equal(waiters[i].rescan.settled, !stopped);
            assert_int_equal(waiters[i].sees_model, !stopped);
        }
        finish(&place);
    }
}

/* A file that is always being written does not hold up readiness for ever. */
static void endless_writer_does_not_block_readiness(void **state)
{
    struct place *place = *state;
    place->config.scan.settle_ns = 300000000;
    tree_simple(&place->tree, "root/m/a.safetensors", "a");
    tree_set_age(&place->tree, "root/m/a.safetensors", 0);
    start(place);
    uint64_t until_ns = td_clock_ns() + UINT64_C(60) * SECOND;
    while (!status_of(place).ready) {
        assert_true(td_clock_ns() < until_ns);
        tree_poke(&place->tree, "root/m/a.safetensors", 8, "{", 1);
        nap_ms(20);
    }
    assert_false(has_model(place, "m"));
    WAIT_FOR(place, has_model(place, "m"));
}

/* When the root is unmounted or renamed, the last state stays. */
static void a_missing_root_keeps_the_last_state(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "root/m/a.safetensors", "a");
    start(place);
    WAIT_FOR(place, status.ready);
    tree_rename(&place->tree, "root", "away");
    scan_and_wait(place);
    struct td_catalog_status status = status_of(place);
    assert_true(status.root_missing && !status.ready && status.failed_scan_count == 1);
    assert_true(strlen(status.message) > 0);
    assert_true(has_model(place, "m"));
    tree_rename(&place->tree, "away", "root");
    scan_and_wait(place);
    status = status_of(place);
    assert_true(!status.root_missing && status.ready && status.message[0] == '\0');
    assert_true(has_model(place, "m"));
    /* another directory in its place */
    tree_rename(&place->tree, "root", "away");
    tree_simple(&place->tree, "root/n/a.safetensors", "a");
    scan_and_wait(place);
    assert_true(has_model(place, "n") && !has_model(place, "m") && status_of(place).ready);
    /* a file in its place */
    tree_remove(&place->tree, "root");
    tree_text(&place->tree, "root", "");
    scan_and_wait(place);
    assert_true(has_model(place, "n") && status_of(place).root_missing);
}

/* All files gone at once may be an unmounted disk. The server takes this for true after a second look, a second later
 * and without a request. */
static void a_suddenly_empty_root_is_looked_at_twice(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "root/m/a.safetensors", "a");
    start(place);
    WAIT_FOR(place, status.ready);
    tree_rename(&place->tree, "root/m", "m");
    uint64_t began_ns = td_clock_ns();
    scan_and_wait(place);
    assert_true(status_of(place).root_missing && !status_of(place).ready);
    assert_true(has_model(place, "m"));
    scan_and_wait(place); /* a scan right after the first is no second look */
    if (td_clock_ns() - began_ns < SECOND / 2)
        assert_true(has_model(place, "m"));
    WAIT_FOR(place, !has_model(place, "m"));
    assert_true(td_clock_ns() - began_ns >= (uint64_t)SECOND * 9 / 10);
    WAIT_FOR(place, status.ready && !status.root_missing);
    /* files that come back before the second look stay served */
    tree_rename(&place->tree, "m", "root/m");
    scan_and_wait(place);
    assert_true(has_model(place, "m"));
    tree_rename(&place->tree, "root/m", "m");
    scan_and_wait(place);
    tree_rename(&place->tree, "m", "root/m");
    scan_and_wait(place);
    assert_true(status_of(place).ready && has_model(place, "m"));
}

/* A cache that has evicted its only model is empty, but it still exists. */
static void an_empty_root_with_the_servers_own_folder_is_believed_at_once(void **state)
{
    struct place *place = *state;
    place->config.own_folder = ".own";
    tree_directory(&place->tree, "root/.own");
    tree_simple(&place->tree, "root/m/a.safetensors", "a");
    start(place);
    WAIT_FOR(place, status.ready);
    tree_rename(&place->tree, "root/m", "m");
    scan_and_wait(place);
    assert_true(status_of(place).ready && !status_of(place).root_missing);
    assert_false(has_model(place, "m"));
    tree_rename(&place->tree, "m", "root/m");
    scan_and_wait(place);
    tree_rename(&place->tree, "root/m", "m");
    tree_remove(&place->tree, "root/.own"); /* with that, all is gone: perhaps unmounted */
    scan_and_wait(place);
    assert_true(status_of(place).root_missing && has_model(place, "m"));
}

static void held_snapshots_outlive_many_scans(void **state)
{
    struct place *place = *state;
    char name[64];
    struct td_snapshot *held[10];
    start(place);
    WAIT_FOR(place, status.ready);
    for (size_t i = 0; i < COUNT_OF(held); i++) {
        (void)snprintf(name, sizeof name, "root/m%zu/a.safetensors", i);
        tree_simple(&place->tree, name, "a");
        scan_and_wait(place);
        held[i] = td_catalog_acquire(place->catalog);
    }
    for (size_t i = 0; i < COUNT_OF(held); i++) {
        assert_int_equal(held[i]->model_count, i + 1);
        assert_true(i == 0 || held[i]->generation > held[i - 1]->generation);
    }
    for (size_t i = 0; i < COUNT_OF(held); i += 2)
        td_snapshot_unref(held[i]);
    for (size_t i = 1; i < COUNT_OF(held); i += 2) {
        assert_int_equal(held[i]->model_count, i + 1);
        td_snapshot_unref(held[i]);
    }
}

static void stopping_ends_a_running_scan(void **state)
{
    struct place *place = *state;
    char name[64];
    for (int i = 0; i < 2000; i++) {
        (void)snprintf(name, sizeof name, "root/%d/%d.safetensors", i % 50, i);
        tree_text(&place->tree, name, "x");
    }
    uint64_t began_ns = td_clock_ns();
    for (int i = 0; i < 20; i++) {
        start(place);
        (void)nanosleep(&(struct timespec){.tv_nsec = i * 200000L}, NULL);
        td_catalog_destroy(place->catalog);
        place->catalog = NULL;
    }
    assert_true(td_clock_ns() - began_ns < UINT64_C(30) * SECOND);
}

/* Digests are published without a request, and are not logged. */
static void digests_are_published(void **state)
{
    struct place *place = *state;
    char state_dir[TREE_PATH_BYTES];
    char text[8192];
    int ends[2];
    tree_simple(&place->tree, "root/m/a.safetensors", "a b c");
    tree_text(&place->tree, "root/m/abc.txt", "abc");
    tree_at(&place->tree, "state", state_dir);
    place->config.state_dir = state_dir;
    place->config.hash_threads = 1;
    int saved = dup(STDERR_FILENO);
    td_log_set_level(TD_LOG_INFO);
    assert_true(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    for (int run = 0; run < 2; run++) {
        start(place);
        WAIT_FOR(place, status.hasher.known_count == 2);
        WAIT_FOR(place, status.generation == (run == 0 ? 2 : 1)); /* the second run has the first run's log */
        scan_and_wait(place);
        struct td_catalog_status status = status_of(place);
        assert_true(status.generation == (run == 0 ? 2 : 1) && status.hasher.stored);
        assert_true((status.hasher.hashed_bytes > 0) == (run == 0));
        struct td_snapshot *snapshot = td_catalog_acquire(place->catalog);
        struct td_file *file = snapshot->entries[1].file;
        assert_true(td_catalog_wait_digest(place->catalog, snapshot, file, &(struct td_digest_wait){0}));
        assert_string_equal(td_file_sha256(file), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_int_equal(snapshot->hashed_count, 2);
        td_snapshot_unref(snapshot);
        td_catalog_destroy(place->catalog);
        place->catalog = NULL;
    }
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    td_log_set_level(TD_LOG_ERROR);
    (void)close(saved);
    (void)close(ends[1]);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    (void)close(ends[0]);
    assert_true(n > 0);
    text[n] = '\0';
    const char *line = strstr(text, "indexed 1 model, 3 tensors");
    assert_non_null(line);
    line = strstr(line + 1, "indexed"); /* the line of the second run */
    assert_non_null(line);
    assert_null(strstr(line + 1, "indexed"));
    assert_null(strstr(text, "warn"));
}

/* A client that sees a ready server reads how long its scan took, even while the scanner waits to write its log. */
static void a_ready_server_has_the_duration_of_its_scan(void **state)
{
    struct place *place = *state;
    static char text[4096];
    int ends[2];
    tree_simple(&place->tree, "root/m/a.safetensors", "a");
    const int saved = dup(STDERR_FILENO);
    assert_true(pipe2(ends, O_NONBLOCK) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    while (write(ends[1], text, sizeof text) > 0)
        ; /* the scanner now waits in its first message */
    assert_true(fcntl(ends[1], F_SETFL, 0) == 0);
    td_log_set_level(TD_LOG_INFO);
    start(place);
    WAIT_FOR(place, status.ready);
    const uint64_t took_ns = status_of(place).last_scan_ns;
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
    (void)close(ends[1]);
    while (read(ends[0], text, sizeof text) > 0)
        ;
    scan_and_wait(place);
    (void)close(ends[0]);
    td_log_set_level(TD_LOG_ERROR);
    assert_true(took_ns > 0);
}

static size_t open_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
}

/* The thread that drops the last reference on a large mapping does not wait for its end: the scanner ends it. */
static void large_mappings_are_ended_by_the_scanner(void **state)
{
    enum { LARGE_BYTES = 2 * 1024 * 1024 };
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_blob *blob = NULL;
    unsigned char resident;
    char *bytes = calloc(1, LARGE_BYTES);
    assert_non_null(bytes);
    tree_write(&place->tree, "root/m/large.bin", bytes, LARGE_BYTES);
    start(place);
    WAIT_FOR(place, status.ready);
    struct td_snapshot *snapshot = td_catalog_acquire(place->catalog);
    struct td_file_source *source = &snapshot->entries[0].file->source;
    assert_true(td_file_source_map(td_catalog_maps(place->catalog), snapshot->root, source, &blob, &err));
    void *page = (void *)(uintptr_t)blob->bytes;
    assert_int_equal(mincore(page, 1, &resident), 0);
    td_file_source_forget(td_catalog_maps(place->catalog), source);
    td_blob_unref(blob);
    WAIT_FOR(place, mincore(page, 1, &resident) != 0); /* no scan is due */
    td_snapshot_unref(snapshot);
    free(bytes);
}

static void a_bad_state_directory_is_told(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    place->config.state_dir = place->root;
    place->config.hash_threads = 1;
    size_t before = open_descriptors();
    assert_false(td_catalog_create(&place->config, &place->catalog, &err));
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    check_says(&err, "--state-dir", "in the root");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(catalog, a_root_is_needed),
        TEST_IN(catalog, the_first_scan_makes_ready),
        TEST_IN(catalog, an_empty_root_is_ready_too),
        TEST_IN(catalog, scans_come_when_asked_for),
        TEST_IN(catalog, files_that_the_hubs_clients_refuse_are_told_once),
        TEST_IN(catalog, refusals_are_told_when_they_change),
        TEST_IN(catalog, scans_come_by_themselves),
        TEST_IN(catalog, settings_change_while_it_runs),
        TEST_IN(catalog, many_requests_are_few_scans),
        TEST_IN(catalog, settling_needs_no_request),
        TEST_IN(catalog, stages_go_on),
        TEST_IN(catalog, young_files_are_named),
        cmocka_unit_test(waiting_for_a_scan),
        TEST_IN(catalog, endless_writer_does_not_block_readiness),
        TEST_IN(catalog, a_missing_root_keeps_the_last_state),
        TEST_IN(catalog, a_suddenly_empty_root_is_looked_at_twice),
        TEST_IN(catalog, an_empty_root_with_the_servers_own_folder_is_believed_at_once),
        TEST_IN(catalog, held_snapshots_outlive_many_scans),
        TEST_IN(catalog, stopping_ends_a_running_scan),
        TEST_IN(catalog, a_ready_server_has_the_duration_of_its_scan),
        TEST_IN(catalog, digests_are_published),
        TEST_IN(catalog, large_mappings_are_ended_by_the_scanner),
        TEST_IN(catalog, a_bad_state_directory_is_told),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
