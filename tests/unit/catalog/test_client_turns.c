/* Turns of clients: how many new names one may ask for, and that memory and others do not suffer from many clients. */
#include "catalog/upstream/intake_queue.h"

#include "tests/unit/unit.h"

#include <string.h>

static const uint64_t ms = UINT64_C(1000000);

static void a_client_may_ask_for_some_names_at_once_and_then_for_one_at_a_time(void **state)
{
    struct td_client_turns turns = {.count = 0};
    uint64_t wait_ns = 0;
    uint64_t now = 5000 * ms;
    (void)state;
    for (int i = 0; i < TD_CLIENT_NAMES; i++)
        assert_true(td_client_turns_count(&turns, 7, now, &wait_ns));
    assert_false(td_client_turns_count(&turns, 7, now, &wait_ns));
    assert_int_equal(wait_ns, TD_CLIENT_NAME_MS * ms);
    assert_false(td_client_turns_count(&turns, 7, now + 300 * ms, &wait_ns));
    assert_int_equal(wait_ns, (TD_CLIENT_NAME_MS - 300) * ms);
    assert_true(td_client_turns_count(&turns, 8, now, &wait_ns)); /* another client */
    now += TD_CLIENT_NAME_MS * ms;
    assert_true(td_client_turns_count(&turns, 7, now, &wait_ns));
    assert_false(td_client_turns_count(&turns, 7, now, &wait_ns));
    now += TD_CLIENT_NAMES * TD_CLIENT_NAME_MS * ms; /* all are there again, and not more than that */
    for (int i = 0; i < TD_CLIENT_NAMES; i++)
        assert_true(td_client_turns_count(&turns, 7, now, &wait_ns));
    assert_false(td_client_turns_count(&turns, 7, now, &wait_ns));
}

/* shows: security.md upstream-many-models */
static void who_has_asked_for_most_is_remembered_longest(void **state)
{
    struct td_client_turns turns = {.count = 0};
    uint64_t wait_ns = 0;
    (void)state;
    for (int i = 0; i < TD_CLIENT_NAMES; i++)
        assert_true(td_client_turns_count(&turns, 7, ms, &wait_ns));
    for (uint64_t i = 0; i < 10 * TD_CLIENT_TURNS; i++)
        assert_true(td_client_turns_count(&turns, 1000 + i, ms, &wait_ns));
    assert_int_equal(turns.count, TD_CLIENT_TURNS);
    assert_false(td_client_turns_count(&turns, 7, ms, &wait_ns));
}

static void turns_grow(void **state)
{
    struct td_client_turns turns = {.count = 0};
    (void)state;
    assert_int_equal(td_client_turns_latest(&turns, 1), 0);
    td_client_turns_take(&turns, 1);
    td_client_turns_take(&turns, 2);
    assert_true(td_client_turns_latest(&turns, 1) < td_client_turns_latest(&turns, 2));
    td_client_turns_take(&turns, 1);
    assert_true(td_client_turns_latest(&turns, 2) < td_client_turns_latest(&turns, 1));
    assert_int_equal(td_client_turns_latest(&turns, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_may_ask_for_some_names_at_once_and_then_for_one_at_a_time),
        cmocka_unit_test(who_has_asked_for_most_is_remembered_longest),
        cmocka_unit_test(turns_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
