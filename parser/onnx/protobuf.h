/* Protocol Buffers' wire format, read field by field from a bounded input. Source: Protocol Buffers documentation,
 * "Encoding": a message is a run of records, each a tag (field number and wire type) and a payload.
 *
 * What is inside a length-delimited field is passed over unless the caller goes into it, so a message is walked without
 * recursion and without reading what is not wanted. Groups (wire types 3 and 4), which have been deprecated since
 * 2001's proto1 and which none of our formats has, are refused, as are the numbers 6 and 7, field 0, and varints of
 * more than 64 bits. A varint that is longer than it need be is legal and read. */
#ifndef TD_PARSER_PROTOBUF_H
#define TD_PARSER_PROTOBUF_H

#include "core/arena.h"
#include "core/input.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_protobuf_wire {
    TD_WIRE_VARINT = 0,
    TD_WIRE_FIXED64 = 1,
    TD_WIRE_BYTES = 2, /* length-delimited: a string, a message, packed numbers */
    TD_WIRE_FIXED32 = 5,
};

enum { TD_PROTOBUF_WINDOW_BYTES = 4096 };

struct td_protobuf {
    const struct td_input *input;
    struct td_error *err;
    uint64_t pos;       /* next byte to read */
    uint64_t budget;    /* bytes of tags, lengths, numbers and copied texts that may still be read */
    uint64_t window_at; /* what window holds, in the input */
    size_t window_len;
    uint8_t window[TD_PROTOBUF_WINDOW_BYTES];
};

struct td_protobuf_field {
    uint32_t number;
    enum td_protobuf_wire wire;
    uint64_t tag_at; /* where its tag begins */
    uint64_t value;  /* of VARINT */
    uint64_t at;     /* of the payload; of BYTES behind its length */
    uint64_t len;    /* of the payload in bytes */
};

/* Begins at the input's first byte. budget bounds the time: what is passed over does not count. */
void td_protobuf_init(struct td_protobuf *reader, const struct td_input *input, uint64_t budget, struct td_error *err);

/* Reads the field at reader->pos, in a message that ends at `end`, and goes behind it. To read a message within,
 * set pos to field->at and read until field->at + field->len; pos is then where it was. False on a fault. */
bool td_protobuf_next(struct td_protobuf *reader, uint64_t end, struct td_protobuf_field *field);

/* Reads one varint of packed ones that end at `end`, and goes behind it. */
bool td_protobuf_varint(struct td_protobuf *reader, uint64_t end, uint64_t *out);

/* A copy of a BYTES field in the arena, with a NUL behind it. NULL on a fault. */
char *td_protobuf_copy(struct td_protobuf *reader, const struct td_protobuf_field *field, struct td_arena *arena);

#endif
