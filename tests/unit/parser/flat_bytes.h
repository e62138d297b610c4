/* FlatBuffers that a test makes by hand, number by number. Distances are set when the place they lead to is known. */
#ifndef TD_TESTS_UNIT_PARSER_FLAT_BYTES_H
#define TD_TESTS_UNIT_PARSER_FLAT_BYTES_H

#include "tests/unit/unit.h"

struct flat_bytes {
    uint8_t bytes[1 << 16];
    size_t len;
};

/* Appends a number of `bytes` bytes. Returns its place. */
static inline size_t flat_put(struct flat_bytes *flat, uint64_t value, size_t bytes)
{
    size_t at = flat->len;
    assert_true(bytes <= sizeof flat->bytes - at);
    for (size_t i = 0; i < bytes; i++)
        flat->bytes[flat->len++] = (uint8_t)(value >> (8 * i));
    return at;
}

/* Writes over a number of 4 bytes. */
static inline void flat_set(struct flat_bytes *flat, size_t at, uint64_t value)
{
    for (size_t i = 0; i < 4; i++)
        flat->bytes[at + i] = (uint8_t)(value >> (8 * i));
}

/* Lets the distance at `at` lead to the end of what there is. */
static inline void flat_lead(struct flat_bytes *flat, size_t at)
{
    flat_set(flat, at, flat->len - at);
}

/* Appends a vtable and the first 4 bytes of its table, whose fields (distances from its start; 0: absent) and length in
 * bytes are given. Returns the place of the table; the caller appends the fields. */
static inline size_t flat_table(struct flat_bytes *flat, size_t table_bytes, const uint16_t *fields, size_t count)
{
    size_t vtable = flat_put(flat, 4 + 2 * count, 2);
    (void)flat_put(flat, table_bytes, 2);
    for (size_t i = 0; i < count; i++)
        (void)flat_put(flat, fields[i], 2);
    return flat_put(flat, flat->len - vtable, 4);
}

#endif
