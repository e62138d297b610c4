#include "catalog/scan/noted_commits.h"

#include "core/clock.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512 };

static uint64_t now_ns = TD_NS_PER_S;

uint64_t __wrap_td_clock_ns(void);
uint64_t __wrap_td_clock_ns(void)
{
    return now_ns;
}

static void add(struct td_noted_commits *noted, size_t number)
{
    char commit[TD_COMMIT_BYTES];
    (void)snprintf(commit, sizeof commit, "%040zu", number);
    td_noted_commits_add(noted, "org/name", commit);
}

/* Expects the commits with the numbers [first, end). */
static void expect(struct td_noted_commits *noted, size_t first, size_t end)
{
    struct td_published *list;
    assert_int_equal(td_noted_commits_list(noted, &list), end - first);
    for (size_t i = 0; i < end - first; i++) {
        assert_string_equal(list[i].folder, "org/name");
        assert_int_equal(strtoull(list[i].commit, NULL, 10), first + i);
    }
    free(list);
}

static void commits_are_listed_in_order_for_a_minute(void **state)
{
    struct td_noted_commits noted;
    (void)state;
    assert_true(td_noted_commits_init(&noted));
    expect(&noted, 0, 0);
    add(&noted, 2);
    add(&noted, 1);
    now_ns += 60 * (uint64_t)TD_NS_PER_S;
    add(&noted, 3);
    expect(&noted, 1, 4);
    now_ns++;
    expect(&noted, 3, 4);
    now_ns += 60 * (uint64_t)TD_NS_PER_S;
    expect(&noted, 0, 0);
    td_noted_commits_fini(&noted);
}

static void the_oldest_make_room(void **state)
{
    struct td_noted_commits noted;
    (void)state;
    assert_true(td_noted_commits_init(&noted));
    for (size_t i = 0; i < MOST + 2; i++)
        add(&noted, MOST + 2 - i);
    expect(&noted, 1, MOST + 1);
    td_noted_commits_fini(&noted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commits_are_listed_in_order_for_a_minute),
        cmocka_unit_test(the_oldest_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
