#include "storage/fetch/fetch_health.h"

#include "tests/unit/unit.h"

#define S UINT64_C(1000000000)
#define NOW (1000 * S)

static const char *const urls[] = {"http://a", "http://b", "http://c"};

static struct td_fetch_client *client_of(struct td_fetch_reputation *reputation, uint64_t retry_for_ns)
{
    const struct td_fetch_settings settings = {
        .urls = urls, .url_count = COUNT_OF(urls), .retry_for_ns = retry_for_ns, .reputation = reputation};
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

/* What has failed is remembered for the next file, for 30 s, or until it does well. */
static void bad_servers_are_avoided_by_the_next_file(void **state)
{
    (void)state;
    struct td_fetch_reputation reputation = {0};
    struct td_fetch_client *client = client_of(&reputation, 60 * S);
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
    struct td_fetch_client *client = client_of(&reputation, 60 * S);
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
    struct td_fetch_client *client = client_of(&reputation, 60 * S);
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
    struct td_fetch_client *client = client_of(NULL, 0);
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
        cmocka_unit_test(bad_servers_are_avoided_by_the_next_file),
        cmocka_unit_test(bad_servers_are_asked_when_no_other_may_be),
        cmocka_unit_test(leaving_out_is_not_remembered),
        cmocka_unit_test(without_a_reputation_each_file_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
