#include "storage/arrivals.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

static struct td_arrivals arrivals;

static const struct td_arrival_key keys[] = {{1, 2, "a"}, {1, 3, "a"}, {2, 2, "a"}, {1, 2, "b"}};

static bool has(const struct td_arrival_key *key)
{
    int64_t wall_ns;
    return td_arrivals_find(&arrivals, key, &wall_ns);
}

static void each_key_is_its_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        assert_false(has(&keys[i]));
        td_arrivals_add(&arrivals, &keys[i], 100 + (int64_t)i, i);
    }
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        int64_t wall_ns = 0;
        assert_true(td_arrivals_find(&arrivals, &keys[i], &wall_ns) && wall_ns == 100 + (int64_t)i);
    }
    td_arrivals_remove(&arrivals, &keys[1]);
    td_arrivals_remove(&arrivals, &keys[1]);
    assert_true(has(&keys[0]) && !has(&keys[1]) && has(&keys[2]) && has(&keys[3]) && arrivals.count == 3);
    td_arrivals_forget(&arrivals, 3);
    assert_true(!has(&keys[0]) && !has(&keys[2]) && has(&keys[3]) && arrivals.count == 1);
    td_arrivals_forget(&arrivals, UINT64_MAX);
    assert_true(!has(&keys[3]) && arrivals.count == 0);
}

static void the_last_time_counts(void **state)
{
    (void)state;
    int64_t wall_ns = 0;
    td_arrivals_add(&arrivals, &keys[0], 1, 1);
    td_arrivals_add(&arrivals, &keys[0], 2, 2);
    assert_true(arrivals.count == 1 && td_arrivals_find(&arrivals, &keys[0], &wall_ns) && wall_ns == 2);
    td_arrivals_forget(&arrivals, 2);
    assert_true(has(&keys[0]));
    td_arrivals_forget(&arrivals, 3);
    assert_false(has(&keys[0]));
}

static void their_number_is_bounded(void **state)
{
    (void)state;
    alloc_fail_at(1);
    td_arrivals_add(&arrivals, &keys[0], 1, 1);
    assert_false(has(&keys[0]));
    for (uint64_t i = 0; i <= TD_ARRIVALS_MAX; i++)
        td_arrivals_add(&arrivals, &(struct td_arrival_key){1, i, "a"}, 1, 1);
    assert_true(arrivals.count == TD_ARRIVALS_MAX);
    assert_true(has(&(struct td_arrival_key){1, TD_ARRIVALS_MAX - 1, "a"}));
    assert_false(has(&(struct td_arrival_key){1, TD_ARRIVALS_MAX, "a"}));
    td_arrivals_forget(&arrivals, UINT64_MAX);
    assert_true(arrivals.count == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_is_its_own),
        cmocka_unit_test(the_last_time_counts),
        cmocka_unit_test(their_number_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
