/* A bounded, random-access, read-only input: a parser reads from it and never sees a path, a descriptor or a mapping.
 * Every read copies into the caller's memory. So a file that shrinks during a parse raises no signal, and a file that
 * changes cannot change a value between its check and its use (no double fetch). */
#ifndef TD_CORE_INPUT_H
#define TD_CORE_INPUT_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_input {
    uint64_t size_bytes;
    /* Copies all len bytes at off to out, or fails. The caller has checked [off, off+len) against size_bytes. */
    bool (*read)(const void *context, uint64_t off, void *out, size_t len, struct td_error *err);
    const void *context;
};

/* Copies len bytes at off to out. Returns false when not all of them could be read; out may then be partly written.
 * Errors: TD_INVALID_ARGUMENT with position off when [off, off+len) passes the end, and those of the input's `read`.
 * Several threads may read one input when its `read` allows that; inputs over memory, windows over them, and inputs of
 * td_input_descriptor allow it. */
bool td_input_read(const struct td_input *input, uint64_t off, void *out, size_t len, struct td_error *err);

/* Returns an input over bytes[0..len), which must outlive it. */
struct td_input td_input_memory(const void *bytes, size_t len);

/* A part of an input that serves as an input itself: a file within an archive. Errors of td_input_read on the inner
 * input have positions from the window's start; td_error_shift turns them into positions in the outer input. The window
 * and the outer input must outlive the inner input. */
struct td_window {
    const struct td_input *outer;
    uint64_t off;
};

/* Sets *window to [off, off+len) of outer, and *input to an input that reads through it. Errors: TD_INVALID_ARGUMENT
 * with position off when the range passes the end of outer. */
bool td_input_window(const struct td_input *outer, uint64_t off, uint64_t len, struct td_window *window,
                     struct td_input *input, struct td_error *err);

/* Reads len bytes at off into new memory, which the caller frees with free(). Returns NULL on failure only, not for len
 * 0. Errors: TD_INVALID_ARGUMENT past the end, TD_RESOURCE_EXHAUSTED when len is above limit_bytes or memory is short,
 * and those of the input. */
uint8_t *td_input_load(const struct td_input *input, uint64_t off, uint64_t len, uint64_t limit_bytes,
                       struct td_error *err);

/* Return the little-endian integer at p, which need not be aligned. */
static inline uint16_t td_load_le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint16_t)p[1] << 8);
}

static inline uint32_t td_load_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t td_load_le64(const uint8_t *p)
{
    return (uint64_t)td_load_le32(p) | (uint64_t)td_load_le32(p + 4) << 32;
}

#endif
