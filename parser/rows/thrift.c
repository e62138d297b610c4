#include "parser/rows/thrift.h"

#include <inttypes.h>

static bool cut_off(const struct td_thrift *reader)
{
    return td_error_at(reader->err, TD_INVALID_ARGUMENT, reader->pos, "a Thrift value is cut off by the end");
}

static bool wrong_type(const struct td_thrift *reader, const char *wanted, int id, int type)
{
    return td_error_at(reader->err, TD_INVALID_ARGUMENT, reader->pos, "Thrift field %d has type %d, not %s", id, type,
                       wanted);
}

void td_thrift_init(struct td_thrift *reader, const struct td_input *input, uint64_t begin, uint64_t end,
                    struct td_error *err)
{
    reader->input = input;
    reader->err = err;
    reader->pos = begin;
    reader->end = end;
    reader->window_at = 0;
    reader->window_len = 0;
}

static bool next_byte(struct td_thrift *reader, uint8_t *out)
{
    if (reader->pos >= reader->end)
        return cut_off(reader);
    if (reader->pos < reader->window_at || reader->pos - reader->window_at >= reader->window_len) {
        uint64_t left = reader->end - reader->pos;
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

static bool skip_bytes(struct td_thrift *reader, uint64_t bytes)
{
    if (bytes > reader->end - reader->pos)
        return cut_off(reader);
    reader->pos += bytes;
    return true;
}

static bool read_varint(struct td_thrift *reader, uint64_t *out)
{
    enum { PAYLOAD_BITS = 7, LAST_SHIFT = 63, MORE = 0x80 };
    const uint64_t begin = reader->pos;
    uint64_t value = 0;
    for (unsigned shift = 0; shift <= LAST_SHIFT; shift += PAYLOAD_BITS) {
        uint8_t byte = 0;
        if (!next_byte(reader, &byte))
            return false;
        if (shift == LAST_SHIFT && byte > 1)
            break;
        value |= (uint64_t)(byte & (MORE - 1)) << shift;
        if ((byte & MORE) == 0) {
            *out = value;
            return true;
        }
    }
    return td_error_at(reader->err, TD_INVALID_ARGUMENT, begin, "a Thrift number has more than 64 bits");
}

static bool read_zigzag(struct td_thrift *reader, int64_t *out)
{
    uint64_t value = 0;
    if (!read_varint(reader, &value))
        return false;
    *out = (int64_t)(value >> 1 ^ (~(value & 1) + 1));
    return true;
}

bool td_thrift_next(struct td_thrift *reader, struct td_thrift_field *field)
{
    enum { DELTA_SHIFT = 4, TYPE_MASK = 15 };
    uint8_t head = 0;
    int64_t id = 0;
    if (!next_byte(reader, &head))
        return false;
    field->type = (enum td_thrift_type)(head & TYPE_MASK);
    if (field->type == TD_THRIFT_STOP)
        return true;
    if (field->type > TD_THRIFT_UUID)
        return wrong_type(reader, "one that there is", field->id, (int)field->type);
    if (head >> DELTA_SHIFT != 0)
        id = field->id + (head >> DELTA_SHIFT);
    else if (!read_zigzag(reader, &id))
        return false;
    if (id < INT16_MIN || id > INT16_MAX)
        return td_error_at(reader->err, TD_INVALID_ARGUMENT, reader->pos, "a Thrift field of number %" PRId64, id);
    field->id = (int32_t)id;
    return true;
}

bool td_thrift_int(struct td_thrift *reader, const struct td_thrift_field *field, int64_t *out)
{
    if (field->type < TD_THRIFT_I16 || field->type > TD_THRIFT_I64)
        return wrong_type(reader, "an integer", field->id, (int)field->type);
    return read_zigzag(reader, out);
}

bool td_thrift_binary(struct td_thrift *reader, const struct td_thrift_field *field, uint64_t *at, uint64_t *len)
{
    if (field->type != TD_THRIFT_BINARY)
        return wrong_type(reader, "bytes", field->id, (int)field->type);
    if (!read_varint(reader, len))
        return false;
    *at = reader->pos;
    return skip_bytes(reader, *len);
}

/* Reads the head of a list or a set. */
static bool read_list(struct td_thrift *reader, enum td_thrift_type *type, uint64_t *count)
{
    enum { LONG = 15, TYPE_MASK = 15, COUNT_SHIFT = 4 };
    uint8_t head = 0;
    if (!next_byte(reader, &head))
        return false;
    *type = (enum td_thrift_type)(head & TYPE_MASK);
    *count = head >> COUNT_SHIFT;
    if (*count == LONG && !read_varint(reader, count))
        return false;
    return *count <= reader->end - reader->pos || cut_off(reader);
}

bool td_thrift_structs(struct td_thrift *reader, const struct td_thrift_field *field, uint64_t *count)
{
    enum td_thrift_type type;
    if (field->type != TD_THRIFT_LIST)
        return wrong_type(reader, "a list", field->id, (int)field->type);
    if (!read_list(reader, &type, count))
        return false;
    return *count == 0 || type == TD_THRIFT_STRUCT || wrong_type(reader, "a list of structs", field->id, (int)type);
}

/* ---- skipping ---- */

/* A struct, or a list of so many elements, that is being skipped. The elements of a map alternate between two types. */
struct level {
    bool is_struct;
    uint64_t left;
    enum td_thrift_type types[2];
    struct td_thrift_field field; /* of a struct */
};

/* Begins a level for a value that holds others. Sets *opens to false when the value holds no other, so that no level is
 * begun. */
static bool open_level(struct td_thrift *reader, enum td_thrift_type type, struct level *out, bool *opens)
{
    uint8_t types = 0;
    *out = (struct level){.is_struct = type == TD_THRIFT_STRUCT};
    *opens = true;
    if (type == TD_THRIFT_STRUCT)
        return true;
    if (type != TD_THRIFT_MAP) {
        if (!read_list(reader, &out->types[0], &out->left))
            return false;
        out->types[1] = out->types[0];
        *opens = out->left > 0;
        return true;
    }
    if (!read_varint(reader, &out->left))
        return false;
    *opens = out->left > 0;
    if (out->left == 0)
        return true;
    if (!next_byte(reader, &types))
        return false;
    if (out->left > (reader->end - reader->pos) / 2)
        return cut_off(reader);
    out->left *= 2;
    out->types[0] = (enum td_thrift_type)(types >> 4);
    out->types[1] = (enum td_thrift_type)(types & 15);
    return true;
}

/* Moves past a value that holds no others. `in_list`: bools take a byte. */
static bool skip_plain(struct td_thrift *reader, enum td_thrift_type type, bool in_list)
{
    enum { DOUBLE_BYTES = 8, UUID_BYTES = 16 };
    uint64_t number = 0;
    switch (type) {
    case TD_THRIFT_TRUE:
    case TD_THRIFT_FALSE:
        return !in_list || skip_bytes(reader, 1);
    case TD_THRIFT_BYTE:
        return skip_bytes(reader, 1);
    case TD_THRIFT_I16:
    case TD_THRIFT_I32:
    case TD_THRIFT_I64:
        return read_varint(reader, &number);
    case TD_THRIFT_DOUBLE:
        return skip_bytes(reader, DOUBLE_BYTES);
    case TD_THRIFT_BINARY:
        return read_varint(reader, &number) && skip_bytes(reader, number);
    case TD_THRIFT_UUID:
        return skip_bytes(reader, UUID_BYTES);
    default:
        return wrong_type(reader, "one that there is", 0, (int)type);
    }
}

static bool holds_others(enum td_thrift_type type)
{
    return type >= TD_THRIFT_LIST && type <= TD_THRIFT_STRUCT;
}

/* Takes the type of the level's next value; TD_THRIFT_STOP: the level has ended. */
static bool next_value(struct td_thrift *reader, struct level *level, enum td_thrift_type *type)
{
    *type = TD_THRIFT_STOP;
    if (level->is_struct) {
        if (!td_thrift_next(reader, &level->field))
            return false;
        *type = level->field.type;
        return true;
    }
    if (level->left == 0)
        return true;
    *type = level->types[level->left-- % 2]; /* of a map, an even number is left before a key */
    return *type != TD_THRIFT_STOP || wrong_type(reader, "one that there is", 0, (int)*type);
}

bool td_thrift_skip(struct td_thrift *reader, const struct td_thrift_field *field)
{
    struct level levels[TD_THRIFT_MAX_DEPTH];
    size_t depth = 0;
    bool opens;
    if (!holds_others(field->type))
        return skip_plain(reader, field->type, false);
    if (!open_level(reader, field->type, &levels[0], &opens))
        return false;
    depth = opens ? 1 : 0;
    while (depth > 0) {
        struct level *level = &levels[depth - 1];
        enum td_thrift_type type;
        if (!next_value(reader, level, &type))
            return false;
        if (type == TD_THRIFT_STOP) {
            depth--;
        } else if (!holds_others(type)) {
            if (!skip_plain(reader, type, !level->is_struct))
                return false;
        } else if (depth == TD_THRIFT_MAX_DEPTH) {
            return td_error_at(reader->err, TD_INVALID_ARGUMENT, reader->pos,
                               "Thrift values are nested more than %d deep", TD_THRIFT_MAX_DEPTH);
        } else {
            if (!open_level(reader, type, &levels[depth], &opens))
                return false;
            depth += opens ? 1 : 0;
        }
    }
    return true;
}
