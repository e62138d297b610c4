#include "api/hub/xet_lz4.h"

#include <string.h>

enum {
    MAGIC_BYTES = 4,
    SHORTEST_MATCH = 4,
    VERSION_MASK = 0xC0,
    VERSION = 0x40,
    HAS_BLOCK_CHECKSUMS = 0x10,
    HAS_SIZE = 0x08,
    HAS_CHECKSUM = 0x04,
    HAS_DICTIONARY = 0x01,
};

#define IS_STORED UINT32_C(0x80000000) /* of a block's length: it is not compressed */

/* The text that is left, and the bytes that were written. */
struct reading {
    const uint8_t *in, *end;
    uint8_t *out;
    size_t at, len;
};

static bool fail(struct td_error *err, const char *what)
{
    return td_error_set(err, TD_INVALID_ARGUMENT, "an LZ4 frame %s", what);
}

static size_t left(const struct reading *r)
{
    return (size_t)(r->end - r->in);
}

static bool copy(struct reading *r, size_t n)
{
    if (n > left(r) || n > r->len - r->at)
        return false;
    if (n > 0)
        memcpy(r->out + r->at, r->in, n);
    r->in += n;
    r->at += n;
    return true;
}

/* Adds the bytes that lengthen a length of 15. */
static bool lengthen(struct reading *r, size_t *n)
{
    uint8_t more;
    if (*n != 15)
        return true;
    do {
        if (left(r) == 0 || *n > r->len) /* more is never right */
            return false;
        more = *r->in++;
        *n += more;
    } while (more == 255);
    return true;
}

/* Copies a match: n bytes from `offset` bytes back, which may reach into the bytes that it writes. */
static bool repeat(struct reading *r, size_t offset, size_t n)
{
    if (offset == 0 || offset > r->at || n > r->len - r->at)
        return false;
    for (uint8_t *to = r->out + r->at, *end = to + n; to < end; to++)
        *to = to[-(ptrdiff_t)offset];
    r->at += n;
    return true;
}

/* Unpacks a block, all of r->in. Its last sequence has literals alone. */
static bool read_block(struct reading *r)
{
    while (left(r) > 0) {
        uint8_t token = *r->in++;
        size_t literals = token >> 4;
        size_t match = token & 15;
        if (!lengthen(r, &literals) || !copy(r, literals))
            return false;
        if (left(r) == 0)
            return true;
        if (left(r) < 2)
            return false;
        size_t offset = (size_t)r->in[0] | (size_t)r->in[1] << 8;
        r->in += 2;
        if (!lengthen(r, &match) || !repeat(r, offset, match + SHORTEST_MATCH))
            return false;
    }
    return false; /* an empty block, or one that ends in a match */
}

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Reads the head of the frame. Sets *flags. */
static bool read_head(struct reading *r, unsigned *flags, struct td_error *err)
{
    static const uint8_t magic[MAGIC_BYTES] = {0x04, 0x22, 0x4D, 0x18};
    if (left(r) < MAGIC_BYTES + 3 || memcmp(r->in, magic, MAGIC_BYTES) != 0)
        return fail(err, "has no head");
    *flags = r->in[MAGIC_BYTES];
    if ((*flags & VERSION_MASK) != VERSION || (*flags & HAS_DICTIONARY) != 0)
        return fail(err, "has another version, or a dictionary");
    size_t head = MAGIC_BYTES + 3 + ((*flags & HAS_SIZE) != 0 ? 8 : 0);
    if (left(r) < head)
        return fail(err, "has no head");
    r->in += head;
    return true;
}

/* Reads the next block of this length. */
static bool next_block(struct reading *r, uint32_t word)
{
    size_t n = word & ~IS_STORED;
    if (n > left(r))
        return false;
    if ((word & IS_STORED) != 0)
        return copy(r, n);
    struct reading block = *r;
    block.end = r->in + n;
    if (!read_block(&block))
        return false;
    r->in += n;
    r->at = block.at;
    return true;
}

bool td_xet_lz4_read(struct td_text frame, uint8_t *out, size_t len, struct td_error *err)
{
    const uint8_t *in = (const uint8_t *)frame.p;
    struct reading r = {.in = in, .end = in + frame.len, .out = out, .len = len};
    unsigned flags = 0;
    if (frame.len == 0)
        return fail(err, "is empty");
    if (!read_head(&r, &flags, err))
        return false;
    for (;;) {
        if (left(&r) < 4)
            return fail(err, "is cut");
        uint32_t word = read_u32(r.in);
        r.in += 4;
        if (word == 0)
            break;
        if (!next_block(&r, word))
            return fail(err, "has a damaged block");
        if ((flags & HAS_BLOCK_CHECKSUMS) != 0 && left(&r) < 4)
            return fail(err, "is cut");
        r.in += (flags & HAS_BLOCK_CHECKSUMS) != 0 ? 4 : 0;
    }
    if (left(&r) != ((flags & HAS_CHECKSUM) != 0 ? 4 : 0) || r.at != len)
        return fail(err, "has another length");
    return true;
}
