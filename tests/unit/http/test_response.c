/* Responses as handlers build them: their own header fields. */
#include "http/response.h"

#include "http/facade.h"
#include "tests/unit/unit.h"

#include <string.h>

/* A response sends every added field, or becomes an error: no field is lost silently. */
static void a_field_too_many_is_an_error(void **state)
{
    (void)state;
    struct td_response response;
    td_response_init(&response);
    for (int i = 0; i < TD_RESPONSE_HEADERS; i++)
        td_response_add_header(&response, "X-Field", "%d", i);
    assert_int_equal(response.status, 200);
    assert_int_equal(response.header_count, TD_RESPONSE_HEADERS);
    for (int i = 0; i < TD_RESPONSE_HEADERS; i++) {
        assert_string_equal(response.headers[i].name, "X-Field");
        assert_int_equal(response.headers[i].value[0], '0' + i);
    }
    td_response_add_header(&response, "X-One-More", "x");
    assert_int_equal(response.status, 500);
    assert_int_equal(response.header_count, 0);
    char text[128] = "";
    struct td_body_cursor cursor = {0};
    assert_in_range(response.body.total_bytes, 1, sizeof text - 1);
    assert_true(td_body_read(&response.body, &cursor, text, (size_t)response.body.total_bytes, NULL));
    assert_non_null(strstr(text, "X-One-More"));
    td_response_fini(&response);
}

static bool is_never_asked(void *context)
{
    (void)context;
    return false;
}

/* An error answers the same request. */
static void an_error_keeps_what_is_of_the_request(void **state)
{
    (void)state;
    const struct td_cancel cancel = {.is_asked = is_never_asked};
    const struct td_request request = {.target = TD_TEXT("/models?x=1"), .cancel = &cancel};
    struct td_response response;
    td_response_init_for(&response, &request);
    response.route = TD_ROUTE_MODELS;
    response.close = response.changed = true;
    td_response_set_etag(&response, "x");
    td_response_add_header(&response, "X-Field", "x");
    td_response_fail(&response, 404, NULL, "nothing");
    assert_int_equal(response.status, 404);
    assert_int_equal(response.route, TD_ROUTE_MODELS);
    assert_true(response.close && response.changed && response.cancel == &cancel);
    assert_true(td_text_equals(response.resource, "/models"));
    assert_string_equal(response.etag, "");
    assert_int_equal(response.header_count, 0);
    td_response_fini(&response);
}

/* The form is that of https://www.w3.org/TR/server-timing/: metrics with a duration in milliseconds. */
static void an_error_says_when_to_ask_again(void **state)
{
    static const struct {
        int status;
        unsigned seconds;
        const char *said; /* NULL: nothing */
    } cases[] = {{503, 40, "40"}, {429, 0, "1"}, {404, 40, NULL}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_response response;
        td_response_init(&response);
        td_response_fail(&response, cases[i].status, NULL, "not now");
        td_response_set_retry_after(&response, cases[i].seconds);
        const char *said = NULL;
        for (size_t h = 0; h < response.header_count; h++) {
            if (strcmp(response.headers[h].name, "Retry-After") != 0)
                continue;
            assert_null(said); /* once */
            said = response.headers[h].value;
        }
        CHECK(cases[i].said == NULL ? said == NULL : said != NULL && strcmp(said, cases[i].said) == 0, "case %zu", i);
        td_response_fini(&response);
    }
}

static void timing(void **state)
{
    (void)state;
    static const struct {
        uint64_t took_ns, planning_ns;
        const char *value;
    } cases[] = {
        {1000000, 0, "total;dur=1.0"},
        {12345678, 0, "total;dur=12.3"},
        {1099999, 999999, "total;dur=1.0, plan;dur=0.9"},
        {UINT64_C(3600000000000), UINT64_C(60000000000), "total;dur=3600000.0, plan;dur=60000.0"},
        {UINT64_MAX, UINT64_MAX, "total;dur=18446744073709.5, plan;dur=18446744073709.5"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_response response;
        td_response_init(&response);
        response.planning_ns = cases[i].planning_ns;
        td_response_add_timing(&response, cases[i].took_ns);
        assert_true(response.is_timed && response.header_count == 1);
        assert_string_equal(response.headers[0].name, "Server-Timing");
        assert_string_equal(response.headers[0].value, cases[i].value);
        td_response_fail(&response, 404, NULL, "nothing");
        assert_true(!response.is_timed && response.header_count == 0);
        td_response_fini(&response);
    }
    struct td_response full;
    td_response_init(&full);
    for (int i = 0; i < TD_RESPONSE_HEADERS; i++)
        td_response_add_header(&full, "X-Field", "%d", i);
    td_response_add_timing(&full, TD_TIMED_NS);
    assert_true(full.status == 200 && !full.is_timed && full.header_count == TD_RESPONSE_HEADERS);
    td_response_fini(&full);
}

static void write_nothing(struct td_failure *failure, struct td_buffer *out)
{
    (void)failure;
    (void)out;
}

/* Errors have it as well, once, and so has the one that is sent without memory for a body. */
static void answers_have_the_field_of_the_facade(void **state)
{
    (void)state;
    static const struct td_facade facade = {
        .field_name = "Api-Version", .field_value = "1", .write_error = write_nothing, .etag_end = ""};
    struct td_request request = {.facade = &facade};
    struct td_response response;
    td_response_init_for(&response, &request);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(response.header_count, i == 0 ? 1 : 2); /* and Retry-After */
        assert_string_equal(response.headers[0].name, "Api-Version");
        assert_string_equal(response.headers[0].value, "1");
        td_response_fail(&response, 503, NULL, "busy");
    }
    td_response_fini(&response);
}

/* The facade decides on the field. An error keeps the id; without an id no room is needed. */
static void answers_have_the_id_of_the_request(void **state)
{
    (void)state;
    static const struct td_facade with_field = {.request_id_header = "x-amz-request-id", .etag_end = ""};
    struct td_header header = {TD_TEXT("X-Request-Id"), TD_TEXT("abc")};
    const struct td_facade *const facades[] = {NULL, &with_field};
    static const char *const names[] = {"X-Request-Id", "x-amz-request-id"};
    for (size_t i = 0; i < COUNT_OF(facades); i++) {
        struct td_request request = {.facade = facades[i], .headers = &header, .header_count = 1};
        struct td_response response;
        td_response_init_for(&response, &request);
        assert_int_equal(response.header_count, i);
        td_response_add_request_id(&response, &request);
        td_response_add_request_id(&response, &request);
        assert_int_equal(response.header_count, 1);
        assert_string_equal(response.headers[0].name, names[i]);
        assert_string_equal(response.headers[0].value, "abc");
        assert_string_equal(response.request_id, "abc");
        td_response_fini(&response);
    }
    struct td_request request = {.headers = &header, .header_count = 1};
    struct td_response full;
    td_response_init_for(&full, &request);
    for (int i = 0; i < TD_RESPONSE_HEADERS; i++)
        td_response_add_header(&full, "X-Field", "%d", i);
    td_response_add_request_id(&full, &request);
    assert_true(full.status == 200 && full.header_count == TD_RESPONSE_HEADERS);
    td_response_fail(&full, 404, NULL, "gone");
    assert_int_equal(full.header_count, 1);
    assert_string_equal(full.headers[0].name, "X-Request-Id");
    assert_string_equal(full.headers[0].value, "abc");
    td_response_fini(&full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_too_many_is_an_error),       cmocka_unit_test(an_error_keeps_what_is_of_the_request),
        cmocka_unit_test(an_error_says_when_to_ask_again),    cmocka_unit_test(timing),
        cmocka_unit_test(answers_have_the_id_of_the_request), cmocka_unit_test(answers_have_the_field_of_the_facade),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
