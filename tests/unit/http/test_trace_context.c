/* The cases follow https://www.w3.org/TR/trace-context/, sections 3.2.2 and 4.3. */
#include "http/request_id.h"

#include "tests/unit/unit.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

static void valid_fields_are_read(void **state)
{
    (void)state;
    static const char *const fields[] = {
        "00-" TRACE "-" PARENT "-01",
        "00-" TRACE "-" PARENT "-00",
        "00-" TRACE "-" PARENT "-ff",              /* unknown flags are to be ignored */
        "cc-" TRACE "-" PARENT "-01",              /* a later version, of the same length */
        "01-" TRACE "-" PARENT "-01-what-follows", /* and longer, after a dash */
        "fe-" TRACE "-" PARENT "-01-",
    };
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        struct td_trace_context trace;
        CHECK(td_trace_context_read(td_text_of(fields[i]), &trace), "%s", fields[i]);
        CHECK(td_text_equals(trace.trace_id, TRACE) && td_text_equals(trace.parent_id, PARENT), "%s", fields[i]);
    }
}

/* shows: security.md log-request-ids */
static void invalid_fields_are_refused(void **state)
{
    (void)state;
    static const char *const fields[] = {
        "",
        "00",
        "ff-" TRACE "-" PARENT "-01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01",
        "00-" TRACE "-00F067AA0BA902B7-01",
        "0A-" TRACE "-" PARENT "-01",
        "00-" TRACE "-" PARENT "-0A",
        "00-" TRACE "-" PARENT "-0",
        "00-" TRACE "-" PARENT "-011",
        "00-" TRACE "-" PARENT "-01-", /* version 00 has nothing after the flags */
        "cc-" TRACE "-" PARENT "-01.what-follows",
        "cc-" TRACE "-" PARENT "-0",
        "00-" TRACE "x-" PARENT "-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473g-" PARENT "-01",
        "00-" TRACE "-00f067aa0ba902b-01-",
        "00_" TRACE "-" PARENT "-01",
        "00-" TRACE "_" PARENT "-01",
        "00-" TRACE "-" PARENT "_01",
        " 00-" TRACE "-" PARENT "-01",
        "0-" TRACE "-" PARENT "-01",
    };
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        struct td_trace_context trace;
        CHECK(!td_trace_context_read(td_text_of(fields[i]), &trace), "%s", fields[i]);
    }
    struct td_trace_context trace;
    assert_false(td_trace_context_read(TD_TEXT("00-" TRACE "-" PARENT "-\0"
                                               "1"),
                                       &trace));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_fields_are_read),
        cmocka_unit_test(invalid_fields_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
