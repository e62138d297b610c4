#include "core/base64.h"

#include "tests/unit/unit.h"

/* RFC 4648, section 10, with the alphabet of section 5 and without padding; the last two hold both of its own
 * characters. */
static const struct {
    const char *bytes;
    size_t len;
    const char *text;
} vectors[] = {{"", 0, ""},
               {"f", 1, "Zg"},
               {"fo", 2, "Zm8"},
               {"foo", 3, "Zm9v"},
               {"foob", 4, "Zm9vYg"},
               {"fooba", 5, "Zm9vYmE"},
               {"foobar", 6, "Zm9vYmFy"},
               {"\xFB\xEF\xBE", 3, "----"},
               {"\xFF\xFF\xFF\x00", 4, "____AA"}};

static void vectors_of_the_rfc(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(vectors); i++) {
        char text[16] = "................";
        char bytes[16];
        size_t len = strlen(vectors[i].text);
        assert_int_equal(TD_BASE64URL_CHARS(vectors[i].len), len);
        td_base64url_write(vectors[i].bytes, vectors[i].len, text);
        assert_memory_equal(text, vectors[i].text, len);
        assert_int_equal(text[len], '.'); /* no byte more */
        assert_true(td_base64url_read(td_text_of(vectors[i].text), bytes, &len));
        assert_int_equal(len, vectors[i].len);
        assert_memory_equal(bytes, vectors[i].bytes, len);
    }
}

/* One text for each string of bytes: section 3.5 lets readers refuse unused bits. */
static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"Z",     "Zh",   "Zm9",  "Zg==",  "Zg=",  "Zm8=",       "Zm9v\n",
                                        " Zm9v", "Zm+v", "Zm/v", "Zm9vY", "Zm.v", "Zm\xC3\xA9", "__-_/"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char bytes[16];
        size_t len;
        CHECK(!td_base64url_read(td_text_of(texts[i]), bytes, &len), "%s", texts[i]);
    }
    char bytes[4];
    size_t len;
    assert_false(td_base64url_read(td_text_n("Zg\0\0", 4), bytes, &len));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_the_rfc),
        cmocka_unit_test(other_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
