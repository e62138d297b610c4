/* A reader of Protocol Buffers' wire format, field by field. Source: Protocol Buffers documentation, "Encoding": a
 * message is a sequence of records, each a tag (field number and wire type) and a payload.
 *
 * The reader skips the contents of a length-delimited field unless the caller enters it. So a message is walked without
 * recursion, and without reading the parts that are not needed. The reader refuses groups (wire types 3 and 4, which
 * are deprecated and which no supported format uses), the wire types 6 and 7, field 0, and varints of more than 64
 * bits. It accepts a varint that is longer than necessary. A function that returns false or NULL has set the error:
 * TD_INVALID_ARGUMENT with the position, TD_RESOURCE_EXHAUSTED, or one of the input. */
#ifndef TD_PARSER_ONNX_PROTOBUF_H
#define TD_PARSER_ONNX_PROTOBUF_H

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
    uint64_t window_at; /* position of the window in the input */
    size_t window_len;
    uint8_t window[TD_PROTOBUF_WINDOW_BYTES];
};

struct td_protobuf_field {
    uint32_t number;
    enum td_protobuf_wire wire;
    uint64_t tag_at; /* position of the tag */
    uint64_t value;  /* of a VARINT */
    uint64_t at;     /* position of the payload; for BYTES after the length */
    uint64_t len;    /* of the payload in bytes */
};

/* Begins at the input's first byte. budget limits the bytes that are read, and so the time; skipped bytes do not count.
 */
void td_protobuf_init(struct td_protobuf *reader, const struct td_input *input, uint64_t budget, struct td_error *err);

/* Reads the field at reader->pos, in a message that ends at `end` (at most the input's size), and moves pos past the
 * field. The caller checks that pos is below `end`: at the end of a message, no field is an error. To read an inner
 * message, set pos to field->at and read until field->at + field->len; pos is then past the field again. */
bool td_protobuf_next(struct td_protobuf *reader, uint64_t end, struct td_protobuf_field *field);

/* Reads the varint at reader->pos, among packed varints that end at `end`, and moves pos past it. */
bool td_protobuf_varint(struct td_protobuf *reader, uint64_t end, uint64_t *out);

/* Sets *count to the number of packed varints in a BYTES field. Reads the whole payload once, without counting its
 * bytes against the budget. Refuses a varint that is cut off or has more than ten bytes. Does not move pos. */
bool td_protobuf_count_varints(struct td_protobuf *reader, const struct td_protobuf_field *field, uint64_t *count);

/* Returns a copy of a BYTES field in the arena, with a NUL after it. */
char *td_protobuf_copy(struct td_protobuf *reader, const struct td_protobuf_field *field, struct td_arena *arena);

#endif
