#include "parser/onnx/protobuf.h"

#include <inttypes.h>
#include <string.h>

void td_protobuf_init(struct td_protobuf *reader, const struct td_input *input, uint64_t budget, struct td_error *err)
{
    reader->input = input;
    reader->err = err;
    reader->pos = 0;
    reader->budget = budget;
    reader->window_at = 0;
    reader->window_len = 0;
}

static bool spend_budget(struct td_protobuf *reader, uint64_t bytes)
{
    if (bytes > reader->budget)
        return td_error_at(reader->err, TD_INVALID_ARGUMENT, reader->pos,
                           "its names and structure take more bytes than may be read of one file");
    reader->budget -= bytes;
    return true;
}

/* Takes the byte at reader->pos, which is within the input. */
static bool next_byte(struct td_protobuf *reader, uint8_t *out)
{
    if (reader->pos < reader->window_at || reader->pos - reader->window_at >= reader->window_len) {
        uint64_t left = reader->input->size_bytes - reader->pos;
        size_t len = left < sizeof reader->window ? (size_t)left : sizeof reader->window;
        reader->window_len = 0;
        if (!td_input_read(reader->input, reader->pos, reader->window, len, reader->err))
            return false;
        reader->window_at = reader->pos;
        reader->window_len = len;
    }
    *out = reader->window[reader->pos - reader->window_at];
    reader->pos++;
    return true;
}

bool td_protobuf_varint(struct td_protobuf *reader, uint64_t end, uint64_t *out)
{
    enum { PAYLOAD_BITS = 7, LAST_SHIFT = 63, MORE = 0x80 };
    const uint64_t begin = reader->pos;
    uint64_t value = 0;
    for (unsigned shift = 0; shift <= LAST_SHIFT; shift += PAYLOAD_BITS) {
        uint8_t byte;
        if (reader->pos >= end)
            return td_error_at(reader->err, TD_INVALID_ARGUMENT, begin,
                               "a protobuf number is cut off by the end of its message");
        if (!spend_budget(reader, 1) || !next_byte(reader, &byte))
            return false;
        if (shift == LAST_SHIFT && byte > 1)
            break;
        value |= (uint64_t)(byte & (MORE - 1)) << shift;
        if ((byte & MORE) == 0) {
            *out = value;
            return true;
        }
    }
    return td_error_at(reader->err, TD_INVALID_ARGUMENT, begin, "a protobuf number has more than 64 bits");
}

/* Sets the place of the payload, and the value of a VARINT. Moves pos past the payload. */
static bool read_payload(struct td_protobuf *reader, uint64_t end, struct td_protobuf_field *field)
{
    field->at = reader->pos;
    switch (field->wire) {
    case TD_WIRE_VARINT:
        if (!td_protobuf_varint(reader, end, &field->value))
            return false;
        field->len = reader->pos - field->at;
        return true;
    case TD_WIRE_BYTES:
        if (!td_protobuf_varint(reader, end, &field->len))
            return false;
        field->at = reader->pos;
        break;
    case TD_WIRE_FIXED64:
        field->len = sizeof(uint64_t);
        break;
    case TD_WIRE_FIXED32:
        field->len = sizeof(uint32_t);
        break;
    default:
        return td_error_at(reader->err, TD_INVALID_ARGUMENT, field->tag_at,
                           "protobuf field %" PRIu32 " has wire type %d; 0, 1, 2 and 5 are read", field->number,
                           (int)field->wire);
    }
    if (field->len > end - field->at)
        return td_error_at(reader->err, TD_INVALID_ARGUMENT, field->tag_at,
                           "protobuf field %" PRIu32 " has %" PRIu64 " bytes, but its message has %" PRIu64 " left",
                           field->number, field->len, end - field->at);
    reader->pos = field->at + field->len;
    return true;
}

bool td_protobuf_next(struct td_protobuf *reader, uint64_t end, struct td_protobuf_field *field)
{
    enum { WIRE_BITS = 3 };
    uint64_t tag = 0;
    *field = (struct td_protobuf_field){.tag_at = reader->pos};
    if (!td_protobuf_varint(reader, end, &tag))
        return false;
    if (tag >> WIRE_BITS == 0 || tag > UINT32_MAX)
        return td_error_at(reader->err, TD_INVALID_ARGUMENT, field->tag_at,
                           "%" PRIu64 " is not a number of a protobuf field", tag >> WIRE_BITS);
    field->number = (uint32_t)(tag >> WIRE_BITS);
    field->wire = (enum td_protobuf_wire)(tag & ((1U << WIRE_BITS) - 1));
    return read_payload(reader, end, field);
}

bool td_protobuf_count_varints(struct td_protobuf *reader, const struct td_protobuf_field *field, uint64_t *count)
{
    enum { MORE = 0x80, BYTES_MAX = 10 };
    const uint64_t end = field->at + field->len;
    unsigned open = 0; /* bytes of the unfinished varint */
    *count = 0;
    reader->window_len = 0;
    for (uint64_t at = field->at; at < end;) {
        const size_t len = end - at < sizeof reader->window ? (size_t)(end - at) : sizeof reader->window;
        if (!td_input_read(reader->input, at, reader->window, len, reader->err))
            return false;
        for (size_t i = 0; i < len; i++) {
            const bool ends = (reader->window[i] & MORE) == 0;
            if (!ends && ++open == BYTES_MAX)
                return td_error_at(reader->err, TD_INVALID_ARGUMENT, at + i,
                                   "a protobuf number has more than ten bytes");
            open = ends ? 0 : open;
            *count += ends;
        }
        at += len;
    }
    return open == 0 ||
           td_error_at(reader->err, TD_INVALID_ARGUMENT, end, "a protobuf number is cut off by the end of its message");
}

char *td_protobuf_copy(struct td_protobuf *reader, const struct td_protobuf_field *field, struct td_arena *arena)
{
    if (!spend_budget(reader, field->len))
        return NULL;
    char *copy = field->len < SIZE_MAX ? td_arena_array(arena, (size_t)field->len + 1, 1) : NULL;
    if (copy == NULL) {
        (void)td_error_no_memory(reader->err);
        return NULL;
    }
    if (!td_input_read(reader->input, field->at, copy, (size_t)field->len, reader->err))
        return NULL;
    copy[field->len] = '\0';
    return copy;
}
