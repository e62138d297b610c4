/* The checksums that clients of S3 send with a body, in header fields and trailers, and that the body must have.
 * Source: Amazon S3 User Guide, "Checking object integrity". Threads: one at a time per set. Private to api/s3/. */
#ifndef TD_API_S3_S3_CHECKSUM_H
#define TD_API_S3_S3_CHECKSUM_H

#include "core/buffer.h"
#include "core/text.h"

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_s3_algorithm {
    TD_S3_CRC32,
    TD_S3_CRC32C,
    TD_S3_CRC64NVME,
    TD_S3_SHA1,
    TD_S3_SHA256,
    TD_S3_SHA512,
    TD_S3_MD5,         /* x-amz-checksum-md5 */
    TD_S3_CONTENT_MD5, /* Content-MD5 */
    TD_S3_ALGORITHMS,
    TD_S3_NO_ALGORITHM = TD_S3_ALGORITHMS
};

enum { TD_S3_SUM_BYTES = 64, TD_S3_SUM_TEXT_BYTES = 89 /* in base64, with a NUL */ };

/* Returns the algorithm with this name in any case, such as "CRC32C"; TD_S3_NO_ALGORITHM for others, and for
 * Content-MD5. */
enum td_s3_algorithm td_s3_algorithm_named(struct td_text name);

/* Returns the name as requests and documents have it, such as "CRC32C", and the header field, such as
 * "x-amz-checksum-crc32c". Static. */
const char *td_s3_algorithm_name(enum td_s3_algorithm algorithm);
const char *td_s3_algorithm_field(enum td_s3_algorithm algorithm);

/* Returns whether a header field or trailer with this name says a checksum; sets *algorithm, to TD_S3_NO_ALGORITHM for
 * one that is not implemented, such as x-amz-checksum-xxhash64. */
bool td_s3_is_checksum_field(struct td_text name, enum td_s3_algorithm *algorithm);

/* Returns the number of bytes of the algorithm's sums. */
size_t td_s3_sum_bytes(enum td_s3_algorithm algorithm);

/* Decodes a sum from base64. Returns false for a text that is no sum of this algorithm. */
bool td_s3_read_sum(enum td_s3_algorithm algorithm, struct td_text text, uint8_t sum[TD_S3_SUM_BYTES]);

/* The sums of a body that is arriving, and what the client says of them. */
struct td_s3_checksums {
    bool computes[TD_S3_ALGORITHMS], is_expected[TD_S3_ALGORITHMS];
    uint8_t expected[TD_S3_ALGORITHMS][TD_S3_SUM_BYTES], sums[TD_S3_ALGORITHMS][TD_S3_SUM_BYTES];
    uint64_t crcs[TD_S3_ALGORITHMS];
    EVP_MD_CTX *digests[TD_S3_ALGORITHMS];
};

/* Begins without algorithms. */
void td_s3_checksums_init(struct td_s3_checksums *checksums);
void td_s3_checksums_fini(struct td_s3_checksums *checksums);

/* Returns whether an algorithm was added. */
bool td_s3_checksums_computes_any(const struct td_s3_checksums *checksums);

/* Computes the algorithm from the body's first byte on. Returns false without memory. */
bool td_s3_checksums_add(struct td_s3_checksums *checksums, enum td_s3_algorithm algorithm);

/* Sets what the sum must be. Returns false for a text that is no sum of this algorithm. */
bool td_s3_checksums_expect(struct td_s3_checksums *checksums, enum td_s3_algorithm algorithm, struct td_text text);

/* Takes the next bytes of the body. */
void td_s3_checksums_write(struct td_s3_checksums *checksums, const void *bytes, size_t len);

/* Computes the sums of the whole body. Returns the first algorithm whose sum is not the expected one, or
 * TD_S3_NO_ALGORITHM. */
enum td_s3_algorithm td_s3_checksums_end(struct td_s3_checksums *checksums);

/* Writes a sum in base64 with a NUL. */
void td_s3_write_sum(enum td_s3_algorithm algorithm, const uint8_t *sum, char text[TD_S3_SUM_TEXT_BYTES]);

#endif
