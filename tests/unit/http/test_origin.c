/* Origins: RFC 6454 section 6.2 and the URL standard, "origin serialization": small letters, and no port that is the
 * scheme's own. RFC 3986 sections 3.1 and 3.2.2 have the letters of schemes and hosts. */
#include "http/origin.h"

#include "tests/unit/unit.h"

#include <string.h>

static void origins_are_written_as_browsers_write_them(void **state)
{
    (void)state;
    static const struct {
        const char *text, *written; /* NULL: no origin */
    } cases[] = {
        {"https://viewer.example", "https://viewer.example"},
        {"HTTPS://Viewer.Example", "https://viewer.example"},
        {"http://localhost:5173", "http://localhost:5173"},
        {"http://a.example:80", "http://a.example"},
        {"https://a.example:443", "https://a.example"},
        {"https://a.example:80", "https://a.example:80"},
        {"http://a.example:443", "http://a.example:443"},
        {"http://[::1]:8080", "http://[::1]:8080"},
        {"http://[2001:DB8::1]", "http://[2001:db8::1]"},
        {"chrome-extension://abcdef", "chrome-extension://abcdef"},
        {"app+x.y://a_b-c", "app+x.y://a_b-c"},
        {"http://a:65535", "http://a:65535"},
        {"", NULL},
        {"null", NULL},
        {"*", NULL},
        {"a.example", NULL},
        {"http:a.example", NULL},
        {"http:/a.example", NULL},
        {"http://", NULL},
        {"http://:80", NULL},
        {"://a", NULL},
        {"1http://a", NULL},
        {"ht tp://a", NULL},
        {"http://a.example/", NULL},
        {"http://a.example/x", NULL},
        {"http://a.example?x", NULL},
        {"http://a.example#x", NULL},
        {"http://user@a.example", NULL},
        {"http://a.example:", NULL},
        {"http://a.example:0", NULL},
        {"http://a.example:080", NULL},
        {"http://a.example:65536", NULL},
        {"http://a.example:x", NULL},
        {"http://a.example:-1", NULL},
        {"http://a b", NULL},
        {"http://*.example", NULL},
        {"http://b\xC3\xBC"
         "cher.example",
         NULL},
        {"http://::1", NULL},
        {"http://[::1", NULL},
        {"http://[]", NULL},
        {"http://[g::1]", NULL},
        {"http://a.example, http://b.example", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_origin origin, again;
        char out[TD_ORIGIN_BYTES] = "";
        bool is = td_origin_read(td_text_of(cases[i].text), &origin);
        CHECK(is == (cases[i].written != NULL), "%s", cases[i].text);
        if (!is)
            continue;
        assert_int_equal(td_origin_write(&origin, out), strlen(cases[i].written));
        CHECK(strcmp(out, cases[i].written) == 0, "%s: %s", cases[i].text, out);
        assert_true(td_origin_read(td_text_of(out), &again) && td_origin_equals(&origin, &again));
    }
}

static void a_long_origin_is_none(void **state)
{
    (void)state;
    char text[2 * TD_ORIGIN_BYTES] = "https://";
    struct td_origin origin;
    char out[TD_ORIGIN_BYTES];
    size_t longest = 0;
    for (size_t len = strlen(text); len < sizeof text - 1; len++) {
        text[len] = 'a';
        if (!td_origin_read(td_text_n(text, len + 1), &origin))
            break;
        longest = td_origin_write(&origin, out);
        assert_int_equal(longest, len + 1);
    }
    assert_in_range(longest, 8 + 253, TD_ORIGIN_BYTES - 1); /* RFC 1035: a name has at most 253 letters */
}

static void origins_differ_in_each_part(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool is_same;
    } cases[] = {
        {"http://a", "http://A:80", true},    {"http://a", "https://a", false},
        {"http://a", "http://b", false},      {"http://a", "http://a:8080", false},
        {"http://a", "http://aa", false},     {"https://a:443", "https://a", true},
        {"http://a:443", "https://a", false}, {"HTTP://[::A]", "http://[::a]", true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_origin a, b;
        assert_true(td_origin_read(td_text_of(cases[i].a), &a) && td_origin_read(td_text_of(cases[i].b), &b));
        CHECK(td_origin_equals(&a, &b) == cases[i].is_same, "%s %s", cases[i].a, cases[i].b);
        CHECK(td_origin_equals(&b, &a) == cases[i].is_same, "%s %s", cases[i].b, cases[i].a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(origins_are_written_as_browsers_write_them),
                                       cmocka_unit_test(a_long_origin_is_none),
                                       cmocka_unit_test(origins_differ_in_each_part)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
