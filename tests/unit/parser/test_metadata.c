#include "parser/format/manifest.h"

#include "tests/unit/unit.h"

static void check_text(struct td_text shown, bool is_utf8, uint64_t len, const char *wanted)
{
    struct td_buffer out;
    td_buffer_init(&out);
    td_metadata_write_text(&out, shown, is_utf8, len);
    assert_false(out.failed);
    assert_string_equal(td_buffer_terminate(&out), wanted);
    td_buffer_fini(&out);
}

static void a_whole_text_is_a_string(void **state)
{
    (void)state;
    check_text(TD_TEXT("caf\xc3\xa9 \"x\"\n"), true, 10, "\"caf\xc3\xa9 \\\"x\\\"\\n\"");
    check_text(TD_TEXT(""), true, 0, "\"\"");
    check_text(TD_TEXT("a\0b"), true, 3, "\"a\\u0000b\"");
}

static void a_beginning_has_the_length(void **state)
{
    (void)state;
    check_text(TD_TEXT("ab"), true, 3, "{\"length\":3,\"first\":\"ab\"}");
    check_text(TD_TEXT(""), true, UINT64_MAX, "{\"length\":18446744073709551615,\"first\":\"\"}");
}

static void other_bytes_are_escaped(void **state)
{
    (void)state;
    check_text(TD_TEXT("\xff\x01z"), false, 3, "\"\\\\xff\\\\x01z\"");
    check_text(TD_TEXT("\xff"), false, 2, "{\"length\":2,\"first\":\"\\\\xff\"}");
}

static void the_longest_beginning_fits(void **state)
{
    (void)state;
    static char bytes[TD_METADATA_TEXT_MAX];
    static char wanted[5 * sizeof bytes + 3];
    memset(bytes, '\xfe', sizeof bytes);
    size_t len = 0;
    wanted[len++] = '"';
    for (size_t i = 0; i < sizeof bytes; i++, len += 5)
        memcpy(wanted + len, "\\\\xfe", 5);
    wanted[len] = '"';
    check_text(td_text_n(bytes, sizeof bytes), false, sizeof bytes, wanted);
}

static void keys_are_names(void **state)
{
    (void)state;
    static const struct td_metadata metadata[] = {{"format", "\"pt\""}, {"", "1"}};
    struct td_names names = td_metadata_keys(metadata, COUNT_OF(metadata));
    assert_int_equal(names.count, 2);
    assert_true(td_text_equals(names.get(names.context, 0), "format"));
    assert_true(td_text_equals(names.get(names.context, 1), ""));
}

static void values_are_found(void **state)
{
    (void)state;
    const struct td_metadata metadata[] = {{.key = "a", .value = "1"}, {.key = "b", .value = "2"}};
    assert_string_equal(td_metadata_find(metadata, 2, "b"), "2");
    assert_null(td_metadata_find(metadata, 1, "b"));
    assert_null(td_metadata_find(NULL, 0, "b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found),           cmocka_unit_test(a_whole_text_is_a_string),
        cmocka_unit_test(a_beginning_has_the_length), cmocka_unit_test(other_bytes_are_escaped),
        cmocka_unit_test(the_longest_beginning_fits), cmocka_unit_test(keys_are_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
