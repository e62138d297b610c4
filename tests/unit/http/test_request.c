/* X-Forwarded-Proto has no standard: proxies append their scheme, as MDN describes the X-Forwarded-... fields. Hosts:
 * RFC 3986 section 3.2.2. tests/unit/api/test_hub_lists.c has more of both. */
#include "http/request.h"

#include "tests/unit/unit.h"

static void schemes(void **state)
{
    (void)state;
    static const struct {
        const char *field; /* NULL: no field */
        bool is_tls;
        const char *scheme;
    } cases[] = {
        {NULL, false, "http"},     {NULL, true, "https"},           {"https", false, "https"},
        {"http", true, "http"},    {"HTTPS, http", false, "https"}, {"http, https", true, "http"},
        {"httpsx", false, "http"}, {"https:", false, "http"},       {"", false, "http"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *value = cases[i].field == NULL ? "" : cases[i].field;
        const struct td_header header = {.name = TD_TEXT("x-forwarded-proto"), .value = td_text_of(value)};
        const struct td_request request = {
            .is_tls = cases[i].is_tls, .headers = &header, .header_count = cases[i].field == NULL ? 0 : 1};
        CHECK(strcmp(td_request_scheme(&request), cases[i].scheme) == 0, "%zu: %s", i, value);
    }
}

static void hosts(void **state)
{
    (void)state;
    static const struct {
        const char *field, *host;
    } cases[] = {
        {"a-b.c_d~:80", "a-b.c_d~:80"},
        {"[::1]:8080", "[::1]:8080"},
        {"", ""},
        {"a b", ""},
        {"a/b", ""},
        {"a<", ""},
        {"a@b", ""},
        {"a%41", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct td_header headers[] = {{.name = TD_TEXT("HOST"), .value = td_text_of(cases[i].field)},
                                            {.name = TD_TEXT("Host"), .value = TD_TEXT("b")}};
        struct td_request request = {.headers = headers, .header_count = 1};
        CHECK(td_text_equals(td_request_host(&request), cases[i].host), "%s", cases[i].field);
        request.target = TD_TEXT("http://c:1/x"); /* RFC 9112 section 3.2.2: its host replaces Host */
        CHECK(td_text_equals(td_request_host(&request), "c:1"), "%s", cases[i].field);
        request.target = TD_TEXT("/x");
        request.header_count = 2; /* which of them? */
        CHECK(td_request_host(&request).len == 0, "%s", cases[i].field);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(schemes), cmocka_unit_test(hosts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
