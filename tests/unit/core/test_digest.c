#include "core/digest.h"

#include "core/digits.h"
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

static void check_sum(const uint8_t sum[TD_SHA256_BYTES], const char *wanted)
{
    char text[TD_SHA256_TEXT_BYTES];
    td_hex_write(sum, TD_SHA256_BYTES, text);
    assert_string_equal(text, wanted);
}

/* FIPS 180-2, appendix B, and the digest of nothing. */
static void sha256_of_the_standard(void **state)
{
    (void)state;
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256("abc", 3, sum);
    check_sum(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    td_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, sum);
    check_sum(sum, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    td_sha256(NULL, 0, sum);
    check_sum(sum, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* RFC 4231, test cases 1, 2, 6 and 7: keys shorter and longer than a block. */
static void hmac_of_the_rfc(void **state)
{
    (void)state;
    uint8_t key[131];
    uint8_t sum[TD_SHA256_BYTES];
    memset(key, 0x0B, 20);
    td_hmac_sha256(key, 20, "Hi There", 8, sum);
    check_sum(sum, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    td_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, sum);
    check_sum(sum, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xAA, sizeof key);
    td_hmac_sha256(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First", 54, sum);
    check_sum(sum, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    td_hmac_sha256(key, sizeof key,
                   "This is a test using a larger than block-size key and a larger than block-size data. The key needs "
                   "to be hashed before being used by the HMAC algorithm.",
                   152, sum);
    check_sum(sum, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
    td_hmac_sha256(NULL, 0, NULL, 0, sum); /* Python's hmac.new(b"", b"", "sha256") */
    check_sum(sum, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_bytes_have_equal_tags),
        cmocka_unit_test(borders_count),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(no_digest_is_a_failure),
        cmocka_unit_test(sha256_of_the_standard),
        cmocka_unit_test(hmac_of_the_rfc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
