#include "core/digest.h"

#include "tests/unit/unit.h"

static void check_tag(const char *tag)
{
    assert_int_equal(strlen(tag), TD_TAG_BYTES - 1);
    assert_int_equal(strspn(tag, "0123456789abcdef"), TD_TAG_BYTES - 1);
}

static void tag_pair(const char *a, const char *b, char tag[TD_TAG_BYTES])
{
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, a);
    td_digest_add(digest, b, strlen(b));
    assert_true(td_digest_finish(digest, tag));
    check_tag(tag);
}

static void equal_bytes_have_equal_tags(void **state)
{
    (void)state;
    char a[TD_TAG_BYTES], b[TD_TAG_BYTES];
    tag_pair("x", "yz", a);
    tag_pair("x", "yz", b);
    assert_string_equal(a, b);
    assert_true(td_digest_tag("abc", 3, a) && td_digest_tag("abcd", 3, b));
    assert_string_equal(a, b);
    assert_true(td_digest_tag("abcd", 4, b));
    assert_string_not_equal(a, b);
    assert_true(td_digest_tag(NULL, 0, a));
    check_tag(a);
}

/* The same bytes split differently have different tags. */
static void borders_count(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}};
    char tags[COUNT_OF(pairs)][TD_TAG_BYTES];
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        tag_pair(pairs[i][0], pairs[i][1], tags[i]);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(tags[k], tags[i]);
    }
}

static void every_bit_counts(void **state)
{
    (void)state;
    uint8_t bytes[40] = {0};
    char plain[TD_TAG_BYTES], other[TD_TAG_BYTES];
    assert_true(td_digest_tag(bytes, sizeof bytes, plain));
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
        assert_true(td_digest_tag(bytes, sizeof bytes, other));
        assert_string_not_equal(plain, other);
        bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
}

/* td_digest_create returns NULL when memory is short. NULL can be used like a digest; only finish fails. */
static void no_digest_is_a_failure(void **state)
{
    (void)state;
    char tag[TD_TAG_BYTES] = "x";
    td_digest_add(NULL, "a", 1);
    td_digest_add_cstring(NULL, "a");
    assert_false(td_digest_finish(NULL, tag));
    assert_string_equal(tag, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_bytes_have_equal_tags),
        cmocka_unit_test(borders_count),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(no_digest_is_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
