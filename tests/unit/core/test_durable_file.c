/* Files that are replaced durably. The expectations are those of POSIX for a power cut: fsync of a file makes its
 * content last, and fsync of its directory its name (fsync(2), "Calling fsync() does not necessarily ensure that the
 * entry in the directory containing the file has also reached disk"). */
#include "core/file_io.h"

#include "tests/unit/tree_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* The steps that were done, one letter each: F and D write a file and a directory to the disk, R renames. */
static char steps[16];
static size_t step_count;
static ino_t synced_file, synced_directory;
static char failing; /* the step that fails with EIO; 0: none */

int __wrap_fsync(int fd);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);

static bool take(char step)
{
    steps[step_count++] = step;
    if (step != failing)
        return true;
    errno = EIO;
    return false;
}

int __wrap_fsync(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    bool is_directory = S_ISDIR(st.st_mode);
    *(is_directory ? &synced_directory : &synced_file) = st.st_ino;
    return take(is_directory ? 'D' : 'F') ? 0 : -1;
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return take('R') ? __real_renameat(from_dir, from, to_dir, to) : -1;
}

static void begin(char fails)
{
    memset(steps, 0, sizeof steps);
    step_count = 0;
    failing = fails;
}

static int open_tree(const struct tree *tree)
{
    int at = open(tree->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(at >= 0);
    return at;
}

/* Returns what a file has, or "none". */
static const char *content(int at, const char *name)
{
    static char text[32];
    int fd = openat(at, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        (void)close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return n < 0 ? "none" : text;
}

static ino_t inode(int at, const char *name)
{
    struct stat st;
    assert_int_equal(fstatat(at, name, &st, 0), 0);
    return st.st_ino;
}

static void content_is_on_disk_before_the_name_and_the_name_at_the_end(void **state)
{
    struct tree *tree = *state;
    struct stat st;
    tree_text(tree, "d/e/f", "old");
    int at = open_tree(tree);
    begin(0);
    assert_true(td_durable_file_write(at, "d/e/f", TD_TEXT("new"), 0640));
    assert_string_equal(steps, "FRD");
    assert_string_equal(content(at, "d/e/f"), "new");
    assert_int_equal(synced_file, inode(at, "d/e/f"));
    assert_int_equal(synced_directory, inode(at, "d/e"));
    assert_int_equal(fstatat(at, "d/e/f", &st, 0), 0);
    assert_int_equal(st.st_mode & 0137, 0); /* no more than was asked for */
    begin(0);
    assert_true(td_durable_file_write(at, "top", TD_TEXT("x"), 0600));
    assert_string_equal(steps, "FRD");
    assert_int_equal(synced_directory, inode(at, "."));
    (void)close(at);
}

static void what_fails_leaves_the_old_file_and_nothing_beside_it(void **state)
{
    struct tree *tree = *state;
    tree_text(tree, "f", "old");
    int at = open_tree(tree);
    begin('F');
    assert_false(td_durable_file_write(at, "f", TD_TEXT("new"), 0600));
    assert_int_equal(errno, EIO);
    assert_string_equal(content(at, "f"), "old");
    assert_string_equal(content(at, "f.new"), "none");
    begin('R');
    assert_false(td_durable_file_write(at, "f", TD_TEXT("new"), 0600));
    assert_int_equal(errno, EIO);
    assert_string_equal(content(at, "f"), "old");
    assert_string_equal(content(at, "f.new"), "none");
    begin('D');
    assert_false(td_durable_file_write(at, "f", TD_TEXT("new"), 0600));
    assert_int_equal(errno, EIO);
    begin(0);
    assert_false(td_durable_file_write(at, "none/f", TD_TEXT("new"), 0600));
    assert_int_equal(errno, ENOENT);
    (void)close(at);
}

static void content_that_is_not_whole_is_dropped_with_its_reason(void **state)
{
    struct tree *tree = *state;
    struct td_durable_file file;
    tree_text(tree, "f", "old");
    int at = open_tree(tree);
    begin(0);
    assert_true(td_durable_file_begin(&file, at, "f", 0600));
    assert_int_equal(write(file.fd, "ne", 2), 2);
    errno = ENOSPC;
    assert_int_equal(td_durable_file_end(&file, false), -1);
    assert_int_equal(errno, ENOSPC);
    assert_string_equal(steps, "");
    assert_string_equal(content(at, "f"), "old");
    assert_string_equal(content(at, "f.new"), "none");
    (void)close(at);
}

static void what_a_killed_process_has_left_is_not_written_through(void **state)
{
    struct tree *tree = *state;
    tree_text(tree, "elsewhere", "precious");
    tree_symlink(tree, "f.new", "elsewhere");
    tree_text(tree, "g.new", "a longer text of an earlier process");
    int at = open_tree(tree);
    begin(0);
    assert_true(td_durable_file_write(at, "f", TD_TEXT("new"), 0600));
    assert_true(td_durable_file_write(at, "g", TD_TEXT("new"), 0600));
    assert_string_equal(content(at, "f"), "new");
    assert_string_equal(content(at, "g"), "new");
    assert_string_equal(content(at, "elsewhere"), "precious");
    (void)close(at);
}

static void a_path_that_is_too_long_is_refused(void **state)
{
    struct td_durable_file file;
    char path[PATH_MAX + 8];
    (void)state;
    memset(path, 'a', sizeof path);
    path[PATH_MAX - 4] = '\0'; /* with ".new" and its NUL it is one byte too long */
    assert_false(td_durable_file_begin(&file, AT_FDCWD, path, 0600));
    assert_int_equal(errno, ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(tree, content_is_on_disk_before_the_name_and_the_name_at_the_end),
        TEST_IN(tree, what_fails_leaves_the_old_file_and_nothing_beside_it),
        TEST_IN(tree, content_that_is_not_whole_is_dropped_with_its_reason),
        TEST_IN(tree, what_a_killed_process_has_left_is_not_written_through),
        cmocka_unit_test(a_path_that_is_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
