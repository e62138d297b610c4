#include "core/array.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

struct item {
    uint64_t number;
    char text[12];
};

static void items_stay_while_the_array_grows(void **state)
{
    (void)state;
    struct item *items = NULL;
    size_t capacity = 0;
    size_t moves = 0;
    struct td_error err = TD_ERROR_INIT;
    for (size_t count = 0; count < 10000; count++) {
        size_t before = capacity;
        assert_true(TD_ARRAY_GROW(items, count, capacity, &err));
        assert_true(capacity > count);
        moves += capacity != before ? 1 : 0;
        items[count] = (struct item){.number = count};
    }
    for (size_t i = 0; i < 10000; i++)
        assert_int_equal(items[i].number, i);
    assert_true(moves < 30);           /* the capacity grows by half each time, not by one */
    assert_true(capacity < 2 * 10000); /* and stays close to the count */
    assert_true(td_array_reserve(&items, &capacity, capacity, sizeof *items, NULL, &err));
    size_t before = capacity;
    assert_true(td_array_reserve(&items, &capacity, 5 * before, sizeof *items, NULL, &err));
    assert_int_equal(capacity, 5 * before);
    free(items);
}

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    struct item *items = NULL;
    size_t capacity = 0;
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_array_reserve(&items, &capacity, SIZE_MAX / 8, sizeof *items, NULL, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_false(td_array_reserve(&items, &capacity, SIZE_MAX, sizeof *items, NULL, NULL));
    assert_null(items);
    assert_int_equal(capacity, 0);
    assert_int_equal(td_array_next_capacity(0, 1), 4);
    assert_int_equal(td_array_next_capacity(SIZE_MAX - 1, SIZE_MAX), SIZE_MAX);
    assert_int_equal(td_array_next_capacity(100, 101), 150);
}

/* The budget is charged for exactly the array's capacity, also after an allocation or the budget fails. */
static void the_budget_is_exact(void **state)
{
    (void)state;
    struct td_budget budget;
    struct td_error err = TD_ERROR_INIT;
    struct item *items = NULL;
    size_t capacity = 0;
    td_budget_init(&budget, 100 * sizeof *items, "things");
    assert_true(td_array_reserve(&items, &capacity, 60, sizeof *items, &budget, &err));
    assert_int_equal(td_budget_used(&budget), 60 * sizeof *items);
    alloc_fail_at(1);
    assert_false(td_array_reserve(&items, &capacity, 61, sizeof *items, &budget, &err));
    alloc_fail_at(0);
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "out of memory"));
    assert_int_equal(td_budget_used(&budget), 60 * sizeof *items);
    td_error_init(&err);
    assert_true(td_array_reserve(&items, &capacity, 61, sizeof *items, &budget, &err));
    assert_int_equal(capacity, 90);
    assert_false(td_array_reserve(&items, &capacity, 91, sizeof *items, &budget, &err));
    assert_non_null(strstr(err.message, "things"));
    assert_int_equal(capacity, 90);
    assert_int_equal(td_budget_used(&budget), 90 * sizeof *items);
    free(items);
}

static void an_array_is_filled_to_its_end(void **state)
{
    char array[4] = "....";
    size_t len = 0;
    (void)state;
    assert_int_equal(td_array_fill(array, 3, &len, "ab", 2), 2);
    assert_int_equal(td_array_fill(array, 3, &len, "cde", 3), 1);
    assert_int_equal(td_array_fill(array, 3, &len, "e", 1), 0);
    assert_int_equal(len, 3);
    assert_memory_equal(array, "abc.", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_stay_while_the_array_grows),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(the_budget_is_exact),
        cmocka_unit_test(an_array_is_filled_to_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
