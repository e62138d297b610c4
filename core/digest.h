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

/* Returns a new digest, or NULL when out of memory. The functions below accept NULL, and those that finish report
 * it. */
struct td_digest *td_digest_create(void);

/* Add len bytes, or a string without its NUL, behind a prefix of 8 bytes with the length. So ("ab", "c") and ("a",
 * "bc") give different digests. */
void td_digest_add(struct td_digest *digest, const void *bytes, size_t len);
void td_digest_add_cstring(struct td_digest *digest, const char *text);

/* Adds bytes without a prefix, so that the digest of a file's content is the one that other programs compute. */
void td_digest_add_content(struct td_digest *digest, const void *bytes, size_t len);

/* Writes the tag and frees the digest. Returns false, with an empty tag, for NULL. */
bool td_digest_finish(struct td_digest *digest, char tag[TD_TAG_BYTES]);

/* Does the same with text_bytes - 1 hexadecimal digits, an even number of at most 64. */
bool td_digest_finish_text(struct td_digest *digest, char *text, size_t text_bytes);

/* Does the same with the whole digest in binary; leaves `sum` alone for NULL. */
bool td_digest_finish_binary(struct td_digest *digest, uint8_t sum[TD_SHA256_BYTES]);

/* Writes the tag of one byte string, added by td_digest_add. Returns false, with an empty tag, when out of memory. */
bool td_digest_tag(const void *bytes, size_t len, char tag[TD_TAG_BYTES]);

#endif
