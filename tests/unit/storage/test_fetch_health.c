#include "storage/fetch/fetch_health.h"

#include "tests/unit/unit.h"

#define S UINT64_C(1000000000)
#define NOW (1000 * S)

static const char *const urls[] = {"http://a", "http://b", "http://c"};
static const struct td_fetch_answer silence = {.status = 0};

static struct td_fetch_client *client_of(size_t servers, struct td_fetch_reputation *reputations, uint64_t retry_for_ns)
{
    const struct td_fetch_settings settings = {
        .urls = urls, .url_count = servers, .retry_for_ns = retry_for_ns, .reputations = reputations};
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
    const struct td_fetch_answer wait_9_s = {.status = 503, .retry_after_s = 9};
    struct td_error why = error_of("one");
    struct td_error err = TD_ERROR_INIT;
    td_fetch_health_init(&health, client, 100 * S);
    assert_true(td_fetch_health_may(&health, 0, 100 * S));
    uint64_t wait = td_fetch_health_failed(&health, 0, &silence, 100 * S, &why);
    assert_true(wait >= S / 8 && wait <= S / 4);
    assert_false(td_fetch_health_may(&health, 0, 100 * S));
    (void)td_fetch_health_failed(&health, 0, &silence, 100 * S, &why); /* another connection, at the same time */
    assert_int_equal(health.servers[0].failures, 1);
    assert_true(td_fetch_health_may(&health, 1, 100 * S));
    assert_int_equal(td_fetch_health_due_ns(&health), 0);
    assert_false(td_fetch_health_is_over(&health, 500 * S, &err)); /* the other one was never asked */
    td_fetch_health_progress(&health, 0, 101 * S);
    assert_int_equal(health.servers[0].failures, 0);
    assert_int_equal(td_fetch_health_failed(&health, 0, &wait_9_s, 101 * S, &why), 9 * S);
    td_fetch_client_destroy(client);
}

/* A request that takes longer than retry_for_ns before it fails is tried again, once more without progress it is not.
 */
static void patience_begins_with_the_first_failure(void **state)
{
    (void)state;
    struct td_fetch_client *client = client_of(1, NULL, 60 * S);
    struct td_fetch_health health;
    struct td_error why = error_of("one");
    struct td_error err = TD_ERROR_INIT;
    td_fetch_health_init(&health, client, 100 * S);
    td_fetch_health_begin_patience(&health, 0, 500 * S);
    (void)td_fetch_health_failed(&health, 0, &silence, 500 * S, &why);
    assert_false(td_fetch_health_is_over(&health, 500 * S, &err));
    td_fetch_health_begin_patience(&health, 0, 561 * S);
    (void)td_fetch_health_failed(&health, 0, &silence, 561 * S, &why);
    assert_true(td_fetch_health_is_over(&health, 561 * S, &err));
    assert_string_equal(err.message, "one");
    td_fetch_client_destroy(client);
}

static void trying_ends(void **state)
{
    (void)state;
    struct td_fetch_health health;
    const struct td_fetch_answer wait_55_s = {.status = 503, .retry_after_s = 55};
    struct td_error why = error_of("one");
    struct td_error other = error_of("other");
    struct td_error err = TD_ERROR_INIT;
    struct td_fetch_client *client = client_of(1, NULL, 60 * S);
    td_fetch_health_init(&health, client, 100 * S);
    (void)td_fetch_health_failed(&health, 0, &silence, 110 * S, &why);
    assert_false(td_fetch_health_is_over(&health, 111 * S, &err));
    assert_true(td_fetch_health_is_over(&health, 161 * S, &err));
    assert_string_equal(err.message, "one");
    (void)td_fetch_health_failed(&health, 0, &wait_55_s, 120 * S, &other); /* asked to retry too late */
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
    assert_int_equal(td_fetch_health_failed(&health, 0, &silence, 0, &why), 0);
    td_fetch_health_progress(&health, 0, 0); /* of another connection */
    assert_true(td_fetch_health_is_over(&health, 0, NULL));
    td_fetch_client_destroy(client);
}

/* A server that failed is remembered for the next file, for 30 s, or until it succeeds. */
static void bad_servers_are_avoided_by_the_next_file(void **state)
{
    (void)state;
    struct td_fetch_reputation reputations[COUNT_OF(urls)] = {0};
    struct td_fetch_client *client = client_of(COUNT_OF(urls), reputations, 60 * S);
    struct td_fetch_health health;
    const struct td_error why = error_of("503");
    td_fetch_health_init(&health, client, NOW);
    check_may(&health, NOW, "111");
    (void)td_fetch_health_failed(&health, 0, &silence, NOW, &why);
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
    struct td_fetch_reputation reputations[COUNT_OF(urls)] = {0};
    struct td_fetch_client *client = client_of(COUNT_OF(urls), reputations, 60 * S);
    struct td_fetch_health health;
    const struct td_error why = error_of("404");
    td_fetch_health_init(&health, client, NOW);
    td_fetch_health_exclude(&health, 0, NOW, &why);
    td_fetch_health_init(&health, client, NOW);
    td_fetch_health_exclude(&health, 1, NOW, &why);
    check_may(&health, NOW, "001");
    uint64_t wait_ns = td_fetch_health_failed(&health, 2, &silence, NOW, &why);
    check_may(&health, NOW, "100");
    check_may(&health, NOW + wait_ns, "101"); /* all are bad alike */
    td_fetch_health_exclude(&health, 2, NOW, &why);
    check_may(&health, NOW + wait_ns, "100");
    assert_false(td_fetch_health_is_over(&health, NOW, NULL));
    td_fetch_client_destroy(client);
}

/* A server that is left out for another reason has not failed. */
static void leaving_out_is_not_remembered(void **state)
{
    (void)state;
    struct td_fetch_reputation reputations[COUNT_OF(urls)] = {0};
    struct td_fetch_client *client = client_of(COUNT_OF(urls), reputations, 60 * S);
    struct td_fetch_health health;
    td_fetch_health_init(&health, client, NOW);
    td_fetch_health_leave_out(&health, 0);
    check_may(&health, NOW, "011");
    td_fetch_health_init(&health, client, NOW);
    check_may(&health, NOW, "111");
    td_fetch_client_destroy(client);
}

/* Notes that the first server fails by this answer. */
static void fail_first(const struct td_fetch_client *client, const struct td_fetch_answer *answer)
{
    struct td_fetch_health health;
    const struct td_error why = error_of("busy");
    td_fetch_health_init(&health, client, NOW);
    (void)td_fetch_health_failed(&health, 0, answer, NOW, &why);
}

/* A server that asks for patience gets no request for another file until then, even if no other server remains. */
static void who_asks_for_patience_is_left_alone_by_later_files(void **state)
{
    (void)state;
    struct td_fetch_reputation reputations[COUNT_OF(urls)] = {{.keeps_patience = true}};
    struct td_fetch_client *client = client_of(COUNT_OF(urls), reputations, 60 * S);
    struct td_fetch_health health;
    const struct td_fetch_answer long_wait = {.status = 429, .retry_after_s = 50};
    const struct td_fetch_answer short_wait = {.status = 429, .retry_after_s = 5};
    const struct td_error why = error_of("404");
    fail_first(client, &long_wait);
    fail_first(client, &short_wait); /* of a request that was under way */
    td_fetch_health_init(&health, client, NOW);
    check_may(&health, NOW, "011");
    td_fetch_health_exclude(&health, 1, NOW, &why);
    td_fetch_health_exclude(&health, 2, NOW, &why);
    check_may(&health, NOW + 50 * S - 1, "000");
    assert_true(td_fetch_health_due_ns(&health) == NOW + 50 * S);
    assert_false(td_fetch_health_is_over(&health, NOW, NULL)); /* within the time of tries */
    check_may(&health, NOW + 50 * S, "100");
    td_fetch_client_destroy(client);
}

/* The longest Retry-After counts for 300 s, and a file that cannot wait so long fails at once. */
/* shows: security.md upstream-patience */
static void patience_is_bounded(void **state)
{
    (void)state;
    struct td_fetch_reputation reputations[] = {{.keeps_patience = true}};
    struct td_fetch_client *client = client_of(1, reputations, 60 * S);
    struct td_fetch_health health;
    struct td_error err = TD_ERROR_INIT;
    const struct td_fetch_answer answer = {.status = 429, .retry_after_s = 3600};
    fail_first(client, &answer);
    td_fetch_health_init(&health, client, NOW);
    assert_true(td_fetch_health_due_ns(&health) == NOW + 300 * S);
    assert_true(td_fetch_health_is_over(&health, NOW + S / 2, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    assert_string_equal(err.message, "http://a has sent Retry-After and may be asked again in 300 s");
    td_error_init(&err);
    assert_true(td_fetch_health_is_over(&health, NOW + 301 * S, &err)); /* the time has passed since it was chosen */
    assert_string_equal(err.message, "http://a has sent Retry-After and may be asked again in 0 s");
    td_fetch_health_init(&health, client, NOW + 300 * S);
    assert_true(td_fetch_health_may(&health, 0, NOW + 300 * S));
    assert_false(td_fetch_health_is_over(&health, NOW + 300 * S, NULL));
    td_fetch_client_destroy(client);
}

/* Only an answer that the server gives itself, and about all that it has, is remembered; a tensord says 503 of one
 * model. */
/* shows: security.md upstream-patience */
static void which_answers_ask_for_patience(void **state)
{
    (void)state;
    static const struct {
        struct td_fetch_answer answer;
        bool is_tensord, keeps_patience, waits;
    } cases[] = {
        {{.status = 429, .retry_after_s = 50}, false, true, true},
        {{.status = 429, .retry_after_s = 50}, true, true, true},
        {{.status = 503, .retry_after_s = 50}, false, true, true},
        {{.status = 503, .retry_after_s = 50}, true, true, false},
        {{.status = 500, .retry_after_s = 50}, false, true, false},
        {{.status = 429}, false, true, false},
        {{.retry_after_s = 50}, false, true, false},
        {{.status = 429, .retry_after_s = 50, .is_redirected = true}, false, true, false},
        {{.status = 429, .retry_after_s = 50}, false, false, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_fetch_reputation reputations[] = {{.keeps_patience = cases[i].keeps_patience}};
        struct td_fetch_client *client = client_of(1, reputations, 60 * S);
        struct td_fetch_health health;
        td_fetch_reputation_set_kind(reputations, 0, cases[i].is_tensord);
        fail_first(client, &cases[i].answer);
        td_fetch_health_init(&health, client, NOW);
        CHECK(td_fetch_health_may(&health, 0, NOW + S) != cases[i].waits, "%zu", i);
        td_fetch_client_destroy(client);
    }
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
        assert_int_equal(td_fetch_health_failed(&health, i, &silence, NOW, &why), 0);
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
        cmocka_unit_test(patience_begins_with_the_first_failure),
        cmocka_unit_test(trying_ends),
        cmocka_unit_test(bad_servers_are_avoided_by_the_next_file),
        cmocka_unit_test(bad_servers_are_asked_when_no_other_may_be),
        cmocka_unit_test(leaving_out_is_not_remembered),
        cmocka_unit_test(who_asks_for_patience_is_left_alone_by_later_files),
        cmocka_unit_test(patience_is_bounded),
        cmocka_unit_test(which_answers_ask_for_patience),
        cmocka_unit_test(without_a_reputation_each_file_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
