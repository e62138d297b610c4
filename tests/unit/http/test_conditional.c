/* Expectations: RFC 9110 section 13; dates in the three forms of section 5.6.7. */
#include "http/conditional.h"

#include "api/native/native.h"
#include "core/clock.h"
#include "http/http_date.h"
#include "http/repr_digest.h"
#include "tests/kit/loopback.h"
#include "tests/unit/unit.h"

/* The RFC's own example date, and the second before and after it. */
#define DATE "Sun, 06 Nov 1994 08:49:37 GMT"
#define BEFORE "Sun, 06 Nov 1994 08:49:36 GMT"
#define AFTER "Sun, 06 Nov 1994 08:49:38 GMT"
static const int64_t date_s = 784111777;

enum { BODY_BYTES = 10 };

/* Makes a 200 answer with ETag "abc", former ETag "before" and Last-Modified DATE. */
static void representation(struct td_response *response)
{
    struct td_error err = TD_ERROR_INIT;
    char *data = malloc(BODY_BYTES);
    assert_non_null(data);
    memset(data, 'x', BODY_BYTES);
    td_response_init(response);
    response->facade = &td_native_facade;
    assert_true(td_body_append_heap(&response->body, data, BODY_BYTES, &err));
    response->content_type = "text/plain";
    response->cache_control = "no-cache";
    response->accept_ranges = true;
    response->last_modified_s = date_s;
    td_response_set_etag(response, "abc");
    td_response_set_former_etag(response, "before");
    td_response_add_header(response, "X-Content-Type-Options", "nosniff");
}

static const struct {
    const char *lines;
    int status;
    const char *section;
} cases[] = {
    {"", 200, "13"},
    /* --- If-Match */
    {"If-Match: \"abc\"", 200, "13.1.1"},
    {"If-Match: *", 200, "13.1.1"},
    {"If-Match: \"before\"", 200, "the same bytes' former tag"},
    {"If-Match: \"xyz\", \"before\"", 200, "the same bytes' former tag"},
    {"If-Match: W/\"before\"", 412, "13.1.1: strong comparison"},
    {"If-None-Match: \"before\"", 304, "the same bytes' former tag"},
    {"If-None-Match: W/\"before\"", 304, "the same bytes' former tag"},
    {"If-None-Match: \"before\"\nRange: bytes=0-3", 200, "ranges under two tags cannot be joined (15.3.7.3)"},
    {"If-None-Match: \"abc\"\nRange: bytes=0-3", 304, "13.1.2"},
    {"If-Match: \"xyz\"", 412, "13.1.1"},
    {"If-Match: \"xyz\", \"abc\"", 200, "13.1.1"},
    {"If-Match: \"abc\", \"xyz\"", 200, "13.1.1"},
    {"If-Match: \"xyz\",\"abc\"", 200, "5.6.1"},
    {"If-Match: ,, \"xyz\" ,\t\"abc\" ,", 200, "5.6.1.2: empty elements"},
    {"If-Match: \"xyz\"\nIf-Match: \"abc\"", 200, "5.3: lines are one list"},
    {"If-Match: \"xyz\"\nif-match: \"uvw\"", 412, "5.3"},
    {"If-Match: W/\"abc\"", 412, "13.1.1: strong comparison"},
    {"If-Match: W/\"abc\", \"abc\"", 200, "13.1.1"},
    {"If-Match: \"ABC\"", 412, "8.8.3: opaque, case-sensitive"},
    {"If-Match: \"ab\"", 412, "8.8.3.2"},
    {"If-Match: \"abcd\"", 412, "8.8.3.2"},
    {"If-Match: \"\"", 412, "8.8.3: an empty tag is a tag"},
    {"If-Match: \"a,b\", \"abc\"", 200, "8.8.3: a comma within quotes"},
    {"If-Match: \"x\\\"abc\"", 412, "8.8.3: a backslash does not escape"},
    {"If-Match: abc", 412, "8.8.3: not quoted is no tag"},
    {"If-Match: 'abc'", 412, "8.8.3"},
    {"If-Match: \"abc", 412, "8.8.3"},
    {"If-Match:", 412, "13.1.1: an empty list names nothing"},
    /* --- If-None-Match */
    {"If-None-Match: \"abc\"", 304, "13.1.2"},
    {"If-None-Match: *", 304, "13.1.2"},
    {"If-None-Match: \"xyz\"", 200, "13.1.2"},
    {"If-None-Match: W/\"abc\"", 304, "13.1.2: weak comparison"},
    {"If-None-Match: W/\"xyz\", W/\"abc\"", 304, "13.1.2"},
    {"If-None-Match: \"xyz\"\nIf-None-Match: \"abc\"", 304, "5.3"},
    {"If-None-Match: w/\"abc\"", 200, "8.8.3: W is case-sensitive"},
    {"If-None-Match: W\"abc\"", 200, "8.8.3"},
    {"If-None-Match: W/ \"abc\"", 200, "8.8.3"},
    {"If-None-Match: abc", 200, "8.8.3"},
    {"If-None-Match: \"a b\", \"abc\"", 200, "8.8.3: no blank in a tag; the list is malformed"},
    {"If-None-Match:", 200, "13.1.2"},
    {"If-None-Match: \"" DATE "\"", 200, "13.1.2"},
    {"If-None-Match: " DATE, 200, "13.1.2: a date is no tag"},
    /* --- If-Modified-Since */
    {"If-Modified-Since: " DATE, 304, "13.1.3"},
    {"If-Modified-Since: " AFTER, 304, "13.1.3"},
    {"If-Modified-Since: " BEFORE, 200, "13.1.3"},
    {"If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT", 304, "5.6.7: obsolete forms MUST be accepted"},
    {"If-Modified-Since: Sun Nov  6 08:49:37 1994", 304, "5.6.7"},
    {"If-Modified-Since: Sun Nov  6 08:49:36 1994", 200, "5.6.7"},
    {"If-Modified-Since: yesterday", 200, "13.1.3: not a date, ignored"},
    {"If-Modified-Since:", 200, "13.1.3"},
    {"If-Modified-Since: 784111777", 200, "13.1.3"},
    {"If-Modified-Since: Sun, 06 Nov 1994 08:49:37 UTC", 200, "5.6.7: GMT"},
    {"If-Modified-Since: Sun, 31 Feb 2094 08:49:37 GMT", 200, "5.6.7: no such day"},
    {"If-Modified-Since: " DATE "\nIf-Modified-Since: " DATE, 200, "13.1.3: more than one member, ignored"},
    {"If-Modified-Since: " DATE ", " DATE, 200, "13.1.3"},
    /* --- If-Unmodified-Since */
    {"If-Unmodified-Since: " DATE, 200, "13.1.4"},
    {"If-Unmodified-Since: " AFTER, 200, "13.1.4"},
    {"If-Unmodified-Since: " BEFORE, 412, "13.1.4"},
    {"If-Unmodified-Since: yesterday", 200, "13.1.4: not a date, ignored"},
    {"If-Unmodified-Since: " BEFORE "\nIf-Unmodified-Since: " BEFORE, 200, "13.1.4"},
    /* --- precedence */
    {"If-Match: \"abc\"\nIf-Unmodified-Since: " BEFORE, 200, "13.1.4: ignored beside If-Match"},
    {"If-Match: \"xyz\"\nIf-Unmodified-Since: " AFTER, 412, "13.2.2 step 1"},
    {"If-None-Match: \"xyz\"\nIf-Modified-Since: " AFTER, 200, "13.1.3: ignored beside If-None-Match"},
    {"If-None-Match: \"abc\"\nIf-Modified-Since: " BEFORE, 304, "13.2.2 step 3"},
    {"If-None-Match: rubbish\nIf-Modified-Since: " AFTER, 200, "13.1.3"},
    {"If-Match: \"xyz\"\nIf-None-Match: \"abc\"", 412, "13.2.2: step 1 before 3"},
    {"If-None-Match: \"abc\"\nIf-Match: \"xyz\"", 412, "13.2.2: in any order of lines"},
    {"If-Match: \"abc\"\nIf-None-Match: \"abc\"", 304, "13.2.2"},
    {"If-Match: *\nIf-None-Match: *", 304, "13.2.2"},
    {"If-Unmodified-Since: " BEFORE "\nIf-None-Match: \"abc\"", 412, "13.2.2: step 2 before 3"},
    {"If-Unmodified-Since: " DATE "\nIf-Modified-Since: " DATE, 304, "13.2.2"},
    {"If-Range: \"xyz\"", 200, "13.1.5: says nothing without Range"},
};

static void check_answer(const struct td_response *response, const char *what)
{
    if (response->status == 200) {
        CHECK(response->body.total_bytes == BODY_BYTES && strcmp(response->content_type, "text/plain") == 0, "%s",
              what);
    } else if (response->status == 304) { /* section 15.4.5 */
        CHECK(response->body.total_bytes == 0 && response->announced_bytes == BODY_BYTES, "%s", what);
        const char *known = strstr(what, "before") != NULL ? "\"before\"" : "\"abc\"";
        CHECK(strcmp(response->etag, known) == 0 && strcmp(response->cache_control, "no-cache") == 0, "%s", what);
        CHECK(response->last_modified_s == date_s && response->content_type == NULL, "%s", what);
    } else {
        CHECK(response->body.total_bytes > 0 && strcmp(response->content_type, "application/json") == 0, "%s", what);
        CHECK(response->etag[0] == '\0' && response->last_modified_s < 0 && response->header_count == 0, "%s", what);
    }
}

static void preconditions_decide(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct loopback_request request;
        struct td_response response;
        representation(&response);
        loopback_request_init(&request, "GET", "/", cases[i].lines);
        bool go_on = td_conditional_apply(&request.request, &response);
        CHECK(response.status == cases[i].status, "%s (%s): %d", cases[i].lines, cases[i].section, response.status);
        CHECK(go_on == (response.status == 200), "%s", cases[i].lines);
        check_answer(&response, cases[i].lines);
        td_response_fini(&response);
    }
}

/* A client whose download began before the bytes were hashed continues with the former tag. */
static void the_former_tag_goes_on(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *etag;
        bool range_allowed;
    } continued[] = {
        {"If-Range: \"before\"", "\"before\"", true}, {"If-Range: \"abc\"", "\"abc\"", true},
        {"If-Range: \"xyz\"", "\"abc\"", false},      {"If-Range: W/\"before\"", "\"abc\"", false},
        {"If-Match: \"before\"", "\"before\"", true}, {"If-Match: *", "\"abc\"", true},
    };
    for (size_t i = 0; i < COUNT_OF(continued); i++) {
        struct loopback_request request;
        struct td_response response;
        representation(&response);
        loopback_request_init(&request, "GET", "/", continued[i].lines);
        CHECK(td_conditional_apply(&request.request, &response), "%s", continued[i].lines);
        CHECK(strcmp(response.etag, continued[i].etag) == 0, "%s: %s", continued[i].lines, response.etag);
        CHECK(td_conditional_range_allowed(&request.request, &response) == continued[i].range_allowed, "%s",
              continued[i].lines);
        td_response_fini(&response);
    }
}

/* Section 13.2.1: conditions apply to answers that would be successful. */
static void other_answers_are_left_alone(void **state)
{
    (void)state;
    static const int statuses[] = {400, 404, 416, 503};
    for (size_t i = 0; i < COUNT_OF(statuses); i++) {
        struct loopback_request request;
        struct td_response response;
        representation(&response);
        response.status = statuses[i];
        loopback_request_init(&request, "GET", "/", "If-Match: \"xyz\"\nIf-None-Match: *");
        assert_true(td_conditional_apply(&request.request, &response));
        assert_int_equal(response.status, statuses[i]);
        assert_true(response.body.total_bytes == BODY_BYTES);
        td_response_fini(&response);
    }
}

static void missing_validators(void **state)
{
    (void)state;
    static const struct {
        const char *lines;
        int status;
    } without[] = {
        {"If-Modified-Since: " AFTER, 200}, {"If-Unmodified-Since: " BEFORE, 200},
        {"If-None-Match: \"\"", 200},       {"If-None-Match: \"abc\"", 200},
        {"If-Match: \"abc\"", 412},         {"If-Match: *", 200} /* there is a representation */,
        {"If-None-Match: *", 304},
    };
    for (size_t i = 0; i < COUNT_OF(without); i++) {
        struct loopback_request request;
        struct td_response response;
        representation(&response);
        response.etag[0] = '\0';
        response.last_modified_s = -1;
        loopback_request_init(&request, "GET", "/", without[i].lines);
        (void)td_conditional_apply(&request.request, &response);
        CHECK(response.status == without[i].status, "%s: %d", without[i].lines, response.status);
        td_response_fini(&response);
    }
}

/* Section 13.1.5: strong comparison of one tag, or the exact date when it is a strong validator. */
static void if_range_decides(void **state)
{
    (void)state;
    static const struct {
        const char *lines;
        bool allowed;
    } ranges[] = {
        {"", true},
        {"If-Range: \"abc\"", true},
        {"if-range: \"abc\"", true},
        {"If-Range: \"xyz\"", false},
        {"If-Range: W/\"abc\"", false},
        {"If-Range: abc", false},
        {"If-Range: \"abc\", \"xyz\"", false} /* a list instead of one validator */,
        {"If-Range: *", false},
        {"If-Range:", false},
        {"If-Range: " DATE, true},
        {"If-Range: " BEFORE, false},
        {"If-Range: " AFTER, false} /* the date must be equal */,
        {"If-Range: Sunday, 06-Nov-94 08:49:37 GMT", true},
        {"If-Range: yesterday", false},
        {"If-Range: \"abc\"\nIf-Range: \"abc\"", false},
    };
    struct td_response response;
    representation(&response);
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        struct loopback_request request;
        loopback_request_init(&request, "GET", "/", ranges[i].lines);
        CHECK(td_conditional_range_allowed(&request.request, &response) == ranges[i].allowed, "%s", ranges[i].lines);
    }
    td_response_fini(&response);
}

/* Section 8.8.2.2: a recent date is no strong validator, because a further change may have the same date. */
static void if_range_needs_an_old_date(void **state)
{
    (void)state;
    int64_t now_s = td_wall_now().seconds;
    for (int64_t age_s = -100; age_s <= 100; age_s += 100) {
        struct td_response response;
        struct loopback_request request;
        char line[64] = "If-Range: ";
        representation(&response);
        response.last_modified_s = now_s - age_s;
        td_http_date_format(response.last_modified_s, line + strlen(line));
        loopback_request_init(&request, "GET", "/", line);
        assert_int_equal(td_conditional_range_allowed(&request.request, &response), age_s > 0);
        td_response_fini(&response);
    }
}

static void if_range_without_validators(void **state)
{
    (void)state;
    static const char *const lines[] = {"If-Range:", "If-Range: \"\"", "If-Range: \"abc\"", ("If-Range: " DATE)};
    struct td_response response;
    representation(&response);
    response.etag[0] = '\0';
    response.last_modified_s = -1;
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        struct loopback_request request;
        loopback_request_init(&request, "GET", "/", lines[i]);
        CHECK(!td_conditional_range_allowed(&request.request, &response), "%s", lines[i]);
    }
    td_response_fini(&response);
}

/* RFC 9110 sections 13.1.1 and 13.1.2, for a request that changes something. */
static void writes_are_allowed_or_not(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *etag;
        bool allowed;
    } writes[] = {
        {"", NULL, true},
        {"", "\"abc\"", true},
        {"If-Match: *", NULL, false},
        {"If-Match: \"abc\"", NULL, false},
        {"If-Match: *", "\"abc\"", true},
        {"If-Match: \"x\", \"abc\"", "\"abc\"", true},
        {"If-Match: \"x\"", "\"abc\"", false},
        {"If-Match: W/\"abc\"", "\"abc\"", false},
        {"If-None-Match: *", NULL, true},
        {"If-None-Match: *", "\"abc\"", false},
        {"If-None-Match: W/\"abc\"", "\"abc\"", false},
        {"If-None-Match: \"x\"", "\"abc\"", true},
        {"If-None-Match: \"abc\"", NULL, true},
        {"If-Match: \"abc\"\nIf-None-Match: *", "\"abc\"", false},
    };
    for (size_t i = 0; i < COUNT_OF(writes); i++) {
        struct td_response response;
        struct loopback_request request;
        representation(&response);
        loopback_request_init(&request, "PUT", "/", writes[i].lines);
        CHECK(td_conditional_allow_write(&request.request, writes[i].etag, &response) == writes[i].allowed &&
                  response.status == (writes[i].allowed ? 200 : 412),
              "%s; %s", writes[i].lines, writes[i].etag == NULL ? "nothing there" : writes[i].etag);
        td_response_fini(&response);
    }
}

/* RFC 9530 section 3 and appendix B: the digest of the empty text; other algorithms are passed over. */
static void digests_of_requests_are_read(void **state)
{
    (void)state;
#define EMPTY "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"
    static const struct {
        const char *lines;
        int status;
        bool has_sha256;
    } fields[] = {
        {"", 200, false},
        {"Repr-Digest: " EMPTY, 200, true},
        {"Repr-Digest: sha-512=:AAAA:, " EMPTY, 200, true},
        {"Repr-Digest: md5=:AAAA:\nRepr-Digest: " EMPTY, 200, true},
        {"Repr-Digest: sha-512=:AAAA:", 200, false},
        {"Repr-Digest: sha-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", 400, false},
        {"Repr-Digest: sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuF=:", 400, false},
        {"Repr-Digest: sha-256=:AAAA:", 400, false},
        {"Repr-Digest: sha-256=", 400, false},
    };
    uint8_t empty[TD_SHA256_BYTES];
    td_sha256("", 0, empty);
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        struct td_response response;
        struct td_repr_digest digest;
        struct loopback_request request;
        representation(&response);
        loopback_request_init(&request, "PUT", "/", fields[i].lines);
        CHECK(td_repr_digest_read(&request.request, &digest, &response) == (fields[i].status == 200) &&
                  response.status == fields[i].status && digest.has_sha256 == fields[i].has_sha256,
              "%s", fields[i].lines);
        if (digest.has_sha256)
            assert_memory_equal(digest.sha256, empty, sizeof empty);
        td_response_fini(&response);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preconditions_decide),
        cmocka_unit_test(the_former_tag_goes_on),
        cmocka_unit_test(other_answers_are_left_alone),
        cmocka_unit_test(missing_validators),
        cmocka_unit_test(if_range_decides),
        cmocka_unit_test(if_range_needs_an_old_date),
        cmocka_unit_test(if_range_without_validators),
        cmocka_unit_test(writes_are_allowed_or_not),
        cmocka_unit_test(digests_of_requests_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
