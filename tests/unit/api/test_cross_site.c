/* Requests of pages of other sites. Sec-Fetch-Site: https://www.w3.org/TR/fetch-metadata/ section 2.4. Origin: the
 * Fetch standard, and RFC 6454 section 5 for when two are the same. */
#include "api/call/cross_site.h"

#include "tests/unit/unit.h"

enum { MOST_FIELDS = 3 };

static void whose_page_it_is(void **state)
{
    (void)state;
    static const struct {
        struct {
            const char *name, *value;
        } fields[MOST_FIELDS];
        bool is_tls, is_other;
    } cases[] = {
        {{{NULL, NULL}}, false, false},
        {{{"Host", "a.example"}}, false, false},
        {{{"sec-fetch-site", "same-origin"}}, false, false},
        {{{"Sec-Fetch-Site", "none"}}, false, false},
        {{{"Sec-Fetch-Site", "same-site"}}, false, true},
        {{{"Sec-Fetch-Site", "cross-site"}}, false, true},
        {{{"Sec-Fetch-Site", "None"}}, false, true},
        {{{"Sec-Fetch-Site", ""}}, false, true},
        {{{"Sec-Fetch-Site", "none"}, {"Sec-Fetch-Site", "none"}}, false, true},
        {{{"Sec-Fetch-Site", "same-origin"}, {"Origin", "http://evil.example"}}, false, false},
        {{{"Sec-Fetch-Site", "cross-site"}, {"Host", "a"}, {"Origin", "http://a"}}, false, true},
        {{{"Host", "a"}, {"Origin", "http://a"}}, false, false},
        {{{"Host", "a"}, {"Origin", "http://a"}}, true, true},
        {{{"Host", "a"}, {"Origin", "https://a"}}, true, false},
        {{{"Host", "a:443"}, {"Origin", "https://a"}}, true, false},
        {{{"Host", "A:80"}, {"Origin", "http://a"}}, false, false},
        {{{"Host", "a:8080"}, {"Origin", "http://a"}}, false, true},
        {{{"Host", "a:8080"}, {"Origin", "http://a:8080"}}, false, false},
        {{{"Host", "a"}, {"X-Forwarded-Proto", "https"}, {"Origin", "https://a"}}, false, false},
        {{{"Host", "a"}, {"X-Forwarded-Proto", "https"}, {"Origin", "http://a"}}, false, true},
        {{{"Host", "a"}, {"X-Forwarded-Host", "b"}, {"Origin", "http://b"}}, false, true},
        {{{"Host", "a"}, {"Origin", "null"}}, false, true},
        {{{"Host", "a"}, {"Origin", ""}}, false, true},
        {{{"Host", "a"}, {"Origin", "http://a/"}}, false, true},
        {{{"Host", "a"}, {"Origin", "http://a"}, {"Origin", "http://a"}}, false, true},
        {{{"Host", ""}, {"Origin", "http://"}}, false, true},
        {{{"Origin", "http://a"}}, false, true}, /* HTTP/1.0 without Host: no origin is known */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_header headers[MOST_FIELDS];
        struct td_request request = {.target = TD_TEXT("/rescan"), .is_tls = cases[i].is_tls, .headers = headers};
        for (size_t f = 0; f < MOST_FIELDS && cases[i].fields[f].name != NULL; f++)
            headers[request.header_count++] = (struct td_header){.name = td_text_of(cases[i].fields[f].name),
                                                                 .value = td_text_of(cases[i].fields[f].value)};
        CHECK(td_cross_site_is(&request) == cases[i].is_other, "%zu", i);
    }
}

/* The target's host replaces the field (RFC 9112 section 3.2.2). */
static void a_target_in_absolute_form(void **state)
{
    (void)state;
    const struct td_header headers[] = {{TD_TEXT("Host"), TD_TEXT("a")}, {TD_TEXT("Origin"), TD_TEXT("http://b:1")}};
    struct td_request request = {.target = TD_TEXT("http://b:1/rescan"), .headers = headers, .header_count = 2};
    assert_false(td_cross_site_is(&request));
    request.target = TD_TEXT("/rescan");
    assert_true(td_cross_site_is(&request));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whose_page_it_is), cmocka_unit_test(a_target_in_absolute_form)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
