/* The expected digits were computed by openssl: printf 'GET\n/a?expires=2000000000' | openssl dgst -sha256 -mac HMAC
 * -macopt hexkey:000102...1f */
#include "http/auth/signed_url.h"

#include "tests/unit/unit.h"

#define OWNER_DIGITS "e32bfddec99cd1128569e60f80ea7c3d8991ef71767b29dbcca3d4ee1ba38f9c"
#define NAMED_DIGITS "8636d1c81fa3658968823871121e60b5e1ac9de54296af51fd2affa1c929d6f6"

static const uint8_t key[TD_SHA256_BYTES] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                             16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

/* Returns whether the key, which is that of the holder and that of the token ci.v-2, signed the target. */
static bool is_good(const char *target)
{
    struct td_signed_url url;
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_signed_url_parse(td_text_of(target), &url) &&
              (url.name.len == 0 || td_text_equals(url.name, "ci.v-2")) && td_signed_url_verify(&url, key, &err);
    assert_int_equal(err.code, TD_OK);
    return ok;
}

static void the_message_is_the_documented_one(void **state)
{
    (void)state;
    struct td_signed_url url;
    static const char owner[] = "/a?expires=2000000000&signature=" OWNER_DIGITS;
    static const char named[] = "/m%20n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS;
    assert_true(is_good(owner) && is_good(named));
    assert_true(td_signed_url_parse(td_text_of(owner), &url));
    assert_int_equal(url.expires_s, 2000000000);
    assert_true(td_text_equals(url.bare, "/a") && url.name.len == 0);
    assert_true(td_signed_url_parse(td_text_of(named), &url));
    assert_true(td_text_equals(url.bare, "/m%20n/x?b=1&a=%2B") && td_text_equals(url.name, "ci.v-2"));
    assert_int_equal(url.expires_s, 7);
    assert_true(is_good("http://host:80/a?expires=2000000000&signature=" OWNER_DIGITS)); /* absolute-form */
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct td_buffer out;
    static const struct {
        const char *path, *name, *signed_url;
        int64_t expires_s;
    } cases[] = {
        {"/a", "", "/a?expires=2000000000&signature=" OWNER_DIGITS, 2000000000},
        {"/m n/x?b=1&a=%2b", "ci.v-2", "/m%20n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS, 7},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        td_buffer_init(&out);
        td_buffer_puts(&out, "https://host");
        assert_true(td_signed_url_normalise(td_text_of(cases[i].path), &out, NULL));
        td_signed_url_append(&out, 12, cases[i].expires_s, td_text_of(cases[i].name), key);
        assert_string_equal(td_buffer_terminate(&out) + 12, cases[i].signed_url);
        td_buffer_fini(&out);
    }
}

static void every_change_is_refused(void **state)
{
    (void)state;
    static const char good[] = "/m%20n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS;
    char changed[2 * sizeof good];
    for (size_t i = 0; i < sizeof good - 1; i++) {
        for (int c = 1; c < 256; c++) {
            memcpy(changed, good, sizeof good);
            changed[i] = (char)c;
            CHECK(changed[i] == good[i] || !is_good(changed), "byte %zu as %d", i, c);
        }
        memcpy(changed, good, i); /* a byte less, and a byte twice */
        memcpy(changed + i, good + i + 1, sizeof good - i - 1);
        CHECK(!is_good(changed), "without byte %zu", i);
        memcpy(changed + i, good + i, 1);
        memcpy(changed + i + 1, good + i, sizeof good - i);
        CHECK(!is_good(changed), "byte %zu twice", i);
    }
}

static void other_orders_and_spellings_are_refused(void **state)
{
    (void)state;
    static const char *const others[] = {
        "/m%20n/x?a=%2B&b=1&expires=7&signature=ci.v-2." NAMED_DIGITS,
        "/m%20n/x?b=1&a=%2B&signature=ci.v-2." NAMED_DIGITS "&expires=7",
        "/m%20n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS "&c=d",
        "/m%20n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS "&signature=ci.v-2." NAMED_DIGITS,
        "/m%20n/x?b=1&a=%2B&expires=7&expires=7&signature=ci.v-2." NAMED_DIGITS,
        "/m%20n/x?b=1&a=%2B&expires=07&signature=ci.v-2." NAMED_DIGITS,
        "/m%20n/x?b=1&expires=7&signature=ci.v-2." NAMED_DIGITS,
        "/m%20n/x?b=1&a=%2b&expires=7&signature=ci.v-2." NAMED_DIGITS,
        "/m n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS,
        "/a&expires=2000000000?signature=" OWNER_DIGITS,
        "/a?expires=2000000000&signature=." OWNER_DIGITS,
        "/a?expires=2000000000&signature=",
        "/a?expires=2000000000",
        "/a?expires=2000000000&signature",
        "?",
        "",
    };
    for (size_t i = 0; i < COUNT_OF(others); i++)
        CHECK(!is_good(others[i]), "%s", others[i]);
}

static void paths_are_spelled_as_clients_send_them(void **state)
{
    (void)state;
    static const struct {
        const char *path, *normal; /* NULL: refused */
    } cases[] = {
        {"/", "/"},
        {"/a/b?c=d&e", "/a/b?c=d&e"},
        {"/%7E~%41%c3%a9", "/~~A%C3%A9"},
        {"/\xC3\xA9 \"<>[]{}|\\^`'", "/%C3%A9%20%22%3C%3E%5B%5D%7B%7D%7C%5C%5E%60%27"},
        {"/a%2Fb%3F?x=%26%3d+", "/a%2Fb%3F?x=%26%3D+"},
        {"/a//b", "/a//b"},
        {"/expires=1", "/expires=1"},
        {"", NULL},
        {"a", NULL},
        {"/a#b", NULL},
        {"/a/../b", NULL},
        {"/a/%2e", NULL},
        {"/%", NULL},
        {"/%4", NULL},
        {"/%4g", NULL},
        {"/a?expires=1", NULL},
        {"/a?b&signature", NULL},
        {"/a?%65xpires=1", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_error err = TD_ERROR_INIT;
        struct td_buffer out;
        td_buffer_init(&out);
        bool ok = td_signed_url_normalise(td_text_of(cases[i].path), &out, &err);
        CHECK(ok == (cases[i].normal != NULL), "%s: %s", cases[i].path, err.message);
        if (ok)
            assert_string_equal(td_buffer_terminate(&out), cases[i].normal);
        else
            check_error(&err, 0, false, cases[i].path);
        td_buffer_fini(&out);
    }
}

static void logs_do_not_show_signatures(void **state)
{
    (void)state;
    static const struct {
        const char *target, *shown;
    } cases[] = {
        {"/a?b=c", "/a?b=c"},
        {"/signature=a", "/signature=a"},
        {"/a?expires=7&signature=ci.00", "/a?expires=7&signature="},
        {"/a?signature=ci.00&b=c", "/a?signature="},
        {"http://h/a?X-Amz-Signature=00", "http://h/a?X-Amz-Signature="},
        {"/a?AWSAccessKeyId=b&Signature=c", "/a?AWSAccessKeyId=b&Signature="},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(td_text_equals(td_signed_url_without_secret(td_text_of(cases[i].target)), cases[i].shown), "%s",
              cases[i].target);
    assert_true(td_signed_url_is_meant(TD_TEXT("/a?b=c&signature=0&d")));
    assert_true(td_signed_url_is_meant(TD_TEXT("/a?signature")));
    assert_false(td_signed_url_is_meant(TD_TEXT("/signature=1?a=signature")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_message_is_the_documented_one),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_change_is_refused),
        cmocka_unit_test(other_orders_and_spellings_are_refused),
        cmocka_unit_test(paths_are_spelled_as_clients_send_them),
        cmocka_unit_test(logs_do_not_show_signatures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
