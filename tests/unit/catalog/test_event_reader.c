/* Expectations are those of the HTML standard, section 9.2.6, with its examples. */
#include "catalog/remote/event_reader.h"

#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The events that were read, each as "type(data)". */
static char seen[4096];

static void note(void *context, const struct td_read_event *event)
{
    size_t len = strlen(seen);
    (void)context;
    (void)snprintf(seen + len, sizeof seen - len, "%.*s(%.*s)", (int)event->type.len, event->type.p,
                   (int)event->data.len, event->data.p);
}

/* Reads the stream in pieces of `step` bytes, and checks the events and the last id. */
static void check_in_steps(struct td_text stream, size_t step, const char *events, const char *last_id)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_event_reader reader;
    seen[0] = '\0';
    td_event_reader_init(&reader);
    for (size_t at = 0; at < stream.len; at += step) {
        size_t len = stream.len - at < step ? stream.len - at : step;
        assert_true(td_event_reader_take(&reader, td_text_n(stream.p + at, len), note, NULL, &err));
    }
    assert_string_equal(seen, events);
    assert_true(td_text_equals(td_buffer_text(&reader.last_id), last_id));
    td_event_reader_fini(&reader);
}

static void check(struct td_text stream, const char *events, const char *last_id)
{
    for (size_t step = 1; step <= stream.len; step++)
        check_in_steps(stream, step, events, last_id);
}

static void the_examples_of_the_standard(void **state)
{
    (void)state;
    check(TD_TEXT("data: YHOO\ndata: +2\ndata: 10\n\n"), "message(YHOO\n+2\n10)", "");
    check(TD_TEXT(": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n"),
          "message(first event)message(second event)message( third event)", "");
    check(TD_TEXT("data\n\ndata\ndata\n\ndata:"), "message()message(\n)", "");
    check(TD_TEXT("data:test\n\ndata: test\n\n"), "message(test)message(test)", "");
    check(TD_TEXT("event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\n"), "add(73857293)remove(2153)", "");
}

static void lines_end_in_three_ways(void **state)
{
    (void)state;
    check(TD_TEXT("data: a\r\ndata: b\rdata: c\n\r\nevent: x\r\rdata: d\r\r\n"), "message(a\nb\nc)message(d)", "");
}

static void ids_last_and_events_without_data_are_none(void **state)
{
    (void)state;
    check(TD_TEXT("id: 7\n\nevent: x\n\ndata: a\n\n"), "message(a)", "7");
    check(TD_TEXT("id: 7\ndata: a\n\nid: 8\ndata: b\n"), "message(a)", "7"); /* the second event is not complete */
    check(TD_TEXT("id: 7\nid: a\0b\ndata: a\n\n"), "message(a)", "7");
    check(TD_TEXT("retry: 5\nunknown: x\nDATA: no\ndata : no\n:data: no\ndata: a\n\n"), "message(a)", "");
}

static void a_byte_order_mark_counts_once(void **state)
{
    (void)state;
    check(TD_TEXT("\xef\xbb\xbf"
                  "data: a\n\n\xef\xbb\xbf"
                  "data: b\n\ndata: c\n\n"),
          "message(a)message(c)", "");
}

static void a_new_connection_keeps_the_id_alone(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    struct td_event_reader reader;
    seen[0] = '\0';
    td_event_reader_init(&reader);
    assert_true(td_event_reader_take(&reader, TD_TEXT("id: 1\n\nid: 2\nevent: x\ndata: cut\nda"), note, NULL, &err));
    td_event_reader_begin_again(&reader);
    assert_true(td_text_equals(td_buffer_text(&reader.last_id), "1"));
    assert_true(td_event_reader_take(&reader, TD_TEXT("data: whole\n\n"), note, NULL, &err));
    assert_string_equal(seen, "message(whole)");
    assert_true(td_text_equals(td_buffer_text(&reader.last_id), "1"));
    td_event_reader_fini(&reader);
}

/* Reads `count` times the piece. Returns whether all was taken. */
static bool take_many(const char *piece, size_t count)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_event_reader reader;
    bool ok = true;
    seen[0] = '\0';
    td_event_reader_init(&reader);
    for (size_t i = 0; ok && i < count; i++)
        ok = td_event_reader_take(&reader, td_text_of(piece), note, NULL, &err);
    assert_true(reader.line.capacity / 2 <= TD_EVENT_LINE_BYTES && reader.data.capacity / 2 <= TD_EVENT_DATA_BYTES);
    assert_true(ok || err.code == TD_FAILED_PRECONDITION);
    td_event_reader_fini(&reader);
    return ok;
}

static void lines_and_events_are_bounded(void **state)
{
    (void)state;
    assert_true(take_many("x", TD_EVENT_LINE_BYTES));
    assert_false(take_many("x", TD_EVENT_LINE_BYTES + 1));
    assert_true(take_many("data:1234567\n", TD_EVENT_DATA_BYTES / 8)); /* each with its line feed */
    assert_false(take_many("data:1234567\n", TD_EVENT_DATA_BYTES / 8 + 1));
    assert_true(take_many("data:1234567\n\n", TD_EVENT_DATA_BYTES));
    assert_true(take_many(": comment\n", 100000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_standard),
        cmocka_unit_test(lines_end_in_three_ways),
        cmocka_unit_test(ids_last_and_events_without_data_are_none),
        cmocka_unit_test(a_byte_order_mark_counts_once),
        cmocka_unit_test(a_new_connection_keeps_the_id_alone),
        cmocka_unit_test(lines_and_events_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
