/* No file outside the root is ever opened, through names, links or races. */
#include "storage/served_root.h"

#include "core/clock.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* A root beside files that must not be reached. */
struct place {
    struct tree tree;
    struct td_root *root;
};

static void open_place(struct place *place)
{
    char path[TREE_PATH_BYTES];
    struct td_error err = TD_ERROR_INIT;
    tree_open(&place->tree);
    tree_text(&place->tree, "secret", "SECRET");
    tree_text(&place->tree, "root-beside/secret", "SECRET");
    tree_text(&place->tree, "root/a.txt", "alpha");
    tree_text(&place->tree, "root/dir/b.txt", "beta");
    tree_text(&place->tree, "root/dir/deep/c.txt", "gamma");
    tree_at(&place->tree, "root", path);
    CHECK(td_root_create(path, &place->root, &err), "%s", err.message);
}

static void close_place(struct place *place)
{
    td_root_unref(place->root);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

/* Makes a link to an absolute path in the tree. */
static void link_to(const struct place *place, const char *name, const char *target)
{
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, target, path);
    tree_symlink(&place->tree, name, path);
}

/* Opens and reads the file. Returns TD_OK with the text in `out`, or the error's code. */
static enum td_code read_text(const struct td_root *root, const char *path, char out[64])
{
    struct td_error err = TD_ERROR_INIT;
    struct td_file_id id;
    int fd = -1;
    out[0] = '\0';
    if (!td_root_open_file(root, path, &fd, &id, &err)) {
        check_error(&err, 0, false, path);
        return err.code;
    }
    ssize_t n = read(fd, out, 63);
    assert_true(n >= 0 && (uint64_t)n == id.size_bytes);
    out[n] = '\0';
    assert_int_equal(close(fd), 0);
    return TD_OK;
}

static void expect(const struct place *place, const char *path, enum td_code code, const char *text)
{
    char out[64];
    enum td_code got = read_text(place->root, path, out);
    CHECK(got == code, "\"%s\": code %d, wanted %d", path, (int)got, (int)code);
    CHECK(code != TD_OK || strcmp(out, text) == 0, "\"%s\": read \"%s\"", path, out);
}

static void roots_are_directories(void **state)
{
    struct place *place = *state;
    char path[TREE_PATH_BYTES];
    struct td_root *root = NULL;
    struct td_error err = TD_ERROR_INIT;
    tree_at(&place->tree, "absent", path);
    assert_false(td_root_create(path, &root, &err));
    assert_int_equal(err.code, TD_NOT_FOUND);
    td_error_init(&err);
    tree_at(&place->tree, "secret", path);
    assert_false(td_root_create(path, &root, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    assert_null(root);
    td_error_init(&err);
    link_to(place, "link-to-root", "root");
    tree_at(&place->tree, "link-to-root", path);
    assert_true(td_root_create(path, &root, &err)); /* the root's own path may be a symlink */
    assert_true(root->inode == place->root->inode && root->device == place->root->device);
    char out[64];
    assert_int_equal(read_text(root, "dir/b.txt", out), TD_OK);
    assert_ptr_equal(td_root_ref(root), root);
    td_root_unref(root);
    assert_int_equal(read_text(root, "dir/b.txt", out), TD_OK);
    td_root_unref(root);
    td_root_unref(NULL);
}

static void names_stay_below_the_root(void **state)
{
    struct place *place = *state;
    expect(place, "a.txt", TD_OK, "alpha");
    expect(place, "dir/deep/c.txt", TD_OK, "gamma");
    expect(place, "dir/../a.txt", TD_OK, "alpha");
    expect(place, "./a.txt", TD_OK, "alpha");
    expect(place, "absent", TD_NOT_FOUND, NULL);
    expect(place, "a.txt/x", TD_NOT_FOUND, NULL);
    expect(place, "dir", TD_FAILED_PRECONDITION, NULL);
    expect(place, "", TD_FAILED_PRECONDITION, NULL);
    expect(place, ".", TD_FAILED_PRECONDITION, NULL);
    static const char *const outside[] = {"..",
                                          "../secret",
                                          "dir/../../secret",
                                          "../root/a.txt",
                                          "/etc/passwd",
                                          "dir/../../root/a.txt",
                                          "../root-beside/secret"};
    for (size_t i = 0; i < COUNT_OF(outside); i++)
        expect(place, outside[i], TD_PERMISSION_DENIED, NULL);
    char full[TREE_PATH_BYTES];
    tree_at(&place->tree, "secret", full);
    expect(place, full, TD_PERMISSION_DENIED, NULL);
    char too_long[PATH_MAX + 100];
    memset(too_long, 'x', sizeof too_long);
    too_long[sizeof too_long - 1] = '\0';
    char out[64];
    assert_int_not_equal(read_text(place->root, too_long, out), TD_OK);
}

static void links_are_followed_inside(void **state)
{
    struct place *place = *state;
    tree_symlink(&place->tree, "root/relative", "dir/b.txt");
    tree_symlink(&place->tree, "root/dir/up", "../a.txt");
    tree_symlink(&place->tree, "root/folder", "dir");
    link_to(place, "root/absolute", "root/dir/b.txt");
    link_to(place, "root/absolute-folder", "root/dir");
    link_to(place, "root/to-the-root", "root");
    tree_symlink(&place->tree, "root/to-a-link", "relative");
    expect(place, "relative", TD_OK, "beta");
    expect(place, "dir/up", TD_OK, "alpha");
    expect(place, "folder/deep/c.txt", TD_OK, "gamma");
    expect(place, "folder/up", TD_OK, "alpha");
    expect(place, "absolute", TD_OK, "beta");
    expect(place, "absolute-folder/deep/c.txt", TD_OK, "gamma");
    expect(place, "to-the-root/a.txt", TD_OK, "alpha");
    expect(place, "to-the-root/dir/b.txt", TD_OK, "beta");
    expect(place, "to-a-link", TD_OK, "beta");
}

/* Links that lead over other links, relative and absolute mixed. */
static void chains_of_links_are_followed_inside(void **state)
{
    struct place *place = *state;
    link_to(place, "root/one", "root/two");
    tree_symlink(&place->tree, "root/two", "dir/three");
    link_to(place, "root/dir/three", "root/dir/deep");
    expect(place, "one/c.txt", TD_OK, "gamma");
    expect(place, "two/c.txt", TD_OK, "gamma");
    expect(place, "dir/three/c.txt", TD_OK, "gamma");
    tree_symlink(&place->tree, "root/relative-to-absolute", "dir/absolute");
    link_to(place, "root/dir/absolute", "root/a.txt");
    expect(place, "relative-to-absolute", TD_OK, "alpha");
    tree_symlink(&place->tree, "root/dir/deep/up-to-absolute", "../absolute");
    expect(place, "dir/deep/up-to-absolute", TD_OK, "alpha");
    expect(place, "one/up-to-absolute", TD_OK, "alpha");
}

static void links_that_leave_are_refused(void **state)
{
    struct place *place = *state;
    tree_symlink(&place->tree, "root/up", "../secret");
    tree_symlink(&place->tree, "root/dir/up", "../../secret");
    tree_symlink(&place->tree, "root/folder-up", "..");
    link_to(place, "root/absolute", "secret");
    link_to(place, "root/beside", "root-beside/secret"); /* shares the root's name as a prefix */
    link_to(place, "root/beside-folder", "root-beside");
    link_to(place, "root/around", "root/../secret");
    link_to(place, "root/in-and-out", "root/dir/../../secret");
    tree_symlink(&place->tree, "root/etc", "/etc");
    tree_symlink(&place->tree, "root/zero", "/dev/zero");
    tree_symlink(&place->tree, "root/to-up", "up");
    link_to(place, "root/absolute-to-up", "root/up");
    tree_symlink(&place->tree, "root/via-folder", "folder-up/root-beside/secret");
    static const char *const names[] = {
        "up",     "dir/up",           "absolute",       "beside",     "beside-folder/secret",
        "around", "in-and-out",       "etc/passwd",     "zero",       "to-up",
        "etc",    "folder-up/secret", "absolute-to-up", "via-folder", "folder-up/root/a.txt" /* out and back in */};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct stat st;
        struct td_error err = TD_ERROR_INIT;
        int fd;
        expect(place, names[i], TD_PERMISSION_DENIED, NULL);
        CHECK(!td_root_stat(place->root, names[i], &st, &err) && err.code == TD_PERMISSION_DENIED, "%s", names[i]);
        td_error_init(&err);
        CHECK(!td_root_open_directory(place->root, names[i], &fd, &err), "%s", names[i]);
    }
}

static void loops_end(void **state)
{
    struct place *place = *state;
    tree_symlink(&place->tree, "root/self", "self");
    tree_symlink(&place->tree, "root/ping", "dir/pong");
    tree_symlink(&place->tree, "root/dir/pong", "../ping");
    link_to(place, "root/absolute-self", "root/absolute-self");
    link_to(place, "root/tick", "root/tock");
    link_to(place, "root/tock", "root/tick");
    link_to(place, "root/growing", "root/growing/x/y/z");
    static const char *const names[] = {"self", "self/x", "ping", "absolute-self", "absolute-self/x",
                                        "tick", "growing"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        expect(place, names[i], TD_PERMISSION_DENIED, NULL);
}

static void no_magic_links(void **state)
{
    (void)state;
    struct td_root *root;
    struct td_error err = TD_ERROR_INIT;
    char name[64];
    char out[64];
    assert_true(td_root_create("/proc/self", &root, &err));
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    (void)snprintf(name, sizeof name, "fd/%d", fd);
    assert_int_equal(read_text(root, name, out), TD_PERMISSION_DENIED);
    assert_int_equal(read_text(root, "exe", out), TD_PERMISSION_DENIED);
    assert_int_equal(read_text(root, "root/etc/passwd", out), TD_PERMISSION_DENIED);
    assert_int_equal(read_text(root, "cwd/x", out), TD_PERMISSION_DENIED);
    assert_int_equal(close(fd), 0);
    td_root_unref(root);
}

static void make_socket(const struct tree *tree, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[TREE_PATH_BYTES];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    tree_at(tree, name, path);
    assert_true(fd >= 0 && strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(close(fd), 0);
}

/* Opening a FIFO without a writer blocks for ever, and opening a device can do anything. */
static void special_files_are_not_opened(void **state)
{
    struct place *place = *state;
    char path[TREE_PATH_BYTES];
    uint64_t began_ns = td_clock_ns();
    tree_fifo(&place->tree, "root/fifo");
    tree_symlink(&place->tree, "root/link-to-fifo", "fifo");
    make_socket(&place->tree, "root/socket");
    expect(place, "fifo", TD_FAILED_PRECONDITION, NULL);
    expect(place, "link-to-fifo", TD_FAILED_PRECONDITION, NULL);
    expect(place, "socket", TD_FAILED_PRECONDITION, NULL);
    tree_at(&place->tree, "root/device", path);
    if (mknod(path, S_IFCHR | 0666, makedev(1, 5)) == 0) /* /dev/zero */
        expect(place, "device", TD_FAILED_PRECONDITION, NULL);
    else /* may not make a device: uses the host's */
        assert_true(errno == EPERM);
    struct td_root *dev;
    struct td_error err = TD_ERROR_INIT;
    char out[64];
    assert_true(td_root_create("/dev", &dev, &err));
    assert_int_equal(read_text(dev, "zero", out), TD_FAILED_PRECONDITION);
    td_root_unref(dev);
    int fd;
    assert_false(td_root_open_directory(place->root, "fifo", &fd, NULL));
    assert_true(td_clock_ns() - began_ns < UINT64_C(5000000000));
}

static void no_right_is_no_crash(void **state)
{
    struct place *place = *state;
    char path[TREE_PATH_BYTES];
    tree_at(&place->tree, "root/a.txt", path);
    assert_int_equal(chmod(path, 0), 0);
    tree_at(&place->tree, "root/dir", path);
    assert_int_equal(chmod(path, 0), 0);
    pid_t child = fork(); /* root can read every file */
    assert_true(child >= 0);
    if (child == 0) {
        char out[64];
        bool ok = geteuid() != 0 || (setgid(65534) == 0 && setuid(65534) == 0);
        ok = ok && read_text(place->root, "a.txt", out) == TD_PERMISSION_DENIED;
        ok = ok && read_text(place->root, "dir/b.txt", out) == TD_PERMISSION_DENIED;
        _exit(ok ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(chmod(path, 0755), 0);
}

static void no_descriptor_left_is_said(void **state)
{
    struct place *place = *state;
    struct rlimit old;
    char out[64];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    struct rlimit few = {.rlim_cur = 3, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    enum td_code code = read_text(place->root, "a.txt", out);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(code, TD_RESOURCE_EXHAUSTED);
    expect(place, "a.txt", TD_OK, "alpha");
}

static void directories_are_listed(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    struct stat st;
    int fd;
    assert_true(td_root_open_directory(place->root, "", &fd, &err));
    assert_true(fstat(fd, &st) == 0 && st.st_ino == place->root->inode);
    assert_int_equal(close(fd), 0);
    assert_true(td_root_open_directory(place->root, "dir/deep", &fd, &err));
    assert_int_equal(close(fd), 0);
    assert_false(td_root_open_directory(place->root, "absent", &fd, &err));
    assert_int_equal(err.code, TD_NOT_FOUND);
    td_error_init(&err);
    assert_true(td_root_stat(place->root, "dir/b.txt", &st, &err));
    assert_true(S_ISREG(st.st_mode) && st.st_size == 4);
}

static void every_part_of_an_identity_counts(void **state)
{
    (void)state;
    struct td_file_id id = {.device = 1, .inode = 2, .size_bytes = 3, .mtime_ns = 4, .ctime_ns = 5};
    struct td_file_id other = id;
    assert_true(td_file_id_equal(&id, &other));
    uint64_t *const unsigned_parts[] = {&other.device, &other.inode, &other.size_bytes};
    for (size_t i = 0; i < COUNT_OF(unsigned_parts); i++) {
        ++*unsigned_parts[i];
        assert_false(td_file_id_equal(&id, &other));
        --*unsigned_parts[i];
    }
    other.mtime_ns++;
    assert_false(td_file_id_equal(&id, &other));
    other.mtime_ns--;
    other.ctime_ns++;
    assert_false(td_file_id_equal(&id, &other));
    struct stat st = {.st_dev = 9, .st_ino = 8, .st_size = INT64_C(1) << 40};
    st.st_mtim = (struct timespec){.tv_sec = 1700000000, .tv_nsec = 123456789};
    st.st_ctim = (struct timespec){.tv_sec = -1, .tv_nsec = 999999999};
    struct td_file_id made = td_file_id_of(&st);
    assert_true(made.device == 9 && made.inode == 8 && made.size_bytes == UINT64_C(1) << 40);
    assert_true(made.mtime_ns == INT64_C(1700000000123456789) && made.ctime_ns == -1);
}

/* ---- races --------------------------------------------------------------------------------------------- */

struct swapper {
    char a[TREE_PATH_BYTES], b[TREE_PATH_BYTES];
    _Atomic bool stop;
    uint64_t swaps;
};

static void *swap_often(void *argument)
{
    struct swapper *swapper = argument;
    while (!atomic_load(&swapper->stop))
        swapper->swaps += renameat2(AT_FDCWD, swapper->a, AT_FDCWD, swapper->b, RENAME_EXCHANGE) == 0;
    return NULL;
}

/* Opens `path` while `a` and `b` are swapped; one of them leads outside: all text must come from inside. `refusals`
 * says whether some opens must fail. */
static void race(const struct place *place, const char *a, const char *b, const char *path, bool refusals)
{
    struct swapper swapper = {.stop = false};
    pthread_t thread;
    size_t read_well = 0;
    size_t refused = 0;
    tree_at(&place->tree, a, swapper.a);
    tree_at(&place->tree, b, swapper.b);
    assert_int_equal(pthread_create(&thread, NULL, swap_often, &swapper), 0);
    uint64_t until_ns = td_clock_ns() + UINT64_C(700000000);
    while (td_clock_ns() < until_ns) {
        char out[64];
        enum td_code code = read_text(place->root, path, out);
        read_well += code == TD_OK;
        refused += code != TD_OK;
        if (code == TD_OK && strcmp(out, "beta") != 0) {
            atomic_store(&swapper.stop, true);
            (void)pthread_join(thread, NULL);
            fail_msg("\"%s\" gave \"%s\"", path, out);
        }
    }
    atomic_store(&swapper.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (swapper.swaps % 2 == 1) /* swaps back */
        assert_int_equal(renameat2(AT_FDCWD, swapper.a, AT_FDCWD, swapper.b, RENAME_EXCHANGE), 0);
    CHECK(swapper.swaps > 100 && read_well > 0 && (refused > 0 || !refusals),
          "%llu swaps, %zu read, %zu refused: no race", (unsigned long long)swapper.swaps, read_well, refused);
}

static void races_do_not_lead_outside(void **state)
{
    (void)state;
    struct place place;
    open_place(&place);
    tree_text(&place.tree, "outside/b.txt", "SECRET");
    link_to(&place, "root/trap", "outside"); /* a directory and an absolute link */
    race(&place, "root/dir", "root/trap", "dir/b.txt", true);
    tree_symlink(&place.tree, "root/relative-trap", "../outside");
    race(&place, "root/dir", "root/relative-trap", "dir/b.txt", true);
    close_place(&place);
    open_place(&place);
    tree_text(&place.tree, "root/b.txt", "beta");
    link_to(&place, "root/good", "root/dir"); /* two absolute links: one of them is rewritten */
    tree_text(&place.tree, "outside/b.txt", "SECRET");
    link_to(&place, "root/bad", "outside");
    race(&place, "root/good", "root/bad", "good/b.txt", true);
    close_place(&place);
    open_place(&place);
    tree_text(&place.tree, "b.txt", "SECRET");
    tree_text(&place.tree, "root/x/y/z/b.txt", "nowhere");
    tree_text(&place.tree, "root/x/b.txt", "beta");
    /* the directory that ".." starts from moves up: from x/y/z, ../../b.txt is x/b.txt; from x, it is outside */
    tree_directory(&place.tree, "root/y");
    race(&place, "root/x/y/z", "root/y", "x/y/z/../../b.txt", false);
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, roots_are_directories),
        TEST_IN(place, names_stay_below_the_root),
        TEST_IN(place, links_are_followed_inside),
        TEST_IN(place, chains_of_links_are_followed_inside),
        TEST_IN(place, links_that_leave_are_refused),
        TEST_IN(place, loops_end),
        cmocka_unit_test(no_magic_links),
        TEST_IN(place, special_files_are_not_opened),
        TEST_IN(place, no_right_is_no_crash),
        TEST_IN(place, no_descriptor_left_is_said),
        TEST_IN(place, directories_are_listed),
        cmocka_unit_test(every_part_of_an_identity_counts),
        cmocka_unit_test(races_do_not_lead_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
