/* The binary form of messages (https://protobuf.dev/programming-guides/encoding/): writers, which append to a buffer.
 * As td_buffer_append, they mark the buffer `failed` when memory is short. */
#ifndef TD_CORE_MESSAGE_WIRE_H
#define TD_CORE_MESSAGE_WIRE_H

#include "core/buffer.h"
#include "core/text.h"

#include <stddef.h>
#include <stdint.h>

enum td_wire_type { TD_WIRE_VARINT = 0, TD_WIRE_64 = 1, TD_WIRE_BYTES = 2, TD_WIRE_32 = 5 };

/* The most bytes of a varint of 64 bits. */
enum { TD_VARINT_BYTES = 10 };

/* Writes a varint to `out`, which has room for TD_VARINT_BYTES bytes. Returns its length. */
static inline size_t td_varint_write(uint64_t value, uint8_t *out)
{
    size_t len = 0;
    for (; value >= 0x80; value >>= 7)
        out[len++] = (uint8_t)(value | 0x80);
    out[len++] = (uint8_t)value;
    return len;
}

static inline void td_wire_varint(struct td_buffer *out, uint64_t value)
{
    uint8_t bytes[TD_VARINT_BYTES];
    td_buffer_append(out, bytes, td_varint_write(value, bytes));
}

/* Appends the tag of a field, whose number is at most 2^29 - 1. */
static inline void td_wire_tag(struct td_buffer *out, uint32_t number, enum td_wire_type type)
{
    td_wire_varint(out, (uint64_t)number << 3 | (uint64_t)type);
}

/* Appends the eight bytes of a double. */
void td_wire_bits(struct td_buffer *out, double value);

/* Append a whole field. */
void td_wire_u64(struct td_buffer *out, uint32_t number, uint64_t value);
void td_wire_double(struct td_buffer *out, uint32_t number, double value);
void td_wire_text(struct td_buffer *out, uint32_t number, struct td_text text);

/* Begins a field whose length is not known yet: a message, or packed numbers. Returns where its contents begin, for
 * td_wire_end, which writes the length before what was appended in between. */
size_t td_wire_begin(struct td_buffer *out, uint32_t number);
void td_wire_end(struct td_buffer *out, size_t start);

/* The most levels of objects and lists in a google.protobuf.Struct that is written: a level is up to three levels of
 * messages, and common readers of messages stop at 100. */
enum { TD_STRUCT_DEPTH = 30 };

/* Append the fields of a google.protobuf.Struct, or of a google.protobuf.Value, with the contents of the text: a JSON
 * object, or any JSON value. Numbers become doubles. Return false, with the buffer as it was, when the text is no such
 * JSON, is nested deeper than TD_STRUCT_DEPTH, or has a number beyond the doubles. */
bool td_wire_struct(struct td_buffer *out, struct td_text json);
bool td_wire_value(struct td_buffer *out, struct td_text json);

/* Returns whether td_wire_struct (is_struct) or td_wire_value takes the text. */
bool td_struct_fits(struct td_text json, bool is_struct);

#endif
