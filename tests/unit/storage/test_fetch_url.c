#include "storage/fetch/fetch_url.h"

#include "storage/fetch/fetch_health.h"
#include "tests/unit/unit.h"

static void bases(void **state)
{
    (void)state;
    static const struct {
        const char *url, *base; /* NULL: refused */
        const char *says;
    } cases[] = {
        {"http://h", "http://h", NULL},
        {"http://h/", "http://h", NULL},
        {"HTTPS://[::1]:8443/a/b//", "HTTPS://[::1]:8443/a/b", NULL},
        {"", NULL, "http://"},
        {"h:80", NULL, "but it is \"h:80\"; did you mean http://h:80?"},
        {"tensord://h:80/org/name", NULL, "; did you mean http://h:80?"},
        {"Tensords://h", NULL, "; did you mean https://h?"},
        {"ftp://h", NULL, "http://"},
        {"http:///x", NULL, "no host"},
        {"http://:80", NULL, "no host"},
        {"http://", NULL, "no host"},
        {"http://user:secret@h", NULL, "a token in its place"},
        {"http://h?a=b", NULL, "without ?"},
        {"http://h/#x", NULL, "without ?"},
        {"http://h h", NULL, "character"},
        {"http://h\n", NULL, "character"},
        {"http://h\\x", NULL, "character"},
        {"http://\xc3\xa9", NULL, "character"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_error err = TD_ERROR_INIT;
        struct td_text base = {0};
        bool ok = td_fetch_url_check(cases[i].url, &base, &err);
        CHECK(ok == (cases[i].base != NULL), "%s", cases[i].url);
        CHECK(!ok || td_text_equals(base, cases[i].base), "%s: %.*s", cases[i].url, TD_SHOW(base, 80));
        CHECK(ok || strstr(err.message, cases[i].says) != NULL, "%s: %s", cases[i].url, err.message);
        CHECK(strstr(err.message, "secret") == NULL, "%s", err.message);
    }
    assert_true(td_fetch_url_has_tls(TD_TEXT("Https://h")));
    assert_false(td_fetch_url_has_tls(TD_TEXT("http://h")));
}

static void long_urls_are_refused(void **state)
{
    (void)state;
    char url[3000] = "http://";
    struct td_text base;
    memset(url + 7, 'h', 2500);
    assert_false(td_fetch_url_check(url, &base, NULL));
    url[2000] = '\0';
    assert_true(td_fetch_url_check(url, &base, NULL));
}

/* RFC 3986 section 2.3 lists the characters that need no encoding. */
static void paths_are_encoded(void **state)
{
    (void)state;
    struct td_buffer out;
    td_buffer_init(&out);
    td_fetch_url_append_path(&out, TD_TEXT("a/B9-._~ %?#\xc3\xa9\0+:@"));
    assert_string_equal(td_buffer_terminate(&out), "a/B9-._~%20%25%3F%23%C3%A9%00%2B%3A%40");
    td_buffer_fini(&out);
}

static void backoff_doubles_up_to_a_bound(void **state)
{
    (void)state;
    const uint64_t ms = 1000000;
    assert_int_equal(td_fetch_backoff_ns(1, 0, 0), 125 * ms);
    assert_int_equal(td_fetch_backoff_ns(1, 0, 125 * ms), 250 * ms);
    assert_int_equal(td_fetch_backoff_ns(2, 0, 0), 250 * ms);
    assert_int_equal(td_fetch_backoff_ns(4, 0, 0), 1000 * ms);
    assert_int_equal(td_fetch_backoff_ns(100, 0, 0), 7500 * ms);
    assert_true(td_fetch_backoff_ns(UINT32_MAX, 0, UINT64_MAX) <= 15000 * ms);
    assert_int_equal(td_fetch_backoff_ns(1, 7, 0), 7000 * ms);
    assert_int_equal(td_fetch_backoff_ns(1, UINT64_MAX, 0), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bases),
        cmocka_unit_test(long_urls_are_refused),
        cmocka_unit_test(paths_are_encoded),
        cmocka_unit_test(backoff_doubles_up_to_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
