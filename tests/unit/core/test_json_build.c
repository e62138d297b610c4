#include "core/json/json_build.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

/* Adds values of every kind. With `flushes` the builder prints each at once. */
static void build(struct td_json_builder *builder, bool flushes)
{
    static const char odd[] = "\" \\ / \b\t\n\r \x1f \x7f \xc3\xa9 \xe2\x80\xa8 \0.";
    td_json_begin_object(builder, NULL);
    for (int i = 0; i < 2; i++) {
        td_json_add_text(builder, "odd", td_text_n(odd, sizeof odd - 1));
        if (flushes)
            td_json_flush(builder);
        td_json_add_u64(builder, "u64", UINT64_MAX - 6);
        td_json_add_string(builder, "format", "a\"-7");
        td_json_begin_object(builder, "empty");
        if (flushes)
            td_json_flush(builder);
        td_json_end(builder);
        td_json_add_members(builder, TD_TEXT("\"m\":1,\"n\":2"));
        td_json_begin_array(builder, "list");
        td_json_end(builder);
        td_json_begin_array(builder, "rows");
        for (int k = 0; k < 3; k++) {
            td_json_begin_object(builder, NULL);
            td_json_add_bool(builder, "yes", k > 0);
            if (flushes)
                td_json_flush(builder);
            td_json_begin_array(builder, "deep");
            td_json_add_null(builder, NULL);
            td_json_add_raw(builder, NULL, TD_TEXT("1.5e300"));
            td_json_end(builder);
            td_json_end(builder);
            if (flushes)
                td_json_flush(builder);
        }
        td_json_end(builder);
        td_json_add_seconds(builder, "seconds", 1.0005);
    }
    td_json_end(builder);
}

#define HALF                                                                                                  \
    "\"odd\":\"\\\" \\\\ / \\u0008\\u0009\\n\\u000d \\u001f \\u007f \xc3\xa9 \xe2\x80\xa8 \\u0000.\","        \
    "\"u64\":18446744073709551609,\"format\":\"a\\\"-7\",\"empty\":{},\"m\":1,\"n\":2,\"list\":[],\"rows\":[" \
    "{\"yes\":false,\"deep\":[null,1.5e300]},{\"yes\":true,\"deep\":[null,1.5e300]},"                         \
    "{\"yes\":true,\"deep\":[null,1.5e300]}],\"seconds\":1.000"
#define WHOLE "before {" HALF "," HALF "}"

static void bytes_are_the_same_with_and_without_flushes(void **state)
{
    (void)state;
    for (int flushes = 0; flushes < 2; flushes++) {
        struct td_json_builder builder;
        struct td_buffer out;
        td_buffer_init(&out);
        td_buffer_puts(&out, "before ");
        td_json_builder_init(&builder, &out);
        build(&builder, flushes == 1);
        td_json_builder_fini(&builder);
        assert_false(out.failed);
        const char *text = td_buffer_terminate(&out);
        CHECK(text != NULL && strcmp(text, WHOLE) == 0, "%s\n%s", text, WHOLE);
        td_buffer_fini(&out);
    }
}

/* Values of many lengths, also past the length from which the builder writes them to the buffer at once. */
static void long_values_fit(void **state)
{
    (void)state;
    static char text[10000];
    memset(text, '7', sizeof text);
    for (size_t len = 1; len < sizeof text; len += len < 300 ? 1 : 97) {
        struct td_json_builder builder;
        struct td_buffer out;
        td_buffer_init(&out);
        td_json_builder_init(&builder, &out);
        td_json_begin_object(&builder, NULL);
        td_json_begin_array(&builder, "a");
        for (int i = 0; i < 3; i++)
            td_json_add_raw(&builder, NULL, td_text_n(text, len));
        td_json_end(&builder);
        td_json_add_raw(&builder, "b", td_text_n(text, len));
        td_json_add_text(&builder, "c", td_text_n(text, len));
        td_json_end(&builder);
        td_json_builder_fini(&builder);
        assert_false(out.failed);
        assert_int_equal(out.len, 5 * len + strlen("{'a':[,,],'b':,'c':''}"));
        assert_memory_equal(out.data, "{\"a\":[", 6);
        assert_memory_equal(out.data + out.len - 3, "7\"}", 3);
        td_buffer_fini(&out);
    }
}

static void any_allocation_may_fail(void **state)
{
    (void)state;
    for (int flushes = 0; flushes < 2; flushes++) {
        bool failed = true;
        size_t k = 1;
        for (; failed; k++) {
            struct td_json_builder builder;
            struct td_buffer out;
            alloc_count_start();
            td_buffer_init(&out);
            td_json_builder_init(&builder, &out);
            alloc_fail_at(k);
            td_buffer_puts(&out, "before ");
            build(&builder, flushes == 1);
            alloc_fail_at(0);
            td_json_builder_fini(&builder);
            failed = out.failed;
            assert_true(failed || (out.len == strlen(WHOLE) && memcmp(out.data, WHOLE, out.len) == 0));
            td_buffer_fini(&out);
            assert_int_equal(alloc_count_get().live_bytes, 0);
        }
        assert_true(k > 3);
    }
}

/* The caller may free an unfinished document. A document nested too deep fails. */
static void an_unfinished_document_is_freed(void **state)
{
    (void)state;
    for (size_t depth = 0; depth <= TD_JSON_BUILD_DEPTH + 1; depth++) {
        for (size_t flushed = 0; flushed <= depth; flushed++) {
            struct td_json_builder builder;
            struct td_buffer out;
            alloc_count_start();
            td_buffer_init(&out);
            td_json_builder_init(&builder, &out);
            for (size_t i = 0; i < depth; i++) {
                td_json_begin_array(&builder, NULL);
                if (i == flushed)
                    td_json_flush(&builder);
                td_json_add_string(&builder, NULL, "x");
            }
            td_json_builder_fini(&builder);
            assert_int_equal(out.failed, depth > TD_JSON_BUILD_DEPTH);
            td_buffer_fini(&out);
            assert_int_equal(alloc_count_get().live_bytes, 0);
        }
    }
}

static void a_list_needs_the_memory_of_one_row(void **state)
{
    (void)state;
    enum { ROWS = 20000 };
    struct td_json_builder builder;
    struct td_buffer out;
    td_buffer_init(&out);
    assert_true(td_buffer_reserve(&out, (size_t)ROWS * 32));
    alloc_count_start();
    td_json_builder_init(&builder, &out);
    td_json_begin_object(&builder, NULL);
    td_json_begin_array(&builder, "rows");
    for (uint64_t i = 0; i < ROWS; i++) {
        td_json_begin_object(&builder, NULL);
        td_json_add_u64(&builder, "row", i);
        td_json_end(&builder);
        td_json_flush(&builder);
    }
    td_json_end(&builder);
    td_json_end(&builder);
    td_json_builder_fini(&builder);
    CHECK(alloc_count_get().peak_bytes < 8192, "%zu bytes", alloc_count_get().peak_bytes);
    assert_false(out.failed);
    assert_memory_equal(out.data, "{\"rows\":[{\"row\":0},{\"row\":1},", 29);
    assert_memory_equal(out.data + out.len - 15, "{\"row\":19999}]}", 15);
    td_buffer_fini(&out);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_the_same_with_and_without_flushes),
        cmocka_unit_test(long_values_fit),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(an_unfinished_document_is_freed),
        cmocka_unit_test(a_list_needs_the_memory_of_one_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
