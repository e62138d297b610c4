/* Expectations are exact: computed by hand, or by Python's fractions. */
#include "rank/values/summary.h"
#include "tests/unit/unit.h"

#include <float.h>
#include <math.h>

static void kinds_are_counted(void **state)
{
    (void)state;
    double values[] = {1, (double)NAN, 0, (double)INFINITY, -3, -0.0, -(double)INFINITY, 6};
    static const double finite[] = {1, 0, -3, 0, 6};
    struct td_summary summary;
    td_summary_make(values, COUNT_OF(values), &summary);
    assert_true(summary.zeros == 2 && summary.nans == 1 && summary.infinities == 2 && summary.finite == 5);
    assert_true(summary.min == -3 && summary.max == 6);
    assert_true(fabs(summary.mean - 0.8) < 1e-15 && fabs(summary.std - sqrt(8.56)) < 1e-15);
    for (size_t i = 0; i < COUNT_OF(finite); i++)
        assert_true(values[i] == finite[i]);
}

static void nothing_finite(void **state)
{
    (void)state;
    double values[] = {(double)NAN, (double)INFINITY};
    struct td_summary summary;
    td_summary_make(values, 0, &summary);
    assert_true(summary.finite == 0 && summary.min == 0 && summary.std == 0);
    td_summary_make(values, 2, &summary);
    assert_true(summary.finite == 0 && summary.nans == 1 && summary.infinities == 1 && summary.mean == 0);
}

/* The sums of the numbers, or of their squares, are beyond a double's range, and so is a difference. */
static void sums_do_not_overflow(void **state)
{
    (void)state;
    double largest[] = {DBL_MAX, DBL_MAX, DBL_MAX, DBL_MAX / 2};
    double both[] = {DBL_MAX, -DBL_MAX, DBL_MAX, -DBL_MAX};
    double smallest[] = {0x1p-1074, 0x3p-1074, 0x1p-1074, 0x3p-1074};
    uint32_t counts[4];
    struct td_summary summary;
    td_summary_make(largest, 4, &summary);
    assert_true(fabs(summary.mean / DBL_MAX - 0.875) < 1e-15);
    assert_true(fabs(summary.std / DBL_MAX - 0.21650635094610965) < 1e-15); /* sqrt(3) / 8 */
    td_summary_make(both, 4, &summary);
    assert_true(summary.mean == 0 && summary.std == DBL_MAX);
    td_summary_histogram(both, 4, -DBL_MAX, DBL_MAX, 4, counts);
    assert_true(counts[0] == 2 && counts[1] == 0 && counts[2] == 0 && counts[3] == 2);
    td_summary_make(smallest, 4, &summary);
    assert_true(summary.mean == 0x2p-1074 && summary.std == 0x1p-1074);
    td_summary_histogram(smallest, 4, 0x1p-1074, 0x3p-1074, 2, counts);
    assert_true(counts[0] == 2 && counts[1] == 2);
}

/* A sum in doubles without care is 0 here. */
static void sums_are_exact(void **state)
{
    (void)state;
    double values[] = {1, 0x1p100, 1, -0x1p100};
    struct td_summary summary;
    td_summary_make(values, 4, &summary);
    assert_true(summary.mean == 0.5);
}

static void equal_numbers(void **state)
{
    (void)state;
    double values[] = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
    uint32_t counts[3] = {9, 9, 9};
    struct td_summary summary;
    td_summary_make(values, COUNT_OF(values), &summary);
    assert_true(summary.mean == 0.1 && summary.std == 0);
    td_summary_histogram(values, COUNT_OF(values), 0.1, 0.1, 3, counts);
    assert_true(counts[0] == 7 && counts[1] == 0 && counts[2] == 0);
}

static void bins_are_half_open_but_the_last(void **state)
{
    (void)state;
    static const double values[] = {0, 0.99, 1, 1.99, 2, 3, 3.99, 4};
    uint32_t counts[4];
    td_summary_histogram(values, COUNT_OF(values), 0, 4, 4, counts);
    assert_true(counts[0] == 2 && counts[1] == 2 && counts[2] == 1 && counts[3] == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_are_counted),    cmocka_unit_test(nothing_finite),
        cmocka_unit_test(sums_do_not_overflow), cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(equal_numbers),        cmocka_unit_test(bins_are_half_open_but_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
