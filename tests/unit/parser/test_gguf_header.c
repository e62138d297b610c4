/* The header of a GGUF file and its key-value pairs: faults with their positions, and how values are shown. */
/* shows: security.md content-gguf */
#include "tests/unit/parser/gguf_case.h"

/* ---- bad inputs ---------------------------------------------------------------------------------------- */

static const struct gguf_case bad_cases[] = {
    PIECES("bad_109_magic", 0, "not with \"GGUF\"", BYTES("FUGG"), U32(3), U64(0), U64(0)),
    PIECES("bad_109_the_format_before", 0, "6c 6d 67 67", BYTES("lmgg"), U64(0)), /* the format before GGUF */
    PIECES("bad_110_version_0", 4, "GGUF version 0; versions 2 and 3", BYTES("GGUF"), U32(0), U64(0), U64(0)),
    PIECES("bad_110_version_1", 4, "GGUF version 1;", BYTES("GGUF"), U32(1), U64(0), U64(0)),
    PIECES("bad_110_version_4", 4, "GGUF version 4;", BYTES("GGUF"), U32(4), U64(0), U64(0)),
    PIECES("bad_110_big_endian_1", 4, "GGUF version 1;", BYTES("GGUF"), U32(0x01000000), U64(0), U64(0)),
    PIECES("bad_110_big_endian_4", 4, "GGUF version 4;", BYTES("GGUF"), U32(0x04000000), U64(0), U64(0)),
    PIECES("bad_111_tensors_minus_1", 8, "the number of tensors is -1", HEAD(UINT64_MAX, 0)),
    PIECES("bad_111_tensors_one_too_many", 8, "the number of tensors is 2", HEAD(2, 0),
           DATA(39)), /* 39 and 8 for the number of pairs are 47 bytes; two infos take 48 */
    PIECES("bad_112_pairs_minus_1", 16, "key-value pairs is -1", HEAD(0, UINT64_MAX)),
    PIECES("bad_112_pairs_2_60", 16, "key-value pairs is 1152921504606846976", HEAD(0, UINT64_C(1) << 60)),
    PIECES("bad_113_key_length_2_64_minus_1", 24, "a key of 18446744073709551615 bytes", HEAD(0, 1), U64(UINT64_MAX),
           DATA(20)),
    PIECES("bad_113_key_length_65536", 24, "a key of 65536 bytes; it must have 1 to 65535", HEAD(0, 1), U64(65536),
           REPEATED('k', 65536), U32(V_U8), U8(1)),
    PIECES("bad_114_empty_key", 24, "a key of 0 bytes", HEAD(0, 1), KEY("", V_U32), U64(1)),
    PIECES("bad_115_duplicate_key", 52, "two pairs have the key \"b\"", HEAD(0, 3), KEY("b", V_U8), U8(1),
           KEY("a", V_U8), U8(1), KEY("b", V_U8), U8(1)),
    PIECES("key_with_nul", 24, "the key \"a\" continues after a NUL", HEAD(0, 1), TEXT("a\0b"), U32(V_U8), U8(1)),
    PIECES("bad_116_value_type_13", 35, "\"key\": there is no value type 13", HEAD(0, 1), KEY("key", 13), U64(0)),
    PIECES("bad_116_value_type_2_32_minus_1", 35, "no value type 4294967295", HEAD(0, 1), KEY("key", UINT32_MAX),
           U64(0)),
    PIECES("bad_116_value_type_13_of_items", 39, "no value type 13", HEAD(0, 1), ARRAY("key", 13, 0)),
    PIECES("bad_117_array_of_2_61", 43, "the length of an array is 2305843009213693952", HEAD(0, 1),
           ARRAY("key", V_F64, UINT64_C(1) << 61), DATA(64)), /* times 8 is 0 */
    PIECES("bad_117_array_of_strings", 43, "the length of an array is 9", HEAD(0, 1), ARRAY("key", V_STRING, 9),
           DATA(64)),
    PIECES("bad_117_array_cut", 43, "the length of an array is 100", HEAD(0, 1), ARRAY("key", V_U32, 100), DATA(399)),
    PIECES("bad_117_string_of_2_64_minus_1", 39, "a string of 18446744073709551615 bytes", HEAD(0, 1),
           KEY("key", V_STRING), U64(UINT64_MAX)),
    PIECES("bad_117_string_not_shown", 563, "a string of 18446744073709551615 bytes", HEAD(0, 1),
           ARRAY("key", V_STRING, 65), REPEATED(0, 64 * 8), U64(UINT64_MAX)), /* after the strings that are shown */
    PIECES("bad_118_nested_array", 39, "\"key\": an array of arrays", HEAD(0, 1), ARRAY("key", V_ARRAY, 1), U32(V_U8),
           U64(0)),
    PIECES("bad_119_alignment_0", 53, "general.alignment is 0; it must be a power of two", HEAD(0, 1),
           KEY("general.alignment", V_U32), U32(0)),
    PIECES("bad_119_alignment_13", 53, "general.alignment is 13", HEAD(0, 1), KEY("general.alignment", V_U32), U32(13)),
    PIECES("bad_119_alignment_int32", 49, "general.alignment has value type 5", HEAD(0, 1),
           KEY("general.alignment", V_I32), U32(32)),
    PIECES("bad_119_alignment_array", 49, "general.alignment has value type 9", HEAD(0, 1),
           ARRAY("general.alignment", V_U32, 1), U32(32)),
    PIECES("bad_120_alignment_2_31", 53, "general.alignment is 2147483648", HEAD(0, 1), KEY("general.alignment", V_U32),
           U32(UINT32_C(1) << 31)),
    PIECES("bad_135_bool_2", 39, "a bool is 2; it must be 0 or 1", HEAD(0, 1), KEY("key", V_BOOL), U8(2)),
    PIECES("bad_135_bool_255_in_an_array", 53, "a bool is 255", HEAD(0, 1), ARRAY("key", V_BOOL, 3), BYTES("\1\0\xff")),
    PIECES("bad_135_bool_not_shown", 150, "a bool is 2", HEAD(0, 1), ARRAY("key", V_BOOL, 100), REPEATED(1, 99), U8(2)),
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
