#include "core/message/wire.h"

#include "core/json/json.h"

#include <string.h>

/* Fields of google.protobuf.Struct and its parts (google/protobuf/struct.proto). */
enum {
    STRUCT_FIELDS = 1,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    LIST_VALUES = 1,
    VALUE_NULL = 1,
    VALUE_NUMBER = 2,
    VALUE_STRING = 3,
    VALUE_BOOL = 4,
    VALUE_STRUCT = 5,
    VALUE_LIST = 6,
};

void td_wire_u64(struct td_buffer *out, uint32_t number, uint64_t value)
{
    td_wire_tag(out, number, TD_WIRE_VARINT);
    td_wire_varint(out, value);
}

void td_wire_bits(struct td_buffer *out, double value)
{
    uint64_t bits;
    uint8_t bytes[sizeof bits];
    memcpy(&bits, &value, sizeof bits);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(bits >> 8 * i);
    td_buffer_append(out, bytes, sizeof bytes);
}

void td_wire_double(struct td_buffer *out, uint32_t number, double value)
{
    td_wire_tag(out, number, TD_WIRE_64);
    td_wire_bits(out, value);
}

void td_wire_text(struct td_buffer *out, uint32_t number, struct td_text text)
{
    td_wire_tag(out, number, TD_WIRE_BYTES);
    td_wire_varint(out, text.len);
    td_buffer_append(out, text.p, text.len);
}

size_t td_wire_begin(struct td_buffer *out, uint32_t number)
{
    td_wire_tag(out, number, TD_WIRE_BYTES);
    td_buffer_putc(out, 0); /* room for a length of one byte */
    return out->len;
}

void td_wire_end(struct td_buffer *out, size_t start)
{
    uint8_t length[TD_VARINT_BYTES];
    if (out->failed)
        return;
    size_t len = out->len - start, more = td_varint_write(len, length) - 1;
    if (more > 0) {
        if (!td_buffer_reserve(out, more))
            return;
        memmove(out->data + start + more, out->data + start, len);
        out->len += more;
    }
    memcpy(out->data + start - 1, length, more + 1);
}

/* ---- Struct --------------------------------------------------------------------------------------------- */

/* An object or a list that is being written, and the value that it is part of. */
struct level {
    size_t contents;     /* where its Struct or ListValue begins; SIZE_MAX for the outermost Struct */
    size_t value, entry; /* of the member or element that is being written */
    bool is_list;
};

struct struct_writer {
    struct td_json json;
    struct td_buffer *out;
    struct level levels[TD_STRUCT_DEPTH];
    size_t depth;
};

static void begin_value(struct struct_writer *writer)
{
    struct level *level = &writer->levels[writer->depth - 1];
    level->value = td_wire_begin(writer->out, level->is_list ? (uint32_t)LIST_VALUES : (uint32_t)ENTRY_VALUE);
}

/* Ends the member or element that was just written; at depth 0 there is none. */
static void end_value(struct struct_writer *writer)
{
    if (writer->depth == 0)
        return;
    const struct level *level = &writer->levels[writer->depth - 1];
    td_wire_end(writer->out, level->value);
    if (!level->is_list)
        td_wire_end(writer->out, level->entry);
}

static void begin_entry(struct struct_writer *writer)
{
    struct level *level = &writer->levels[writer->depth - 1];
    level->entry = td_wire_begin(writer->out, STRUCT_FIELDS);
    size_t key = td_wire_begin(writer->out, ENTRY_KEY);
    td_json_append_string(&writer->json, writer->out);
    td_wire_end(writer->out, key);
    begin_value(writer);
}

/* Begins an object or a list as the value that was begun, or as the text's one value. is_struct: that value is the
 * Struct itself. */
static bool begin_level(struct struct_writer *writer, bool is_list, bool is_struct)
{
    if (writer->depth == TD_STRUCT_DEPTH || (is_struct && is_list))
        return false;
    const uint32_t number = is_list ? VALUE_LIST : VALUE_STRUCT;
    writer->levels[writer->depth++] =
        (struct level){.contents = is_struct ? SIZE_MAX : td_wire_begin(writer->out, number), .is_list = is_list};
    return true;
}

static void end_level(struct struct_writer *writer)
{
    const struct level *level = &writer->levels[--writer->depth];
    if (level->contents != SIZE_MAX)
        td_wire_end(writer->out, level->contents);
    end_value(writer);
}

static void write_string(struct struct_writer *writer)
{
    size_t start = td_wire_begin(writer->out, VALUE_STRING);
    td_json_append_string(&writer->json, writer->out);
    td_wire_end(writer->out, start);
}

/* Writes the token, one that is no bracket. Returns false for a number beyond the doubles. */
static bool write_scalar(struct struct_writer *writer, enum td_json_token token)
{
    double number;
    if (token == TD_JSON_NUMBER && !td_json_read_real(td_json_raw(&writer->json), &number))
        return false;
    if (token == TD_JSON_NUMBER)
        td_wire_double(writer->out, VALUE_NUMBER, number);
    else if (token == TD_JSON_STRING)
        write_string(writer);
    else if (token == TD_JSON_NULL)
        td_wire_u64(writer->out, VALUE_NULL, 0);
    else
        td_wire_u64(writer->out, VALUE_BOOL, token == TD_JSON_TRUE);
    return true;
}

/* Writes what the token means. Returns false when the text is not to be written. */
static bool write_token(struct struct_writer *writer, enum td_json_token token, bool is_struct)
{
    bool is_element = writer->depth > 0 && writer->levels[writer->depth - 1].is_list;
    switch (token) {
    case TD_JSON_KEY:
        begin_entry(writer);
        return true;
    case TD_JSON_OBJECT_END:
    case TD_JSON_ARRAY_END:
        end_level(writer);
        return true;
    default:
        break;
    }
    if (is_element)
        begin_value(writer);
    if (token == TD_JSON_OBJECT_BEGIN || token == TD_JSON_ARRAY_BEGIN)
        return begin_level(writer, token == TD_JSON_ARRAY_BEGIN, is_struct && writer->depth == 0);
    if ((is_struct && writer->depth == 0) || !write_scalar(writer, token))
        return false;
    end_value(writer);
    return true;
}

static bool write_json(struct td_buffer *out, struct td_text json, bool is_struct)
{
    struct struct_writer writer = {.out = out};
    size_t len = out->len;
    td_json_init(&writer.json, json, 0, NULL);
    for (;;) {
        enum td_json_token token = td_json_next(&writer.json);
        if (token == TD_JSON_END)
            return true;
        if (token == TD_JSON_ERROR || !write_token(&writer, token, is_struct)) {
            out->len = len;
            return false;
        }
    }
}

bool td_wire_struct(struct td_buffer *out, struct td_text json)
{
    return write_json(out, json, true);
}

bool td_wire_value(struct td_buffer *out, struct td_text json)
{
    return write_json(out, json, false);
}

bool td_struct_fits(struct td_text text, bool is_struct)
{
    struct td_json json;
    double number;
    td_json_init(&json, text, 0, NULL);
    enum td_json_token token = td_json_next(&json);
    bool fits = !is_struct || token == TD_JSON_OBJECT_BEGIN;
    for (; fits && token != TD_JSON_END; token = td_json_next(&json))
        fits = token != TD_JSON_ERROR && json.depth <= TD_STRUCT_DEPTH &&
               (token != TD_JSON_NUMBER || td_json_read_real(td_json_raw(&json), &number));
    return fits;
}
