/* SHA-256 digests by OpenSSL: whole ones, and short hexadecimal tags that serve as validators. */
#ifndef TD_CORE_DIGEST_H
#define TD_CORE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 128 bits in hexadecimal and a NUL: enough that two different inputs never share one by chance. */
enum { TD_TAG_BYTES = 33 };

/* All of a SHA-256, the same way; in binary without a NUL. */
enum { TD_SHA256_TEXT_BYTES = 65, TD_SHA256_BYTES = 32 };

struct td_digest; /* a running SHA-256 */

/* NULL when out of memory. */
struct td_digest *td_digest_create(void);

/* Adds bytes; a length prefix keeps neighbours apart, so ("ab","c") and ("a","bc") differ. */
void td_digest_add(struct td_digest *digest, const void *bytes, size_t len);
void td_digest_add_cstring(struct td_digest *digest, const char *text);

/* Adds bytes as they are, so that the digest of a content is that which others compute. */
void td_digest_add_content(struct td_digest *digest, const void *bytes, size_t len);

/* Writes the tag and frees the digest. False (tag empty) for a NULL digest: out of memory. */
bool td_digest_finish(struct td_digest *digest, char tag[TD_TAG_BYTES]);

/* The same with text_bytes - 1 hexadecimal digits of the sum, an even number of at most 64. */
bool td_digest_finish_text(struct td_digest *digest, char *text, size_t text_bytes);

/* The same in binary. */
bool td_digest_finish_binary(struct td_digest *digest, uint8_t sum[TD_SHA256_BYTES]);

/* The tag of one byte string. */
bool td_digest_tag(const void *bytes, size_t len, char tag[TD_TAG_BYTES]);

#endif
