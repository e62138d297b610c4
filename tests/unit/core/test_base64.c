#include "core/base64.h"

#include "tests/unit/unit.h"

/* RFC 4648, section 10; the last two hold the characters in which base64url differs. Padding may be missing. */
static void vectors_of_the_rfc(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *text, *bare;
    } vectors[] = {{"", 0, "", ""},
                   {"f", 1, "Zg==", "Zg"},
                   {"fo", 2, "Zm8=", "Zm8"},
                   {"foo", 3, "Zm9v", "Zm9v"},
                   {"foob", 4, "Zm9vYg==", "Zm9vYg"},
                   {"fooba", 5, "Zm9vYmE=", "Zm9vYmE"},
                   {"foobar", 6, "Zm9vYmFy", "Zm9vYmFy"},
                   {"\xFB\xEF\xBE", 3, "++++", "++++"},
                   {"\xFF\xFF\xFF\x00", 4, "////AA==", "////AA"}};
    for (size_t i = 0; i < COUNT_OF(vectors); i++) {
        char written[16];
        td_base64_write(vectors[i].bytes, vectors[i].len, written);
        assert_string_equal(written, vectors[i].text);
        assert_int_equal(strlen(written), TD_BASE64_LEN(vectors[i].len));
        struct td_buffer appended;
        td_buffer_init(&appended);
        td_base64_append(&appended, vectors[i].bytes, vectors[i].len);
        assert_int_equal(appended.len, strlen(written));
        assert_memory_equal(td_buffer_text(&appended).p, written, appended.len);
        td_buffer_fini(&appended);
        const char *const texts[] = {vectors[i].text, vectors[i].bare};
        for (size_t k = 0; k < COUNT_OF(texts); k++) {
            char bytes[16];
            size_t len = 99;
            assert_true(td_base64_read(td_text_of(texts[k]), bytes, &len));
            assert_int_equal(len, vectors[i].len);
            assert_memory_equal(bytes, vectors[i].bytes, len);
        }
    }
}

/* The characters of both alphabets, decoded in place. */
static void either_alphabet(void **state)
{
    (void)state;
    static const struct {
        const char *text, *bytes;
        size_t len;
    } vectors[] = {{"++++", "\xFB\xEF\xBE", 3},     {"----", "\xFB\xEF\xBE", 3},   {"+-+-", "\xFB\xEF\xBE", 3},
                   {"/_/_AA==", "\xFF\xFF\xFF", 4}, {"____AA", "\xFF\xFF\xFF", 4}, {"Zg", "f", 1}};
    for (size_t i = 0; i < COUNT_OF(vectors); i++) {
        char text[16];
        size_t len = strlen(vectors[i].text);
        memcpy(text, vectors[i].text, len + 1);
        assert_true(td_base64_read_any(td_text_n(text, len), text, &len));
        assert_int_equal(len, vectors[i].len);
        assert_memory_equal(text, vectors[i].bytes, len);
    }
    char bytes[8];
    size_t len;
    assert_false(td_base64_read_any(TD_TEXT("Zm.v"), bytes, &len));
    assert_false(td_base64_read_any(TD_TEXT("Zg==Zg"), bytes, &len));
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"Z",    "Zh==",  "Zm9=",  "Zg=",      "Zg===",   "Z===",
                                        "====", "=",     "Zm9v=", "Zm9v\n",   " Zm9v",   "Zm-v",
                                        "Zm_v", "Zm9vY", "Zm.v",  "Zg==Zg==", "Zm8=Zm8="};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char bytes[16];
        size_t len;
        CHECK(!td_base64_read(td_text_of(texts[i]), bytes, &len), "%s", texts[i]);
    }
    char bytes[4];
    size_t len;
    assert_false(td_base64_read(td_text_n("Zg\0\0", 4), bytes, &len));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_the_rfc),
        cmocka_unit_test(either_alphabet),
        cmocka_unit_test(other_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
