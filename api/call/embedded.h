/* Texts that the build embeds into the program, compressed: the contract and the schema. */
#ifndef TD_API_CALL_EMBEDDED_H
#define TD_API_CALL_EMBEDDED_H

#include "core/buffer.h"

#include <stddef.h>

/* Appends the text of `len` bytes that is compressed in a zlib stream (RFC 1950). Marks the buffer `failed` when memory
 * is short. */
void td_embedded_append(const unsigned char *packed, size_t packed_len, size_t len, struct td_buffer *out);

#endif
