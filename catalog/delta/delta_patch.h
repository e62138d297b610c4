/* Changes the bytes of one tensor as a delta says. */
#ifndef TD_CATALOG_DELTA_DELTA_PATCH_H
#define TD_CATALOG_DELTA_DELTA_PATCH_H

#include "catalog/delta/delta_sum.h"
#include "core/error.h"
#include "core/input.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of content that a frame has. */
enum td_delta_encoding {
    TD_DELTA_XOR, /* old ^ new, as long as the tensor */
    /* a number of bytes, their positions, all as u32 in little-endian order, and then the new bytes themselves; a
       tensor of 4 GiB or more cannot be changed by it */
    TD_DELTA_OVERWRITE,
};

/* The change of one tensor. */
struct td_delta_patch {
    const struct td_input *input; /* has the frame, in the `len` bytes at `off`; borrowed */
    uint64_t off, len;
    enum td_delta_encoding encoding;
    enum td_delta_sum_kind sum_kind;
    struct td_text sum; /* of the tensor's new bytes, as td_delta_sum_is_text accepts it; borrowed */
};

/* Where the bytes of the tensor are. */
struct td_delta_tensor {
    uint64_t nbytes;
    /* Copies `len` old bytes at `off` to `out`, and writes new ones. */
    bool (*read)(void *context, uint64_t off, void *out, size_t len, struct td_error *err);
    bool (*write)(void *context, uint64_t off, const void *bytes, size_t len, struct td_error *err);
    void *context;
};

/* Checks what the frame's header alone says about the change of a tensor of nbytes bytes. Errors: as
 * td_delta_patch_apply. */
bool td_delta_patch_check(const struct td_delta_patch *patch, uint64_t nbytes, struct td_error *err);

/* Reads the old bytes of the tensor and writes the new ones, each byte once and in order. No byte is read after it was
 * written. XOR takes memory for 1 MiB of the tensor, OVERWRITE for all of it, and each for the frame's window
 * (delta_frame.h). Errors: TD_INVALID_ARGUMENT for a frame that td_delta_frame_open refuses or that is damaged, for
 * content of the wrong length, for positions beyond the tensor and for another checksum, by then all bytes have been
 * written; TD_RESOURCE_EXHAUSTED; those of the input, `read` and `write`. */
bool td_delta_patch_apply(const struct td_delta_patch *patch, const struct td_delta_tensor *tensor,
                          struct td_error *err);

#endif
