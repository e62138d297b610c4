#include "core/message/decode.h"

#include "core/base64.h"
#include "core/digits.h"
#include "core/json/json.h"
#include "core/message/wire.h"
#include "core/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- records -------------------------------------------------------------------------------------------- */

static const struct td_field *field_by_name(const struct td_message *message, const char *name)
{
    for (size_t i = 0; i < message->field_count; i++)
        if (strcmp(message->fields[i].name, name) == 0)
            return &message->fields[i];
    return NULL;
}

static struct td_value *find_value(const struct td_record *record, const struct td_field *field)
{
    struct td_value *value = (record->given >> field->number & 1) == 0 ? NULL : record->first;
    while (value != NULL && value->field != field)
        value = value->next;
    return value;
}

/* Returns the value of a field to fill in: a new one, or that which a field has that may stand once. NULL, with the
 * error, when memory is short. */
static struct td_value *add_value(struct td_record *record, const struct td_field *field, struct td_arena *arena,
                                  struct td_error *err)
{
    struct td_value *value = field->is_repeated ? NULL : find_value(record, field);
    if (value != NULL)
        return value;
    value = td_arena_alloc(arena, sizeof *value);
    if (value == NULL) {
        (void)td_arena_refuse(arena, "the message", err);
        return NULL;
    }
    memset(value, 0, sizeof *value);
    value->field = field;
    if (record->last == NULL)
        record->first = value;
    else
        record->last->next = value;
    record->last = value;
    record->given |= UINT64_C(1) << field->number;
    return value;
}

/* Returns the record of a value of a message: a new one, or the one that it has. */
static struct td_record *record_of(struct td_value *value, struct td_arena *arena, struct td_error *err)
{
    if (value->record != NULL)
        return value->record;
    value->record = td_arena_alloc(arena, sizeof *value->record);
    if (value->record == NULL)
        (void)td_arena_refuse(arena, "the message", err);
    else
        *value->record = (struct td_record){.message = value->field->message};
    return value->record;
}

const struct td_value *td_record_get(const struct td_record *record, const char *name)
{
    const struct td_field *field = field_by_name(record->message, name);
    return field == NULL ? NULL : find_value(record, field);
}

struct td_text td_record_text(const struct td_record *record, const char *name)
{
    const struct td_value *value = td_record_get(record, name);
    return value == NULL ? TD_TEXT("") : value->text;
}

uint64_t td_record_number(const struct td_record *record, const char *name)
{
    const struct td_value *value = td_record_get(record, name);
    return value == NULL ? 0 : value->number;
}

static bool fail_field(struct td_error *err, const struct td_field *field, const char *what)
{
    return td_error_set(err, TD_INVALID_ARGUMENT, "field \"%s\": %s", field->name, what);
}

/* ---- the binary form ------------------------------------------------------------------------------------ */

struct wire_reader {
    const uint8_t *p, *end; /* of the message that is being read */
    struct td_arena *arena;
    struct td_error *err;
};

static bool fail_wire(struct wire_reader *reader, const char *what)
{
    return td_error_set(reader->err, TD_INVALID_ARGUMENT, "the message is not valid: %s", what);
}

static bool read_varint(struct wire_reader *reader, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 70 && reader->p < reader->end; shift += 7) {
        uint8_t byte = *reader->p++;
        if (shift == 63 && byte > 1)
            return fail_wire(reader, "a number has more than 64 bits");
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return true;
    }
    return fail_wire(reader, "a number is cut");
}

/* Reads a length and checks that so many bytes follow. */
static bool read_length(struct wire_reader *reader, size_t *len)
{
    uint64_t value;
    if (!read_varint(reader, &value))
        return false;
    if (value > (size_t)(reader->end - reader->p))
        return fail_wire(reader, "a length goes beyond the end");
    *len = (size_t)value;
    return true;
}

static bool skip_bytes(struct wire_reader *reader, size_t len)
{
    if (len > (size_t)(reader->end - reader->p))
        return fail_wire(reader, "a number is cut");
    reader->p += len;
    return true;
}

static bool skip_wire(struct wire_reader *reader, unsigned type)
{
    uint64_t number;
    size_t len = 0;
    switch (type) {
    case TD_WIRE_VARINT:
        return read_varint(reader, &number);
    case TD_WIRE_64:
        return skip_bytes(reader, 8);
    case TD_WIRE_BYTES:
        return read_length(reader, &len) && skip_bytes(reader, len);
    case TD_WIRE_32:
        return skip_bytes(reader, 4);
    default:
        return fail_wire(reader, "a field has a wire type that is not known, or is a group");
    }
}

static bool is_number(const struct td_field *field)
{
    return field->type == TD_FIELD_BOOL || field->type == TD_FIELD_INT32 || field->type == TD_FIELD_UINT32 ||
           field->type == TD_FIELD_UINT64;
}

/* Returns the number of a field that has this varint: cut to 32 bits where the field has so many. */
static uint64_t number_of(const struct td_field *field, uint64_t varint)
{
    switch ((enum td_field_type)field->type) {
    case TD_FIELD_BOOL:
        return varint != 0;
    case TD_FIELD_INT32:
        return (uint64_t)(int64_t)(int32_t)(uint32_t)varint;
    case TD_FIELD_UINT32:
        return (uint32_t)varint;
    default:
        return varint;
    }
}

static bool read_number(struct wire_reader *reader, struct td_record *record, const struct td_field *field)
{
    uint64_t varint;
    if (!read_varint(reader, &varint))
        return false;
    struct td_value *value = add_value(record, field, reader->arena, reader->err);
    if (value != NULL)
        value->number = number_of(field, varint);
    return value != NULL;
}

static bool read_double(struct wire_reader *reader, struct td_record *record, const struct td_field *field)
{
    uint64_t bits = 0;
    if (reader->end - reader->p < 8)
        return fail_wire(reader, "a number is cut");
    for (size_t i = 0; i < 8; i++)
        bits |= (uint64_t)*reader->p++ << 8 * i;
    struct td_value *value = add_value(record, field, reader->arena, reader->err);
    if (value != NULL)
        memcpy(&value->real, &bits, sizeof bits);
    return value != NULL;
}

/* Reads the packed numbers of a list, whose length follows. */
static bool read_packed(struct wire_reader *reader, struct td_record *record, const struct td_field *field)
{
    const uint8_t *end = reader->end;
    size_t len = 0;
    if (!read_length(reader, &len))
        return false;
    reader->end = reader->p + len;
    bool ok = true;
    while (ok && reader->p < reader->end)
        ok = field->type == TD_FIELD_DOUBLE ? read_double(reader, record, field) : read_number(reader, record, field);
    reader->end = end;
    return ok;
}

/* Reads the paths of a google.protobuf.FieldMask, whose length follows, as one text with commas. */
static bool read_mask(struct wire_reader *reader, struct td_record *record, const struct td_field *field)
{
    enum { PATHS = 1 << 3 | TD_WIRE_BYTES };
    const uint8_t *end = reader->end;
    size_t len = 0, path_len = 0, used = 0;
    uint64_t tag;
    if (!read_length(reader, &len))
        return false;
    struct td_value *value = add_value(record, field, reader->arena, reader->err);
    char *text = value == NULL ? NULL : td_arena_alloc(reader->arena, len + 1);
    if (text == NULL)
        return value != NULL && td_arena_refuse(reader->arena, "the message", reader->err);
    reader->end = reader->p + len;
    while (reader->p < reader->end) {
        if (!read_varint(reader, &tag))
            return false;
        if (tag != PATHS) {
            if (!skip_wire(reader, tag & 7))
                return false;
            continue;
        }
        if (!read_length(reader, &path_len))
            return false;
        if (used > 0)
            text[used++] = ',';
        memcpy(text + used, reader->p, path_len); /* a path takes two bytes more in the message than here */
        used += path_len;
        reader->p += path_len;
    }
    reader->end = end;
    value->text = td_text_n(text, used);
    return true;
}

static bool read_text(struct wire_reader *reader, struct td_record *record, const struct td_field *field)
{
    size_t len = 0;
    if (!read_length(reader, &len))
        return false;
    struct td_text text = td_text_n((const char *)reader->p, len);
    reader->p += len;
    if (field->type == TD_FIELD_STRING && !td_utf8_valid(text.p, text.len))
        return fail_field(reader->err, field, "the text is not UTF-8");
    struct td_value *value = add_value(record, field, reader->arena, reader->err);
    if (value != NULL)
        value->text = text;
    return value != NULL;
}

static unsigned wire_type_of(const struct td_field *field)
{
    return is_number(field) ? TD_WIRE_VARINT : field->type == TD_FIELD_DOUBLE ? TD_WIRE_64 : TD_WIRE_BYTES;
}

static const struct td_field *field_by_number(const struct td_message *message, uint64_t number)
{
    for (size_t i = 0; i < message->field_count; i++)
        if (message->fields[i].number == number)
            return &message->fields[i];
    return NULL;
}

/* Reads a field that is no message. */
static bool read_scalar(struct wire_reader *reader, struct td_record *record, const struct td_field *field,
                        unsigned type)
{
    if (type == TD_WIRE_BYTES && field->is_repeated && wire_type_of(field) != TD_WIRE_BYTES)
        return read_packed(reader, record, field);
    if (type != wire_type_of(field))
        return fail_field(reader->err, field, "the value is of another type");
    if (is_number(field))
        return read_number(reader, record, field);
    if (field->type == TD_FIELD_MASK)
        return read_mask(reader, record, field);
    return field->type == TD_FIELD_DOUBLE ? read_double(reader, record, field) : read_text(reader, record, field);
}

/* A message that is being read, and where the one around it ends. */
struct wire_level {
    struct td_record *record;
    const uint8_t *end;
};

/* Begins a message within the innermost one. */
static bool enter(struct wire_reader *reader, struct wire_level *levels, size_t *depth, const struct td_field *field)
{
    size_t len = 0;
    if (*depth == TD_DECODE_DEPTH)
        return fail_field(reader->err, field, "the message is nested too deep");
    if (!read_length(reader, &len))
        return false;
    struct td_value *value = add_value(levels[*depth - 1].record, field, reader->arena, reader->err);
    struct td_record *record = value == NULL ? NULL : record_of(value, reader->arena, reader->err);
    levels[(*depth)++] = (struct wire_level){.record = record, .end = reader->end};
    reader->end = reader->p + len;
    return record != NULL;
}

bool td_record_read(struct td_record *out, const struct td_message *message, struct td_text bytes,
                    struct td_arena *arena, struct td_error *err)
{
    struct wire_reader reader = {.p = (const uint8_t *)bytes.p, .arena = arena, .err = err};
    struct wire_level levels[TD_DECODE_DEPTH];
    size_t depth = 1;
    *out = (struct td_record){.message = message};
    levels[0].record = out;
    reader.end = bytes.len == 0 ? reader.p : reader.p + bytes.len;
    for (;;) {
        uint64_t tag;
        while (reader.p == reader.end && depth > 1)
            reader.end = levels[--depth].end;
        if (reader.p == reader.end)
            return true;
        if (!read_varint(&reader, &tag))
            return false;
        if (tag >> 3 == 0 || tag > UINT32_MAX)
            return fail_wire(&reader, "a field has no valid number");
        const unsigned type = tag & 7;
        struct td_record *record = levels[depth - 1].record;
        const struct td_field *field = field_by_number(record->message, tag >> 3);
        bool is_skipped = field == NULL || field->type == TD_FIELD_TIMESTAMP || field->type == TD_FIELD_STRUCT;
        bool is_message = !is_skipped && field->type == TD_FIELD_MESSAGE && type == TD_WIRE_BYTES;
        if (is_skipped   ? !skip_wire(&reader, type)
            : is_message ? !enter(&reader, levels, &depth, field)
                         : !read_scalar(&reader, record, field, type))
            return false;
    }
}

/* ---- JSON ----------------------------------------------------------------------------------------------- */

struct json_reader {
    struct td_json json;
    struct td_arena *arena;
    struct td_error *err;
};

/* An object that is being read; `list`: the field whose array is being read in it, or NULL. */
struct json_level {
    struct td_record *record;
    const struct td_field *list;
};

static bool fail_json(struct json_reader *reader, const struct td_field *field, const char *what)
{
    return td_json_fail(&reader->json, "field \"%s\": %s", field->json_name, what);
}

/* Copies the latest STRING, decoded, into the arena. */
static bool copy_string(struct json_reader *reader, struct td_text *out)
{
    struct td_buffer text;
    td_buffer_init(&text);
    td_json_append_string(&reader->json, &text);
    const char *copy = text.failed ? NULL : td_arena_strndup(reader->arena, td_buffer_text(&text));
    if (copy == NULL && text.failed)
        (void)td_error_no_memory(reader->err);
    else if (copy == NULL)
        (void)td_arena_refuse(reader->arena, "the message", reader->err);
    *out = td_text_n(copy, text.len);
    td_buffer_fini(&text);
    return copy != NULL;
}

/* Returns whether the text is a number of JSON. */
static bool is_json_number(struct td_text text)
{
    struct td_json json;
    td_json_init(&json, text, 0, NULL);
    return td_json_next(&json) == TD_JSON_NUMBER && td_json_raw(&json).len == text.len &&
           td_json_next(&json) == TD_JSON_END;
}

/* Reads a number of JSON as a double. Returns false for another text, and for one of more than 63 characters. */
static bool read_real(struct td_text text, double *out)
{
    return text.len < 64 && is_json_number(text) && td_json_read_real(text, out);
}

/* Reads an integer, which may have a fraction of zeros or an exponent. */
static bool read_integer(struct td_text text, const struct td_field *field, uint64_t *out)
{
    const uint64_t most = field->type == TD_FIELD_UINT64   ? UINT64_MAX
                          : field->type == TD_FIELD_UINT32 ? UINT32_MAX
                                                           : INT32_MAX;
    struct td_text digits = text;
    double real;
    bool is_negative = field->type == TD_FIELD_INT32 && td_text_take_char(&digits, '-');
    if (is_json_number(text) && td_number_read(digits, is_negative ? most + 1 : most, out)) {
        *out = is_negative ? 0 - *out : *out;
        return true;
    }
    if (!read_real(text, &real) || real != floor(real) || fabs(real) > 9007199254740992.0 ||
        (real < 0 ? field->type != TD_FIELD_INT32 || real < INT32_MIN : real > (double)most))
        return false;
    *out = (uint64_t)(int64_t)real;
    return true;
}

static bool read_json_number(struct json_reader *reader, enum td_json_token token, struct td_value *value)
{
    const struct td_field *field = value->field;
    struct td_text text = td_json_raw(&reader->json);
    bool is_string = token == TD_JSON_STRING && !reader->json.escaped;
    if (field->type == TD_FIELD_DOUBLE && is_string && td_text_equals(text, "NaN"))
        value->real = NAN;
    else if (field->type == TD_FIELD_DOUBLE && is_string && td_text_equals(text, "Infinity"))
        value->real = INFINITY;
    else if (field->type == TD_FIELD_DOUBLE && is_string && td_text_equals(text, "-Infinity"))
        value->real = -INFINITY;
    else if ((token != TD_JSON_NUMBER && !is_string) ||
             !(field->type == TD_FIELD_DOUBLE ? read_real(text, &value->real)
                                              : read_integer(text, field, &value->number)))
        return fail_json(reader, field,
                         field->type == TD_FIELD_DOUBLE ? "a number is expected"
                                                        : "an integer in its range is expected");
    return true;
}

/* Decodes base64, of both alphabets, with or without padding. */
static bool read_json_bytes(struct json_reader *reader, struct td_value *value)
{
    struct td_text text;
    size_t len = 0;
    if (!copy_string(reader, &text))
        return false;
    char *p = (char *)(uintptr_t)text.p; /* the copy is ours */
    if (!td_base64_read_any(text, p, &len))
        return fail_json(reader, value->field, "base64 is expected");
    value->text = td_text_n(p, len);
    return true;
}

/* Reads a google.protobuf.FieldMask: names as in JSON, which become names of the schema. */
static bool read_json_mask(struct json_reader *reader, struct td_value *value)
{
    struct td_text text;
    if (!copy_string(reader, &text))
        return false;
    char *names = td_arena_alloc(reader->arena, 2 * text.len + 1);
    size_t len = 0;
    if (names == NULL)
        return td_arena_refuse(reader->arena, "the message", reader->err);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];
        if (c >= 'A' && c <= 'Z') {
            names[len++] = '_';
            c = (char)(c - 'A' + 'a');
        }
        names[len++] = c;
    }
    value->text = td_text_n(names, len);
    return true;
}

static bool read_json_scalar(struct json_reader *reader, enum td_json_token token, struct td_record *record,
                             const struct td_field *field)
{
    struct td_value *value = add_value(record, field, reader->arena, reader->err);
    if (value == NULL)
        return false;
    switch ((enum td_field_type)field->type) {
    case TD_FIELD_BOOL:
        value->number = token == TD_JSON_TRUE;
        return token == TD_JSON_TRUE || token == TD_JSON_FALSE || fail_json(reader, field, "true or false is expected");
    case TD_FIELD_STRING:
        return token == TD_JSON_STRING ? copy_string(reader, &value->text)
                                       : fail_json(reader, field, "a string is expected");
    case TD_FIELD_BYTES:
        return token == TD_JSON_STRING ? read_json_bytes(reader, value)
                                       : fail_json(reader, field, "base64 is expected");
    case TD_FIELD_MASK:
        return token == TD_JSON_STRING ? read_json_mask(reader, value)
                                       : fail_json(reader, field, "a string is expected");
    default:
        return read_json_number(reader, token, value);
    }
}

/* Returns the field of the latest KEY, in either of its names, or NULL. */
static const struct td_field *field_by_key(const struct td_json *json, const struct td_message *message)
{
    for (size_t i = 0; i < message->field_count; i++)
        if (td_json_equals(json, message->fields[i].json_name) || td_json_equals(json, message->fields[i].name))
            return &message->fields[i];
    return NULL;
}

/* Begins the object of a message. */
static bool enter_object(struct json_reader *reader, struct json_level *levels, size_t *depth,
                         const struct td_field *field)
{
    if (*depth == TD_DECODE_DEPTH)
        return fail_json(reader, field, "the message is nested too deep");
    struct td_value *value = add_value(levels[*depth - 1].record, field, reader->arena, reader->err);
    struct td_record *record = value == NULL ? NULL : record_of(value, reader->arena, reader->err);
    levels[(*depth)++] = (struct json_level){.record = record};
    return record != NULL;
}

/* Reads a value of the field, which the token begins. */
static bool read_json_value(struct json_reader *reader, enum td_json_token token, struct json_level *levels,
                            size_t *depth, const struct td_field *field)
{
    struct json_level *level = &levels[*depth - 1];
    bool is_element = level->list != NULL;
    if (token == TD_JSON_ERROR)
        return false;
    if (token == TD_JSON_NULL && !is_element)
        return true;
    if (field->is_repeated && !is_element) {
        if (token != TD_JSON_ARRAY_BEGIN)
            return fail_json(reader, field, "a list is expected");
        level->list = field;
        return true;
    }
    if (field->type != TD_FIELD_MESSAGE)
        return read_json_scalar(reader, token, level->record, field);
    return token == TD_JSON_OBJECT_BEGIN ? enter_object(reader, levels, depth, field)
                                         : fail_json(reader, field, "an object is expected");
}

/* Reads the value after the latest KEY of the innermost object. */
static bool read_member(struct json_reader *reader, struct json_level *levels, size_t *depth)
{
    const struct td_record *record = levels[*depth - 1].record;
    const struct td_field *field = field_by_key(&reader->json, record->message);
    if (field == NULL || field->type == TD_FIELD_TIMESTAMP || field->type == TD_FIELD_STRUCT)
        return td_json_skip(&reader->json);
    if ((record->given >> field->number & 1) != 0)
        return fail_json(reader, field, "given twice");
    return read_json_value(reader, td_json_next(&reader->json), levels, depth, field);
}

bool td_record_read_json(struct td_record *out, const struct td_message *message, struct td_text text,
                         struct td_arena *arena, struct td_error *err)
{
    struct json_reader reader = {.arena = arena, .err = err};
    struct json_level levels[TD_DECODE_DEPTH];
    size_t depth = 1;
    *out = (struct td_record){.message = message};
    levels[0] = (struct json_level){.record = out};
    td_json_init(&reader.json, text, 0, err);
    if (!td_json_expect(&reader.json, TD_JSON_OBJECT_BEGIN, "an object"))
        return false;
    while (depth > 0) {
        struct json_level *level = &levels[depth - 1];
        enum td_json_token token = td_json_next(&reader.json);
        if (token == TD_JSON_ARRAY_END)
            level->list = NULL;
        else if (token == TD_JSON_OBJECT_END)
            depth--;
        else if (level->list != NULL ? !read_json_value(&reader, token, levels, &depth, level->list)
                                     : token != TD_JSON_KEY || !read_member(&reader, levels, &depth))
            return false;
    }
    return td_json_next(&reader.json) == TD_JSON_END;
}

/* ---- documents ------------------------------------------------------------------------------------------ */

static bool is_default(const struct td_value *value)
{
    const struct td_field *field = value->field;
    if (field->has_presence || field->is_repeated)
        return false;
    if (is_number(field))
        return value->number == 0;
    return field->type == TD_FIELD_DOUBLE ? value->real == 0 && !signbit(value->real) : value->text.len == 0;
}

static void add_scalar(const struct td_value *value, const char *key, struct td_document *json)
{
    switch ((enum td_field_type)value->field->type) {
    case TD_FIELD_BOOL:
        td_document_add_bool(json, key, value->number != 0);
        break;
    case TD_FIELD_DOUBLE:
        td_document_add_real(json, key, value->real, false);
        break;
    case TD_FIELD_STRING:
        td_document_add_text(json, key, value->text);
        break;
    case TD_FIELD_BYTES:
        td_document_add_bytes(json, key, value->text);
        break;
    case TD_FIELD_INT32:
        td_document_add_i32(json, key, (int32_t)(int64_t)value->number);
        break;
    case TD_FIELD_MASK: /* for this program itself */
        break;
    default:
        td_document_add_u64(json, key, value->number);
        break;
    }
}

/* A record whose fields are being added. */
struct adding {
    const struct td_record *record;
    uint64_t fields;
    size_t at;                      /* in message->fields */
    const struct td_value *element; /* the next one of an open list, or NULL */
    bool is_in_list;
};

static const struct td_value *next_of(const struct td_value *value, const struct td_field *field)
{
    while (value != NULL && value->field != field)
        value = value->next;
    return value;
}

/* Adds the value, or opens its object, which it then puts on the stack. */
static void add_one(struct adding *stack, size_t *depth, const struct td_value *value, const char *key,
                    struct td_document *json)
{
    if (value->field->type != TD_FIELD_MESSAGE) {
        add_scalar(value, key, json);
        return;
    }
    td_document_begin_object(json, key);
    stack[(*depth)++] = (struct adding){.record = value->record, .fields = UINT64_MAX};
}

/* Takes one step with the innermost record: adds an element, a field, or ends a list or the object. */
static void add_step(struct adding *stack, size_t *depth, struct td_document *json)
{
    struct adding *adding = &stack[*depth - 1];
    const struct td_message *message = adding->record->message;
    if (adding->is_in_list) {
        const struct td_value *element = adding->element;
        if (element == NULL) {
            adding->is_in_list = false;
            td_document_end(json);
            return;
        }
        adding->element = next_of(element->next, element->field);
        add_one(stack, depth, element, NULL, json);
        return;
    }
    if (adding->at == message->field_count) {
        if (--*depth > 0)
            td_document_end(json);
        return;
    }
    const struct td_field *field = &message->fields[adding->at++];
    const struct td_value *value =
        (adding->fields >> field->number & 1) == 0 ? NULL : find_value(adding->record, field);
    if (value == NULL || is_default(value))
        return;
    if (!field->is_repeated) {
        add_one(stack, depth, value, field->name, json);
        return;
    }
    td_document_begin_array(json, field->name);
    adding->is_in_list = true;
    adding->element = value;
}

void td_record_add(const struct td_record *record, uint64_t fields, struct td_document *json)
{
    struct adding stack[TD_DECODE_DEPTH] = {{.record = record, .fields = fields}};
    size_t depth = 1;
    while (depth > 0)
        add_step(stack, &depth, json);
}
