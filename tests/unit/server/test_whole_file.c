#include "server/host/option_file.h"

#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { LIMIT = 100000 };

/* Reads a file. Returns its content, which the caller finishes. */
static struct td_buffer read_file(const char *path, bool expected, struct stat *st, struct td_error *err)
{
    struct td_buffer content;
    td_buffer_init(&content);
    td_error_init(err);
    assert_int_equal(td_whole_file_read(path, "letter", LIMIT, &content, st, err), expected);
    return content;
}

static void files_are_read_up_to_the_limit(void **state)
{
    (void)state;
    char path[] = "/tmp/tensord-whole-file-XXXXXX";
    struct td_error err;
    struct stat st;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t len = LIMIT - 1; len <= LIMIT + 1; len++) {
        assert_int_equal(ftruncate(fd, (off_t)len), 0);
        struct td_buffer content = read_file(path, len <= LIMIT, &st, &err);
        CHECK(len > LIMIT || (content.len == len && (size_t)st.st_size == len), "%zu", len);
        CHECK(len <= LIMIT || strstr(err.message, "more than 100000 bytes, too many for a letter") != NULL, "%s",
              err.message);
        td_buffer_fini(&content);
    }
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
}

static void other_things_than_files_are_refused(void **state)
{
    (void)state;
    char folder[] = "/tmp/tensord-whole-file-XXXXXX";
    char fifo[64];
    struct td_error err;
    struct td_buffer content;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    content = read_file(fifo, false, NULL, &err); /* does not wait for a writer */
    assert_non_null(strstr(err.message, "is not a regular file"));
    td_buffer_fini(&content);
    content = read_file(folder, false, NULL, &err);
    assert_non_null(strstr(err.message, "the letter "));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    td_buffer_fini(&content);
    assert_int_equal(unlink(fifo), 0);
    content = read_file(fifo, false, NULL, &err);
    assert_int_equal(err.code, TD_IO);
    assert_non_null(strstr(err.message, "No such file"));
    td_buffer_fini(&content);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_read_up_to_the_limit),
        cmocka_unit_test(other_things_than_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
