/* Objects of Xet's uploads: how long they stay, and how many. */
#include "catalog/publish/publish_xorbs.h"

#include "catalog/publish/publish.h"
#include "core/clock.h"
#include "tests/unit/tree_fixture.h"
#include "tests/unit/unit.h"

#include <unistd.h>

static _Atomic uint64_t clock_ahead_ns;

uint64_t __wrap_td_clock_ns(void);
uint64_t __real_td_clock_ns(void);

uint64_t __wrap_td_clock_ns(void)
{
    return __real_td_clock_ns() + clock_ahead_ns;
}

enum { EXPIRES_S = 7200 };

struct place {
    struct tree tree;
    struct td_publish *publish;
};

static void place_open(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    tree_open(&place->tree);
    clock_ahead_ns = 0;
    const struct td_publish_config config = {
        .root = place->tree.path, .upload_expires_s = EXPIRES_S, .keep_commits_s = EXPIRES_S};
    CHECK(td_publish_open(&config, &place->publish, &err), "%s", err.message);
}

static void place_close(struct place *place)
{
    td_publish_close(place->publish);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, place_open, place_close)

static void put(struct place *place, const char *name)
{
    static const uint32_t table[2] = {0, 1};
    struct td_publish_xorb_part *part = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_xorb_begin(place->publish, 1, 1 + sizeof table, &part, &err), "%s: %s", name, err.message);
    CHECK(td_publish_xorb_write(part, "x", 1, &err), "%s: %s", name, err.message);
    CHECK(td_publish_xorb_end(part, name, table, COUNT_OF(table), &err), "%s: %s", name, err.message);
}

/* Lets time pass and the expired objects go. */
static void wait_s(struct place *place, uint64_t seconds)
{
    clock_ahead_ns += seconds * TD_NS_PER_S;
    td_publish_xorbs_expire(place->publish, false);
}

/* Returns whether the object is there, which it reads. */
static bool read_it(struct place *place, const char *name)
{
    uint64_t table_at;
    size_t count;
    int fd = td_publish_xorb_open(place->publish, name, &table_at, &count);
    if (fd < 0)
        return false;
    assert_true(table_at == 1 && count == 2);
    (void)close(fd);
    return true;
}

static void the_first_object_stays_while_others_arrive(void **state)
{
    struct place *place = *state;
    put(place, "models--m/one/first");
    put(place, "models--m/other/first");
    for (unsigned i = 0; i < 4; i++) {
        char name[64];
        wait_s(place, EXPIRES_S / 2 + 10);
        (void)snprintf(name, sizeof name, "models--m/one/%u", i);
        put(place, name);
    }
    assert_true(read_it(place, "models--m/one/first"));
    assert_true(read_it(place, "models--m/one/0"));
    assert_false(read_it(place, "models--m/other/first"));
    wait_s(place, EXPIRES_S - 10);
    td_publish_xorbs_renew(place->publish, "models--m/one/");
    wait_s(place, EXPIRES_S - 10);
    assert_true(read_it(place, "models--m/one/3"));
    wait_s(place, EXPIRES_S - 10); /* a read keeps it, and does not shorten its time */
    assert_true(read_it(place, "models--m/one/3"));
    wait_s(place, EXPIRES_S + 10);
    assert_false(read_it(place, "models--m/one/3"));
}

static void their_number_is_bounded(void **state)
{
    struct place *place = *state;
    struct td_publish_xorb_part *parts[4] = {NULL};
    struct td_publish_xorb_part *none = NULL;
    struct td_error err = TD_ERROR_INIT;
    const size_t others = TD_PUBLISH_XORBS - COUNT_OF(parts);
    assert_true(td_budget_take(&place->publish->xorb_counts.whole, others)); /* as if so many were there */
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        CHECK(td_publish_xorb_begin(place->publish, 1, 1, &parts[i], &err), "%s", err.message);
    assert_false(td_publish_xorb_begin(place->publish, 1, 1, &none, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    td_publish_xorb_abandon(parts[0]);
    put(place, "models--m/one/a");
    assert_false(td_publish_xorb_begin(place->publish, 1, 1, &none, NULL));
    wait_s(place, EXPIRES_S + 10);
    CHECK(td_publish_xorb_begin(place->publish, 1, 1, &parts[0], &err), "%s", err.message);
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        td_publish_xorb_abandon(parts[i]);
    assert_int_equal(td_budget_used(&place->publish->xorb_counts.whole), others);
    td_budget_give(&place->publish->xorb_counts.whole, others);
}

/* A client that has half of them keeps nobody else out. */
static void a_client_has_half_of_them(void **state)
{
    struct place *place = *state;
    struct td_publish_xorb_part *part = NULL;
    struct td_error err = TD_ERROR_INIT;
    struct td_budget *share = td_shared_budget_of(&place->publish->xorb_counts, 1);
    assert_true(td_budget_take(share, TD_PUBLISH_XORBS / 2 - 1)); /* as if so many were there */
    put(place, "models--m/one/a");
    assert_false(td_publish_xorb_begin(place->publish, 1, 1, &part, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    td_error_init(&err);
    CHECK(td_publish_xorb_begin(place->publish, 2, 1, &part, &err), "%s", err.message);
    td_publish_xorb_abandon(part);
    wait_s(place, EXPIRES_S + 10);
    CHECK(td_publish_xorb_begin(place->publish, 1, 1, &part, &err), "%s", err.message);
    td_publish_xorb_abandon(part);
    td_budget_give(share, TD_PUBLISH_XORBS / 2 - 1);
    assert_int_equal(td_budget_used(&place->publish->xorb_counts.whole), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, the_first_object_stays_while_others_arrive),
        TEST_IN(place, their_number_is_bounded),
        TEST_IN(place, a_client_has_half_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
