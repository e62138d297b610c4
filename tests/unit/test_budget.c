#include "core/budget.h"

#include "tests/unit/unit.h"

#include <pthread.h>

static void no_more_than_there_is(void **state)
{
    (void)state;
    struct td_budget budget;
    td_budget_init(&budget, 100);
    assert_true(td_budget_take(&budget, 60));
    assert_false(td_budget_take(&budget, 41));
    assert_false(td_budget_take(&budget, SIZE_MAX));
    assert_true(td_budget_take(&budget, 40));
    assert_true(td_budget_take(&budget, 0));
    assert_int_equal(td_budget_used(&budget), 100);
    td_budget_give(&budget, 60);
    assert_int_equal(td_budget_used(&budget), 40);
    assert_false(td_budget_take(&budget, 61));
}

enum { THREADS = 4, ROUNDS = 20000, SHARE = 30 };

static void *take_and_give(void *arg)
{
    struct td_budget *budget = arg;
    for (int i = 0; i < ROUNDS; i++) {
        if (!td_budget_take(budget, SHARE))
            continue;
        assert_true(td_budget_used(budget) <= 100);
        td_budget_give(budget, SHARE);
    }
    return NULL;
}

static void threads_share_it(void **state)
{
    (void)state;
    struct td_budget budget;
    pthread_t threads[THREADS];
    td_budget_init(&budget, 100); /* three of four */
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &budget), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(td_budget_used(&budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_more_than_there_is),
        cmocka_unit_test(threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
