/* Answers from files that are arriving: whose end waits for the check, and what no cache may keep. */
#include "api/call/call.h"

#include "storage/incoming.h"
#include "tests/unit/unit.h"

#include <sys/mman.h>
#include <unistd.h>

/* The file gives out its first 10 bytes before the check. Only an answer holds them back. */
enum { LEN = TD_INCOMING_HELD_BYTES + 10 };

/* Returns whether the answer has bytes that it gives out before the check. All bytes have arrived. */
static bool is_open(const struct td_response *response)
{
    uint8_t byte;
    const struct td_extent *extent = &response->body.extents[0];
    return td_blob_read(extent->blob, extent->off, &byte, 1, NULL);
}

struct answer {
    bool is_checked, has_sha256;
    const char *checks; /* value of the request's field; NULL: none */
    bool is_open;
    const char *cache_control; /* NULL: as it was */
};

static void check_answer(const struct answer *answer)
{
    const struct td_header fields[] = {
        {.name = TD_TEXT("tensord-checks"), .value = td_text_of(answer->checks == NULL ? "" : answer->checks)}};
    const struct td_request request = {.headers = fields, .header_count = answer->checks == NULL ? 0 : 1};
    struct td_response response;
    struct td_blob *blob = NULL;
    struct td_error err = TD_ERROR_INIT;
    int fd = memfd_create("file", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, LEN) == 0);
    assert_true(td_incoming_create(LEN, answer->has_sha256, 20000000, &blob, NULL)); /* who waits gives up soon */
    td_incoming_attach(blob, fd);
    td_incoming_advance(blob, LEN);
    if (answer->is_checked)
        td_incoming_finish(blob);
    td_response_init(&response);
    assert_true(td_body_append(&response.body, blob, 0, 10, NULL));
    const char *before = response.cache_control;
    static struct td_api api; /* without an upstream, and then with one that is asked nothing */
    api.upstream = NULL;
    CHECK(td_call_hold_answer(&api, &request, &response, &err), "%s", err.message);
    assert_true(is_open(&response) && response.cache_control == before);
    api.upstream = (struct td_upstream *)(void *)&api;
    CHECK(td_call_hold_answer(&api, &request, &response, &err), "%s", err.message);
    assert_int_equal(is_open(&response), answer->is_open);
    if (answer->cache_control == NULL)
        assert_ptr_equal(response.cache_control, before);
    else
        assert_string_equal(response.cache_control, answer->cache_control);
    td_response_fini(&response);
    td_blob_unref(blob);
}

static void the_end_waits_unless_the_client_checks(void **state)
{
    static const struct answer answers[] = {
        {true, true, NULL, true, NULL},        {true, true, "sha256", true, NULL},
        {false, true, NULL, false, NULL},      {false, true, "sha256", true, "no-store"},
        {false, true, "md5", false, NULL},     {false, true, "", false, NULL},
        {false, false, "sha256", false, NULL}, /* it has nothing to check by */
        {false, false, NULL, false, NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(answers); i++)
        check_answer(&answers[i]);
}

static void parts_go_on_without_an_upstream(void **state)
{
    static const struct td_header field = {.name = {.p = "If-Range", .len = 8}, .value = {.p = "\"x\"", .len = 3}};
    static struct td_api api;
    const struct td_request request = {.headers = &field, .header_count = 1};
    struct td_response response;
    (void)state;
    td_response_init(&response);
    assert_true(td_call_may_go_on(&api, &request, &response));
    td_response_fini(&response);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_waits_unless_the_client_checks),
        cmocka_unit_test(parts_go_on_without_an_upstream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
