#include "http/uri.h"

#include "tests/unit/unit.h"

/* Writes "path|name=value|name=value", or "!" for a refused target. */
static void describe_as(struct td_text target, enum td_uri_query query, char *out, size_t capacity)
{
    struct td_uri uri;
    struct td_error err = TD_ERROR_INIT;
    if (!td_uri_parse(&uri, target, query, &err)) {
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        check_error(&err, 0, false, "target");
        (void)snprintf(out, capacity, "!");
    } else {
        size_t used = (size_t)snprintf(out, capacity, "%.*s", (int)uri.path.len, uri.path.p);
        for (size_t i = 0; i < uri.parameter_count; i++)
            used +=
                (size_t)snprintf(out + used, capacity - used, "|%.*s=%.*s", (int)uri.parameters[i].name.len,
                                 uri.parameters[i].name.p, (int)uri.parameters[i].value.len, uri.parameters[i].value.p);
    }
    td_uri_fini(&uri);
}

static void describe(struct td_text target, char *out, size_t capacity)
{
    describe_as(target, TD_URI_STRICT, out, capacity);
}

/* RFC 3986 (percent-encoding 2.1, path 3.3, query 3.4), RFC 9112 section 3.2 (forms of the target), and for '+' the
 * WHATWG URL standard, application/x-www-form-urlencoded. */
static void targets_are_taken_apart(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/", "/"},
        {"/models", "/models"},
        {"/models/a/tensors/x.y", "/models/a/tensors/x.y"},
        {"/a%2Fb%2fc", "/a/b/c"},
        {"/%61%42%7e%7E", "/aB~~"},
        {"/%C3%A9%F0%9F%98%80", "/\xc3\xa9\xf0\x9f\x98\x80"},
        {"/a%25b", "/a%b"},
        {"/a%2525", "/a%25"} /* decoded once */,
        {"/a+b", "/a+b"} /* a plus in a path is not a blank */,
        {"/a%3Fb?c", "/a?b|c="},
        {"/a;b=c,d:@!$&'()*", "/a;b=c,d:@!$&'()*"},
        {"/a//b/", "/a//b/"},
        {"/a/../b/.", "/a/../b/."},
        {"/?", "/"},
        {"/?a=1&b=2", "/|a=1|b=2"},
        {"/?a", "/|a="},
        {"/?a=", "/|a="},
        {"/?=1", "/|=1"},
        {"/?a=b=c", "/|a=b=c"},
        {"/?a=x%26y%3Dz", "/|a=x&y=z"},
        {"/?a=x+y%2Bz", "/|a=x y+z"},
        {"/?a%5Bb=1", "/|a[b=1"},
        {"/?&&a=1&&", "/|a=1"},
        {"/?a=/x?y", "/|a=/x?y"},
        {"/p?match=model.layers.*", "/p|match=model.layers.*"},
        {"http://host", "/"},
        {"http://host/", "/"},
        {"http://host:8080/a/b?c=d", "/a/b|c=d"},
        {"https://host/a", "/a"},
        {"HTTP://host/a", "/a"} /* a scheme is case-insensitive: RFC 3986 section 3.1 */,
        {"http://host?a=1", "/|a=1"},
        {"http://host", "/"},
        {"", "/"},
        {"?a=1", "/|a=1"},
        {"a", "!"},
        {"*", "!"},
        {"host:80", "!"},
        {"ftp://host/", "!"},
        {"/%", "!"},
        {"/%4", "!"},
        {"/%4g", "!"},
        {"/%g4", "!"},
        {"/%%41", "!"},
        {"/a%00b", "!"},
        {"/?a=%00", "!"},
        {"/?%00=a", "!"},
        {"/%ff", "!"},
        {"/%c3", "!"},
        {"/%c0%af", "!"} /* an overlong slash */,
        {"/%ed%a0%80", "!"},
        {"/?a=%80", "!"},
        {"/?a=%", "!"},
        {"/?a=1&a=2", "!"},
        {"/?a&a", "!"},
        {"/?a=1&%61=2", "!"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char got[256];
        describe(td_text_of(cases[i][0]), got, sizeof got);
        CHECK(strcmp(got, cases[i][1]) == 0, "\"%s\": %s, wanted %s", cases[i][0], got, cases[i][1]);
    }
    char got[16];
    describe(TD_TEXT("/a\0b"), got, sizeof got);
    assert_string_equal(got, "!");
}

static void parameters_are_limited(void **state)
{
    (void)state;
    char target[256] = "/?";
    char got[512];
    for (int i = 0; i < TD_URI_MAX_PARAMETERS; i++)
        (void)snprintf(target + strlen(target), 8, "p%d=1&", i);
    describe(td_text_of(target), got, sizeof got);
    assert_string_not_equal(got, "!");
    (void)strcat(target, "q=1");
    describe(td_text_of(target), got, sizeof got);
    assert_string_equal(got, "!");
}

/* Clients of the Hub repeat parameters: the first of each name counts, and parameters past the limit are ignored. */
static void parameters_may_repeat(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/?a=1&a=2", "/|a=1"},
        {"/?a&a=2&b=3", "/|a=|b=3"},
        {"/?expand=sha&expand=siblings&limit=5&expand[]=likes", "/|expand=sha|limit=5|expand[]=likes"},
        {"/?a=1&%61=2&c=3", "/|a=1|c=3"},
        {"/?a=1&a=%zz", "!"},
        {"/?a=1&a=%00", "!"},
        {"/?a=%ff&a=1", "!"},
        {"/p%zz?a=1&a=2", "!"},
    };
    char got[512];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        describe_as(td_text_of(cases[i][0]), TD_URI_REPEATS, got, sizeof got);
        CHECK(strcmp(got, cases[i][1]) == 0, "\"%s\": %s, wanted %s", cases[i][0], got, cases[i][1]);
    }
    char target[1024] = "/?";
    char wanted[512] = "/";
    for (int i = 0; i < TD_URI_MAX_PARAMETERS + 20; i++)
        (void)snprintf(target + strlen(target), 16, "p%d=%d&p%d=x&", i, i, i);
    for (int i = 0; i < TD_URI_MAX_PARAMETERS; i++)
        (void)snprintf(wanted + strlen(wanted), 16, "|p%d=%d", i, i);
    describe_as(td_text_of(target), TD_URI_REPEATS, got, sizeof got);
    assert_string_equal(got, wanted);
}

static void parameters_are_found(void **state)
{
    (void)state;
    struct td_uri uri;
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_uri_parse(&uri, td_text_of("/?page_size=10&match=&MATCH=x"), TD_URI_STRICT, &err));
    assert_true(td_text_equals(*td_uri_parameter(&uri, "page_size"), "10"));
    assert_true(td_uri_parameter(&uri, "match")->len == 0);
    assert_true(td_text_equals(*td_uri_parameter(&uri, "MATCH"), "x"));
    assert_null(td_uri_parameter(&uri, "page"));
    assert_null(td_uri_parameter(&uri, "page_sizes"));
    td_uri_fini(&uri);
    td_uri_fini(&uri);
}

/* Random prefixes of a long target with random bytes changed: the sanitizer sees a read past the end. */
static void any_bytes_come_back(void **state)
{
    (void)state;
    static const char target[] = "http://h/a%C3%A9/%2F?x=%41+y&z&w=1";
    uint64_t seed = 6;
    for (int round = 0; round < 50000; round++) {
        size_t len = random_below(&seed, sizeof target);
        char *exact = malloc(len + (len == 0));
        struct td_uri uri;
        struct td_error err = TD_ERROR_INIT;
        assert_non_null(exact);
        memcpy(exact, target, len);
        for (size_t i = random_below(&seed, 3); len > 0 && i > 0; i--)
            exact[random_below(&seed, len)] = (char)random_next(&seed);
        enum td_uri_query query = round % 2 == 0 ? TD_URI_STRICT : TD_URI_REPEATS;
        if (td_uri_parse(&uri, td_text_n(exact, len), query, &err)) {
            assert_true(uri.path.len > 0 && uri.path.p[0] == '/');
            assert_true(td_utf8_valid(uri.path.p, uri.path.len));
            assert_null(memchr(uri.path.p, '\0', uri.path.len));
        }
        td_uri_fini(&uri);
        free(exact);
    }
}

static void encoding_keeps_the_unreserved(void **state)
{
    (void)state;
    struct td_buffer out;
    char all[255];
    td_buffer_init(&out);
    td_uri_encode(&out, TD_TEXT("a/b c%d?e\xc3\xa9~._-Z9"), true);
    assert_string_equal(td_buffer_terminate(&out), "a/b%20c%25d%3Fe%C3%A9~._-Z9");
    td_buffer_clear(&out);
    td_uri_encode(&out, TD_TEXT("a/b"), false);
    assert_string_equal(td_buffer_terminate(&out), "a%2Fb");
    td_buffer_clear(&out);
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (char)(i + 1);
    td_uri_encode(&out, td_text_n(all, sizeof all), false);
    size_t kept = 0;
    for (size_t i = 0; i < out.len; i++) {
        if (out.data[i] != '%') {
            assert_non_null(strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", out.data[i]));
            kept++;
        } else {
            assert_true(strspn(out.data + i + 1, "0123456789ABCDEF") >= 2);
            i += 2;
        }
    }
    assert_int_equal(kept, 66); /* RFC 3986 section 2.3 */
    td_buffer_fini(&out);
}

/* An encoded text decodes to the text. */
static void encoding_is_undone_by_parsing(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < 5000; round++) {
        char name[64];
        size_t len = 0;
        struct td_buffer out;
        struct td_uri uri;
        struct td_error err = TD_ERROR_INIT;
        while (len < 50) {
            char encoded[4];
            uint32_t cp = (uint32_t)random_below(&seed, random_below(&seed, 2) == 0 ? 0x80 : 0x11000);
            if (cp == 0 || (cp >= 0xD800 && cp < 0xE000))
                continue;
            size_t n = td_utf8_encode(cp, encoded);
            memcpy(name + len, encoded, n);
            len += n;
        }
        td_buffer_init(&out);
        td_buffer_putc(&out, '/');
        td_uri_encode(&out, td_text_n(name, len), random_below(&seed, 2) == 0);
        td_buffer_puts(&out, "?p=");
        td_uri_encode(&out, td_text_n(name, len), false);
        assert_true(td_uri_parse(&uri, td_buffer_text(&out), TD_URI_STRICT, &err));
        assert_true(uri.path.len == len + 1 && uri.parameter_count == 1 && uri.parameters[0].value.len == len);
        assert_memory_equal(uri.path.p + 1, name, len);
        assert_memory_equal(uri.parameters[0].value.p, name, len);
        td_uri_fini(&uri);
        td_buffer_fini(&out);
    }
}

static void raw_queries(void **state)
{
    (void)state;
    static const struct {
        const char *target, *query;
    } cases[] = {
        {"/a?b=%20&c", "b=%20&c"}, {"/a", ""},       {"/a?", ""}, {"/a?b?c", "b?c"}, {"http://h?b", "b"},
        {"HTTPS://h/a?b", "b"},    {"http://h", ""}, {"", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(td_text_equals(td_uri_raw_query(td_text_of(cases[i].target)), cases[i].query), "%s", cases[i].target);
}

/* RFC 9112 section 3.2.2. */
static void authorities_of_targets(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"http://a:80/b?c", "a:80"},
                                           {"HTTPS://[::1]:8/x", "[::1]:8"},
                                           {"http://a", "a"},
                                           {"http://a?b", "a"},
                                           {"http:///a", ""},
                                           {"/a", NULL},
                                           {"//a/b", NULL},
                                           {"", NULL},
                                           {"http:/a", NULL},
                                           {"ftp://a/b", NULL},
                                           {"/http://a", NULL}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_text authority = td_uri_authority(td_text_of(cases[i][0]));
        CHECK((authority.p == NULL) == (cases[i][1] == NULL) &&
                  (authority.p == NULL || td_text_equals(authority, cases[i][1])),
              "%s", cases[i][0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_queries),
        cmocka_unit_test(authorities_of_targets),
        cmocka_unit_test(targets_are_taken_apart),
        cmocka_unit_test(parameters_are_limited),
        cmocka_unit_test(parameters_may_repeat),
        cmocka_unit_test(parameters_are_found),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(encoding_keeps_the_unreserved),
        cmocka_unit_test(encoding_is_undone_by_parsing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
