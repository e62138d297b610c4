/* base64 with padding (RFC 4648 section 4), for Basic credentials and the checksums of S3, and base64url without
 * padding (section 5), for text that stands in URLs, headers and JSON without escapes. */
#ifndef TD_CORE_BASE64_H
#define TD_CORE_BASE64_H

#include "core/buffer.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Decodes the text to `bytes`, which has room for text.len of them, and sets *len to their number. The padding may be
 * missing. Returns false for other characters, a length that no bytes have, and unused bits that are not 0; `bytes` is
 * then undefined. */
bool td_base64_read(struct td_text text, void *bytes, size_t *len);

/* Does the same for either alphabet, or both of them in one text. `bytes` may be the text itself. */
bool td_base64_read_any(struct td_text text, void *bytes, size_t *len);

/* Length of the base64 text of len bytes, without its NUL. */
#define TD_BASE64_LEN(len) (((len) + 2) / 3 * 4)

/* Writes the bytes as base64 text with padding and a NUL. `text` has room for TD_BASE64_LEN(len) + 1 characters. */
void td_base64_write(const void *bytes, size_t len, char *text);

/* Appends the bytes as base64 text with padding. */
void td_base64_append(struct td_buffer *out, const void *bytes, size_t len);

/* The characters that this many bytes become, without a NUL. A constant expression for a constant count; the count is
 * below 2^60. */
#define TD_BASE64URL_CHARS(bytes) (((bytes)*4 + 2) / 3)

/* Writes TD_BASE64URL_CHARS(len) characters, without a NUL. */
void td_base64url_write(const void *bytes, size_t len, char *text);

/* Decodes the text to `bytes`, which has room for text.len of them, and sets *len to their number. Returns false for a
 * text that td_base64url_write never writes: other characters, padding, a length that no bytes have, or unused bits
 * that are not 0. `bytes` is then undefined. */
bool td_base64url_read(struct td_text text, void *bytes, size_t *len);

#endif
