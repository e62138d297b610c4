#include "api/s3/s3_checksum.h"

#include "core/base64.h"
#include "core/crc.h"

#include <libdeflate.h>
#include <openssl/crypto.h>
#include <string.h>

static const struct {
    const char *name;
    const char *field;
    size_t bytes;
    const EVP_MD *(*digest)(void); /* NULL: a CRC */
} algorithms[TD_S3_ALGORITHMS] = {
    [TD_S3_CRC32] = {"CRC32", "x-amz-checksum-crc32", 4, NULL},
    [TD_S3_CRC32C] = {"CRC32C", "x-amz-checksum-crc32c", 4, NULL},
    [TD_S3_CRC64NVME] = {"CRC64NVME", "x-amz-checksum-crc64nvme", 8, NULL},
    [TD_S3_SHA1] = {"SHA1", "x-amz-checksum-sha1", 20, EVP_sha1},
    [TD_S3_SHA256] = {"SHA256", "x-amz-checksum-sha256", 32, EVP_sha256},
    [TD_S3_SHA512] = {"SHA512", "x-amz-checksum-sha512", 64, EVP_sha512},
    [TD_S3_MD5] = {"MD5", "x-amz-checksum-md5", 16, EVP_md5},
    [TD_S3_CONTENT_MD5] = {"Content-MD5", "Content-MD5", 16, EVP_md5},
};

enum td_s3_algorithm td_s3_algorithm_named(struct td_text name)
{
    for (enum td_s3_algorithm i = 0; i < TD_S3_CONTENT_MD5; i++)
        if (td_text_equals_ignore_case(name, algorithms[i].name))
            return i;
    return TD_S3_NO_ALGORITHM;
}

const char *td_s3_algorithm_name(enum td_s3_algorithm algorithm)
{
    return algorithms[algorithm].name;
}

const char *td_s3_algorithm_field(enum td_s3_algorithm algorithm)
{
    return algorithms[algorithm].field;
}

bool td_s3_is_checksum_field(struct td_text name, enum td_s3_algorithm *algorithm)
{
    static const char *const others[] = {"x-amz-checksum-mode", "x-amz-checksum-type", "x-amz-checksum-algorithm"};
    for (*algorithm = 0; *algorithm < TD_S3_ALGORITHMS; (*algorithm)++)
        if (td_text_equals_ignore_case(name, algorithms[*algorithm].field))
            return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (td_text_equals_ignore_case(name, others[i]))
            return false;
    return td_text_begins_ignore_case(name, "x-amz-checksum-");
}

size_t td_s3_sum_bytes(enum td_s3_algorithm algorithm)
{
    return algorithms[algorithm].bytes;
}

bool td_s3_read_sum(enum td_s3_algorithm algorithm, struct td_text text, uint8_t sum[TD_S3_SUM_BYTES])
{
    uint8_t bytes[TD_S3_SUM_TEXT_BYTES];
    size_t len;
    if (text.len != TD_BASE64_LEN(algorithms[algorithm].bytes) || !td_base64_read(text, bytes, &len) ||
        len != algorithms[algorithm].bytes)
        return false;
    memcpy(sum, bytes, len);
    return true;
}

void td_s3_write_sum(enum td_s3_algorithm algorithm, const uint8_t *sum, char text[TD_S3_SUM_TEXT_BYTES])
{
    td_base64_write(sum, algorithms[algorithm].bytes, text);
}

bool td_s3_checksums_computes_any(const struct td_s3_checksums *checksums)
{
    for (size_t i = 0; i < TD_S3_ALGORITHMS; i++)
        if (checksums->computes[i])
            return true;
    return false;
}

void td_s3_checksums_init(struct td_s3_checksums *checksums)
{
    memset(checksums, 0, sizeof *checksums);
}

void td_s3_checksums_fini(struct td_s3_checksums *checksums)
{
    for (size_t i = 0; i < TD_S3_ALGORITHMS; i++) {
        EVP_MD_CTX_free(checksums->digests[i]);
        checksums->digests[i] = NULL;
    }
}

bool td_s3_checksums_add(struct td_s3_checksums *checksums, enum td_s3_algorithm algorithm)
{
    const EVP_MD *(*digest)(void) = algorithms[algorithm].digest;
    if (checksums->computes[algorithm])
        return true;
    checksums->computes[algorithm] = true;
    if (digest == NULL)
        return true;
    checksums->digests[algorithm] = EVP_MD_CTX_new();
    return checksums->digests[algorithm] != NULL &&
           EVP_DigestInit_ex(checksums->digests[algorithm], digest(), NULL) == 1;
}

bool td_s3_checksums_expect(struct td_s3_checksums *checksums, enum td_s3_algorithm algorithm, struct td_text text)
{
    checksums->is_expected[algorithm] = true;
    return td_s3_read_sum(algorithm, text, checksums->expected[algorithm]);
}

void td_s3_checksums_write(struct td_s3_checksums *checksums, const void *bytes, size_t len)
{
    uint64_t *crcs = checksums->crcs;
    if (checksums->computes[TD_S3_CRC32])
        crcs[TD_S3_CRC32] = libdeflate_crc32((uint32_t)crcs[TD_S3_CRC32], bytes, len);
    if (checksums->computes[TD_S3_CRC32C])
        crcs[TD_S3_CRC32C] = td_crc32c((uint32_t)crcs[TD_S3_CRC32C], bytes, len);
    if (checksums->computes[TD_S3_CRC64NVME])
        crcs[TD_S3_CRC64NVME] = td_crc64nvme(crcs[TD_S3_CRC64NVME], bytes, len);
    for (size_t i = 0; i < TD_S3_ALGORITHMS; i++)
        if (checksums->digests[i] != NULL)
            (void)EVP_DigestUpdate(checksums->digests[i], bytes, len);
}

enum td_s3_algorithm td_s3_checksums_end(struct td_s3_checksums *checksums)
{
    enum td_s3_algorithm wrong = TD_S3_NO_ALGORITHM;
    for (enum td_s3_algorithm i = 0; i < TD_S3_ALGORITHMS; i++) {
        uint8_t *sum = checksums->sums[i];
        size_t bytes = algorithms[i].bytes;
        if (checksums->digests[i] != NULL)
            (void)EVP_DigestFinal_ex(checksums->digests[i], sum, NULL);
        else
            for (size_t k = 0; k < bytes; k++)
                sum[k] = (uint8_t)(checksums->crcs[i] >> 8 * (bytes - 1 - k) % 64);
        if (wrong == TD_S3_NO_ALGORITHM && checksums->is_expected[i] && memcmp(sum, checksums->expected[i], bytes) != 0)
            wrong = i;
    }
    return wrong;
}
