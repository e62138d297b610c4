#include "storage/fetch/fetch_answer.h"

#include "storage/fetch/fetch_client.h"
#include "tests/unit/unit.h"

/* Reads a header whose lines end in LF. */
static bool read(const char *text, struct td_fetch_answer *answer)
{
    struct td_text rest = td_text_of(text);
    td_fetch_answer_init(answer);
    while (rest.len > 0)
        if (!td_fetch_answer_take_line(answer, td_text_take_until(&rest, '\n')))
            return false;
    return true;
}

static void fields(void **state)
{
    (void)state;
    struct td_fetch_answer answer;
    assert_true(read("HTTP/1.1 206 Partial Content\r\netag: \"a-b\"\r\nContent-Range: bytes 5-9/100\r\n"
                     "CONTENT-LENGTH:5\r\nRetry-After: 7\r\nX-Error-Message: why\r\n\r\n",
                     &answer));
    assert_int_equal(answer.status, 206);
    assert_string_equal(answer.etag, "\"a-b\"");
    assert_true(answer.has_range && answer.has_length && !answer.is_coded && !answer.is_wrong);
    assert_int_equal(answer.first, 5);
    assert_int_equal(answer.last, 9);
    assert_int_equal(answer.total, 100);
    assert_int_equal(answer.length, 5);
    assert_int_equal(answer.retry_after_s, 7);
    assert_string_equal(answer.message, "why");
}

/* RFC 9110 section 8.8.3: W/ marks a weak tag; a tag has quotes, and none within. */
static void tags(void **state)
{
    (void)state;
    static const struct {
        const char *field, *etag;
    } cases[] = {
        {"ETag: \"\"", "\"\""}, {"ETag: \"x\"  ", "\"x\""}, {"ETag: W/\"x\"", ""}, {"ETag: x", ""},  {"ETag: \"", ""},
        {"ETag: \"a\"b\"", ""}, {"ETag: \"a b\"", ""},      {"ETag:", ""},         {"E: \"x\"", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_fetch_answer answer;
        assert_true(read(cases[i].field, &answer));
        CHECK(strcmp(answer.etag, cases[i].etag) == 0, "%s", cases[i].field);
    }
    char longer[400] = "ETag: \"";
    struct td_fetch_answer answer;
    memset(longer + 7, 'x', 300);
    longer[307] = '"';
    assert_true(read(longer, &answer));
    assert_string_equal(answer.etag, "");
}

/* RFC 9110 section 14.4. */
static void ranges(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "bytes */100",   "bytes 5-4/100",  "bytes 0-100/100",
        "bytes 0-9/*",   "bytes -9/100",   "bytes 0-9",
        "items 0-9/100", "bytes 0-9/100x", "0-9/100",
        "bytes 0-/100",  "bytes 0-9,2/9",  "bytes 9223372036854775808-9223372036854775809/9223372036854775810"};
    struct td_fetch_answer answer;
    char text[200];
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        (void)snprintf(text, sizeof text, "HTTP/1.1 206 x\nContent-Range: %s", wrong[i]);
        assert_true(read(text, &answer));
        CHECK(!answer.has_range, "%s", wrong[i]);
    }
    assert_true(read("Content-Range: Bytes  0-0/1", &answer));
    assert_true(answer.has_range && answer.total == 1 && !answer.is_wrong);
    assert_true(read("Content-Range: bytes 0-0/1\nContent-Range: bytes 0-0/2", &answer));
    assert_true(answer.is_wrong);
}

/* Other answers may come before the last one (RFC 9110 section 15.2), and are no redirects. */
static void who_answers_after_a_redirect_is_perhaps_another(void **state)
{
    (void)state;
    struct td_fetch_answer answer;
    assert_true(read("HTTP/1.1 100 Continue\n\nHTTP/1.1 429 Too Many Requests\n", &answer) && !answer.is_redirected);
    assert_true(read("HTTP/1.1 307 Temporary Redirect\n\nHTTP/1.1 100 Continue\n\nHTTP/1.1 429 x\n", &answer) &&
                answer.is_redirected);
}

static void contradictions(void **state)
{
    (void)state;
    struct td_fetch_answer answer;
    assert_true(read("Content-Length: 5\nContent-Length: 6", &answer) && answer.is_wrong);
    assert_true(read("Content-Length: 5\nContent-Length: 5", &answer) && !answer.is_wrong);
    assert_true(read("Content-Length: -5", &answer) && answer.is_wrong);
    assert_true(read("Content-Encoding: gzip", &answer) && answer.is_coded);
    assert_true(read("Content-Encoding: identity", &answer) && !answer.is_coded);
    assert_true(read("Content-Type: Multipart/byteranges; boundary=x", &answer) && answer.is_coded);
}

static void a_redirect_s_fields_are_forgotten(void **state)
{
    (void)state;
    struct td_fetch_answer answer;
    assert_true(read("HTTP/1.1 302 Found\nETag: \"old\"\nContent-Length: 3\nContent-Encoding: gzip\n\n"
                     "HTTP/2 200\nContent-Length: 9\n",
                     &answer));
    assert_int_equal(answer.status, 200);
    assert_true(answer.is_redirected);
    assert_string_equal(answer.etag, "");
    assert_true(answer.length == 9 && !answer.is_wrong && !answer.is_coded);
}

/* RFC 8288 section 3, and what the Hub sends. */
static void links(void **state)
{
    (void)state;
    static const struct {
        const char *field, *next;
    } cases[] = {
        {"Link: <https://h/api?cursor=a%3D>; rel=\"next\"", "https://h/api?cursor=a%3D"},
        {"Link: </a>; rel=\"prev\", </b>; rel=\"next\"", "/b"},
        {"Link: </b>; title=\"x\"; rel=next", "/b"},
        {"Link: </a>; rel=\"prev\"", ""},
        {"Link: </a>", ""},
        {"Link: /a; rel=\"next\"", ""},
        {"Link: <", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_fetch_answer answer;
        assert_true(read(cases[i].field, &answer));
        CHECK(strcmp(answer.next, cases[i].next) == 0, "%s: %s", cases[i].field, answer.next);
    }
}

static void waits_are_bounded(void **state)
{
    (void)state;
    struct td_fetch_answer answer;
    assert_true(read("Retry-After: 99999999999999999999", &answer));
    assert_int_equal(answer.retry_after_s, 0); /* no number of 64 bits, and no date */
    assert_true(read("Retry-After: 99999999", &answer));
    assert_int_equal(answer.retry_after_s, 3600);
    assert_true(read("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT", &answer));
    assert_int_equal(answer.retry_after_s, 0);
    assert_true(read("Retry-After: Fri, 31 Dec 2100 23:59:59 GMT", &answer));
    assert_int_equal(answer.retry_after_s, 3600);
}

static void a_header_does_not_grow_without_end(void **state)
{
    (void)state;
    struct td_fetch_answer answer;
    size_t lines = 0;
    td_fetch_answer_init(&answer);
    while (td_fetch_answer_take_line(&answer, lines % 2 == 0 ? TD_TEXT("HTTP/1.1 100 Continue\r\n") : TD_TEXT("\r\n")))
        assert_true(++lines < 100000);
    assert_true(answer.header_bytes <= TD_FETCH_MAX_HEADER_BYTES &&
                answer.header_bytes > TD_FETCH_MAX_HEADER_BYTES - 20);
}

/* RFC 9110 section 15.6: a failure of the server's own. RFC 4918 section 11.5, of 507: "If the request that received
 * this status code was the result of a user action, the request MUST NOT be repeated until it is requested by a
 * separate user action." */
static void failures_that_may_pass(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        bool may_pass;
        enum td_code code;
    } cases[] = {
        {"HTTP/1.1 500 x", true, TD_UNAVAILABLE},
        {"HTTP/1.1 503 x", true, TD_UNAVAILABLE},
        {"HTTP/1.1 408 x", true, TD_UNAVAILABLE},
        {"HTTP/1.1 429 x", true, TD_UNAVAILABLE},
        {"HTTP/1.1 507 x\nRetry-After: 2", true, TD_UNAVAILABLE},
        {"HTTP/1.1 507 x", false, TD_RESOURCE_EXHAUSTED},
        {"HTTP/1.1 507 x\nRetry-After: 0", false, TD_RESOURCE_EXHAUSTED},
        {"HTTP/1.1 409 x\nRetry-After: 2", false, TD_FAILED_PRECONDITION},
        {"HTTP/1.1 404 x", false, TD_NOT_FOUND},
        {"HTTP/1.1 401 x", false, TD_PERMISSION_DENIED},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_fetch_answer answer;
        struct td_error err = TD_ERROR_INIT;
        assert_true(read(cases[i].header, &answer));
        CHECK(td_fetch_fault_may_pass(&answer) == cases[i].may_pass, "%s", cases[i].header);
        assert_false(td_fetch_fault_of_answer(&answer, NULL, "x", &err));
        CHECK(err.code == cases[i].code, "%s: %s", cases[i].header, err.message);
    }
}

/* However long the names and the server's text are: its end alone is cut. */
static void our_advice_is_whole(void **state)
{
    (void)state;
    struct td_fetch_answer answer;
    struct td_error err = TD_ERROR_INIT;
    char what[287]; /* as fetch_file writes it, of 120, 6 and 160 bytes */
    char advice[TD_FETCH_ADVICE_BYTES];
    memset(what, 'w', sizeof what - 1);
    memset(advice, 'a', sizeof advice - 1);
    what[sizeof what - 1] = advice[sizeof advice - 1] = '\0';
    td_fetch_answer_init(&answer);
    answer.status = 401;
    memset(answer.message, 's', sizeof answer.message - 1);
    assert_false(td_fetch_fault_of_answer(&answer, advice, what, &err));
    CHECK(strstr(err.message, what) == err.message && strstr(err.message, advice) != NULL, "%s", err.message);
    CHECK(strstr(err.message, "a), ss") != NULL, "%s", err.message);
    assert_string_equal(err.message + strlen(err.message) - 4, "s...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields),
        cmocka_unit_test(tags),
        cmocka_unit_test(ranges),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(a_redirect_s_fields_are_forgotten),
        cmocka_unit_test(who_answers_after_a_redirect_is_perhaps_another),
        cmocka_unit_test(links),
        cmocka_unit_test(waits_are_bounded),
        cmocka_unit_test(a_header_does_not_grow_without_end),
        cmocka_unit_test(failures_that_may_pass),
        cmocka_unit_test(our_advice_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
