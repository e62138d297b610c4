#include "core/input.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

static void reads_within_the_bounds(void **state)
{
    (void)state;
    static const char bytes[] = "0123456789";
    struct td_input input = td_input_memory(bytes, 10);
    struct td_error err = TD_ERROR_INIT;
    char out[16];
    assert_true(input.size_bytes == 10);
    for (size_t off = 0; off <= 10; off++) {
        for (size_t len = 0; off + len <= 10; len++) {
            memset(out, '#', sizeof out);
            assert_true(td_input_read(&input, off, out, len, &err));
            assert_memory_equal(out, bytes + off, len);
            assert_int_equal(out[len], '#');
        }
    }
    assert_int_equal(err.code, TD_OK);
}

static bool never_called(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    (void)context;
    (void)out;
    (void)err;
    fail_msg("read at %llu of %zu bytes", (unsigned long long)off, len);
    return false;
}

static void refuses_everything_else(void **state)
{
    (void)state;
    static const struct {
        uint64_t off;
        size_t len;
        uint64_t size;
    } cases[] = {
        {0, 11, 10},       {10, 1, 10},
        {11, 0, 10},       {UINT64_MAX, 1, 10},
        {1, SIZE_MAX, 10}, {UINT64_MAX, SIZE_MAX, UINT64_MAX},
        {0, 1, 0},         {5, SIZE_MAX - 4, UINT64_MAX - 1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_input input = {.size_bytes = cases[i].size, .read = never_called};
        struct td_error err = TD_ERROR_INIT;
        char out[1];
        CHECK(!td_input_read(&input, cases[i].off, out, cases[i].len, &err), "case %zu", i);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        assert_true(err.pos == cases[i].off);
        assert_true(strlen(err.message) > 0);
    }
}

static void nothing_is_read_without_a_call(void **state)
{
    (void)state;
    struct td_input input = {.size_bytes = 10, .read = never_called};
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_input_read(&input, 10, NULL, 0, &err));
}

static bool host_fails(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    (void)context;
    (void)out;
    (void)len;
    return td_error_at(err, TD_IO, off, "the disk is on fire");
}

/* shows: security.md file-shrinks-while-read */
static void the_hosts_failure_passes_through(void **state)
{
    (void)state;
    struct td_input input = {.size_bytes = 10, .read = host_fails};
    struct td_error err = TD_ERROR_INIT;
    char out[4];
    assert_false(td_input_read(&input, 3, out, 4, &err));
    assert_int_equal(err.code, TD_IO);
    assert_true(err.pos == 3);
}

static void loads_are_little_endian_and_unaligned(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0xFF, 0x01, 0x82, 0x03, 0x84, 0x05, 0x86, 0x07, 0xF8, 0xFF};
    assert_int_equal(td_load_le16(bytes + 1), 0x8201);
    assert_true(td_load_le32(bytes + 1) == 0x84038201);
    assert_true(td_load_le64(bytes + 1) == UINT64_C(0xF807860584038201));
    assert_true(td_load_le16(bytes + 8) == 0xFFF8);
    assert_true(td_load_le32(bytes + 5) == 0xF8078605);
}

static void windows_show_a_part(void **state)
{
    (void)state;
    static const char text[] = "0123456789";
    struct td_input outer = td_input_memory(text, 10);
    struct td_input inner;
    struct td_input inmost;
    struct td_window window;
    struct td_window second;
    struct td_error err = TD_ERROR_INIT;
    char out[11] = "";
    assert_true(td_input_window(&outer, 2, 6, &window, &inner, &err));
    assert_int_equal(inner.size_bytes, 6);
    assert_true(td_input_read(&inner, 1, out, 5, &err));
    assert_string_equal(out, "34567");
    assert_true(td_input_window(&inner, 5, 1, &second, &inmost, &err));
    assert_true(td_input_read(&inmost, 0, out, 1, &err) && out[0] == '7');
    assert_false(td_input_read(&inner, 5, out, 2, &err));
    assert_true(err.code == TD_INVALID_ARGUMENT && err.pos == 5);
    td_error_shift(&err, 2);
    assert_true(err.pos == 7);
    assert_true(td_input_window(&outer, 10, 0, &window, &inner, NULL));
    assert_false(td_input_window(&outer, 10, 1, &window, &inner, NULL));
    assert_false(td_input_window(&outer, 1, UINT64_MAX, &window, &inner, NULL));
    assert_false(td_input_window(&outer, UINT64_MAX, 2, &window, &inner, NULL));
}

static void parts_are_loaded_within_limits(void **state)
{
    (void)state;
    static const char text[] = "0123456789";
    struct td_input input = td_input_memory(text, 10);
    struct td_error err = TD_ERROR_INIT;
    uint8_t *bytes = td_input_load(&input, 3, 4, 4, &err);
    assert_non_null(bytes);
    assert_memory_equal(bytes, "3456", 4);
    free(bytes);
    bytes = td_input_load(&input, 10, 0, 0, &err);
    assert_non_null(bytes);
    free(bytes);
    assert_null(td_input_load(&input, 3, 4, 3, &err));
    assert_true(err.code == TD_RESOURCE_EXHAUSTED);
    td_error_init(&err);
    assert_null(td_input_load(&input, 7, 4, 100, &err));
    assert_true(err.code == TD_INVALID_ARGUMENT && err.pos == 7);
    assert_null(td_input_load(&input, UINT64_MAX, 4, 100, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_within_the_bounds),
        cmocka_unit_test(refuses_everything_else),
        cmocka_unit_test(nothing_is_read_without_a_call),
        cmocka_unit_test(the_hosts_failure_passes_through),
        cmocka_unit_test(loads_are_little_endian_and_unaligned),
        cmocka_unit_test(windows_show_a_part),
        cmocka_unit_test(parts_are_loaded_within_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
