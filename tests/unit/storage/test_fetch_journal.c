/* Journals: their bytes, what they speak for, and what is left of them on disk. */
#include "storage/fetch/fetch_journal.h"

#include "storage/fetch/fetch_target.h"
#include "tests/unit/tree_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 5 * TD_FETCH_PIECE_BYTES + 7 };

static struct td_fetch_journal example(void)
{
    struct td_fetch_journal journal = {.size_bytes = SIZE, .has_sha256 = true, .etag = "\"tag\"", .boot = "a-b-c"};
    for (size_t i = 0; i < TD_SHA256_BYTES; i++)
        journal.sha256[i] = (uint8_t)(i + 1);
    return journal;
}

static void sizes(void **state)
{
    (void)state;
    assert_int_equal(td_fetch_piece_count(0), 0);
    assert_int_equal(td_fetch_piece_count(1), 1);
    assert_int_equal(td_fetch_piece_count(TD_FETCH_PIECE_BYTES), 1);
    assert_int_equal(td_fetch_piece_count(TD_FETCH_PIECE_BYTES + 1), 2);
    assert_int_equal(td_fetch_piece_count(UINT64_MAX), UINT64_C(1) << 46);
    assert_int_equal(td_fetch_journal_bytes(SIZE), TD_FETCH_JOURNAL_HEAD_BYTES + 1);
    assert_int_equal(td_fetch_journal_bytes(8 * TD_FETCH_PIECE_BYTES + 1), TD_FETCH_JOURNAL_HEAD_BYTES + 2);
}

static void a_head_is_read_as_it_was_written(void **state)
{
    (void)state;
    uint8_t head[TD_FETCH_JOURNAL_HEAD_BYTES];
    struct td_fetch_journal journal = example();
    struct td_fetch_journal again;
    td_fetch_journal_write(&journal, head);
    assert_true(td_fetch_journal_read(head, &again));
    assert_int_equal(again.size_bytes, journal.size_bytes);
    assert_true(again.has_sha256);
    assert_memory_equal(again.sha256, journal.sha256, TD_SHA256_BYTES);
    assert_string_equal(again.etag, journal.etag);
    assert_string_equal(again.boot, journal.boot);
}

/* Each bit of the head counts, and a head that a kill has cut is not accepted. */
static void no_other_bytes_are_a_head(void **state)
{
    (void)state;
    uint8_t head[TD_FETCH_JOURNAL_HEAD_BYTES];
    struct td_fetch_journal journal = example();
    td_fetch_journal_write(&journal, head);
    for (size_t i = 0; i < sizeof head * 8; i++) {
        head[i / 8] ^= (uint8_t)(1U << (i % 8));
        CHECK(!td_fetch_journal_read(head, &journal), "bit %zu", i);
        head[i / 8] ^= (uint8_t)(1U << (i % 8));
    }
    for (size_t len = sizeof head; len-- > 0;) {
        head[len] = 0;
        CHECK(!td_fetch_journal_read(head, &journal), "the first %zu bytes", len);
    }
}

static void what_a_journal_speaks_for(void **state)
{
    (void)state;
    struct td_fetch_journal found = example();
    struct td_fetch_journal wanted = example();
    assert_true(td_fetch_journal_fits(&found, &wanted));
    wanted.etag[1] = wanted.boot[0] = 'x'; /* a digest decides alone */
    assert_true(td_fetch_journal_fits(&found, &wanted));
    wanted.sha256[31]++;
    assert_false(td_fetch_journal_fits(&found, &wanted));
    wanted = example();
    wanted.size_bytes++;
    assert_false(td_fetch_journal_fits(&found, &wanted));
    wanted = example();
    wanted.has_sha256 = false;
    assert_false(td_fetch_journal_fits(&found, &wanted));
    wanted = example();
    wanted.etag[1] = wanted.boot[0] = 'x';
    found.has_sha256 = false; /* a digest that has become known decides at the end, whatever is here */
    assert_true(td_fetch_journal_fits(&found, &wanted));
    wanted.size_bytes++;
    assert_false(td_fetch_journal_fits(&found, &wanted));
    found = wanted = example();
    wanted.has_sha256 = false;

    found.has_sha256 = false; /* without one, tag and boot do */
    assert_true(td_fetch_journal_fits(&found, &wanted));
    wanted.etag[0] = '\0'; /* not known yet */
    assert_true(td_fetch_journal_fits(&found, &wanted));
    wanted = found;
    wanted.etag[1] = 'x';
    assert_false(td_fetch_journal_fits(&found, &wanted));
    wanted = found;
    wanted.boot[0] = 'x';
    assert_false(td_fetch_journal_fits(&found, &wanted));
    wanted = found;
    found.boot[0] = wanted.boot[0] = '\0'; /* unknown is not equal */
    assert_false(td_fetch_journal_fits(&found, &wanted));
    found = wanted = example();
    found.has_sha256 = wanted.has_sha256 = false;
    found.etag[0] = wanted.etag[0] = '\0';
    assert_false(td_fetch_journal_fits(&found, &wanted));
}

/* ---- on disk ------------------------------------------------------------------------------------------- */

static void open_target(const struct td_root *root, struct td_fetch_target *target)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_fetch_target_open(target, root, "d/e/f.bin", SIZE, &err), "%s", err.message);
    CHECK(td_fetch_target_lock(target, NULL, NULL, NULL, &err), "%s", err.message);
}

/* Begins a file and writes its first and last piece. */
static void begin(const struct td_root *root, uint8_t bits[1])
{
    struct td_fetch_target target;
    struct td_fetch_journal journal = example();
    uint8_t piece[TD_FETCH_PIECE_BYTES];
    memset(piece, 'p', sizeof piece);
    open_target(root, &target);
    assert_true(td_fetch_target_begin(&target, &journal, NULL));
    assert_true(td_fetch_target_write(&target, 0, piece, sizeof piece, NULL));
    bits[0] = 1;
    assert_true(td_fetch_target_note(&target, bits, 0, 1, NULL));
    assert_true(td_fetch_target_write(&target, SIZE - 7, piece, 7, NULL));
    bits[0] |= 1 << 5;
    assert_true(td_fetch_target_note(&target, bits, 5, 6, NULL));
    td_fetch_target_close(&target);
}

static bool resumes(const struct td_root *root, uint8_t *bits)
{
    struct td_fetch_target target;
    struct td_fetch_journal journal = example();
    struct td_fetch_journal found;
    uint8_t *read = NULL;
    open_target(root, &target);
    target.has_begun = true; /* keeps the files */
    bool ok = td_fetch_target_resume(&target, &journal, &found, &read);
    if (ok)
        *bits = read[0];
    free(read);
    td_fetch_target_close(&target);
    return ok;
}

static void pieces_are_known_after_a_kill(void **state)
{
    struct tree *tree = *state;
    struct td_root *root;
    uint8_t bits;
    uint8_t again = 0;
    assert_true(td_root_create(tree->path, &root, NULL));
    begin(root, &bits);
    assert_true(resumes(root, &again));
    assert_int_equal(again, bits);
    td_root_unref(root);
}

static void a_file_larger_than_the_disk_is_told_with_both_numbers(void **state)
{
    struct tree *tree = *state;
    struct td_root *root;
    struct td_fetch_target target;
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_root_create(tree->path, &root, NULL));
    open_target(root, &target);
    assert_true(td_fetch_target_check_room(&target, NULL));
    target.size_bytes = INT64_MAX;
    assert_false(td_fetch_target_check_room(&target, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    check_says(&err, "\"f.bin\" has 9223372036854775807 bytes, and its file system has room for ", "a large file");
    td_fetch_target_close(&target);
    td_root_unref(root);
}

/* A journal that was cut anywhere, that has more bytes, or whose file has another size speaks for nothing. */
/* shows: security.md pull-kills */
static void damaged_journals_begin_anew(void **state)
{
    struct tree *tree = *state;
    struct td_root *root;
    uint8_t bits;
    const char *journal = "d/e/.f.bin" TD_FETCH_JOURNAL_END;
    assert_true(td_root_create(tree->path, &root, NULL));
    for (uint64_t len = 0; len < TD_FETCH_JOURNAL_HEAD_BYTES + 4; len++) {
        if (len == TD_FETCH_JOURNAL_HEAD_BYTES + 1)
            continue;
        if (len % 64 == 0 || len >= TD_FETCH_JOURNAL_HEAD_BYTES - 2) {
            begin(root, &bits);
            tree_truncate(tree, journal, len);
            CHECK(!resumes(root, &bits), "%u bytes", (unsigned)len);
        }
    }
    begin(root, &bits);
    tree_truncate(tree, "d/e/.f.bin" TD_FETCH_PART_END, SIZE - 1);
    assert_false(resumes(root, &bits));
    begin(root, &bits);
    tree_remove(tree, "d/e/.f.bin" TD_FETCH_PART_END); /* it got its name, and the kill came before the rest */
    assert_false(resumes(root, &bits));
    td_root_unref(root);
}

static void a_finished_file_replaces_and_cleans(void **state)
{
    struct tree *tree = *state;
    struct td_root *root;
    struct td_fetch_target target;
    struct td_fetch_journal journal = example();
    struct stat st;
    char path[TREE_PATH_BYTES];
    tree_text(tree, "d/e/f.bin", "old");
    assert_true(td_root_create(tree->path, &root, NULL));
    open_target(root, &target);
    assert_int_equal(td_fetch_target_open_finished(&target), -1); /* another size */
    assert_true(td_fetch_target_begin(&target, &journal, NULL));
    assert_true(td_fetch_target_finish(&target, NULL));
    int fd = td_fetch_target_open_finished(&target);
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && st.st_size == SIZE);
    (void)close(fd);
    td_fetch_target_close(&target);
    tree_at(tree, "d/e/.f.bin" TD_FETCH_JOURNAL_END, path);
    assert_int_equal(access(path, F_OK), -1);
    tree_at(tree, "d/e/.f.bin" TD_FETCH_PART_END, path);
    assert_int_equal(access(path, F_OK), -1);
    td_root_unref(root);
}

static void what_was_not_begun_leaves_nothing(void **state)
{
    struct tree *tree = *state;
    struct td_root *root;
    struct td_fetch_target target;
    char path[TREE_PATH_BYTES];
    assert_true(td_root_create(tree->path, &root, NULL));
    open_target(root, &target);
    td_fetch_target_close(&target);
    tree_at(tree, "d/e/.f.bin" TD_FETCH_PART_END, path);
    assert_int_equal(access(path, F_OK), -1);
    td_root_unref(root);
}

/* shows: security.md pull-paths */
static void names_and_links(void **state)
{
    struct tree *tree = *state;
    struct td_root *root;
    struct td_fetch_target target;
    struct td_error err = TD_ERROR_INIT;
    char name[TREE_PATH_BYTES] = "";
    tree_directory(tree, "in/side");
    tree_symlink(tree, "in/out", "..");
    tree_symlink(tree, "in/far", "/tmp");
    tree_symlink(tree, "in/.x" TD_FETCH_PART_END, "../kept");
    tree_at(tree, "in", name);
    assert_true(td_root_create(name, &root, NULL));
    static const char *const wrong[] = {"out/f", "far/f", "../f", "", "a/", "a/..", "."};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        CHECK(!td_fetch_target_open(&target, root, wrong[i], 1, NULL), "%s", wrong[i]);
        td_fetch_target_close(&target);
    }
    memset(name, 'n', TD_FETCH_NAME_BYTES + 1);
    name[TD_FETCH_NAME_BYTES + 1] = '\0';
    assert_false(td_fetch_target_open(&target, root, name, 1, NULL));
    td_fetch_target_close(&target);
    assert_true(td_fetch_target_open(&target, root, name + 1, 1, NULL));
    assert_true(td_fetch_target_lock(&target, NULL, NULL, NULL, NULL));
    td_fetch_target_close(&target);
    assert_true(td_fetch_target_open(&target, root, "x", 1, NULL)); /* the part's name is a link to elsewhere */
    assert_false(td_fetch_target_lock(&target, NULL, NULL, NULL, &err));
    td_fetch_target_close(&target);
    td_root_unref(root);
}

/* Other things that have the names already: the error says what they are. */
static void what_is_in_the_way_is_named(void **state)
{
    static const struct {
        const char *path, *says;
    } cases[] = {
        {"file/x", "\"file\" in "},
        {"file/d/x", "is no directory"},
        {"d/file/x", "\"d/file\" in "},
        {"nowhere/x", "is a symlink that leads nowhere"},
        {"out/x", "that leads outside of it"},
        {"d", "remove it"},
        {"d/sub", "has the name of the file"},
    };
    struct tree *tree = *state;
    struct td_root *root;
    struct td_fetch_target target;
    char path[TREE_PATH_BYTES];
    tree_text(tree, "in/file", "text");
    tree_text(tree, "in/d/file", "text");
    tree_directory(tree, "in/d/sub");
    tree_symlink(tree, "in/nowhere", "nothing");
    tree_symlink(tree, "in/out", "..");
    tree_symlink(tree, "in/link", "..");
    tree_at(tree, "in", path);
    assert_true(td_root_create(path, &root, NULL));
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_error err = TD_ERROR_INIT;
        struct td_error early = TD_ERROR_INIT;
        CHECK(!td_fetch_target_open(&target, root, cases[i].path, 1, &err), "%s", cases[i].path);
        CHECK(strstr(err.message, cases[i].says) != NULL, "%s: %s", cases[i].path, err.message);
        td_fetch_target_close(&target);
        bool is_found_late =
            strcmp(cases[i].path, "nowhere/x") == 0; /* such a symlink could be made to lead somewhere */
        CHECK(td_fetch_target_check(root, cases[i].path, &early) == is_found_late, "%s", cases[i].path);
        CHECK(is_found_late || strcmp(early.message, err.message) == 0, "%s: %s", cases[i].path, early.message);
    }
    static const char *const fine[] = {"new", "new/x", "d/new/x", "d/file", "file", "link"};
    for (size_t i = 0; i < COUNT_OF(fine); i++)
        CHECK(td_fetch_target_check(root, fine[i], NULL), "%s", fine[i]);
    tree_at(tree, "in/new", path);
    assert_int_equal(access(path, F_OK), -1);
    td_root_unref(root);
}

/* A part or a journal that has a second name would be written under that, too. */
/* shows: security.md pull-paths */
static void hard_links_are_not_written(void **state)
{
    struct tree *tree = *state;
    struct td_root *root;
    struct td_fetch_target target;
    struct td_fetch_journal journal = example();
    struct td_error err = TD_ERROR_INIT;
    struct stat st;
    char kept[TREE_PATH_BYTES];
    char own[TREE_PATH_BYTES];
    tree_text(tree, "kept", "kept");
    tree_directory(tree, "d/e");
    tree_at(tree, "kept", kept);
    tree_at(tree, "d/e/.f.bin" TD_FETCH_PART_END, own);
    assert_true(td_root_create(tree->path, &root, NULL));
    assert_int_equal(link(kept, own), 0);
    assert_true(td_fetch_target_open(&target, root, "d/e/f.bin", SIZE, NULL));
    assert_false(td_fetch_target_lock(&target, NULL, NULL, NULL, &err));
    CHECK(strstr(err.message, "has another name") != NULL, "%s", err.message);
    td_fetch_target_close(&target);
    assert_int_equal(unlink(own), 0);
    tree_at(tree, "d/e/.f.bin" TD_FETCH_JOURNAL_END, own);
    assert_int_equal(link(kept, own), 0);
    open_target(root, &target);
    td_error_init(&err);
    assert_false(td_fetch_target_begin(&target, &journal, &err));
    CHECK(strstr(err.message, "has another name") != NULL, "%s", err.message);
    td_fetch_target_close(&target);
    assert_true(stat(kept, &st) == 0 && st.st_size == 4);
    td_root_unref(root);
}

/* ---- the lock ------------------------------------------------------------------------------------------ */

struct waiter {
    const struct td_root *root;
    pthread_barrier_t waits;
    bool locked;
};

static void note_wait(void *context)
{
    struct waiter *waiter = context;
    (void)pthread_barrier_wait(&waiter->waits);
}

static void *lock_too(void *argument)
{
    struct waiter *waiter = argument;
    struct td_fetch_target target;
    assert_true(td_fetch_target_open(&target, waiter->root, "f", 3, NULL));
    waiter->locked = td_fetch_target_lock(&target, NULL, note_wait, waiter, NULL);
    assert_true(td_fetch_target_open_finished(&target) >= 0); /* what the other one has finished */
    td_fetch_target_close(&target);
    return NULL;
}

static void a_second_fetch_waits_for_the_first(void **state)
{
    struct tree *tree = *state;
    struct td_root *root;
    struct td_fetch_target target;
    struct td_fetch_journal journal = example();
    pthread_t thread;
    assert_true(td_root_create(tree->path, &root, NULL));
    struct waiter waiter = {.root = root};
    assert_int_equal(pthread_barrier_init(&waiter.waits, NULL, 2), 0);
    assert_true(td_fetch_target_open(&target, root, "f", 3, NULL));
    assert_true(td_fetch_target_lock(&target, NULL, NULL, NULL, NULL));
    journal.size_bytes = 3;
    assert_true(td_fetch_target_begin(&target, &journal, NULL));
    assert_int_equal(pthread_create(&thread, NULL, lock_too, &waiter), 0);
    (void)pthread_barrier_wait(&waiter.waits);
    assert_true(td_fetch_target_finish(&target, NULL));
    td_fetch_target_close(&target);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(waiter.locked);
    (void)pthread_barrier_destroy(&waiter.waits);
    td_root_unref(root);
}

static bool always(void *context)
{
    (void)context;
    return true;
}

static void a_wait_can_be_cancelled(void **state)
{
    struct tree *tree = *state;
    struct td_root *root;
    struct td_fetch_target target;
    struct td_fetch_target other;
    struct td_error err = TD_ERROR_INIT;
    const struct td_cancel cancel = {.is_asked = always};
    assert_true(td_root_create(tree->path, &root, NULL));
    assert_true(td_fetch_target_open(&target, root, "f", 3, NULL));
    assert_true(td_fetch_target_lock(&target, NULL, NULL, NULL, NULL));
    assert_true(td_fetch_target_open(&other, root, "f", 3, NULL));
    assert_false(td_fetch_target_lock(&other, &cancel, NULL, NULL, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    td_fetch_target_close(&other);
    td_fetch_target_close(&target);
    td_root_unref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(a_head_is_read_as_it_was_written),
        cmocka_unit_test(no_other_bytes_are_a_head),
        cmocka_unit_test(what_a_journal_speaks_for),
        TEST_IN(tree, pieces_are_known_after_a_kill),
        TEST_IN(tree, a_file_larger_than_the_disk_is_told_with_both_numbers),
        TEST_IN(tree, damaged_journals_begin_anew),
        TEST_IN(tree, a_finished_file_replaces_and_cleans),
        TEST_IN(tree, what_was_not_begun_leaves_nothing),
        TEST_IN(tree, names_and_links),
        TEST_IN(tree, what_is_in_the_way_is_named),
        TEST_IN(tree, hard_links_are_not_written),
        TEST_IN(tree, a_second_fetch_waits_for_the_first),
        TEST_IN(tree, a_wait_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
