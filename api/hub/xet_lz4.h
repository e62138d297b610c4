/* Reads LZ4 frames (the LZ4 Frame Format Description, 1.6.2) into a buffer whose size is known. Checksums are not
 * compared: the digest of the whole file is. Pure, without recursion, linear in the bytes that
 * it writes and reads; any thread. */
#ifndef TD_API_HUB_XET_LZ4_H
#define TD_API_HUB_XET_LZ4_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Unpacks one frame, which must end where the text does and have exactly len bytes. Errors: TD_INVALID_ARGUMENT; `out`
 * is then undefined. */
bool td_xet_lz4_read(struct td_text frame, uint8_t *out, size_t len, struct td_error *err);

#endif
