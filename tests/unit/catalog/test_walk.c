#include "catalog/scan/walk.h"

#include "core/clock.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"
#include "tests/unit/work.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

/* The number of the readdir() call from now that fails with EIO (1: the next); 0: none fails. */
static size_t readdir_fails_at;

struct dirent *__wrap_readdir64(DIR *dir);
struct dirent *__real_readdir64(DIR *dir);

struct dirent *__wrap_readdir64(DIR *dir)
{
    if (readdir_fails_at > 0 && --readdir_fails_at == 0) {
        errno = EIO;
        return NULL;
    }
    return __real_readdir64(dir);
}

/* A walk over a tree, with its state. */
struct run {
    struct tree tree;
    struct td_root *root;
    struct td_arena names;
    struct td_problems problems;
    struct td_walk walk;
    _Atomic uint64_t files_found;
    _Atomic bool stop;
    struct td_error err;
    struct td_walk_limits limits;
};

static void begin(struct run *run)
{
    memset(run, 0, sizeof *run);
    td_error_init(&run->err);
    td_arena_init(&run->names, 0);
    tree_open(&run->tree);
    tree_directory(&run->tree, "root");
    run->limits = (struct td_walk_limits){.max_files = 100000, .max_directories = 100000};
}

static bool walk(struct run *run)
{
    char path[TREE_PATH_BYTES];
    tree_at(&run->tree, "root", path);
    assert_true(td_root_create(path, &run->root, &run->err));
    return td_walk_run(&run->walk, run->root, NULL, &run->names, &run->problems, &run->limits, &run->files_found,
                       &run->stop, &run->err);
}

static void end(struct run *run)
{
    td_walk_fini(&run->walk);
    free(run->problems.items);
    td_arena_fini(&run->names);
    td_root_unref(run->root);
    tree_close(&run->tree);
}

FIXTURE(run, struct run, begin, end)

static const struct td_found *find(const struct run *run, const char *path)
{
    for (size_t i = 0; i < run->walk.count; i++)
        if (strcmp(run->walk.found[i].path, path) == 0)
            return &run->walk.found[i];
    return NULL;
}

static const char *problem(const struct run *run, const char *path)
{
    for (size_t i = 0; i < run->problems.count; i++)
        if (strcmp(run->problems.items[i].path, path) == 0)
            return run->problems.items[i].message;
    return NULL;
}

/* Checks that the paths found, sorted and unique, are exactly these, separated by blanks. */
static void expect_paths(const struct run *run, const char *paths)
{
    char got[4096] = "";
    size_t used = 0;
    for (size_t i = 0; i < run->walk.count; i++)
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s", i > 0 ? " " : "", run->walk.found[i].path);
    assert_string_equal(got, paths);
}

static void ordinary_tree(void **state)
{
    struct run *run = *state;
    tree_text(&run->tree, "root/z", "zz");
    tree_text(&run->tree, "root/m/a.safetensors", "12345");
    tree_text(&run->tree, "root/m/sub/deep/x", "");
    tree_text(&run->tree, "root/m-other/x", "");
    tree_text(&run->tree, "root/m.txt", "");
    tree_directory(&run->tree, "root/empty");
    assert_true(walk(run));
    expect_paths(run, "m-other/x m.txt m/a.safetensors m/sub/deep/x z"); /* byte order */
    const struct td_found *found = find(run, "m/a.safetensors");
    struct stat st;
    assert_true(td_root_stat(run->root, "m/a.safetensors", &st, &run->err));
    struct td_file_id id = td_file_id_of(&st);
    assert_string_equal(found->physical, "m/a.safetensors");
    assert_true(td_file_id_equal(&found->id, &id) && found->id.size_bytes == 5);
    assert_null(found->error);
    assert_null(found->revision);
    assert_true(run->files_found == 5 && run->problems.count == 0);
}

static void hidden_and_unfinished_files_are_passed_over(void **state)
{
    struct run *run = *state;
    static const char *const names[] = {".hidden",       ".git/config", "x.incomplete",      "x.tmp",
                                        ".x.AbCdEf",     "d.tmp/y",     "d.incomplete/y",    "m/.cache/z",
                                        "m/.locks/lock", "m/.tmp",      "m/blob.incomplete", "lost+found/x"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "root/%s", names[i]);
        tree_text(&run->tree, name, "x");
    }
    tree_text(&run->tree, "root/x.tmpx", "");
    tree_text(&run->tree, "root/tmp", "");
    tree_text(&run->tree, "root/m/..x", "");
    tree_text(&run->tree, "root/m/lost+found", "");
    assert_true(walk(run));
    expect_paths(run, "m/lost+found tmp x.tmpx");
    assert_int_equal(run->problems.count, 0);
}

static void names_that_are_not_utf8_are_problems(void **state)
{
    struct run *run = *state;
    tree_text(&run->tree, "root/ok", "");
    tree_text(&run->tree, "root/bad\xff", "");
    tree_text(&run->tree, "root/surrogate\xed\xa0\x80/inside", "");
    tree_text(&run->tree, "root/\xc3\xa9", "");
    tree_text(&run->tree, "root/line\nbreak", "");
    tree_text(&run->tree, "root/bell\a", "");
    assert_true(walk(run));
    expect_paths(run, "bell\a line\nbreak ok \xc3\xa9");
    assert_int_equal(run->problems.count, 2);
    assert_non_null(problem(run, "bad\\xff"));
    assert_non_null(problem(run, "surrogate\\xed\\xa0\\x80"));
}

static void names_may_be_long(void **state)
{
    struct run *run = *state;
    char name[8 + 256] = "root/";
    memset(name + 5, 'n', 255);
    tree_text(&run->tree, name, "");
    assert_true(walk(run));
    expect_paths(run, name + 5);
}

static void links_are_followed_and_loops_end(void **state)
{
    struct run *run = *state;
    char path[TREE_PATH_BYTES];
    tree_text(&run->tree, "root/d/f", "123");
    tree_symlink(&run->tree, "root/l", "d");
    tree_symlink(&run->tree, "root/lf", "d/f");
    tree_symlink(&run->tree, "root/d/up", "..");  /* its own ancestor */
    tree_symlink(&run->tree, "root/d/self", "."); /* itself */
    tree_symlink(&run->tree, "root/d/again", "../d");
    tree_symlink(&run->tree, "root/d/e/over", "../../d"); /* an ancestor through a link */
    tree_at(&run->tree, "root", path);
    tree_symlink(&run->tree, "root/d/absolute-up", path);
    assert_true(walk(run));
    expect_paths(run, "d/f l/f lf");
    assert_int_equal(run->problems.count, 0); /* no file is missing */
    assert_string_equal(find(run, "lf")->physical, "lf");
    assert_true(find(run, "lf")->id.inode == find(run, "d/f")->id.inode);
}

/* Many links to one another must not multiply the paths without bound. */
static void web_of_links_is_bounded(void **state)
{
    struct run *run = *state;
    char name[64];
    char target[64];
    for (int i = 0; i < 12; i++) {
        (void)snprintf(name, sizeof name, "root/d%d/f", i);
        tree_text(&run->tree, name, "");
        for (int k = 0; k < 12; k++) {
            (void)snprintf(name, sizeof name, "root/d%d/l%d", i, k);
            (void)snprintf(target, sizeof target, "../d%d", k);
            tree_symlink(&run->tree, name, target);
        }
    }
    run->limits.max_directories = 2000;
    uint64_t began_ns = td_clock_ns();
    assert_true(walk(run));
    assert_true(run->walk.count <= 2000);
    assert_non_null(find(run, "d0/f"));
    assert_non_null(problem(run, ""));
    assert_non_null(strstr(problem(run, ""), "2000 directories"));
    assert_true(td_clock_ns() - began_ns < UINT64_C(20000000000));
}

static void what_cannot_be_served_says_why(void **state)
{
    struct run *run = *state;
    tree_text(&run->tree, "secret", "");
    tree_text(&run->tree, "beside/secret", "");
    tree_symlink(&run->tree, "root/out.safetensors", "../secret");
    tree_symlink(&run->tree, "root/out-folder", "../beside");
    tree_symlink(&run->tree, "root/broken", "nowhere");
    tree_symlink(&run->tree, "root/round", "round");
    tree_symlink(&run->tree, "root/device", "/dev/zero");
    tree_fifo(&run->tree, "root/fifo.safetensors");
    tree_symlink(&run->tree, "root/to-fifo", "fifo.safetensors");
    assert_true(walk(run));
    static const struct {
        const char *path, *why;
    } wanted[] = {
        {"broken", "does not exist"},
        {"device", "outside"},
        {"fifo.safetensors", "not a regular file"},
        {"out-folder", "leads outside DIR; if it belongs to a Hugging Face cache"},
        {"out.safetensors", "leads outside DIR; if"},
        {"round", "leads in a circle"},
        {"to-fifo", "not a regular file"},
    };
    assert_int_equal(run->walk.count, COUNT_OF(wanted));
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        const struct td_found *found = find(run, wanted[i].path);
        CHECK(found != NULL && found->error != NULL, "%s", wanted[i].path);
        CHECK(strstr(found->error, wanted[i].why) != NULL, "%s: %s", wanted[i].path, found->error);
    }
}

static void depth_is_limited(void **state)
{
    struct run *run = *state;
    char name[512] = "root";
    for (int depth = 1; depth <= 70; depth++) {
        char file[600];
        (void)strcat(name, "/d");
        (void)snprintf(file, sizeof file, "%s/f", name);
        tree_text(&run->tree, file, "");
    }
    assert_true(walk(run));
    assert_int_equal(run->walk.count, 64); /* files in directories 1 to 64 deep */
    assert_int_equal(run->problems.count, 1);
    assert_non_null(strstr(run->problems.items[0].message, "64"));
    assert_int_equal(strlen(run->problems.items[0].path), 2 * 65 - 1);
}

static void files_are_limited_and_it_is_said(void **state)
{
    struct run *run = *state;
    char name[32];
    for (int i = 0; i < 30; i++) {
        (void)snprintf(name, sizeof name, "root/f%02d", i);
        tree_text(&run->tree, name, "");
    }
    run->limits.max_files = 30;
    assert_true(walk(run));
    assert_true(run->walk.count == 30 && run->problems.count == 0);
    td_walk_fini(&run->walk);
    td_root_unref(run->root);
    run->limits.max_files = 29;
    assert_true(walk(run));
    assert_int_equal(run->walk.count, 29);
    assert_non_null(strstr(problem(run, ""), "29 files"));
}

/* Writes a cache whose main commit c1 has three files, and c0 two. */
static void write_two_commits(struct run *run)
{
    tree_text(&run->tree, "root/models--org--name/refs/main", "c1");
    tree_text(&run->tree, "root/models--org--name/snapshots/c1/a", "");
    tree_text(&run->tree, "root/models--org--name/snapshots/c1/sub/b", "");
    tree_text(&run->tree, "root/models--org--name/snapshots/c1/sub/c", "");
    tree_text(&run->tree, "root/models--org--name/snapshots/c0/a", "");
    tree_text(&run->tree, "root/models--org--name/snapshots/c0/b", "");
}

static void commits_beyond_the_limit_are_left_out_whole(void **state)
{
    static const struct {
        size_t max_files, max_directories, cache_count;
        const char *paths, *missing;
    } cases[] = {
        {8, 100, 2, "f g org/name/a org/name/sub/b org/name/sub/c org/name@c0/a org/name@c0/b z/f", NULL},
        {7, 100, 1, "f g org/name/a org/name/sub/b org/name/sub/c z/f", NULL},
        {6, 100, 1, "f g org/name/a org/name/sub/b org/name/sub/c z/f", NULL},
        {5, 100, 0, "f g z/f", "org/name"},
        {8, 4, 0, "f g z/f", "org/name"}, /* the root, z, c1 and c0, but not c1/sub */
    };
    struct run *run = *state;
    write_two_commits(run);
    tree_text(&run->tree, "root/f", "");
    tree_text(&run->tree, "root/g", "");
    tree_text(&run->tree, "root/z/f", "");
    run->limits.all_revisions = true;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        run->limits.max_files = cases[i].max_files;
        run->limits.max_directories = cases[i].max_directories;
        assert_true(walk(run));
        expect_paths(run, cases[i].paths);
        assert_int_equal(run->walk.cache_count, cases[i].cache_count);
        if (i > 0)
            assert_non_null(strstr(problem(run, ""), "the rest is not listed"));
        if (cases[i].missing != NULL)
            assert_non_null(strstr(problem(run, cases[i].missing), "too many files or directories"));
        if (i + 1 < COUNT_OF(cases)) {
            td_walk_fini(&run->walk);
            td_root_unref(run->root);
            run->problems.count = 0;
        }
    }
}

/* Writes models until there are so many, each with a commit of two files. Returns the work of a walk that may list as
 * many files as there are models, so that half of the commits are left out. */
static uint64_t work_of_cut_commits(struct run *run, int from, int count)
{
    char name[64];
    for (int i = from; i < count; i++) {
        for (int file = 0; file < 2; file++) {
            (void)snprintf(name, sizeof name, "root/models--m%04d/snapshots/c1/%d", i, file);
            tree_text(&run->tree, name, "");
        }
        (void)snprintf(name, sizeof name, "root/models--m%04d/refs/main", i);
        tree_text(&run->tree, name, "c1");
    }
    run->limits.max_files = (size_t)count;
    uint64_t work = work_now();
    assert_true(walk(run));
    work = work_now() - work;
    CHECK(run->walk.cache_count > 0 && run->walk.cache_count <= (size_t)count / 2, "%zu", run->walk.cache_count);
    return work;
}

static void many_commits_beyond_the_limit_cost_little(void **state)
{
    enum { COUNT = 1600 };
    struct run *run = *state;
    uint64_t half = work_of_cut_commits(run, 0, COUNT / 2);
    td_walk_fini(&run->walk);
    td_root_unref(run->root);
    check_linear(half, work_of_cut_commits(run, COUNT / 2, COUNT), "commits beyond the limit");
}

static void cache_folders_have_their_own_names(void **state)
{
    struct run *run = *state;
    tree_text(&run->tree, "root/models--org--name/blobs/abc", "blob");
    tree_symlink(&run->tree, "root/models--org--name/snapshots/c1/model.safetensors", "../../blobs/abc");
    tree_symlink(&run->tree, "root/models--org--name/snapshots/c1/sub/config.json", "../../../blobs/abc");
    tree_text(&run->tree, "root/models--org--name/snapshots/c0/old.safetensors", "x");
    tree_text(&run->tree, "root/models--org--name/refs/main", "c1");
    tree_text(&run->tree, "root/models--gpt2/snapshots/c2/x", "");
    tree_text(&run->tree, "root/models--empty--one/refs/main", "c1");
    tree_text(&run->tree, "root/hub/models--a--b/snapshots/c3/y", "");
    assert_true(walk(run));
    expect_paths(run, "gpt2/x hub/a/b/y org/name/model.safetensors org/name/sub/config.json");
    const struct td_found *found = find(run, "org/name/model.safetensors");
    assert_string_equal(found->physical, "models--org--name/snapshots/c1/model.safetensors");
    assert_string_equal(found->revision, "c1");
    assert_true(found->id.size_bytes == 4 && found->error == NULL);
    assert_string_equal(find(run, "org/name/sub/config.json")->revision, "c1");
    assert_string_equal(find(run, "gpt2/x")->revision, "c2");
}

static void one_path_is_published_once(void **state)
{
    struct run *run = *state;
    /* a directory of the same id beside the cache folder: the directory wins */
    tree_text(&run->tree, "root/models--a--b/snapshots/c/x", "from the cache");
    tree_text(&run->tree, "root/a/b/x", "plain");
    /* two cache folders with the same id */
    tree_text(&run->tree, "root/models--p--q--r/snapshots/c/x", "");
    tree_text(&run->tree, "root/p/models--q--r/snapshots/c/x", "");
    assert_true(walk(run));
    expect_paths(run, "a/b/x p/q/r/x");
    assert_true(find(run, "a/b/x")->id.size_bytes == 5);
    assert_non_null(strstr(problem(run, "models--a--b"), "the directory \"a/b\" has its id; remove or rename"));
    assert_non_null(strstr(problem(run, "p/q/r/x"), "two files"));
}

static void it_can_be_stopped(void **state)
{
    struct run *run = *state;
    tree_text(&run->tree, "root/f", "");
    run->stop = true;
    assert_false(walk(run));
    assert_int_equal(run->err.code, TD_UNAVAILABLE);
}

static void vanished_root_is_an_error(void **state)
{
    struct run *run = *state;
    char path[TREE_PATH_BYTES];
    tree_at(&run->tree, "root", path);
    assert_true(td_root_create(path, &run->root, &run->err));
    tree_remove(&run->tree, "root");
    bool ok = td_walk_run(&run->walk, run->root, NULL, &run->names, &run->problems, &run->limits, &run->files_found,
                          &run->stop, &run->err);
    /* a removed directory that is open lists as empty: both results are right, a crash is not */
    assert_true(ok ? run->walk.count == 0 : run->err.code != TD_OK);
}

/* The walk makes 10 calls: for "." and "..", the items and the end of "root" (a, d, f) and of "root/d" (x). Whichever
 * fails, the walk fails with the name of the directory, and never lists fewer files. */
static void a_listing_that_fails_half_way_is_an_error(void **state)
{
    (void)state;
    enum { OF_ROOT = 6, CALLS = 10 };
    for (size_t k = 1; k <= CALLS + 1; k++) {
        struct run run;
        char said[TREE_PATH_BYTES + 64];
        char path[TREE_PATH_BYTES];
        begin(&run);
        tree_text(&run.tree, "root/a", "");
        tree_text(&run.tree, "root/f", "");
        tree_text(&run.tree, "root/d/x", "");
        tree_at(&run.tree, "root", path);
        (void)snprintf(said, sizeof said, "cannot list \"%s\": Input/output error", k <= OF_ROOT ? path : "d");
        readdir_fails_at = k;
        bool ok = walk(&run);
        readdir_fails_at = 0;
        if (k <= CALLS)
            CHECK(!ok && run.err.code == TD_IO && strcmp(run.err.message, said) == 0, "%zu: %s", k, run.err.message);
        else
            expect_paths(&run, "a d/x f");
        end(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(run, ordinary_tree),
        TEST_IN(run, hidden_and_unfinished_files_are_passed_over),
        TEST_IN(run, names_that_are_not_utf8_are_problems),
        TEST_IN(run, names_may_be_long),
        TEST_IN(run, links_are_followed_and_loops_end),
        TEST_IN(run, web_of_links_is_bounded),
        TEST_IN(run, what_cannot_be_served_says_why),
        TEST_IN(run, depth_is_limited),
        TEST_IN(run, files_are_limited_and_it_is_said),
        TEST_IN(run, commits_beyond_the_limit_are_left_out_whole),
        TEST_IN(run, many_commits_beyond_the_limit_cost_little),
        TEST_IN(run, cache_folders_have_their_own_names),
        TEST_IN(run, one_path_is_published_once),
        TEST_IN(run, it_can_be_stopped),
        TEST_IN(run, vanished_root_is_an_error),
        cmocka_unit_test(a_listing_that_fails_half_way_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
