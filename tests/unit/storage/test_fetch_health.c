#include "storage/fetch/fetch_health.h"

#include "tests/unit/unit.h"

#define S UINT64_C(1000000000)
#define NOW (1000 * S)

static const char *const urls[] = {"http://a", "http://b", "http://c"};

static struct td_fetch_client *client_of(size_t servers, struct td_fetch_reputation *reputation, uint64_t retry_for_ns)
{
    const struct td_fetch_settings settings = {
        .urls = urls, .url_count = servers, .retry_for_ns = retry_for_ns, .reputation = reputation};
    struct td_fetch_client *client = NULL;
    assert_true(td_fetch_client_create(&settings, &client, NULL));
    return client;
}

static struct td_error error_of(const char *text)
{
    struct td_error err = TD_ERROR_INIT;
    (void)td_error_set(&err, TD_UNAVAILABLE, "%s", text);
    return err;
}

/* Checks which servers may be asked: "101" are the first and the last. */
static void check_may(const struct td_fetch_health *health, uint64_t now_ns, const char *expected)
{
    char may[COUNT_OF(urls) + 1] = "";
    for (size_t i = 0; i < COUNT_OF(urls); i++)
        may[i] = td_fetch_health_may(health, i, now_ns) ? '1' : '0';
    CHECK(strcmp(may, expected) == 0, "%s, not %s", may, expected);
}

static void a_server_that_failed_waits(void **state)
{
    (void)state;
    struct td_fetch_client *client = client_of(2, NULL, 60 * S);
    struct td_fetch_health health;
    struct td_error why = error_of("one");
    struct td_error err = TD_ERROR_INIT;
    td_fetch_health_init(&health, client, 100 * S);
    assert_true(td_fetch_health_may(&health, 0, 100 * S));
    uint64_t wait = td_fetch_health_failed(&health, 0, 0, 100 * S, &why);
    assert_true(wait >= S / 8 && wait <= S / 4);
    assert_false(td_fetch_health_may(&health, 0, 100 * S));
    (void)td_fetch_health_failed(&health, 0, 0, 100 * S, &why); /* another connection, at the same time */
    assert_int_equal(health.servers[0].failures, 1);
    assert_true(td_fetch_health_may(&health, 1, 100 * S));
    assert_int_equal(td_fetch_health_due_ns(&health), 0);
    assert_false(td_fetch_health_is_over(&health, 500 * S, &err)); /* the other one was never asked */
    td_fetch_health_progress(&health, 0, 101 * S);
    assert_int_equal(health.servers[0].failures, 0);
    assert_int_equal(td_fetch_health_failed(&health, 0, 9, 101 * S, &why), 9 * S);
    td_fetch_client_destroy(client);
}

static void trying_ends(void **state)
{
    (void)state;
    struct td_fetch_health health;
    struct td_error why = error_of("one");
    struct td_error other = error_of("other");
    struct td_error err = TD_ERROR_INIT;
    struct td_fetch_client *client = client_of(1, NULL, 60 * S);
    td_fetch_health_init(&health, client, 100 * S);
    (void)td_fetch_health_failed(&health, 0, 0, 110 * S, &why);
    assert_false(td_fetch_health_is_over(&health, 111 * S, &err));
    assert_true(td_fetch_health_is_over(&health, 161 * S, &err));
    assert_string_equal(err.message, "one");
    (void)td_fetch_health_failed(&health, 0, 55, 120 * S, &other); /* told to come back too late */
    td_error_init(&err);
    assert_true(td_fetch_health_is_over(&health, 121 * S, &err));
    assert_string_equal(err.message, "other");
    td_fetch_client_destroy(client);
    client = client_of(2, NULL, 60 * S);
    td_fetch_health_init(&health, client, 0);
    td_fetch_health_exclude(&health, 0, 0, &why);
    assert_false(td_fetch_health_is_over(&health, 0, NULL));
    td_fetch_health_exclude(&health, 1, 0, &why);
    assert_true(td_fetch_health_is_over(&health, 0, NULL));
    assert_int_equal(td_fetch_health_due_ns(&health), UINT64_MAX);
    td_fetch_client_destroy(client);
    client = client_of(1, NULL, 0); /* no retries */
    td_fetch_health_init(&health, client, 0);
    assert_int_equal(td_fetch_health_failed(&health, 0, 0, 0, &why), 0);
    td_fetch_health_progress(&health, 0, 0); /* of another connection */
    assert_true(td_fetch_health_is_over(&health, 0, NULL));
    td_fetch_client_destroy(client);
}

/* What has failed is remembered for the next file, for 30 s, or until it does well. */
static void bad_servers_are_avoided_by_the_next_file(void **state)
{
    (void)state;
    struct td_fetch_reputation reputation = {0};
    struct td_fetch_client *client = client_of(COUNT_OF(urls), &reputation, 60 * S);
    struct td_fetch_health health;
    const struct td_error why = error_of("503");
    td_fetch_health_init(&health, client, NOW);
    check_may(&health, NOW, "111");
    (void)td_fetch_health_failed(&health, 0, 0, NOW, &why);
    td_fetch_health_exclude(&health, 1, NOW, &why);
    check_may(&health, NOW, "001");
    td_fetch_health_init(&health, client, NOW);
    check_may(&health, NOW, "001");
    check_may(&health, NOW + 29 * S, "001");
    check_may(&health, NOW + 30 * S, "111");
    td_fetch_health_progress(&health, 1, NOW);
    check_may(&health, NOW, "011");
    td_fetch_client_destroy(client);
}

/* A bad server is better than none. */
static void bad_servers_are_asked_when_no_other_may_be(void **state)
{
    (void)state;
    struct td_fetch_reputation reputation = {0};
    struct td_fetch_client *client = client_of(COUNT_OF(urls), &reputation, 60 * S);
    struct td_fetch_health health;
    const struct td_error why = error_of("404");
    td_fetch_health_init(&health, client, NOW);
    td_fetch_health_exclude(&health, 0, NOW, &why);
    td_fetch_health_init(&health, client, NOW);
    td_fetch_health_exclude(&health, 1, NOW, &why);
    check_may(&health, NOW, "001");
    uint64_t wait_ns = td_fetch_health_failed(&health, 2, 0, NOW, &why);
    check_may(&health, NOW, "100");
    check_may(&health, NOW + wait_ns, "101"); /* all are bad alike */
    td_fetch_health_exclude(&health, 2, NOW, &why);
    check_may(&health, NOW + wait_ns, "100");
    assert_false(td_fetch_health_is_over(&health, NOW, NULL));
    td_fetch_client_destroy(client);
}

/* Who is left out for another reason has not failed. */
static void leaving_out_is_not_remembered(void **state)
{
    (void)state;
    struct td_fetch_reputation reputation = {0};
    struct td_fetch_client *client = client_of(COUNT_OF(urls), &reputation, 60 * S);
    struct td_fetch_health health;
    const struct td_error why = error_of("another one is asked");
    td_fetch_health_init(&health, client, NOW);
    td_fetch_health_leave_out(&health, 0, &why);
    check_may(&health, NOW, "011");
    td_fetch_health_init(&health, client, NOW);
    check_may(&health, NOW, "111");
    td_fetch_client_destroy(client);
}

static void without_a_reputation_each_file_begins_anew(void **state)
{
    (void)state;
    struct td_fetch_client *client = client_of(COUNT_OF(urls), NULL, 0);
    struct td_fetch_health health;
    struct td_error err = TD_ERROR_INIT;
    const struct td_error why = error_of("refused");
    td_fetch_health_init(&health, client, NOW);
    for (size_t i = 0; i < COUNT_OF(urls); i++) {
        assert_false(td_fetch_health_is_over(&health, NOW, NULL));
        assert_int_equal(td_fetch_health_failed(&health, i, 0, NOW, &why), 0);
    }
    assert_true(td_fetch_health_is_over(&health, NOW, &err));
    assert_string_equal(err.message, "refused");
    td_fetch_health_init(&health, client, NOW);
    check_may(&health, NOW, "111");
    td_fetch_client_destroy(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_failed_waits),
        cmocka_unit_test(trying_ends),
        cmocka_unit_test(bad_servers_are_avoided_by_the_next_file),
        cmocka_unit_test(bad_servers_are_asked_when_no_other_may_be),
        cmocka_unit_test(leaving_out_is_not_remembered),
        cmocka_unit_test(without_a_reputation_each_file_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
