#include "catalog/delta/delta_patch.h"

#include "catalog/delta/delta_frame.h"

#include <stdlib.h>

enum {
    WINDOW_BYTES = 1024 * 1024, /* of a tensor, at once */
    NUMBER_BYTES = 4,           /* of a position, and of their number */
    BATCH = 16 * 1024,          /* positions that are read at once */
};

/* ---- XOR ----------------------------------------------------------------------------------------------- */

static void xor_bytes(uint8_t *bytes, const uint8_t *other, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] ^= other[i];
}

/* Changes the tensor window by window. windows: memory for two of them. */
static bool apply_xor(struct td_delta_frame *frame, const struct td_delta_tensor *tensor, struct td_delta_sum *sum,
                      uint8_t *windows, struct td_error *err)
{
    uint8_t *difference = windows + WINDOW_BYTES;
    for (uint64_t off = 0; off < tensor->nbytes;) {
        uint64_t left = tensor->nbytes - off;
        size_t n = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
        if (!td_delta_frame_read(frame, difference, n, err) || !tensor->read(tensor->context, off, windows, n, err))
            return false;
        xor_bytes(windows, difference, n);
        td_delta_sum_add(sum, windows, n);
        if (!tensor->write(tensor->context, off, windows, n, err))
            return false;
        off += n;
    }
    return td_delta_frame_end(frame, err);
}

/* ---- OVERWRITE ----------------------------------------------------------------------------------------- */

/* The frame is decoded twice, side by side: once for the positions and once for the new bytes, which follow all
 * positions. So the positions, four times as long as the bytes, are never in memory together. */
struct overwrite {
    struct td_delta_frame *positions, *values;
    uint64_t count; /* of bytes that change */
    uint8_t position_bytes[BATCH * NUMBER_BYTES];
    uint8_t value_bytes[BATCH];
};

/* Skips the next `len` bytes of the content. */
static bool skip(struct td_delta_frame *frame, uint64_t len, uint8_t *scratch, size_t scratch_bytes,
                 struct td_error *err)
{
    while (len > 0) {
        size_t n = len < scratch_bytes ? (size_t)len : scratch_bytes;
        if (!td_delta_frame_read(frame, scratch, n, err))
            return false;
        len -= n;
    }
    return true;
}

/* Reads the number of bytes that change, and moves the second decoder to the new bytes. */
static bool begin_overwrite(struct overwrite *overwrite, uint64_t nbytes, struct td_error *err)
{
    uint8_t number[NUMBER_BYTES];
    if (!td_delta_frame_read(overwrite->positions, number, sizeof number, err))
        return false;
    overwrite->count = td_load_le32(number);
    if (overwrite->count > nbytes)
        return td_error_set(err, TD_INVALID_ARGUMENT, "%llu bytes change, but the tensor has only %llu",
                            (unsigned long long)overwrite->count, (unsigned long long)nbytes);
    return skip(overwrite->values, NUMBER_BYTES + overwrite->count * NUMBER_BYTES, overwrite->position_bytes,
                sizeof overwrite->position_bytes, err);
}

/* Changes the bytes in memory. */
static bool change_bytes(struct overwrite *overwrite, uint8_t *bytes, uint64_t nbytes, struct td_error *err)
{
    for (uint64_t done = 0; done < overwrite->count;) {
        size_t n = overwrite->count - done < BATCH ? (size_t)(overwrite->count - done) : BATCH;
        if (!td_delta_frame_read(overwrite->positions, overwrite->position_bytes, n * NUMBER_BYTES, err) ||
            !td_delta_frame_read(overwrite->values, overwrite->value_bytes, n, err))
            return false;
        for (size_t i = 0; i < n; i++) {
            uint32_t position = td_load_le32(overwrite->position_bytes + i * NUMBER_BYTES);
            if (position >= nbytes)
                return td_error_set(err, TD_INVALID_ARGUMENT, "byte %lu changes, but the tensor has only %llu",
                                    (unsigned long)position, (unsigned long long)nbytes);
            bytes[position] = overwrite->value_bytes[i];
        }
        done += n;
    }
    return td_delta_frame_end(overwrite->values, err);
}

static bool read_all(const struct td_delta_tensor *tensor, uint8_t *bytes, struct td_error *err)
{
    for (uint64_t off = 0; off < tensor->nbytes;) {
        uint64_t left = tensor->nbytes - off;
        size_t n = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
        if (!tensor->read(tensor->context, off, bytes + off, n, err))
            return false;
        off += n;
    }
    return true;
}

static bool write_all(const struct td_delta_tensor *tensor, const uint8_t *bytes, struct td_delta_sum *sum,
                      struct td_error *err)
{
    for (uint64_t off = 0; off < tensor->nbytes;) {
        uint64_t left = tensor->nbytes - off;
        size_t n = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
        td_delta_sum_add(sum, bytes + off, n);
        if (!tensor->write(tensor->context, off, bytes + off, n, err))
            return false;
        off += n;
    }
    return true;
}

/* Changes the tensor in memory. bytes: memory for all of it. */
static bool apply_overwrite(struct overwrite *overwrite, const struct td_delta_tensor *tensor, struct td_delta_sum *sum,
                            uint8_t *bytes, struct td_error *err)
{
    return begin_overwrite(overwrite, tensor->nbytes, err) && read_all(tensor, bytes, err) &&
           change_bytes(overwrite, bytes, tensor->nbytes, err) && write_all(tensor, bytes, sum, err);
}

/* ---- the functions of the header ----------------------------------------------------------------------- */

/* Sets *out to the most bytes that the content of the frame has. */
static bool content_bytes(const struct td_delta_patch *patch, uint64_t nbytes, uint64_t *out, struct td_error *err)
{
    *out = nbytes;
    if (patch->encoding == TD_DELTA_XOR)
        return true;
    if (nbytes > UINT32_MAX)
        return td_error_set(err, TD_INVALID_ARGUMENT, "overwrite cannot change a tensor of 4 GiB or more");
    *out = NUMBER_BYTES + nbytes * (NUMBER_BYTES + 1);
    return true;
}

static bool open_frame(const struct td_delta_patch *patch, uint64_t nbytes, struct td_delta_frame **out,
                       struct td_error *err)
{
    uint64_t most_bytes;
    *out = NULL;
    return content_bytes(patch, nbytes, &most_bytes, err) &&
           td_delta_frame_open(patch->input, patch->off, patch->len, most_bytes, out, err);
}

bool td_delta_patch_check(const struct td_delta_patch *patch, uint64_t nbytes, struct td_error *err)
{
    struct td_delta_frame *frame = NULL;
    bool ok = open_frame(patch, nbytes, &frame, err);
    td_delta_frame_close(frame);
    return ok;
}

/* Compares the sum of the new bytes with the expected one. */
static bool check_sum(const struct td_delta_patch *patch, const struct td_delta_sum *sum, struct td_error *err)
{
    char text[TD_DELTA_SUM_TEXT_BYTES];
    td_delta_sum_write(sum, text);
    return td_text_equals(patch->sum, text) ||
           td_error_set(err, TD_INVALID_ARGUMENT, "the checksum of the new bytes is %s, but the delta says %.*s", text,
                        TD_SHOW(patch->sum, 40));
}

static bool patch_by_xor(const struct td_delta_patch *patch, const struct td_delta_tensor *tensor,
                         struct td_delta_sum *sum, struct td_error *err)
{
    struct td_delta_frame *frame = NULL;
    uint8_t *windows = malloc((size_t)2 * WINDOW_BYTES);
    if (windows == NULL)
        return td_error_no_memory(err);
    bool ok = open_frame(patch, tensor->nbytes, &frame, err) && apply_xor(frame, tensor, sum, windows, err);
    td_delta_frame_close(frame);
    free(windows);
    return ok;
}

static bool patch_by_overwrite(const struct td_delta_patch *patch, const struct td_delta_tensor *tensor,
                               struct td_delta_sum *sum, struct td_error *err)
{
    struct overwrite *overwrite = calloc(1, sizeof *overwrite);
    if (overwrite == NULL)
        return td_error_no_memory(err);
    bool ok = open_frame(patch, tensor->nbytes, &overwrite->positions, err) &&
              open_frame(patch, tensor->nbytes, &overwrite->values, err);
    uint8_t *bytes = ok ? malloc((size_t)tensor->nbytes + 1) : NULL;
    if (bytes != NULL)
        ok = apply_overwrite(overwrite, tensor, sum, bytes, err);
    else if (ok)
        ok = td_error_no_memory(err);
    td_delta_frame_close(overwrite->positions);
    td_delta_frame_close(overwrite->values);
    free(overwrite);
    free(bytes);
    return ok;
}

bool td_delta_patch_apply(const struct td_delta_patch *patch, const struct td_delta_tensor *tensor,
                          struct td_error *err)
{
    struct td_delta_sum *sum = td_delta_sum_create(patch->sum_kind);
    if (sum == NULL)
        return td_error_no_memory(err);
    bool ok = (patch->encoding == TD_DELTA_XOR ? patch_by_xor : patch_by_overwrite)(patch, tensor, sum, err) &&
              check_sum(patch, sum, err);
    td_delta_sum_free(sum);
    return ok;
}
