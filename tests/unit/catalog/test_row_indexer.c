/* The indexer: each index is built once, from the file that the snapshot shows, whatever happens during the build. */
#include "catalog/dataset/row_indexer.h"

#include "core/log.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/catalog/rows_place.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the disk ---- */

/* Says how reads go, and records the sizes of files that are begun. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool closed; /* reads wait */
    size_t waiting;
    unsigned nap_ms;
    uint64_t bad_size; /* a file of this size cannot be read */
    uint64_t begun[64];
    size_t begun_count;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

ssize_t __wrap_pread64(int fd, void *out, size_t len, off_t off);
ssize_t __real_pread64(int fd, void *out, size_t len, off_t off);

ssize_t __wrap_pread64(int fd, void *out, size_t len, off_t off)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    uint64_t size = (uint64_t)st.st_size;
    pthread_mutex_lock(&disk.lock);
    if (off == 0 && disk.begun_count < COUNT_OF(disk.begun))
        disk.begun[disk.begun_count++] = size;
    disk.waiting++;
    while (disk.closed)
        pthread_cond_wait(&disk.opened, &disk.lock);
    disk.waiting--;
    long pause_ms = disk.nap_ms;
    bool bad = disk.bad_size == size;
    pthread_mutex_unlock(&disk.lock);
    if (pause_ms > 0)
        nap_ms(pause_ms);
    if (bad) {
        errno = EIO;
        return -1;
    }
    return __real_pread64(fd, out, len, off);
}

static void set_disk(bool closed, unsigned nap_ms, uint64_t bad_size)
{
    pthread_mutex_lock(&disk.lock);
    disk.closed = closed;
    disk.nap_ms = nap_ms;
    disk.bad_size = bad_size;
    disk.begun_count = 0;
    pthread_cond_broadcast(&disk.opened);
    pthread_mutex_unlock(&disk.lock);
}

static void wait_for_a_read(void)
{
    uint64_t until_ns = td_clock_ns() + UINT64_C(60000000000);
    for (size_t waiting = 0; waiting == 0;) {
        nap_ms(1);
        pthread_mutex_lock(&disk.lock);
        waiting = disk.waiting;
        pthread_mutex_unlock(&disk.lock);
        CHECK(td_clock_ns() < until_ns, "nothing is read");
    }
}

/* ---- places ---- */

static struct td_row_indexer *open_threads(const struct place *place, size_t threads)
{
    const struct td_row_indexer_config config = {.root = place->tree.path, .threads = threads};
    return open_indexer(&config);
}

/* Writes `count` equal rows: a test that must distinguish files gives them different counts, so different sizes. */
static void write_rows(const struct tree *tree, const char *name, size_t count)
{
    char *text = malloc(count * 2 + 1);
    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        memcpy(text + 2 * i, "1\n", 2);
    tree_write(tree, name, text, 2 * count);
    free(text);
}

static const struct td_file_rows *rows_at(const struct place *place, const char *id, size_t file)
{
    return split_at(place, id, "train")->files[file].rows;
}

static enum td_rows_state state_at(const struct place *place, const char *id)
{
    return atomic_load_explicit(&rows_at(place, id, 0)->state, memory_order_acquire);
}

/* ---- tests ---- */

static void indexes_become_ready(void **state)
{
    struct place *place = *state;
    write_rows(&place->tree, "a/x.jsonl", 300);
    write_rows(&place->tree, "a/y.jsonl", 20);
    write_rows(&place->tree, "b/x.jsonl", 100);
    tree_text(&place->tree, "b/empty.jsonl", "");
    tree_text(&place->tree, "datasets/i/a.jpg", "an image has no index");
    (void)scanner_scan(&place->scanner);
    set_disk(false, 0, UINT64_MAX);
    struct td_row_indexer *indexer = open_threads(place, 1);
    assert_int_equal(status_of(indexer).file_count, 0);
    give(indexer, place);
    wait_indexed(indexer);
    struct td_row_indexer_status status = status_of(indexer);
    assert_true(status.file_count == 4 && status.ready_count == 4 && status.failed_count == 0);
    assert_int_equal(status.row_count, 420);
    assert_int_equal(status.read_bytes, 840);
    uint64_t memory = 0;
    for (size_t i = 0; i < 2; i++)
        memory +=
            td_row_index_bytes(&rows_at(place, "a", i)->index) + td_row_index_bytes(&rows_at(place, "b", i)->index);
    assert_int_equal(status.memory_bytes, memory);
    assert_int_equal(rows_at(place, "a", 1)->index.row_count, 20);
    assert_int_equal(rows_at(place, "a", 1)->done_bytes, 0);      /* at the beginning of the last part */
    static const uint64_t order[] = {40, 40, 200, 200, 600, 600}; /* small ones first; each read, then sampled */
    assert_int_equal(disk.begun_count, COUNT_OF(order));
    assert_memory_equal(disk.begun, order, sizeof order);
    td_row_indexer_destroy(indexer);
}

static void no_indexer(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    assert_int_equal(status_of(NULL).file_count, 0);
    assert_true(td_row_indexer_set_snapshot(NULL, NULL, &err));
    td_row_indexer_destroy(NULL);
}

/* The same file in the next snapshot keeps its index; only what is new is read. */
static void the_next_snapshot(void **state)
{
    struct place *place = *state;
    write_rows(&place->tree, "a/x.jsonl", 300);
    (void)scanner_scan(&place->scanner);
    struct td_row_indexer *indexer = open_threads(place, 2);
    give(indexer, place);
    wait_indexed(indexer);
    const struct td_file_rows *kept = rows_at(place, "a", 0);
    write_rows(&place->tree, "a/y.jsonl", 5);
    (void)scanner_scan(&place->scanner);
    give(indexer, place);
    wait_indexed(indexer);
    assert_ptr_equal(rows_at(place, "a", 0), kept);
    assert_int_equal(status_of(indexer).read_bytes, 610);
    assert_int_equal(rows_of(place, "a", "train")->row_count, 305);
    tree_remove(&place->tree, "a");
    (void)scanner_scan(&place->scanner);
    give(indexer, place);
    assert_int_equal(status_of(indexer).file_count, 0);
    td_row_indexer_destroy(indexer);
}

/* A new snapshot comes while a file is read: the file is read once, and what else is new after it. */
static void a_new_snapshot_while_indexing(void **state)
{
    (void)state;
    for (size_t threads = 1; threads <= 3; threads += 2) {
        struct place place;
        open_place(&place);
        write_rows(&place.tree, "a/x.jsonl", 300);
        (void)scanner_scan(&place.scanner);
        struct td_row_indexer *indexer = open_threads(&place, threads);
        set_disk(true, 0, UINT64_MAX);
        give(indexer, &place);
        wait_for_a_read();
        for (size_t i = 1; i <= 5; i++) {
            char name[32];
            (void)snprintf(name, sizeof name, "b%zu/x.jsonl", i);
            write_rows(&place.tree, name, i);
            /* the first scan looked into a/x.jsonl, small files, already */
            set_disk(false, 0, UINT64_MAX);
            (void)scanner_scan(&place.scanner);
            set_disk(threads > 1, 0, UINT64_MAX);
            give(indexer, &place);
        }
        set_disk(false, 0, UINT64_MAX);
        wait_indexed(indexer);
        struct td_row_indexer_status status = status_of(indexer);
        assert_true(status.ready_count == 6 && status.row_count == 315);
        assert_int_equal(status.read_bytes, 630);
        td_row_indexer_destroy(indexer);
        close_place(&place);
    }
}

/* A file that has changed or gone since the scan is not indexed; after the next scan it is indexed as it is then. */
static void a_file_that_changed_since_the_scan(void **state)
{
    struct place *place = *state;
    write_rows(&place->tree, "a/x.jsonl", 300);
    write_rows(&place->tree, "gone/x.jsonl", 2000);
    write_rows(&place->tree, "last/x.jsonl", 3000);
    (void)scanner_scan(&place->scanner);
    tree_poke(&place->tree, "a/x.jsonl", 0, "\n", 1);
    tree_remove(&place->tree, "gone");
    struct td_row_indexer *indexer = open_threads(place, 1);
    give(indexer, place);
    while (state_at(place, "last") == TD_ROWS_PENDING)
        nap_ms(1);
    assert_int_equal(state_at(place, "a"), TD_ROWS_PENDING);
    assert_int_equal(state_at(place, "gone"), TD_ROWS_PENDING);
    (void)scanner_scan(&place->scanner);
    give(indexer, place);
    wait_indexed(indexer);
    assert_int_equal(rows_of(place, "a", "train")->row_count, 299);
    td_row_indexer_destroy(indexer);
}

/* shows: security.md rows-file-changes */
static void a_file_that_changes_while_it_is_read(void **state)
{
    struct place *place = *state;
    write_rows(&place->tree, "a/x.jsonl", 300);
    write_rows(&place->tree, "last/x.jsonl", 3000);
    (void)scanner_scan(&place->scanner);
    set_disk(true, 0, UINT64_MAX);
    struct td_row_indexer *indexer = open_threads(place, 1);
    give(indexer, place);
    wait_for_a_read();
    tree_poke(&place->tree, "a/x.jsonl", 0, "\n", 1);
    set_disk(false, 0, UINT64_MAX);
    while (state_at(place, "last") == TD_ROWS_PENDING)
        nap_ms(1);
    assert_int_equal(state_at(place, "a"), TD_ROWS_PENDING);
    assert_int_equal(status_of(indexer).ready_count, 1);
    td_row_indexer_destroy(indexer);
}

/* A disk that fails now may work later: after 10 s the file is tried again. */
static void a_disk_that_fails_for_a_while(void **state)
{
    struct place *place = *state;
    write_rows(&place->tree, "a/x.jsonl", 700);
    write_rows(&place->tree, "last/x.jsonl", 3000);
    (void)scanner_scan(&place->scanner);
    set_disk(false, 0, 1400);
    struct td_row_indexer *indexer = open_threads(place, 1);
    give(indexer, place);
    while (state_at(place, "last") == TD_ROWS_PENDING)
        nap_ms(1);
    struct td_row_indexer_status status = status_of(indexer);
    assert_true(status.ready_count == 1 && status.failed_count == 0);
    set_disk(false, 0, UINT64_MAX);
    uint64_t began_ns = td_clock_ns();
    wait_indexed(indexer);
    assert_true(td_clock_ns() - began_ns > UINT64_C(5000000000)); /* it is not tried all the time */
    assert_int_equal(status_of(indexer).ready_count, 2);
    td_row_indexer_destroy(indexer);
}

/* shows: security.md rows-indexing */
static void stopping_does_not_wait(void **state)
{
    enum { MIB = 1 << 20 };
    struct place *place = *state;
    tree_text(&place->tree, "a/x.jsonl", "1");
    tree_truncate(&place->tree, "a/x.jsonl", (uint64_t)2000 * MIB); /* a hole: one row of NUL bytes */
    tree_set_age(&place->tree, "a/x.jsonl", INT64_C(60000000000));
    (void)scanner_scan(&place->scanner);
    set_disk(false, 20, UINT64_MAX); /* 40 s for the whole file */
    struct td_row_indexer *indexer = open_threads(place, 1);
    give(indexer, place);
    while (atomic_load(&rows_at(place, "a", 0)->done_bytes) == 0)
        nap_ms(1);
    struct td_split_progress progress = td_split_progress(split_at(place, "a", "train"));
    assert_true(progress.done_bytes > 0 && progress.done_bytes < (uint64_t)2000 * MIB && progress.ready_count == 0);
    uint64_t began_ns = td_clock_ns();
    td_row_indexer_destroy(indexer);
    assert_true(td_clock_ns() - began_ns < UINT64_C(5000000000));
    assert_int_equal(state_at(place, "a"), TD_ROWS_PENDING);
    set_disk(false, 0, UINT64_MAX);
}

/* ---- memory ---- */

static void memory_is_given_back(void **state)
{
    struct place *place = *state;
    struct td_budget memory = {.max_bytes = 100000};
    write_rows(&place->tree, "a/x.jsonl", 300);
    write_rows(&place->tree, "b/x.jsonl", 500000); /* 16 bytes for 32 rows: more than there is */
    (void)scanner_scan(&place->scanner);
    const struct td_row_indexer_config config = {.root = place->tree.path, .threads = 2, .memory = &memory};
    struct td_row_indexer *indexer = open_indexer(&config);
    give(indexer, place);
    wait_indexed(indexer);
    assert_int_equal(state_at(place, "a"), TD_ROWS_READY);
    assert_int_equal(state_at(place, "b"), TD_ROWS_FAILED);
    const struct td_file_rows *failed = rows_at(place, "b", 0);
    CHECK(strstr(failed->error, "of --max-memory too little is left") != NULL, "%s", failed->error);
    assert_int_equal(memory.used_bytes, td_row_index_bytes(&rows_at(place, "a", 0)->index));
    assert_int_equal(status_of(indexer).memory_bytes, memory.used_bytes);
    tree_remove(&place->tree, "a");
    (void)scanner_scan(&place->scanner);
    give(indexer, place);
    assert_int_equal(memory.used_bytes, 0);
    td_row_indexer_destroy(indexer);
}

static void out_of_memory(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_row_indexer *indexer = NULL;
    write_rows(&place->tree, "a/x.jsonl", 300);
    const struct td_row_indexer_config config = {.root = place->tree.path, .threads = 1};
    alloc_count_start();
    alloc_fail_at(1);
    assert_false(td_row_indexer_create(&config, &indexer, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    alloc_fail_at(0);
    size_t failed = 0;
    for (size_t k = 1; k < 30; k++) {
        (void)scanner_scan(&place->scanner);
        indexer = open_threads(place, 1);
        alloc_fail_at(k);
        td_error_init(&err);
        bool ok = td_row_indexer_set_snapshot(indexer, place->scanner.snapshot, &err);
        assert_int_equal(ok, k > 1);
        if (!ok) {
            assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
            give(indexer, place); /* and again */
        }
        wait_indexed(indexer);
        alloc_fail_at(0);
        const struct td_file_rows *rows = rows_at(place, "a", 0);
        CHECK(state_at(place, "a") == TD_ROWS_READY ? rows->index.row_count == 300
                                                    : strstr(rows->error, "memory") != NULL,
              "allocation %zu", k);
        failed += state_at(place, "a") == TD_ROWS_FAILED ? 1 : 0;
        td_row_indexer_destroy(indexer);
        write_rows(&place->tree, "a/x.jsonl", 300); /* another identity: a new chance */
    }
    assert_true(failed > 1 && failed < 20);
}

/* ---- the state directory ---- */

struct kept {
    struct place place;
    char state[TREE_PATH_BYTES];
    struct td_row_indexer_config config;
};

/* Makes all indexes by new objects, as after a restart. Returns how many bytes of files were read. */
static uint64_t restart(struct kept *kept)
{
    struct td_row_indexer *indexer = open_indexer(&kept->config);
    (void)scanner_scan(&kept->place.scanner);
    give(indexer, &kept->place);
    wait_indexed(indexer);
    uint64_t read_bytes = status_of(indexer).read_bytes;
    assert_int_equal(status_of(indexer).failed_count, 0);
    td_row_indexer_destroy(indexer);
    return read_bytes;
}

static void forget(struct kept *kept)
{
    struct tree served = kept->place.tree;
    (void)snprintf(served.path, sizeof served.path, "%.200s/root", kept->place.tree.path);
    scanner_close(&kept->place.scanner);
    scanner_open(&kept->place.scanner, &served);
}

static void a_state_directory_keeps_indexes(void **state)
{
    (void)state;
    static struct kept kept;
    open_place(&kept.place);
    const struct tree *tree = &kept.place.tree;
    char root[TREE_PATH_BYTES], fingerprint[TD_TAG_BYTES];
    tree_at(tree, "state", kept.state);
    tree_at(tree, "root", root);
    kept.config = (struct td_row_indexer_config){.state_dir = kept.state, .root = root, .threads = 2};
    write_rows(tree, "root/a/x.jsonl", 300);
    tree_text(tree, "root/a/y.jsonl", "1\n\n2\r\n3");
    tree_text(tree, "root/a/z.jsonl", "");
    forget(&kept);
    assert_int_equal(restart(&kept), 607);
    memcpy(fingerprint, rows_of(&kept.place, "a", "train")->fingerprint, sizeof fingerprint);
    struct td_row_index first = rows_at(&kept.place, "a", 1)->index;
    uint64_t params[TD_ROW_PARAMS];
    memcpy(params, first.params, sizeof params);
    forget(&kept);
    assert_int_equal(restart(&kept), 0);
    assert_string_equal(rows_of(&kept.place, "a", "train")->fingerprint, fingerprint);
    assert_int_equal(rows_of(&kept.place, "a", "train")->row_count, 303);
    assert_memory_equal(rows_at(&kept.place, "a", 1)->index.params, params, sizeof params);
    tree_poke(tree, "root/a/x.jsonl", 0, "\n", 1); /* only this one is read */
    forget(&kept);
    assert_int_equal(restart(&kept), 600);
    assert_int_equal(rows_of(&kept.place, "a", "train")->row_count, 302);
    tree_rename(tree, "root/a", "root/b"); /* the folder's name is no part of a file's identity */
    forget(&kept);
    assert_int_equal(restart(&kept), 0);
    tree_remove(tree, "state");
    forget(&kept);
    assert_int_equal(restart(&kept), 607);
    close_place(&kept.place);
}

static void a_state_directory_that_cannot_be_used(void **state)
{
    (void)state;
    static struct kept kept;
    open_place(&kept.place);
    char root[TREE_PATH_BYTES];
    tree_at(&kept.place.tree, "root/state", kept.state); /* in the served directory */
    tree_at(&kept.place.tree, "root", root);
    kept.config = (struct td_row_indexer_config){.state_dir = kept.state, .root = root, .threads = 1};
    write_rows(&kept.place.tree, "root/a/x.jsonl", 300);
    forget(&kept);
    assert_int_equal(restart(&kept), 600);
    assert_int_not_equal(access(kept.state, F_OK), 0);
    close_place(&kept.place);
}

/* ---- many threads ---- */

static struct place shared_place;
static _Atomic bool is_over;

static void *look_on(void *argument)
{
    uint64_t last = 0;
    while (!atomic_load(&is_over)) {
        struct td_error err = TD_ERROR_INIT;
        const struct td_split *split = split_at(&shared_place, "a", "train");
        const struct td_split_rows *rows = td_split_rows_get(split, &err);
        struct td_row_indexer_status status = status_of(argument); /* not older than `rows` */
        struct td_split_progress progress = td_split_progress(split);
        CHECK(progress.done_bytes >= last && progress.done_bytes <= split->file_bytes, "progress goes back");
        CHECK(rows == NULL ? err.code == TD_RESOURCE_EXHAUSTED : rows->row_count == status.row_count, "%s",
              err.message);
        last = progress.done_bytes;
    }
    return NULL;
}

static void many_files_and_threads(void **state)
{
    (void)state;
    enum { FILES = 150, LOOKERS = 3 };
    pthread_t lookers[LOOKERS];
    open_place(&shared_place);
    set_disk(false, 1, UINT64_MAX);
    uint64_t wanted = 0;
    for (size_t i = 0; i < FILES; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "a/%03zu.jsonl", i);
        write_rows(&shared_place.tree, name, i);
        wanted += i;
    }
    (void)scanner_scan(&shared_place.scanner);
    struct td_row_indexer *indexer = open_threads(&shared_place, 4);
    atomic_store(&is_over, false);
    give(indexer, &shared_place);
    for (size_t i = 0; i < LOOKERS; i++)
        assert_int_equal(pthread_create(&lookers[i], NULL, look_on, indexer), 0);
    wait_indexed(indexer);
    nap_ms(20);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < LOOKERS; i++)
        assert_int_equal(pthread_join(lookers[i], NULL), 0);
    assert_int_equal(rows_of(&shared_place, "a", "train")->row_count, wanted);
    assert_int_equal(status_of(indexer).read_bytes, 2 * wanted);
    td_row_indexer_destroy(indexer);
    set_disk(false, 0, UINT64_MAX);
    close_place(&shared_place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, indexes_become_ready),
        cmocka_unit_test(no_indexer),
        TEST_IN(place, the_next_snapshot),
        cmocka_unit_test(a_new_snapshot_while_indexing),
        TEST_IN(place, a_file_that_changed_since_the_scan),
        TEST_IN(place, a_file_that_changes_while_it_is_read),
        TEST_IN(place, a_disk_that_fails_for_a_while),
        TEST_IN(place, stopping_does_not_wait),
        TEST_IN(place, memory_is_given_back),
        TEST_IN(place, out_of_memory),
        cmocka_unit_test(a_state_directory_keeps_indexes),
        cmocka_unit_test(a_state_directory_that_cannot_be_used),
        cmocka_unit_test(many_files_and_threads),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
