/* Expected values: zlib.crc32 and hashlib of Python; CRC-32C and CRC-64/NVME by their definitions, bit by bit. */
#include "api/s3/s3_checksum.h"

#include "tests/unit/unit.h"

static const char fox[] = "The quick brown fox jumps over the lazy dog";

static const struct {
    enum td_s3_algorithm algorithm;
    const char *name, *field, *sum;
} known[] = {
    {TD_S3_CRC32, "CRC32", "x-amz-checksum-crc32", "QU+jOQ=="},
    {TD_S3_CRC32C, "CRC32C", "x-amz-checksum-crc32c", "ImIEBA=="},
    {TD_S3_CRC64NVME, "CRC64NVME", "x-amz-checksum-crc64nvme", "12xUBUlUwUM="},
    {TD_S3_SHA1, "SHA1", "x-amz-checksum-sha1", "L9ThxnotKPzthJ7hu3bnORuT6xI="},
    {TD_S3_SHA256, "SHA256", "x-amz-checksum-sha256", "16j7swfXgJRpypq8sAguT41WUeRtPNt2LQLQvzfJ5ZI="},
    {TD_S3_SHA512, "SHA512", "x-amz-checksum-sha512",
     "B+VH2VhvanP3P7rAQ17XaVEhj7fQyNeIownXhUNru2Quk6JSqVTyORJUfR6KO17W4b/XCXghIz+gU489uFT+5g=="},
    {TD_S3_MD5, "MD5", "x-amz-checksum-md5", "nhB9nTcrtoJr2B01QqQZ1g=="},
    {TD_S3_CONTENT_MD5, NULL, "Content-MD5", "nhB9nTcrtoJr2B01QqQZ1g=="},
};

/* All at once, in pieces. */
static void sums_of_all_algorithms(void **state)
{
    (void)state;
    struct td_s3_checksums checksums;
    char text[TD_S3_SUM_TEXT_BYTES];
    td_s3_checksums_init(&checksums);
    for (size_t i = 0; i < COUNT_OF(known); i++)
        assert_true(td_s3_checksums_add(&checksums, known[i].algorithm) &&
                    td_s3_checksums_expect(&checksums, known[i].algorithm, td_text_of(known[i].sum)));
    td_s3_checksums_write(&checksums, fox, 5);
    td_s3_checksums_write(&checksums, fox + 5, sizeof fox - 6);
    assert_int_equal(td_s3_checksums_end(&checksums), TD_S3_NO_ALGORITHM);
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        td_s3_write_sum(known[i].algorithm, checksums.sums[known[i].algorithm], text);
        assert_string_equal(text, known[i].sum);
    }
    td_s3_checksums_fini(&checksums);
}

/* One other byte is seen by each of them. */
static void wrong_bytes_are_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        struct td_s3_checksums checksums;
        td_s3_checksums_init(&checksums);
        assert_true(td_s3_checksums_add(&checksums, known[i].algorithm) &&
                    td_s3_checksums_expect(&checksums, known[i].algorithm, td_text_of(known[i].sum)));
        td_s3_checksums_write(&checksums, "the", 3);
        td_s3_checksums_write(&checksums, fox + 3, sizeof fox - 4);
        assert_int_equal(td_s3_checksums_end(&checksums), known[i].algorithm);
        td_s3_checksums_fini(&checksums);
    }
}

static void names_and_fields(void **state)
{
    (void)state;
    enum td_s3_algorithm algorithm;
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        assert_true(td_s3_is_checksum_field(td_text_of(known[i].field), &algorithm));
        assert_int_equal(algorithm, known[i].algorithm);
        if (known[i].name != NULL)
            assert_int_equal(td_s3_algorithm_named(td_text_of(known[i].name)), known[i].algorithm);
    }
    assert_true(td_s3_is_checksum_field(TD_TEXT("X-Amz-Checksum-CRC32"), &algorithm) && algorithm == TD_S3_CRC32);
    assert_true(td_s3_is_checksum_field(TD_TEXT("x-amz-checksum-xxhash64"), &algorithm));
    assert_int_equal(algorithm, TD_S3_NO_ALGORITHM);
    assert_false(td_s3_is_checksum_field(TD_TEXT("x-amz-checksum-type"), &algorithm));
    assert_false(td_s3_is_checksum_field(TD_TEXT("x-amz-checksum-algorithm"), &algorithm));
    assert_false(td_s3_is_checksum_field(TD_TEXT("x-amz-date"), &algorithm));
    assert_int_equal(td_s3_algorithm_named(TD_TEXT("XXHASH64")), TD_S3_NO_ALGORITHM);
    assert_int_equal(td_s3_algorithm_named(TD_TEXT("Content-MD5")), TD_S3_NO_ALGORITHM);
}

static void malformed_sums(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "", "QU+jOQ", "QU+jOQ=", "QU+jOQ===", "QU-jOQ==", "QU+jOR==", "QU+j", "QU+jOQAA"};
    uint8_t sum[TD_S3_SUM_BYTES];
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        CHECK(!td_s3_read_sum(TD_S3_CRC32, td_text_of(wrong[i]), sum), "%s", wrong[i]);
    assert_false(td_s3_read_sum(TD_S3_CRC64NVME, TD_TEXT("QU+jOQ=="), sum));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_all_algorithms),
        cmocka_unit_test(wrong_bytes_are_seen),
        cmocka_unit_test(names_and_fields),
        cmocka_unit_test(malformed_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
