/* Reads at a place of a file, of a system that gives less than was asked for, as POSIX allows pread to. */
#include "core/file_io.h"

#include "tests/unit/unit.h"

#include <errno.h>
#include <unistd.h>

static const char bytes[] = "0123456789";

/* The behaviour of the replaced system call. */
static size_t at_most;    /* bytes that one call gives */
static int interruptions; /* calls that a signal ends first */
static bool is_broken;    /* calls fail with EIO from the second one on */
static int calls;

ssize_t __wrap_pread64(int fd, void *out, size_t len, off_t off);

ssize_t __wrap_pread64(int fd, void *out, size_t len, off_t off)
{
    (void)fd;
    calls++;
    if (interruptions > 0 || (is_broken && calls > 1)) {
        errno = interruptions-- > 0 ? EINTR : EIO;
        return -1;
    }
    size_t left = off < 10 ? (size_t)(10 - off) : 0;
    size_t n = len < at_most ? len : at_most;
    n = n < left ? n : left;
    memcpy(out, bytes + (off < 10 ? off : 10), n);
    return (ssize_t)n;
}

static void system_gives(size_t most, int first_interruptions, bool breaks)
{
    at_most = most;
    interruptions = first_interruptions;
    is_broken = breaks;
    calls = 0;
}

static void short_reads_and_signals_are_no_end(void **state)
{
    char out[16] = "";
    (void)state;
    system_gives(3, 0, false);
    assert_int_equal(td_read_at(0, out, 8, 1), 8);
    assert_memory_equal(out, "12345678", 8);
    assert_int_equal(calls, 3);
    system_gives(100, 2, false);
    assert_int_equal(td_read_at(0, out, 10, 0), 10);
    assert_memory_equal(out, bytes, 10);
    assert_int_equal(calls, 3);
}

static void the_end_of_the_file_is_told_by_the_number(void **state)
{
    char out[16] = "";
    (void)state;
    system_gives(4, 0, false);
    assert_int_equal(td_read_at(0, out, 8, 5), 5);
    assert_memory_equal(out, "56789", 5);
    assert_int_equal(td_read_at(0, out, 8, 10), 0);
    system_gives(4, 0, false);
    assert_int_equal(td_read_at(0, out, 0, 0), 0);
    assert_int_equal(calls, 0);
}

static void an_error_is_told_also_after_some_bytes(void **state)
{
    char out[16];
    (void)state;
    system_gives(4, 0, true);
    errno = 0;
    assert_int_equal(td_read_at(0, out, 8, 0), -1);
    assert_int_equal(errno, EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_reads_and_signals_are_no_end),
        cmocka_unit_test(the_end_of_the_file_is_told_by_the_number),
        cmocka_unit_test(an_error_is_told_also_after_some_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
