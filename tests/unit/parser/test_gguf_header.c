/* The header of a GGUF file and its key-value pairs: faults with their positions, and how values are shown. */
/* shows: security.md content-gguf */
#include "tests/unit/parser/gguf_case.h"

/* ---- bad inputs ---------------------------------------------------------------------------------------- */

static void version(struct td_buffer *out, uint32_t value)
{
    td_buffer_puts(out, "GGUF");
    put_u32(out, value);
    put_u64(out, 0);
    put_u64(out, 0);
}

static void build_109_magic(struct td_buffer *out)
{
    td_buffer_puts(out, "FUGG");
    put_u32(out, 3);
    put_u64(out, 0);
    put_u64(out, 0);
}

static void build_109_ggml(struct td_buffer *out) /* the format before GGUF */
{
    td_buffer_puts(out, "lmgg");
    put_u64(out, 0);
}

static void build_110_version_0(struct td_buffer *out)
{
    version(out, 0);
}

static void build_110_version_1(struct td_buffer *out)
{
    version(out, 1);
}

static void build_110_version_4(struct td_buffer *out)
{
    version(out, 4);
}

static void build_110_big_endian(struct td_buffer *out)
{
    version(out, 0x01000000);
}

static void build_110_big_endian_4(struct td_buffer *out)
{
    version(out, 0x04000000);
}

static void build_111(struct td_buffer *out)
{
    put_head(out, UINT64_MAX, 0);
}

static void build_111_one_too_many(struct td_buffer *out)
{
    put_head(out, 2, 0);
    put_data(out, 39); /* 39 and 8 for the number of pairs are 47 bytes; two infos take 48 */
}

static void build_112(struct td_buffer *out)
{
    put_head(out, 0, UINT64_MAX);
}

static void build_112_large(struct td_buffer *out)
{
    put_head(out, 0, UINT64_C(1) << 60);
}

static void build_113(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_u64(out, UINT64_MAX);
    put_data(out, 20);
}

static void build_113_too_long(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_u64(out, 65536);
    for (size_t i = 0; i < 65536; i++)
        td_buffer_putc(out, 'k');
    put_u32(out, V_U8);
    td_buffer_putc(out, 1);
}

static void build_114(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_key(out, "", V_U32);
    put_u64(out, 1);
}

static void build_115(struct td_buffer *out)
{
    put_head(out, 0, 3);
    put_key(out, "b", V_U8);
    td_buffer_putc(out, 1);
    put_key(out, "a", V_U8);
    td_buffer_putc(out, 1);
    put_key(out, "b", V_U8);
    td_buffer_putc(out, 1);
}

static void build_115_key_nul(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_text_n(out, "a\0b", 3);
    put_u32(out, V_U8);
    td_buffer_putc(out, 1);
}

static void build_116(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_key(out, "key", 13);
    put_u64(out, 0);
}

static void build_116_last(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_key(out, "key", UINT32_MAX);
    put_u64(out, 0);
}

static void build_116_items(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", 13, 0);
}

static void build_117(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_F64, UINT64_C(1) << 61); /* times 8 is 0 */
    put_data(out, 64);
}

static void build_117_strings(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_STRING, 9);
    put_data(out, 64);
}

static void build_117_cut(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_U32, 100);
    put_data(out, 399);
}

static void build_117_string_length(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_key(out, "key", V_STRING);
    put_u64(out, UINT64_MAX);
}

static void build_117_hidden_string_length(struct td_buffer *out) /* after the strings that are shown */
{
    put_head(out, 0, 1);
    put_array(out, "key", V_STRING, 65);
    for (int i = 0; i < 64; i++)
        put_text(out, "");
    put_u64(out, UINT64_MAX);
}

static void build_118(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_ARRAY, 1);
    put_u32(out, V_U8);
    put_u64(out, 0);
}

static void alignment(struct td_buffer *out, uint32_t type, uint32_t value)
{
    put_head(out, 0, 1);
    put_key(out, "general.alignment", type);
    put_u32(out, value);
}

static void build_119_zero(struct td_buffer *out)
{
    alignment(out, V_U32, 0);
}

static void build_119_13(struct td_buffer *out)
{
    alignment(out, V_U32, 13);
}

static void build_119_int32(struct td_buffer *out)
{
    alignment(out, V_I32, 32);
}

static void build_119_array(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "general.alignment", V_U32, 1);
    put_u32(out, 32);
}

static void build_120(struct td_buffer *out)
{
    alignment(out, V_U32, UINT32_C(1) << 31);
}

static void build_135(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_key(out, "key", V_BOOL);
    td_buffer_putc(out, 2);
}

static void build_135_in_array(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_BOOL, 3);
    td_buffer_append(out, "\1\0\xff", 3);
}

static void build_135_hidden(struct td_buffer *out)
{
    put_head(out, 0, 1);
    put_array(out, "key", V_BOOL, 100);
    for (int i = 0; i < 99; i++)
        td_buffer_putc(out, 1);
    td_buffer_putc(out, 2);
}

static const struct gguf_case bad_cases[] = {
    BUILT("bad_109_magic", build_109_magic, 0, "not with \"GGUF\""),
    BUILT("bad_109_the_format_before", build_109_ggml, 0, "6c 6d 67 67"),
    BUILT("bad_110_version_0", build_110_version_0, 4, "GGUF version 0; versions 2 and 3"),
    BUILT("bad_110_version_1", build_110_version_1, 4, "GGUF version 1;"),
    BUILT("bad_110_version_4", build_110_version_4, 4, "GGUF version 4;"),
    BUILT("bad_110_big_endian_1", build_110_big_endian, 4, "GGUF version 1;"),
    BUILT("bad_110_big_endian_4", build_110_big_endian_4, 4, "GGUF version 4;"),
    BUILT("bad_111_tensors_minus_1", build_111, 8, "the number of tensors is -1"),
    BUILT("bad_111_tensors_one_too_many", build_111_one_too_many, 8, "the number of tensors is 2"),
    BUILT("bad_112_pairs_minus_1", build_112, 16, "key-value pairs is -1"),
    BUILT("bad_112_pairs_2_60", build_112_large, 16, "key-value pairs is 1152921504606846976"),
    BUILT("bad_113_key_length_2_64_minus_1", build_113, 24, "a key of 18446744073709551615 bytes"),
    BUILT("bad_113_key_length_65536", build_113_too_long, 24, "a key of 65536 bytes; it must have 1 to 65535"),
    BUILT("bad_114_empty_key", build_114, 24, "a key of 0 bytes"),
    BUILT("bad_115_duplicate_key", build_115, 52, "two pairs have the key \"b\""),
    BUILT("key_with_nul", build_115_key_nul, 24, "the key \"a\" continues after a NUL"),
    BUILT("bad_116_value_type_13", build_116, 35, "\"key\": there is no value type 13"),
    BUILT("bad_116_value_type_2_32_minus_1", build_116_last, 35, "no value type 4294967295"),
    BUILT("bad_116_value_type_13_of_items", build_116_items, 39, "no value type 13"),
    BUILT("bad_117_array_of_2_61", build_117, 43, "the length of an array is 2305843009213693952"),
    BUILT("bad_117_array_of_strings", build_117_strings, 43, "the length of an array is 9"),
    BUILT("bad_117_array_cut", build_117_cut, 43, "the length of an array is 100"),
    BUILT("bad_117_string_of_2_64_minus_1", build_117_string_length, 39, "a string of 18446744073709551615 bytes"),
    BUILT("bad_117_string_not_shown", build_117_hidden_string_length, 563, "a string of 18446744073709551615 bytes"),
    BUILT("bad_118_nested_array", build_118, 39, "\"key\": an array of arrays"),
    BUILT("bad_119_alignment_0", build_119_zero, 53, "general.alignment is 0; it must be a power of two"),
    BUILT("bad_119_alignment_13", build_119_13, 53, "general.alignment is 13"),
    BUILT("bad_119_alignment_int32", build_119_int32, 49, "general.alignment has value type 5"),
    BUILT("bad_119_alignment_array", build_119_array, 49, "general.alignment has value type 9"),
    BUILT("bad_120_alignment_2_31", build_120, 53, "general.alignment is 2147483648"),
    BUILT("bad_135_bool_2", build_135, 39, "a bool is 2; it must be 0 or 1"),
    BUILT("bad_135_bool_255_in_an_array", build_135_in_array, 53, "a bool is 255"),
    BUILT("bad_135_bool_not_shown", build_135_hidden, 150, "a bool is 2"),
};

/* ---- good ones ----------------------------------------------------------------------------------------- */

/* Checks the metadata of a file of one pair. */
static void check_value(const char *key, size_t key_len, uint32_t type, const void *value, size_t len,
                        const char *wanted)
{
    struct td_buffer file = {0};
    struct parsed p;
    put_head(&file, 0, 1);
    put_text_n(&file, key, key_len);
    put_u32(&file, type);
    td_buffer_append(&file, value, len);
    gguf_parse(file.data, file.len, &p);
    CHECK(p.ok, "%s: %s", key, p.err.message);
    assert_int_equal(p.manifest.metadata_count, 1);
    struct td_buffer got = {0};
    td_buffer_printf(&got, "%s=%s", p.manifest.metadata[0].key, p.manifest.metadata[0].value);
    assert_non_null(td_buffer_terminate(&got));
    assert_string_equal(got.data, wanted);
    free(got.data);
    parsed_fini(&p);
    __real_free(file.data);
}

static void check_string(const char *text, size_t len, const char *wanted)
{
    struct td_buffer value = {0};
    put_text_n(&value, text, len);
    check_value("k", 1, V_STRING, value.data, value.len, wanted);
    __real_free(value.data);
}

static void what_is_not_utf8_is_escaped(void **state)
{
    (void)state;
    check_string("a\xff\xc3\xa9\n", 5, "k=\"a\\\\xff\xc3\xa9\\\\x0a\"");
    check_string("\xed\xa0\x80", 3, "k=\"\\\\xed\\\\xa0\\\\x80\"");
    check_value("\xff", 1, V_BOOL, "\1", 1, "\\xff=true");
    struct td_buffer file = {0};
    struct parsed p;
    put_one(&file, (struct info){"w\xc0.\xc3\xa9", 1, {64}, G_I8, 0});
    gguf_parse(file.data, file.len, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_string_equal(p.manifest.tensors[0].name, "w\\xc0.\xc3\xa9");
    assert_int_equal(p.manifest.tensors[0].name_len, 8);
    parsed_fini(&p);
    __real_free(file.data);
}

/* A string of up to 4,096 bytes is shown whole. A longer one is cut between characters; bytes that are not UTF-8 are
 * escaped one by one. */
static void long_strings_are_cut_between_characters(void **state)
{
    (void)state;
    static const struct {
        const char *tail; /* after 4,096 - before letters */
        size_t before;
        const char *shown;
    } cases[] = {
        {"", 0, NULL},
        {"y", 0, ""},
        {"\xc3\xa9", 1, ""},
        {"\xc3\xa9", 2, NULL},
        {"\xc3\xa9y", 2, "\xc3\xa9"},
        {"\xe6\x97\xa5", 1, ""},
        {"\xe6\x97\xa5", 2, ""},
        {"\xe6\x97\xa5y", 3, "\xe6\x97\xa5"},
        {"\xf0\x9f\x98\x80", 1, ""},
        {"\xf0\x9f\x98\x80", 2, ""},
        {"\xf0\x9f\x98\x80", 3, ""},
        {"\xf0\x9f\x98\x80y", 4, "\xf0\x9f\x98\x80"},
        {"\x80\x80\x80\x80y", 4, "\\\\x80\\\\x80\\\\x80\\\\x80"},
        {"\xffy", 1, ""}, /* taken for the beginning of a character */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_buffer text = {0};
        struct td_buffer wanted = {0};
        size_t letters = 4096 - cases[i].before;
        for (size_t n = 0; n < letters; n++)
            td_buffer_putc(&text, 'x');
        td_buffer_puts(&text, cases[i].tail);
        td_buffer_puts(&wanted, "k=");
        if (cases[i].shown != NULL)
            td_buffer_printf(&wanted, "{\"length\":%zu,\"first\":", text.len);
        td_buffer_putc(&wanted, '"');
        td_buffer_append(&wanted, text.data, letters);
        td_buffer_puts(&wanted, cases[i].shown != NULL ? cases[i].shown : cases[i].tail);
        td_buffer_puts(&wanted, cases[i].shown != NULL ? "\"}" : "\"");
        assert_non_null(td_buffer_terminate(&wanted));
        check_string(text.data, text.len, wanted.data);
        __real_free(text.data);
        __real_free(wanted.data);
    }
}

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(what_is_not_utf8_is_escaped),
        cmocka_unit_test(long_strings_are_cut_between_characters),
    };
    struct CMUnitTest tests[COUNT_OF(bad_cases) + COUNT_OF(others)];
    gguf_case_tests(bad_cases, COUNT_OF(bad_cases), tests);
    memcpy(tests + COUNT_OF(bad_cases), others, sizeof others);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
