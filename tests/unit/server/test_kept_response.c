/* A response that a connection uses again: which answers share one, and that its fields are always the last answer's.
 */
#include "server/mhd/kept_response.h"

#include "server/mhd/sender.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static const char type[] = "application/octet-stream";

static void fill(struct td_response *response, const char *range, const char *other)
{
    td_response_init(response);
    response->status = 206;
    td_response_describe(response, type);
    td_response_set_etag(response, "tag");
    response->last_modified_s = 1000000000;
    td_response_add_header_text(response, "Content-Range", td_text_of(range));
    td_response_add_header_text(response, "X-Other", td_text_of(other));
}

/* Checks the kept response against a new response with the same content. */
static void check_fields(const struct td_kept_response *kept, const struct td_response *response, size_t len)
{
    static const char *const names[] = {"Content-Type",
                                        "ETag",
                                        "Accept-Ranges",
                                        "Cache-Control",
                                        "Last-Modified",
                                        "Content-Range",
                                        "X-Other",
                                        "Connection",
                                        "Access-Control-Allow-Origin",
                                        "Access-Control-Expose-Headers"};
    struct MHD_Response *fresh = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    assert_true(td_answer_header_add(fresh, response));
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *want = MHD_get_response_header(fresh, names[i]);
        const char *got = MHD_get_response_header(kept->mhd_response, names[i]);
        CHECK((want == NULL) == (got == NULL) && (want == NULL || strcmp(want, got) == 0), "%s: %s", names[i], got);
    }
    assert_int_equal(MHD_get_response_headers(kept->mhd_response, NULL, NULL),
                     MHD_get_response_headers(fresh, NULL, NULL));
    assert_int_equal(kept->len, len);
    assert_true(kept->header_bytes == td_answer_header_bytes(response, len));
    MHD_destroy_response(fresh);
}

static void values_are_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *range, *other;
    } rows[] = {
        {"bytes 0-99/1000", "a"}, {"bytes 100-199/1000", "a"}, {"bytes 100-199/1000", "longer"}, {"", ""},
        {"bytes 0-99/1000", "a"}, {"bytes 0-99/1000", "a"},
    };
    struct td_kept_response *kept = calloc(1, sizeof *kept);
    const struct MHD_Response *first = NULL;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct td_response response;
        fill(&response, rows[i].range, rows[i].other);
        assert_true(td_kept_response_suits(&response));
        bool ok = td_kept_response_prepare(kept, &response, 100, false);
        if (rows[i].range[0] == '\0') { /* libmicrohttpd takes no empty value */
            assert_false(ok);
            assert_null(kept->mhd_response);
            first = NULL;
            continue;
        }
        assert_true(ok);
        if (first != NULL)
            assert_ptr_equal(kept->mhd_response, first);
        first = kept->mhd_response;
        check_fields(kept, &response, 100);
        memset(kept->bytes, (int)i, 100);
        td_response_fini(&response);
    }
    td_kept_response_destroy(kept);
}

static void other_differences_need_another_response(void **state)
{
    (void)state;
    struct td_response response;
    struct td_kept_response *kept = calloc(1, sizeof *kept);
    size_t len = 100;
    for (int what = 0; what < 10; what++) {
        fill(&response, "bytes 0-99/1000", "a");
        assert_true(td_kept_response_prepare(kept, &response, 100, false));
        td_response_fini(&response);
        fill(&response, "bytes 0-99/1000", "a");
        len = what == 0 ? 101 : 100;
        response.status = what == 1 ? 200 : 206;
        response.content_type = what == 2 ? "text/plain" : type;
        if (what == 3)
            td_response_set_etag(&response, "taG");
        response.last_modified_s += what == 4 ? 1 : 0;
        response.accept_ranges = what != 5;
        response.cache_control = what == 6 ? NULL : response.cache_control;
        if (what == 7)
            td_response_add_header_text(&response, "X-More", TD_TEXT("m"));
        if (what == 8)
            response.headers[1].name = "X-Another";
        if (what == 9)
            response.allow_origin = "https://a.example";
        assert_true(td_kept_response_prepare(kept, &response, len, false));
        CHECK((what == 7 || what == 8) || kept->header_count == 2, "%d", what);
        check_fields(kept, &response, len);
        memset(kept->bytes, 1, len);
        td_response_fini(&response);
    }
    td_kept_response_destroy(kept);
}

/* A body that is sent by reference has no memory of its own. */
static void a_body_by_reference_needs_another_response(void **state)
{
    (void)state;
    int pair[2];
    struct td_response response;
    struct iovec parts[] = {{.iov_base = (char[]){'a'}, .iov_len = 1}, {.iov_base = (char[]){'b'}, .iov_len = 1}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    struct td_kept_response *kept = calloc(1, sizeof *kept);
    fill(&response, "bytes 0-99/1000", "a");
    assert_false(td_kept_response_prepare(kept, &response, 100, true)); /* libmicrohttpd has not sent anything yet */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(sendmsg(pair[0], &message, MSG_NOSIGNAL), 2); /* as libmicrohttpd does */
    for (int i = 0; i < 4; i++) {
        assert_true(td_kept_response_prepare(kept, &response, 100, i % 2 == 1));
        assert_int_equal(kept->bytes == NULL, i % 2 == 1);
        check_fields(kept, &response, 100);
        if (kept->bytes != NULL)
            memset(kept->bytes, i, 100);
    }
    assert_true(td_kept_response_prepare(kept, &response, (size_t)1 << 36, true));
    td_response_fini(&response);
    td_kept_response_destroy(kept);
    assert_int_equal(close(pair[0]) + close(pair[1]), 0);
}

static void some_responses_are_not_kept(void **state)
{
    (void)state;
    struct td_response response;
    char value[TD_KEPT_VALUE_BYTES + 1];
    memset(value, 'v', sizeof value);
    for (size_t len = TD_KEPT_VALUE_BYTES - 1; len <= TD_KEPT_VALUE_BYTES; len++) {
        fill(&response, "bytes 0-99/1000", "a");
        td_response_add_header_text(&response, "X-Long", td_text_n(value, len));
        assert_int_equal(td_kept_response_suits(&response), len < TD_KEPT_VALUE_BYTES);
        td_response_fini(&response);
    }
    fill(&response, "bytes 0-99/1000", "a");
    response.close = true;
    assert_false(td_kept_response_suits(&response));
    response.close = false;
    response.owned_type = strdup("text/x");
    assert_false(td_kept_response_suits(&response));
    td_response_fini(&response);
    td_kept_response_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_replaced),
        cmocka_unit_test(other_differences_need_another_response),
        cmocka_unit_test(a_body_by_reference_needs_another_response),
        cmocka_unit_test(some_responses_are_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
