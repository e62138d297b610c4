#include "http/page_token.h"

#include "tests/unit/unit.h"

static char *token_of(struct td_buffer *out, const char *listing, struct td_text last)
{
    td_buffer_init(out);
    td_page_token_write(out, td_text_of(listing), last);
    char *token = td_buffer_terminate(out);
    assert_non_null(token);
    return token;
}

static bool reads_as(struct td_text token, const char *listing, struct td_text last)
{
    struct td_buffer out;
    td_buffer_init(&out);
    td_buffer_puts(&out, "what was there before");
    bool ok = td_page_token_read(token, td_text_of(listing), &out) && out.len == last.len &&
              (last.len == 0 || memcmp(out.data, last.p, last.len) == 0);
    td_buffer_fini(&out);
    return ok;
}

static bool is_ours(struct td_text token, const char *listing)
{
    struct td_buffer out;
    td_buffer_init(&out);
    bool ok = td_page_token_read(token, td_text_of(listing), &out);
    td_buffer_fini(&out);
    return ok;
}

/* Tokens are base64url without padding (RFC 4648 section 5), so a query needs no escapes for them. */
static void tokens_come_back(void **state)
{
    (void)state;
    uint64_t seed = 10;
    for (size_t len = 0; len < 300; len++) {
        char name[300];
        struct td_buffer out;
        for (size_t i = 0; i < len; i++)
            name[i] = (char)random_next(&seed);
        struct td_text last = {.p = name, .len = len};
        char *token = token_of(&out, "models\n", last);
        assert_int_equal(strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
                         strlen(token));
        assert_true(reads_as(td_text_of(token), "models\n", last));
        td_buffer_fini(&out);
    }
}

/* Replicas and restarted servers accept each other's tokens. */
static void tokens_do_not_depend_on_the_process(void **state)
{
    (void)state;
    struct td_buffer a, b;
    assert_string_equal(token_of(&a, "x", td_text_of("name")), token_of(&b, "x", td_text_of("name")));
    td_buffer_fini(&b);
    assert_string_not_equal(a.data, token_of(&b, "x", td_text_of("name2")));
    td_buffer_fini(&b);
    assert_string_not_equal(a.data, token_of(&b, "y", td_text_of("name")));
    td_buffer_fini(&b);
    td_buffer_fini(&a);
}

static void foreign_tokens_are_recognised(void **state)
{
    (void)state;
    struct td_buffer out;
    char *token = token_of(&out, "tensors\nqwen3\n=*", td_text_of("model.layers.0"));
    assert_true(is_ours(td_text_of(token), "tensors\nqwen3\n=*"));
    static const char *const other_listings[] = {"tensors\nqwen3\n", "tensors\nqwen3\n=?", "models\n", "",
                                                 "tensors\nqwen4\n=*"};
    for (size_t i = 0; i < COUNT_OF(other_listings); i++)
        CHECK(!is_ours(td_text_of(token), other_listings[i]), "%s", other_listings[i]);
    static const char *const rubbish[] = {"",
                                          "x",
                                          "AAAA",
                                          "abcdefghijkl",
                                          "!",
                                          "a b",
                                          "====",
                                          "AAAAAAAAAAAAAAAA",
                                          "AAAAAAAAAAAAAAAAAAAAAAAA",
                                          "\xc3\xa9\xc3\xa9"};
    for (size_t i = 0; i < COUNT_OF(rubbish); i++)
        CHECK(!is_ours(td_text_of(rubbish[i]), "tensors\nqwen3\n=*"), "%s", rubbish[i]);
    td_buffer_fini(&out);
}

/* No other text is read as the same token: not with padding, unused bits or other letters. */
static void every_change_is_noticed(void **state)
{
    (void)state;
    struct td_buffer out;
    char *token = token_of(&out, "l", td_text_of("abcdefghij"));
    size_t len = strlen(token);
    for (size_t i = 0; i < len; i++) {
        char was = token[i];
        for (int c = 0; c < 256; c++) {
            token[i] = (char)c;
            CHECK(token[i] == was || !is_ours(td_text_n(token, len), "l"), "%zu: %d", i, c);
        }
        token[i] = was;
        assert_false(is_ours(td_text_n(token, i), "l"));
    }
    assert_true(is_ours(td_text_n(token, len), "l"));
    td_buffer_puts(&out, "=");
    assert_false(is_ours(td_buffer_text(&out), "l"));
    out.data[out.len - 1] = 'A';
    assert_false(is_ours(td_buffer_text(&out), "l"));
    td_buffer_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_come_back),
        cmocka_unit_test(tokens_do_not_depend_on_the_process),
        cmocka_unit_test(foreign_tokens_are_recognised),
        cmocka_unit_test(every_change_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
