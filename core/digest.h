/* SHA-256 by OpenSSL: whole digests, and short hexadecimal tags that serve as validators. Threads: one at a time per
 * digest. */
#ifndef TD_CORE_DIGEST_H
#define TD_CORE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The size of a tag: the first 128 bits of a digest in hexadecimal, and a NUL. Two different inputs do not get the same
 * tag by chance. */
enum { TD_TAG_BYTES = 33 };

/* The sizes of a whole digest: in hexadecimal with a NUL, and in binary. */
enum { TD_SHA256_TEXT_BYTES = 65, TD_SHA256_BYTES = 32 };

struct td_digest; /* a running SHA-256 */

/* Returns a new digest, which a td_digest_finish* function frees, or NULL when out of memory. The td_digest_add*
 * functions do nothing for NULL and the td_digest_finish* functions then return false, so the caller checks once, at
 * the end. */
struct td_digest *td_digest_create(void);

/* Add the length as 8 bytes in this machine's byte order, and then len bytes, or a string without its NUL. So ("ab",
 * "c") and ("a", "bc") give different digests. */
void td_digest_add(struct td_digest *digest, const void *bytes, size_t len);
void td_digest_add_cstring(struct td_digest *digest, const char *text);

/* Adds bytes without a prefix, so that the digest of a file's content is the one that other programs compute. */
void td_digest_add_content(struct td_digest *digest, const void *bytes, size_t len);

/* Writes the tag and frees the digest. Returns false, with an empty tag, when the digest is NULL. */
bool td_digest_finish(struct td_digest *digest, char tag[TD_TAG_BYTES]);

/* Writes the digest's first text_bytes - 1 hexadecimal digits (an even number, at most 64) and a NUL, and frees the
 * digest. Returns false, with an empty text, when the digest is NULL. */
bool td_digest_finish_text(struct td_digest *digest, char *text, size_t text_bytes);

/* Writes the whole digest in binary and frees the digest. Returns false, and does not change `sum`, when the digest is
 * NULL. */
bool td_digest_finish_binary(struct td_digest *digest, uint8_t sum[TD_SHA256_BYTES]);

/* Writes the tag of one byte string, added by td_digest_add. Returns false, with an empty tag, when out of memory. */
bool td_digest_tag(const void *bytes, size_t len, char tag[TD_TAG_BYTES]);

/* Writes the SHA-256 of one byte string, as other programs compute it. Allocates nothing and cannot fail. */
void td_sha256(const void *bytes, size_t len, uint8_t sum[TD_SHA256_BYTES]);

/* Writes the HMAC-SHA-256 (RFC 2104) of the message by a key of any length. Allocates nothing and cannot fail, so no
 * caller can continue with a guessable value. */
void td_hmac_sha256(const void *key, size_t key_len, const void *message, size_t len, uint8_t sum[TD_SHA256_BYTES]);

#endif
