/* Responses as handlers build them: their own header fields. */
#include "http/response.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_too_many_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
