#include "catalog/remote/remote_push.h"

#include "tests/unit/alloc_trials.h"

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LACKS(list) "{\"error\":{\"code\":\"CONFLICT\",\"details\":{\"other\":[{}],\"missing\":" list "}}}"

/* An answer of 409, with members that do not count. */
static const char body[] = LACKS("[{\"size\":9,\"digest\":\"sha256:" SHA "\"},"
                                 "{\"missing\":[[0,262143],[524288,600000]],\"digest\":\"sha256:" SHA "\"}]");

static void blobs_and_ranges_that_are_missing(void **state)
{
    (void)state;
    struct td_remote_lacks lacks = {0};
    struct td_error err = TD_ERROR_INIT;
    bool has_lacks = false;
    CHECK(td_remote_lacks_read(td_text_of(body), &lacks, &has_lacks, &err), "%s", err.message);
    assert_true(has_lacks);
    assert_int_equal(lacks.count, 2);
    assert_true(lacks.items[0].sha256[0] == 0x01 && lacks.items[0].sha256[31] == 0xef);
    assert_int_equal(lacks.items[0].span_count, 0);
    assert_int_equal(lacks.items[1].span_count, 2);
    const struct td_remote_span *spans = lacks.spans + lacks.items[1].span_first;
    assert_true(spans[0].first == 0 && spans[0].end == 262144);
    assert_true(spans[1].first == 524288 && spans[1].end == 600001);
    td_remote_lacks_fini(&lacks);
}

static void other_conflicts(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "{}",
        "[]",
        "x",
        "{\"error\":\"in the way\"}",
        "{\"error\":{}}",
        "{\"error\":{\"details\":7}}",
        "{\"error\":{\"details\":{\"commit\":\"x\"}}}",
    };
    for (size_t i = 0; i < COUNT_OF(bodies); i++) {
        struct td_remote_lacks lacks = {0};
        bool has_lacks = true;
        assert_true(td_remote_lacks_read(td_text_of(bodies[i]), &lacks, &has_lacks, NULL));
        CHECK(!has_lacks && lacks.count == 0, "%s", bodies[i]);
    }
}

static void most_ranges_of_a_blob(void **state)
{
    (void)state;
    for (unsigned count = 1000; count <= 1001; count++) {
        struct td_remote_lacks lacks = {0};
        struct td_error err = TD_ERROR_INIT;
        struct td_buffer out;
        bool has_lacks = false;
        td_buffer_init(&out);
        td_buffer_puts(&out, "{\"error\":{\"details\":{\"missing\":[");
        for (unsigned blob = 0; blob < 2; blob++) {
            td_buffer_printf(&out, "%s{\"digest\":\"sha256:" SHA "\",\"missing\":[", blob > 0 ? "," : "");
            for (unsigned i = 0; i < count; i++)
                td_buffer_printf(&out, "%s[%u,%u]", i > 0 ? "," : "", 2 * i, 2 * i);
            td_buffer_puts(&out, "]}");
        }
        td_buffer_puts(&out, "]}}}");
        bool ok = td_remote_lacks_read(td_buffer_text(&out), &lacks, &has_lacks, &err);
        CHECK(ok == (count == 1000), "%u: %s", count, err.message);
        td_remote_lacks_fini(&lacks);
        td_buffer_fini(&out);
    }
}

static void wrong_lists(void **state)
{
    (void)state;
    static const char *const lists[] = {
        LACKS("7"),
        LACKS("[7]"),
        LACKS("[{}]"),
        LACKS("[{\"digest\":7}]"),
        LACKS("[{\"digest\":\"" SHA "\"}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "0\"}]"),
        LACKS("[{\"digest\":\"sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef\"}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":7}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[7]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[]]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[0]]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[0,1,2]]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[1,0]]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[-1,0]]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[0,1.5]]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[0,5],[5,9]]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[0,5],[0,5]]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[6,9],[0,5]]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[0,5]],\"missing\":[[0,5]]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[0,18446744073709551615]]}]"),
        LACKS("[{\"digest\":\"sha256:" SHA "\",\"missing\":[[0,99999999999999999999]]}]"),
    };
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        struct td_remote_lacks lacks = {0};
        struct td_error err = TD_ERROR_INIT;
        bool has_lacks = false;
        CHECK(!td_remote_lacks_read(td_text_of(lists[i]), &lacks, &has_lacks, &err), "%s", lists[i]);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        td_remote_lacks_fini(&lacks);
    }
}

/* Whatever is cut off, nothing is read past the end, and a list without its end is an error. */
static void every_prefix(void **state)
{
    (void)state;
    size_t begin = (size_t)(strstr(body, "[{\"size\"") - body);
    size_t end = sizeof body - 1 - 3;
    for (size_t len = 0; len < end; len++) {
        struct td_remote_lacks lacks = {0};
        bool has_lacks = false;
        char *copy = malloc(len + 1);
        assert_non_null(copy);
        memcpy(copy, body, len);
        bool ok = td_remote_lacks_read(td_text_n(copy, len), &lacks, &has_lacks, NULL);
        CHECK(len < begin ? !has_lacks || !ok : !ok, "%zu bytes", len);
        td_remote_lacks_fini(&lacks);
        free(copy);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_remote_lacks lacks = {0};
        struct td_error err = TD_ERROR_INIT;
        bool has_lacks = false;
        bool ok = td_remote_lacks_read(td_text_of(body), &lacks, &has_lacks, &err);
        alloc_tried(&trials, ok, &err);
        td_remote_lacks_fini(&lacks);
    }
    assert_in_range(trials.k, 3, 9);
}

static void ids(void **state)
{
    (void)state;
    static const char *const good[] = {"m", "org/m", "datasets/m", "datasets/org/m", "a-b_c.d/E"};
    static const char *const bad[] = {"",   "/m",     "a/b/c", "datasets/a/b/c", "datasets/",
                                      ".m", "org/.m", "a b",   "a/../b"};
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_remote_push_id_check(td_text_of(good[i]), NULL), "%s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK(!td_remote_push_id_check(td_text_of(bad[i]), NULL), "%s", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blobs_and_ranges_that_are_missing),
        cmocka_unit_test(other_conflicts),
        cmocka_unit_test(most_ranges_of_a_blob),
        cmocka_unit_test(wrong_lists),
        cmocka_unit_test(every_prefix),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
