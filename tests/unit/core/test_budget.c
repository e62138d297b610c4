#include "core/budget.h"

#include "tests/unit/unit.h"

#include <pthread.h>
#include <sched.h>

static void no_more_than_there_is(void **state)
{
    (void)state;
    struct td_budget budget;
    td_budget_init(&budget, 100, "things");
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

static bool make_room(void *context)
{
    struct td_budget *budget = context;
    if (td_budget_used(budget) < 30)
        return false;
    td_budget_give(budget, 30);
    return true;
}

static void room_is_made_while_there_is_some(void **state)
{
    (void)state;
    struct td_budget budget;
    struct td_error err = TD_ERROR_INIT;
    td_budget_init(&budget, 100, "things");
    budget.make_room = make_room;
    budget.context = &budget;
    assert_true(td_budget_take(&budget, 90));
    assert_true(td_budget_take(&budget, 60)); /* make_room frees 30 a call: two calls */
    assert_int_equal(td_budget_used(&budget), 90);
    assert_false(td_budget_take(&budget, 101)); /* over the limit: no call of make_room */
    assert_int_equal(td_budget_used(&budget), 90);
    assert_false(td_budget_refuse(&budget, 100, &err));
    assert_true(err.code == TD_RESOURCE_EXHAUSTED && strstr(err.message, "things") && strstr(err.message, "try again"));
    td_error_init(&err);
    assert_false(td_budget_refuse(&budget, 101, &err));
    assert_true(err.code == TD_FAILED_PRECONDITION && strstr(err.message, "things") && !strstr(err.message, "again"));
}

/* Replaced bytes count as free until they are returned; until then nobody else gets anything. */
static void what_is_replaced_counts_as_free(void **state)
{
    (void)state;
    struct td_budget budget;
    td_budget_init(&budget, 100, "things");
    assert_true(td_budget_take(&budget, 90));
    assert_false(td_budget_fits(&budget, 11, 0));
    assert_false(td_budget_take_replacing(&budget, 51, 40));
    assert_true(td_budget_fits(&budget, 50, 40));
    assert_int_equal(td_budget_used(&budget), 90);
    assert_true(td_budget_take_replacing(&budget, 50, 40));
    assert_int_equal(td_budget_used(&budget), 140);
    assert_false(td_budget_take(&budget, 0)); /* too much is taken, so the rest is no huge number */
    assert_false(td_budget_take(&budget, 1));
    assert_false(td_budget_fits(&budget, 1, 40));
    td_budget_give(&budget, 40);
    assert_true(td_budget_take(&budget, 0));
    assert_false(td_budget_take(&budget, 1));
    td_budget_give(&budget, 100);
    assert_true(td_budget_take_replacing(&budget, 100, SIZE_MAX)); /* more than is taken */
    assert_false(td_budget_take_replacing(&budget, 101, SIZE_MAX));
    assert_true(td_budget_take_replacing(NULL, SIZE_MAX, 0) && td_budget_fits(NULL, SIZE_MAX, 0));
}

static void shares_of_clients(void **state)
{
    (void)state;
    static struct td_shared_budget budget;
    struct td_error err = TD_ERROR_INIT;
    td_shared_budget_init(&budget, 100 << 20, "things");
    struct td_budget *first = td_shared_budget_of(&budget, 7);
    struct td_budget *second = td_shared_budget_of(&budget, 8), *third = td_shared_budget_of(&budget, UINT64_MAX);
    assert_true(first != second && second != third && first == td_shared_budget_of(&budget, 7 + TD_BUDGET_SHARES));
    assert_true(td_budget_take(first, 50 << 20)); /* half of all, and no more */
    assert_false(td_budget_take(first, 1));
    assert_false(td_budget_refuse(first, 1, &err));
    assert_true(err.code == TD_RESOURCE_EXHAUSTED && strstr(err.message, "your address") &&
                strstr(err.message, "50 MiB"));
    assert_true(td_budget_take(second, 30 << 20));
    assert_false(td_budget_take(third, (20 << 20) + 1)); /* nothing of it is taken */
    td_error_init(&err);
    assert_false(td_budget_refuse(third, (20 << 20) + 1, &err));
    assert_true(err.code == TD_RESOURCE_EXHAUSTED && strstr(err.message, "100 MiB that they share"));
    assert_int_equal(td_budget_used(third), 0);
    assert_true(td_budget_take(third, 20 << 20));
    assert_int_equal(td_budget_used(&budget.whole), 100 << 20);
    td_budget_give(first, 50 << 20);
    assert_int_equal(td_budget_used(&budget.whole), 50 << 20);
    assert_int_equal(td_budget_used(first), 0);
    td_error_init(&err);
    assert_false(td_budget_refuse(first, (50 << 20) + 1, &err));
    assert_true(err.code == TD_FAILED_PRECONDITION && strstr(err.message, "50 MiB that one client's things"));
}

/* A share takes more than its maximum while it replaces bytes; until these are returned, it refuses all others. */
static void a_share_past_its_maximum(void **state)
{
    (void)state;
    static struct td_shared_budget budget;
    struct td_error err = TD_ERROR_INIT;
    td_shared_budget_init(&budget, 100 << 20, "things");
    struct td_budget *share = td_shared_budget_of(&budget, 7);
    assert_true(td_budget_take(share, 50 << 20));
    assert_true(td_budget_take_replacing(share, 10 << 20, 10 << 20));
    assert_true(td_budget_used(share) == 60 << 20 && td_budget_used(&budget.whole) == 60 << 20);
    assert_false(td_budget_take(share, 1));
    assert_false(td_budget_refuse(share, 1, &err));
    assert_true(err.code == TD_RESOURCE_EXHAUSTED && strstr(err.message, "your address"));
    td_budget_give(share, 10 << 20);
    assert_true(td_budget_used(share) == 50 << 20 && td_budget_used(&budget.whole) == 50 << 20);
}

static void without_a_budget_there_is_enough(void **state)
{
    (void)state;
    assert_true(td_budget_take(NULL, SIZE_MAX));
    td_budget_give(NULL, SIZE_MAX);
}

enum { THREADS = 4, ROUNDS = 20000, SHARE = 30 };

struct shared {
    struct td_budget budget;
    _Atomic unsigned taken, exceeded; /* times */
};

static void *take_and_give(void *arg)
{
    struct shared *shared = arg;
    for (int i = 0; i < ROUNDS; i++) {
        if (td_budget_take(&shared->budget, SHARE)) {
            (void)sched_yield(); /* so that all threads hold a share at once, if the budget lets them */
            shared->taken++;
            shared->exceeded += td_budget_used(&shared->budget) > 100;
            td_budget_give(&shared->budget, SHARE);
        } else {
            (void)sched_yield();
        }
    }
    return NULL;
}

static void threads_share_it(void **state)
{
    (void)state;
    struct shared shared = {0};
    pthread_t threads[THREADS];
    td_budget_init(&shared.budget, 100, "things"); /* room for three of the four threads */
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &shared), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(shared.taken > 0);
    assert_int_equal(shared.exceeded, 0);
    assert_int_equal(td_budget_used(&shared.budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_more_than_there_is),
        cmocka_unit_test(room_is_made_while_there_is_some),
        cmocka_unit_test(what_is_replaced_counts_as_free),
        cmocka_unit_test(shares_of_clients),
        cmocka_unit_test(a_share_past_its_maximum),
        cmocka_unit_test(without_a_budget_there_is_enough),
        cmocka_unit_test(threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
