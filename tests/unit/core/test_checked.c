#include "core/checked.h"
#include "tests/unit/unit.h"

static const uint64_t borders[] = {
    0, 1, 2, 3, 0xFFFFFFFF, 0x100000000, UINT64_MAX / 3, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX};

/* 128-bit arithmetic is the oracle. */
static void add_and_multiply_at_the_borders(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(borders); i++) {
        for (size_t j = 0; j < COUNT_OF(borders); j++) {
            unsigned __int128 sum = (unsigned __int128)borders[i] + borders[j];
            unsigned __int128 product = (unsigned __int128)borders[i] * borders[j];
            uint64_t out = 77;
            size_t size_out = 77;
            assert_int_equal(td_add_u64(borders[i], borders[j], &out), sum <= UINT64_MAX);
            assert_true(out == (sum <= UINT64_MAX ? (uint64_t)sum : 77));
            assert_int_equal(td_add_size(borders[i], borders[j], &size_out), sum <= SIZE_MAX);
            assert_true(size_out == (sum <= SIZE_MAX ? (size_t)sum : 77));
            out = size_out = 77;
            assert_int_equal(td_mul_u64(borders[i], borders[j], &out), product <= UINT64_MAX);
            assert_true(out == (product <= UINT64_MAX ? (uint64_t)product : 77));
            assert_int_equal(td_mul_size(borders[i], borders[j], &size_out), product <= SIZE_MAX);
            assert_true(size_out == (product <= SIZE_MAX ? (size_t)product : 77));
        }
    }
}

static void range_within_at_the_borders(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(borders); i++)
        for (size_t j = 0; j < COUNT_OF(borders); j++)
            for (size_t k = 0; k < COUNT_OF(borders); k++)
                assert_int_equal(td_range_within(borders[i], borders[j], borders[k]),
                                 (unsigned __int128)borders[i] + borders[j] <= borders[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_and_multiply_at_the_borders),
        cmocka_unit_test(range_within_at_the_borders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
