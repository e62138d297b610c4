#include "server/log/access_log.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>

static struct in6_addr address(const char *text)
{
    struct in6_addr address;
    CHECK(inet_pton(AF_INET6, text, &address) == 1, "%s", text);
    return address;
}

static struct td_access_event small_event(void)
{
    return (struct td_access_event){.end = {1767323045, 678000000}, /* 2026-01-02T03:04:05.678Z */
                                    .method = TD_TEXT("GET"),
                                    .target = TD_TEXT("/models/demo/tensors/w"),
                                    .status = 206,
                                    .sent_bytes = 64,
                                    .length_bytes = 64,
                                    .took_ns = 148000,
                                    .route = "tensor",
                                    .token = "",
                                    .request_id = ""};
}

static void check_line(struct td_access_lines *lines, const struct td_access_event *event, const char *wanted)
{
    struct td_text line = td_access_lines_write(lines, event);
    CHECK(td_text_equals(line, wanted), "got    %.*swanted %s", (int)line.len, line.p, wanted);
}

static void open_lines(struct td_access_lines *lines)
{
    const struct in6_addr client = address("::1");
    td_access_lines_init(lines, &client, TD_LOG_TEXT);
}

FIXTURE(lines, struct td_access_lines, open_lines, td_access_lines_fini)

/* The first line is the example of docs/run.md. */
static void lines_are_those_of_the_document(void **state)
{
    (void)state;
    struct td_access_lines lines;
    struct in6_addr client = address("::ffff:127.0.0.1");
    struct td_access_event event = small_event();
    struct td_text range = TD_TEXT("bytes=0-63"), agent = TD_TEXT("curl/7.88.1");
    struct td_trace_context trace = {TD_TEXT("4bf92f3577b34da6a3ce929d0e0e4736"), TD_TEXT("00f067aa0ba902b7")};
    td_access_lines_init(&lines, &client, TD_LOG_TEXT);
    event.range = &range;
    event.agent = &agent;
    event.token = "ci";
    event.request_id = "C5AD801645F8756E";
    event.trace = &trace;
    check_line(&lines, &event,
               "time=2026-01-02T03:04:05.678Z client=127.0.0.1 method=\"GET\" target=\"/models/demo/tensors/w\" "
               "status=206 sent=64 length=64 seconds=0.000148 route=tensor range=\"bytes=0-63\" "
               "agent=\"curl/7.88.1\" token=ci request_id=\"C5AD801645F8756E\" trace=4bf92f3577b34da6a3ce929d0e0e4736 "
               "parent=00f067aa0ba902b7\n");
    event = small_event();
    event.range = &range;
    event.status = 200;
    event.sent_bytes = 0;
    event.length_bytes = UINT64_MAX;
    event.took_ns = UINT64_C(86399999999600);
    event.cut = "client";
    check_line(&lines, &event,
               "time=2026-01-02T03:04:05.678Z client=127.0.0.1 method=\"GET\" target=\"/models/demo/tensors/w\" "
               "status=200 sent=0 length=18446744073709551615 seconds=86400.000000 route=tensor cut=client "
               "range=\"bytes=0-63\"\n");
    event = small_event();
    event.target = TD_TEXT("");
    check_line(&lines, &event,
               "time=2026-01-02T03:04:05.678Z client=127.0.0.1 method=\"GET\" target=\"\" status=206 sent=64 length=64 "
               "seconds=0.000148 route=tensor\n");
    td_access_lines_fini(&lines);
}

/* The second one is the example of docs/run.md. */
static void lines_of_json_have_the_same_members(void **state)
{
    (void)state;
    struct td_access_lines lines;
    struct in6_addr client = address("::ffff:127.0.0.1");
    struct td_access_event event = small_event();
    struct td_text range = TD_TEXT("bytes=0-63"), agent = TD_TEXT("curl/7.88.1");
    struct td_trace_context trace = {TD_TEXT("4bf92f3577b34da6a3ce929d0e0e4736"), TD_TEXT("00f067aa0ba902b7")};
    td_access_lines_init(&lines, &client, TD_LOG_JSON);
    check_line(&lines, &event,
               "{\"time\":\"2026-01-02T03:04:05.678Z\",\"client\":\"127.0.0.1\",\"method\":\"GET\","
               "\"target\":\"/models/demo/tensors/w\",\"status\":206,\"sent\":64,\"length\":64,\"seconds\":0.000148,"
               "\"route\":\"tensor\"}\n");
    event.range = &range;
    event.agent = &agent;
    event.token = "ci";
    event.request_id = "C5AD801645F8756E";
    event.trace = &trace;
    check_line(&lines, &event,
               "{\"time\":\"2026-01-02T03:04:05.678Z\",\"client\":\"127.0.0.1\",\"method\":\"GET\","
               "\"target\":\"/models/demo/tensors/w\",\"status\":206,\"sent\":64,\"length\":64,\"seconds\":0.000148,"
               "\"route\":\"tensor\",\"range\":\"bytes=0-63\",\"agent\":\"curl/7.88.1\","
               "\"token\":\"ci\",\"request_id\":\"C5AD801645F8756E\",\"trace\":\"4bf92f3577b34da6a3ce929d0e0e4736\","
               "\"parent\":\"00f067aa0ba902b7\"}\n");
    event = small_event();
    event.target = TD_TEXT("/\"\xff\\\n");
    event.cut = "client";
    check_line(&lines, &event,
               "{\"time\":\"2026-01-02T03:04:05.678Z\",\"client\":\"127.0.0.1\",\"method\":\"GET\","
               "\"target\":\"/\\\"\\\\xff\\\\\\\\x0a\",\"status\":206,\"sent\":64,\"length\":64,\"seconds\":0.000148,"
               "\"route\":\"tensor\",\"cut\":\"client\"}\n");
    td_access_lines_fini(&lines);
}

/* All fields that a client controls have their greatest length, and have to be escaped. */
/* shows: security.md log-forgery */
static void lines_are_bounded(void **state)
{
    (void)state;
    static const enum td_log_form forms[] = {TD_LOG_TEXT, TD_LOG_JSON};
    char text[20000];
    memset(text, '\\', sizeof text);
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        struct td_access_lines lines;
        struct in6_addr client = address("::1");
        struct td_access_event event = small_event();
        struct td_text field = td_text_n(text, sizeof text);
        td_access_lines_init(&lines, &client, forms[i]);
        event.method = event.target = field;
        event.range = event.agent = &field;
        assert_in_range(td_access_lines_write(&lines, &event).len, 4 * 2 * 1000, 10000);
        td_access_lines_fini(&lines);
    }
}

static void addresses_are_shown_in_their_family(void **state)
{
    (void)state;
    static const char *const clients[][2] = {
        {"::ffff:203.0.113.9", "203.0.113.9"}, {"2001:db8::1", "2001:db8::1"}, {"::1", "::1"}};
    for (size_t i = 0; i < COUNT_OF(clients); i++) {
        struct td_access_lines lines;
        struct in6_addr client = address(clients[i][0]);
        struct td_access_event event = small_event();
        char wanted[80];
        td_access_lines_init(&lines, &client, TD_LOG_TEXT);
        struct td_text line = td_access_lines_write(&lines, &event);
        (void)snprintf(wanted, sizeof wanted, "time=2026-01-02T03:04:05.678Z client=%s method=\"GET\" ", clients[i][1]);
        CHECK(td_text_begins(line, td_text_of(wanted)), "%.*s", (int)line.len, line.p);
        td_access_lines_fini(&lines);
    }
}

/* The text of the second is kept between lines; the clock may stand still, advance, or be set back. */
static void time_is_that_of_each_line(void **state)
{
    static const struct {
        struct td_wall end;
        const char *wanted;
    } cases[] = {
        {{1767323045, 0}, "time=2026-01-02T03:04:05.000Z "},
        {{1767323045, 999999999}, "time=2026-01-02T03:04:05.999Z "},
        {{1767323045, 7000000}, "time=2026-01-02T03:04:05.007Z "},
        {{1767323045, 6999999}, "time=2026-01-02T03:04:05.006Z "},
        {{1767323046, 80000000}, "time=2026-01-02T03:04:06.080Z "},
        {{1767323044, 120000000}, "time=2026-01-02T03:04:04.120Z "},
        {{1798761599, 500000000}, "time=2026-12-31T23:59:59.500Z "},
        {{1798761600, 500000000}, "time=2027-01-01T00:00:00.500Z "},
        {{0, 1000000}, "time=1970-01-01T00:00:00.001Z "},
    };
    struct td_access_lines *lines = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_access_event event = small_event();
        event.end = cases[i].end;
        struct td_text line = td_access_lines_write(lines, &event);
        CHECK(td_text_begins(line, td_text_of(cases[i].wanted)), "%.*s", (int)line.len, line.p);
    }
}

/* A text from the client ends neither its quotes nor the line. */
static void texts_are_escaped(void **state)
{
    struct td_access_lines *lines = *state;
    struct td_access_event event = small_event();
    struct td_text range = TD_TEXT("x\x85y \"quoted\" \\ end"), agent = TD_TEXT("\xc3\xa9\xe2\x80\xae\x7f\x1b[2J\0.");
    event.method = TD_TEXT("G\"");
    event.target = TD_TEXT("/a\nGET /forged");
    event.range = &range;
    event.agent = &agent;
    check_line(lines, &event,
               "time=2026-01-02T03:04:05.678Z client=::1 method=\"G\\\"\" target=\"/a\\\\x0aGET /forged\" status=206 "
               "sent=64 length=64 seconds=0.000148 route=tensor range=\"x\\\\x85y \\\"quoted\\\" \\\\ end\" "
               "agent=\"\xc3\xa9\\\\xe2\\\\x80\\\\xae\\\\x7f\\\\x1b[2J\\\\x00.\"\n");
}

/* 1,023 bytes of a text are shown; the memory of a long line does not stay. */
static void long_texts_are_cut(void **state)
{
    static const size_t lens[] = {1022, 1023, 1024, 5000};
    struct td_access_lines *lines = *state;
    char target[5000];
    memset(target, 'x', sizeof target);
    for (size_t i = 0; i < COUNT_OF(lens); i++) {
        struct td_access_event event = small_event();
        event.target = td_text_n(target, lens[i]);
        struct td_text line = td_access_lines_write(lines, &event);
        const char *begin = memchr(line.p, 'x', line.len);
        assert_non_null(begin);
        size_t shown = strspn(begin, "x");
        assert_int_equal(shown, lens[i] < 1023 ? lens[i] : 1023);
        assert_true(strncmp(begin + shown, "\" status=206 ", 13) == 0);
    }
    struct td_access_event event = small_event();
    (void)td_access_lines_write(lines, &event);
    assert_true(lines->line.capacity <= 1024);
}

/* A line that gets no memory is empty, and the next one is not; lines of the usual length need no memory of their
 * own. */
static void memory_is_kept_between_lines(void **state)
{
    struct td_access_lines *lines = *state;
    struct td_access_event event = small_event();
    alloc_fail_at(1);
    assert_int_equal(td_access_lines_write(lines, &event).len, 0);
    assert_true(td_access_lines_write(lines, &event).len > 0);
    alloc_count_start();
    for (int i = 0; i < 100; i++)
        assert_true(td_access_lines_write(lines, &event).len > 0);
    assert_int_equal(alloc_count_get().calls, 0);
}

/* Checks a line with this time against printf. */
static void check_seconds(struct td_access_lines *lines, uint64_t took_ns)
{
    struct td_access_event event = small_event();
    char wanted[256];
    event.took_ns = took_ns;
    (void)snprintf(wanted, sizeof wanted,
                   "time=2026-01-02T03:04:05.678Z client=::1 method=\"GET\" target=\"/models/demo/tensors/w\" "
                   "status=206 sent=64 length=64 seconds=%.6f route=tensor\n",
                   (double)took_ns / 1e9);
    struct td_text line = td_access_lines_write(lines, &event);
    CHECK(td_text_equals(line, wanted), "%llu ns: got %.*s", (unsigned long long)took_ns, (int)line.len, line.p);
}

/* Times of up to 35 days. In the middle between two microseconds printf follows the double, and the line goes up. */
static void seconds_are_rounded_to_the_nearest(void **state)
{
    struct td_access_lines *lines = *state;
    uint64_t random = 7;
    static const uint64_t times_ns[] = {0,         499,       501,        1499,
                                        999999499, 999999501, 1000000000, UINT64_C(3024000000000000)};
    for (size_t i = 0; i < COUNT_OF(times_ns); i++)
        check_seconds(lines, times_ns[i]);
    for (int i = 0; i < (SANITIZED ? 50000 : 500000); i++) {
        uint64_t ns = (random_next(&random) >> 12) % UINT64_C(3024000000000000) >> random_below(&random, 40);
        check_seconds(lines, ns % 1000 == 500 ? ns + 1 : ns);
    }
    struct td_access_event middle = small_event();
    middle.took_ns = 999999500;
    struct td_text line = td_access_lines_write(lines, &middle);
    assert_non_null(memmem(line.p, line.len, " seconds=1.000000 ", 18));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_those_of_the_document),
        cmocka_unit_test(lines_of_json_have_the_same_members),
        cmocka_unit_test(lines_are_bounded),
        cmocka_unit_test(addresses_are_shown_in_their_family),
        TEST_IN(lines, time_is_that_of_each_line),
        TEST_IN(lines, texts_are_escaped),
        TEST_IN(lines, long_texts_are_cut),
        TEST_IN(lines, memory_is_kept_between_lines),
        TEST_IN(lines, seconds_are_rounded_to_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
