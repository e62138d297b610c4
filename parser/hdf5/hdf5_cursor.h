/* The fields of an HDF5 structure that is in memory, read one after the other. Only for parser/hdf5. */
#ifndef TD_PARSER_HDF5_HDF5_CURSOR_H
#define TD_PARSER_HDF5_HDF5_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A read past the end returns zero and sets `bad`, so that readers need to check only once, at the end. */
struct td_h5_cursor {
    const uint8_t *p;
    size_t left;
    uint64_t addr; /* address of p in the file: for errors */
    bool bad;
};

/* Takes len bytes. Returns where they begin, or NULL. */
static inline const uint8_t *td_h5_take(struct td_h5_cursor *c, size_t len)
{
    if (c->bad || len > c->left) {
        c->bad = true;
        return NULL;
    }
    const uint8_t *p = c->p;
    c->p += len;
    c->left -= len;
    c->addr += len;
    return p;
}

/* Takes a little-endian number of 1 to 8 bytes. The three functions below do so for 1, 2 and 4 bytes. */
static inline uint64_t td_h5_number(struct td_h5_cursor *c, unsigned bytes)
{
    const uint8_t *p = td_h5_take(c, bytes);
    uint64_t value = 0;
    if (p != NULL)
        for (unsigned i = bytes; i-- > 0;)
            value = value << 8 | p[i];
    return value;
}

static inline uint8_t td_h5_u8(struct td_h5_cursor *c)
{
    return (uint8_t)td_h5_number(c, 1);
}

static inline uint16_t td_h5_u16(struct td_h5_cursor *c)
{
    return (uint16_t)td_h5_number(c, 2);
}

static inline uint32_t td_h5_u32(struct td_h5_cursor *c)
{
    return (uint32_t)td_h5_number(c, 4);
}

/* Takes four bytes. Returns whether they are these four letters. */
static inline bool td_h5_signature(struct td_h5_cursor *c, const char *letters)
{
    const uint8_t *p = td_h5_take(c, 4);
    return p != NULL && p[0] == (uint8_t)letters[0] && p[1] == (uint8_t)letters[1] && p[2] == (uint8_t)letters[2] &&
           p[3] == (uint8_t)letters[3];
}

#endif
