/* Reads one Zstandard frame (RFC 8878) from an input, in pieces of any length. */
#ifndef TD_CATALOG_DELTA_DELTA_FRAME_H
#define TD_CATALOG_DELTA_DELTA_FRAME_H

#include "core/error.h"
#include "core/input.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A frame may always have a window of so many bytes, which its decoder keeps in memory: libzstd's own limit. */
#define TD_DELTA_WINDOW_BYTES (UINT64_C(128) << 20)

struct td_delta_frame; /* a frame that is being read */

/* Opens the frame that takes the `len` bytes at `off` of the input, and sets *out, which td_delta_frame_close frees.
 * The input is borrowed. most_bytes: no frame of more decoded bytes is read; a frame may also have a window of this
 * length. Errors: TD_INVALID_ARGUMENT for bytes that begin with no frame header, for a frame that says that its content
 * has more than most_bytes bytes, for a larger window and for a dictionary; TD_RESOURCE_EXHAUSTED; those of the
 * input. */
bool td_delta_frame_open(const struct td_input *input, uint64_t off, uint64_t len, uint64_t most_bytes,
                         struct td_delta_frame **out, struct td_error *err);
void td_delta_frame_close(struct td_delta_frame *frame);

/* Decodes the next `len` bytes to `out`. Errors: TD_INVALID_ARGUMENT for damaged bytes and when the content ends
 * before; those of the input. No call may follow an error. */
bool td_delta_frame_read(struct td_delta_frame *frame, void *out, size_t len, struct td_error *err);

/* Checks that the content ends here, and that the frame's bytes do. Errors: as td_delta_frame_read. */
bool td_delta_frame_end(struct td_delta_frame *frame, struct td_error *err);

#endif
