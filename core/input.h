/* A bounded, random-access, read-only input: what a parser sees instead of a path, a descriptor or a mapping.
 * Every read copies into the caller's memory, so a file that changes or shrinks meanwhile can neither raise a
 * signal nor be seen in two versions by one check (no double fetch); an I/O error is an error, not a crash. */
#ifndef TD_CORE_INPUT_H
#define TD_CORE_INPUT_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_input {
    uint64_t size_bytes;
    /* Copies len bytes at off to out; all or an error. [off, off+len) lies within size_bytes. */
    bool (*read)(const void *context, uint64_t off, void *out, size_t len, struct td_error *err);
    const void *context;
};

/* Reads len bytes at off, checked against size_bytes: past the end is TD_INVALID_ARGUMENT at `off`. */
bool td_input_read(const struct td_input *input, uint64_t off, void *out, size_t len, struct td_error *err);

/* An input over bytes[0..len), which must outlive it (tests, fuzz targets). */
struct td_input td_input_memory(const void *bytes, size_t len);

/* A part of an input as an input of its own: a file within an archive. Positions in its errors count from its start;
 * td_error_shift moves them. The window and the outer input must outlive the input made of them. */
struct td_window {
    const struct td_input *outer;
    uint64_t off;
};

/* Fills *window with [off, off+len) of outer and *input with what reads through it. False (and an error) when that
 * is not within outer. */
bool td_input_window(const struct td_input *outer, uint64_t off, uint64_t len, struct td_window *window,
                     struct td_input *input, struct td_error *err);

/* Reads len bytes at off into memory of its own (free(); never NULL, len 0 too), at most limit_bytes. */
uint8_t *td_input_load(const struct td_input *input, uint64_t off, uint64_t len, uint64_t limit_bytes,
                       struct td_error *err);

/* Little-endian loads; the only place that reads integers out of file bytes. */
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
