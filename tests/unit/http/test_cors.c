/* The list of --cors-origin, and the fields of CORS in answers. The Fetch standard, section "CORS check": a browser
 * compares Access-Control-Allow-Origin with its Origin byte by byte, or takes "*". */
#include "http/cors.h"

#include "http/response.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

static struct td_cors *cors_of(const char *list)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_cors *cors = NULL;
    CHECK(td_cors_create(list, &cors, &err), "%s: %s", list, err.message);
    return cors;
}

static void lists(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        ",",
                                        "*,*",
                                        "https://a.example,*",
                                        "https://a.example,",
                                        ",https://a.example",
                                        "https://a.example, https://b.example",
                                        "null",
                                        "https://a.example/"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct td_error err = TD_ERROR_INIT;
        struct td_cors *cors = NULL;
        CHECK(!td_cors_create(wrong[i], &cors, &err) && cors == NULL, "\"%s\"", wrong[i]);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    }
    char list[TD_CORS_ORIGINS * 16 + 32] = "";
    for (int i = 0; i < TD_CORS_ORIGINS; i++)
        (void)snprintf(list + strlen(list), sizeof list - strlen(list), "%shttp://a%d", i > 0 ? "," : "", i);
    td_cors_destroy(cors_of(list));
    (void)snprintf(list + strlen(list), sizeof list - strlen(list), ",http://b");
    struct td_error err = TD_ERROR_INIT;
    struct td_cors *cors = NULL;
    assert_false(td_cors_create(list, &cors, &err));
    assert_non_null(strstr(err.message, "more than 64"));
    td_cors_destroy(NULL);
}

/* Sets the request's fields "Origin" to these values; NULL ends them. */
static struct td_request request_from(const struct td_cors *cors, const char *first, const char *second,
                                      struct td_header headers[2])
{
    const char *const values[] = {first, second};
    struct td_request request = {.cors = cors, .target = TD_TEXT("/x"), .headers = headers};
    for (size_t i = 0; i < 2 && values[i] != NULL; i++)
        headers[request.header_count++] = (struct td_header){TD_TEXT("origin"), td_text_of(values[i])};
    return request;
}

static void the_origin_is_compared_byte_by_byte(void **state)
{
    (void)state;
    struct td_cors *cors = cors_of("HTTPS://A.example:443,http://localhost:5173");
    static const struct {
        const char *origin, *second;
        bool is_allowed;
    } cases[] = {
        {"https://a.example", NULL, true},
        {"http://localhost:5173", NULL, true},
        {NULL, NULL, false},
        {"", NULL, false},
        {"null", NULL, false},
        {"http://a.example", NULL, false},
        {"https://A.example", NULL, false}, /* no browser sends that */
        {"https://a.example:443", NULL, false},
        {"https://a.example.evil", NULL, false},
        {"https://evil.a.example", NULL, false},
        {"http://localhost", NULL, false},
        {"http://localhost:51730", NULL, false},
        {"https://a.example", "https://a.example", false}, /* two fields allow nothing */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_header headers[2];
        struct td_request request = request_from(cors, cases[i].origin, cases[i].second, headers);
        const char *allowed = td_cors_allowed(&request);
        CHECK(cases[i].is_allowed ? allowed != NULL && strcmp(allowed, cases[i].origin) == 0 : allowed == NULL,
              "%zu: %s", i, allowed);
        struct td_response response;
        td_response_init_for(&response, &request);
        for (int again = 0; again < 2; again++) { /* an error that replaces the answer has the fields as well */
            assert_true(response.allow_origin == allowed);
            assert_int_equal(response.header_count, 1);
            assert_string_equal(response.headers[0].name, "Vary");
            assert_string_equal(response.headers[0].value, "Origin");
            td_response_fail(&response, 404, NULL, "nothing");
        }
        td_response_fini(&response);
    }
    td_cors_destroy(cors);
}

static void all_or_none(void **state)
{
    (void)state;
    struct td_cors *any = cors_of("*");
    struct td_header headers[2];
    struct td_request request = request_from(any, "null", NULL, headers);
    assert_string_equal(td_cors_allowed(&request), "*");
    request.header_count = 0; /* caches keep one answer for all */
    assert_string_equal(td_cors_allowed(&request), "*");
    assert_false(td_cors_varies(any));
    struct td_response response;
    td_response_init_for(&response, &request);
    assert_int_equal(response.header_count, 0);
    td_response_fini(&response);
    request.cors = NULL;
    assert_null(td_cors_allowed(&request));
    assert_false(td_cors_varies(NULL));
    td_cors_destroy(any);
}

/* nginx before 1.23 heeds one line of Vary alone. */
static void vary_is_one_line(void **state)
{
    (void)state;
    struct td_cors *cors = cors_of("https://a.example");
    const struct td_request request = {.cors = cors, .target = TD_TEXT("/x")};
    struct td_response response;
    td_response_init_for(&response, &request);
    td_response_add_header(&response, "X-Field", "1");
    td_response_add_header(&response, "Vary", "%s", "Accept");
    td_response_add_header_text(&response, "Vary", TD_TEXT("User-Agent"));
    assert_int_equal(response.header_count, 2);
    assert_string_equal(response.headers[0].value, "Origin, Accept, User-Agent");
    assert_string_equal(response.headers[1].value, "1");
    td_response_fini(&response);
    td_cors_destroy(cors);
}

static void lines_for_requests_that_were_not_read(void **state)
{
    (void)state;
    static const char *const lists[] = {NULL, "*", "https://a.example"};
    static const char *const begins[] = {
        "", "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: Accept-Ranges, ", "Vary: Origin\r\n"};
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        struct td_cors *cors = lists[i] == NULL ? NULL : cors_of(lists[i]);
        char lines[TD_CORS_LINES_BYTES] = "x";
        td_cors_write_lines(cors, lines);
        CHECK(strncmp(lines, begins[i], strlen(begins[i])) == 0, "%zu: %s", i, lines);
        assert_true(i == 0 || strcmp(lines + strlen(lines) - 2, "\r\n") == 0);
        td_cors_destroy(cors);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists), cmocka_unit_test(the_origin_is_compared_byte_by_byte),
                                       cmocka_unit_test(all_or_none), cmocka_unit_test(vary_is_one_line),
                                       cmocka_unit_test(lines_for_requests_that_were_not_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
