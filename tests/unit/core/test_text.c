#include "core/text.h"

#include "tests/unit/unit.h"

static void texts_compare_by_length_and_bytes(void **state)
{
    (void)state;
    struct td_text text = TD_TEXT("Range");
    assert_int_equal(text.len, 5);
    assert_true(td_text_equals(text, "Range"));
    assert_false(td_text_equals(text, "range"));
    assert_false(td_text_equals(text, "Rang"));
    assert_false(td_text_equals(text, "Ranges"));
    assert_true(td_text_equals_ignore_case(text, "rANGE"));
    assert_false(td_text_equals_ignore_case(text, "ranges"));
    assert_true(td_text_begins_ignore_case(text, "rAN") && td_text_begins_ignore_case(text, "RANGE"));
    assert_false(td_text_begins_ignore_case(text, "ranges") || td_text_begins_ignore_case(text, "ang"));
    text.len = 4; /* borrowed text ends where its length says */
    assert_true(td_text_equals(text, "Rang"));
    assert_int_equal(td_text_of("two").len, 3);
    assert_true(td_text_compare(TD_TEXT("a"), TD_TEXT("ab")) < 0 && td_text_compare(TD_TEXT("b"), TD_TEXT("ab")) > 0);
    assert_int_equal(td_text_compare(TD_TEXT("a\0b"), TD_TEXT("a\0b")), 0);
    assert_true(td_text_begins(TD_TEXT("abc"), TD_TEXT("ab")) && td_text_begins(TD_TEXT("abc"), TD_TEXT("abc")));
    assert_false(td_text_begins(TD_TEXT("ab"), TD_TEXT("abc")) || td_text_begins(TD_TEXT("abc"), TD_TEXT("b")));
}

static void an_empty_text_needs_no_pointer(void **state)
{
    (void)state;
    struct td_text text = {.p = NULL, .len = 0};
    assert_true(td_text_equals(text, "") && td_text_begins(text, text) && td_text_begins(TD_TEXT("a"), text));
    assert_int_equal(td_text_compare(text, text), 0);
    assert_true(td_text_equals_ignore_case(text, ""));
    assert_false(td_text_equals(text, "a"));
    assert_true(td_text_begins_ignore_case(text, ""));
    assert_false(td_text_begins_ignore_case(text, "a"));
    assert_false(td_text_take_char(&text, 'a'));
    assert_int_equal(td_text_take_until(&text, 'a').len, 0);
    assert_int_equal(text.len, 0);
    assert_null(td_text_skip(text, 0).p);
    assert_int_equal(td_text_skip(text, 0).len, 0);
}

static void a_beginning_is_skipped(void **state)
{
    (void)state;
    struct td_text text = TD_TEXT("layer.7");
    assert_ptr_equal(td_text_skip(text, 0).p, text.p);
    assert_true(td_text_equals(td_text_skip(text, 0), "layer.7"));
    assert_true(td_text_equals(td_text_skip(text, 6), "7"));
    assert_ptr_equal(td_text_skip(text, 7).p, text.p + 7);
    assert_int_equal(td_text_skip(text, 7).len, 0);
}

static void blanks_at_the_ends_are_trimmed(void **state)
{
    (void)state;
    struct td_text text = TD_TEXT(" \t a b\t ");
    assert_true(td_text_equals(td_text_trim(text, " \t"), "a b"));
    assert_ptr_equal(td_text_trim(text, " \t").p, text.p + 3);
    assert_true(td_text_equals(td_text_trim(text, " "), "\t a b\t"));
    assert_true(td_text_equals(td_text_trim(TD_TEXT("\r\n"), " \t\r\n"), ""));
    assert_true(td_text_equals(td_text_trim(TD_TEXT("a"), " "), "a"));
    assert_int_equal(td_text_trim(TD_TEXT("\0a\0"), " ").len, 3); /* a NUL is no blank */
    assert_int_equal(td_text_trim(td_text_n(NULL, 0), " ").len, 0);
    assert_true(td_text_equals(td_text_trim(td_text_n(" a b", 2), " "), "a"));
}

static void what_is_taken_is_gone(void **state)
{
    (void)state;
    struct td_text text = td_text_n("-0-", 2);
    assert_false(td_text_take_char(&text, '0'));
    assert_true(td_text_take_char(&text, '-'));
    assert_true(td_text_equals(text, "0"));
    assert_true(td_text_take_char(&text, '0'));
    assert_int_equal(text.len, 0);
    assert_false(td_text_take_char(&text, '-')); /* nothing after the end is read */
}

static void parts_are_taken_until_a_separator(void **state)
{
    (void)state;
    struct td_text text = td_text_n("vllm//tp8/x", 9); /* the last '/' is after the end */
    assert_true(td_text_equals(td_text_take_until(&text, '/'), "vllm"));
    assert_true(td_text_equals(text, "/tp8"));
    assert_true(td_text_equals(td_text_take_until(&text, '/'), ""));
    assert_true(td_text_equals(td_text_take_until(&text, '/'), "tp8"));
    assert_int_equal(text.len, 0);
    assert_true(td_text_equals(td_text_take_until(&text, '/'), ""));
}

static void last_parts_are_taken_from_a_separator_on(void **state)
{
    (void)state;
    struct td_text text = td_text_n("vllm//tp8/x", 9); /* the last '/' is after the end */
    assert_true(td_text_equals(td_text_take_last(&text, '/'), "tp8"));
    assert_true(td_text_equals(text, "vllm/"));
    assert_true(td_text_equals(td_text_take_last(&text, '/'), ""));
    assert_true(td_text_equals(text, "vllm"));
    assert_true(td_text_equals(td_text_take_last(&text, '/'), "vllm"));
    assert_int_equal(text.len, 0);
    assert_true(td_text_equals(td_text_take_last(&text, '/'), ""));
    text = td_text_n(NULL, 0);
    assert_int_equal(td_text_take_last(&text, '/').len, 0);
    text = td_text_of("/a");
    assert_true(td_text_equals(td_text_take_last(&text, '/'), "a") && text.len == 0);
}

static void messages_show_the_beginning(void **state)
{
    (void)state;
    char out[16];
    struct td_text text = TD_TEXT("0:128,:");
    (void)snprintf(out, sizeof out, "%.*s", TD_SHOW(text, 5));
    assert_string_equal(out, "0:128");
    (void)snprintf(out, sizeof out, "%.*s", TD_SHOW(text, 60));
    assert_string_equal(out, "0:128,:");
}

static void messages_cut_no_character(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t most, shown;
    } cases[] = {
        {"", 0, 0},
        {"abc", 0, 0},
        {"abc", 2, 2},
        {"a\xc3\xa9", 3, 3},
        {"a\xc3\xa9", 2, 1},
        {"a\xc3\xa9z", 3, 3},
        {"\xc3\xa9", 1, 0},
        {"\xe3\x81\x82\xe3\x81\x82", 6, 6},
        {"\xe3\x81\x82\xe3\x81\x82", 5, 3},
        {"\xe3\x81\x82\xe3\x81\x82", 4, 3},
        {"\xe3\x81\x82\xe3\x81\x82", 3, 3},
        {"\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 7, 4},
        {"\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 6, 4},
        {"\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 5, 4},
        {"\xf0\x9f\x98\x80", 3, 0},
        {"\x80\x80\x80\x80\x80\x80", 5, 5}, /* not UTF-8 */
        {"\x80\x80", 1, 1},
        {"a\xff\xff", 1, 1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t shown = td_text_shown(td_text_of(cases[i].text), cases[i].most);
        CHECK(shown == cases[i].shown, "%zu: %zu, wanted %zu", i, shown, cases[i].shown);
    }
}

static void names_and_extensions(void **state)
{
    (void)state;
    static const struct {
        const char *name, *extension;
        bool has, any_case;
    } cases[] = {
        {"model.bin", ".bin", true, true},
        {"a.bin", ".bin", true, true},
        {"MODEL.BIN", ".bin", false, true},
        {"model.Bin", ".bin", false, true},
        {".bin", ".bin", false, false},
        {"bin", ".bin", false, false},
        {"", ".bin", false, false},
        {"model.bin ", ".bin", false, false},
        {"model.bin.tmp", ".bin", false, false},
        {"modelbin", ".bin", false, false},
        {"model.bin.tmp", ".tmp", true, true},
        {"a.safetensors.index.json", ".index.json", true, true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        CHECK(td_has_extension(cases[i].name, cases[i].extension) == cases[i].has, "%s", cases[i].name);
        CHECK(td_has_extension_any_case(cases[i].name, cases[i].extension) == cases[i].any_case, "%s", cases[i].name);
    }
}

static void copies_are_strings(void **state)
{
    (void)state;
    static const struct td_text texts[] = {{"abcdef", 3}, {"", 0}, {NULL, 0}};
    static const char *const wanted[] = {"abc", "", ""};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char *copy = td_text_copy(texts[i]);
        assert_non_null(copy);
        assert_string_equal(copy, wanted[i]);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_compare_by_length_and_bytes),
        cmocka_unit_test(an_empty_text_needs_no_pointer),
        cmocka_unit_test(a_beginning_is_skipped),
        cmocka_unit_test(blanks_at_the_ends_are_trimmed),
        cmocka_unit_test(what_is_taken_is_gone),
        cmocka_unit_test(parts_are_taken_until_a_separator),
        cmocka_unit_test(last_parts_are_taken_from_a_separator_on),
        cmocka_unit_test(messages_show_the_beginning),
        cmocka_unit_test(messages_cut_no_character),
        cmocka_unit_test(names_and_extensions),
        cmocka_unit_test(copies_are_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
