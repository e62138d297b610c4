/* REST and proto3 JSON share their text and differ in names and numbers. In protobuf, an object within the document is
 * written after room for a length of one byte; when it ends, it is moved if its length needs more (td_wire_end). The
 * outermost object has no length, so the elements of its lists are written one by one. */
#include "core/message/document.h"

#include "core/base64.h"
#include "core/decimal.h"
#include "core/json/json.h"
#include "core/message/wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct td_document_kind rest = {.form = TD_DOCUMENT_REST};

void td_document_init_kind(struct td_document *document, struct td_buffer *out, const struct td_document_kind *kind)
{
    document->out = out;
    document->kind = kind;
    document->depth = 0;
}

void td_document_init(struct td_document *document, struct td_buffer *out)
{
    td_document_init_kind(document, out, &rest);
}

static struct td_document_level *innermost(struct td_document *document)
{
    return &document->levels[document->depth - 1];
}

static enum td_document_form form_of(const struct td_document *document)
{
    return document->kind->form;
}

/* ---- fields --------------------------------------------------------------------------------------------- */

/* Returns the message's field of this name, or NULL when there is none or the mask leaves it out. Members come mostly
 * in the order of the fields. */
static const struct td_field *find_field(const struct td_document *document, struct td_document_level *level,
                                         const char *key)
{
    const struct td_message *message = level->message;
    size_t count = message == NULL ? 0 : message->field_count;
    for (size_t i = 0; i < count; i++) {
        size_t at = level->next + i < count ? level->next + i : level->next + i - count;
        const struct td_field *field = &message->fields[at];
        if (field->name != key && strcmp(field->name, key) != 0) /* linkers merge equal strings */
            continue;
        level->next = at + 1 < count ? at + 1 : 0;
        return document->kind->masked == message && (document->kind->mask >> field->number & 1) == 0 ? NULL : field;
    }
    return NULL;
}

/* Returns the field that a value with this key is written as, or NULL when it is left out. */
static const struct td_field *field_of(struct td_document *document, const char *key)
{
    struct td_document_level *level = innermost(document);
    if (level->is_left_out)
        return NULL;
    return level->is_array ? level->field : find_field(document, level, key);
}

/* ---- text ----------------------------------------------------------------------------------------------- */

/* Writes what precedes a value in JSON: the comma after the member before it, and the key. */
static void write_key(struct td_document *document, const char *key)
{
    struct td_buffer *out = document->out;
    struct td_document_level *level = innermost(document);
    size_t len = key == NULL ? 0 : strlen(key);
    enum { PUNCTUATION = 4 }; /* a comma, two quotes and a colon */
    if (len + PUNCTUATION > out->capacity - out->len && !td_buffer_reserve(out, len + PUNCTUATION))
        return;
    char *p = out->data + out->len;
    if (level->has_members)
        *p++ = ',';
    level->has_members = true;
    if (key != NULL) {
        *p++ = '"';
        memcpy(p, key, len);
        p += len;
        *p++ = '"';
        *p++ = ':';
    }
    out->len = (size_t)(p - out->data);
}

/* Writes what precedes the value of a field. */
static void write_field_key(struct td_document *document, const struct td_field *field)
{
    write_key(document, innermost(document)->is_array ? NULL : field->json_name);
}

/* Writes the value of a number's field between quotes if it has 64 bits. */
static void write_number(struct td_buffer *out, const struct td_field *field, uint64_t value)
{
    if (field->type == TD_FIELD_UINT64)
        td_buffer_putc(out, '"');
    td_buffer_u64(out, value);
    if (field->type == TD_FIELD_UINT64)
        td_buffer_putc(out, '"');
}

/* ---- values --------------------------------------------------------------------------------------------- */

/* Returns whether a value is to be written: its document has begun, and no write has failed. */
static bool may_write(struct td_document *document)
{
    if (document->depth == 0)
        document->out->failed = true;
    return !document->out->failed;
}

/* Begins a value of REST. Returns false when nothing is to be written, or the document is a message. */
static bool begin_rest(struct td_document *document, const char *key)
{
    if (form_of(document) != TD_DOCUMENT_REST || !may_write(document))
        return false;
    write_key(document, key);
    return true;
}

/* Begins a value of a message, in JSON with its key. is_default: the value is 0, false or "". Returns its field, of one
 * of these two types, or NULL when nothing is to be written. */
static const struct td_field *begin_field(struct td_document *document, const char *key, bool is_default,
                                          enum td_field_type type, enum td_field_type other)
{
    if (form_of(document) == TD_DOCUMENT_REST || !may_write(document))
        return NULL;
    const struct td_field *field = field_of(document, key);
    if (field == NULL || (field->type != type && field->type != other))
        return NULL;
    bool is_element = innermost(document)->is_array;
    if (is_element != field->is_repeated || (is_default && !is_element && !field->has_presence))
        return NULL;
    if (form_of(document) == TD_DOCUMENT_PROTO_JSON)
        write_field_key(document, field);
    return field;
}

void td_document_add_text(struct td_document *document, const char *key, struct td_text text)
{
    if (begin_rest(document, key)) {
        td_json_write_string(document->out, text);
        return;
    }
    const struct td_field *field = begin_field(document, key, text.len == 0, TD_FIELD_STRING, TD_FIELD_STRING);
    if (field != NULL && form_of(document) == TD_DOCUMENT_PROTO_JSON)
        td_json_write_string(document->out, text);
    else if (field != NULL)
        td_wire_text(document->out, field->number, text);
}

void td_document_add_string(struct td_document *document, const char *key, const char *text)
{
    td_document_add_text(document, key, td_text_of(text));
}

bool td_document_begin_text(struct td_document *document, const char *key)
{
    if (begin_rest(document, key)) {
        td_buffer_putc(document->out, '"');
        return true;
    }
    const struct td_field *field = begin_field(document, key, false, TD_FIELD_STRING, TD_FIELD_STRING);
    if (field == NULL)
        return false;
    if (form_of(document) == TD_DOCUMENT_PROTO_JSON)
        td_buffer_putc(document->out, '"');
    else
        document->text = td_wire_begin(document->out, field->number);
    return true;
}

void td_document_end_text(struct td_document *document)
{
    if (form_of(document) == TD_DOCUMENT_PROTOBUF)
        td_wire_end(document->out, document->text);
    else
        td_buffer_putc(document->out, '"');
}

/* Writes a number in protobuf: a field, or an element of packed numbers. */
static void write_varint(struct td_document *document, const struct td_field *field, uint64_t value)
{
    struct td_document_level *level = innermost(document);
    if (!level->is_array) {
        td_wire_u64(document->out, field->number, value);
        return;
    }
    if (level->start == SIZE_MAX)
        level->start = td_wire_begin(document->out, field->number);
    td_wire_varint(document->out, value);
}

void td_document_add_u64(struct td_document *document, const char *key, uint64_t value)
{
    if (begin_rest(document, key)) {
        td_buffer_u64(document->out, value);
        return;
    }
    const struct td_field *field = begin_field(document, key, value == 0, TD_FIELD_UINT64, TD_FIELD_UINT32);
    if (field != NULL && form_of(document) == TD_DOCUMENT_PROTO_JSON)
        write_number(document->out, field, value);
    else if (field != NULL)
        write_varint(document, field, value);
}

void td_document_add_i32(struct td_document *document, const char *key, int32_t value)
{
    const uint64_t size = value < 0 ? 0 - (uint64_t)(int64_t)value : (uint64_t)value;
    bool is_rest = begin_rest(document, key);
    const struct td_field *field =
        is_rest ? NULL : begin_field(document, key, value == 0, TD_FIELD_INT32, TD_FIELD_INT32);
    if (field != NULL && form_of(document) == TD_DOCUMENT_PROTOBUF) {
        write_varint(document, field, (uint64_t)(int64_t)value);
    } else if (is_rest || field != NULL) {
        if (value < 0)
            td_buffer_putc(document->out, '-');
        td_buffer_u64(document->out, size);
    }
}

/* Returns the double that the shortest decimal of the float means, which JSON has. */
static double shown_single(double value)
{
    struct td_buffer text;
    double shown = value;
    td_buffer_init(&text);
    td_write_decimal(&text, value, true);
    if (isfinite(value) && td_buffer_terminate(&text) != NULL)
        shown = strtod(text.data, NULL); /* by the locale "C" */
    td_buffer_fini(&text);
    return shown;
}

/* Writes a double in protobuf: a field, or an element of packed numbers. */
static void write_double(struct td_document *document, const struct td_field *field, double value)
{
    struct td_document_level *level = innermost(document);
    if (!level->is_array) {
        td_wire_double(document->out, field->number, value);
        return;
    }
    if (level->start == SIZE_MAX)
        level->start = td_wire_begin(document->out, field->number);
    td_wire_bits(document->out, value);
}

void td_document_add_real(struct td_document *document, const char *key, double value, bool single)
{
    bool is_rest = begin_rest(document, key);
    bool is_default = value == 0 && !signbit(value);
    const struct td_field *field =
        is_rest ? NULL : begin_field(document, key, is_default, TD_FIELD_DOUBLE, TD_FIELD_DOUBLE);
    if (field != NULL && form_of(document) == TD_DOCUMENT_PROTOBUF)
        write_double(document, field, single ? shown_single(value) : value);
    else if (is_rest || field != NULL)
        td_json_write_real(document->out, value, single);
}

void td_document_add_message(struct td_document *document, const char *key, struct td_text message)
{
    bool is_rest = begin_rest(document, key);
    const struct td_field *field =
        is_rest ? NULL : begin_field(document, key, false, TD_FIELD_MESSAGE, TD_FIELD_MESSAGE);
    if (field != NULL && form_of(document) == TD_DOCUMENT_PROTOBUF)
        td_wire_text(document->out, field->number, message);
    else if (is_rest || field != NULL)
        td_buffer_append(document->out, message.p, message.len);
}

bool td_document_begin_bytes(struct td_document *document, const char *key, uint64_t len)
{
    bool is_rest = begin_rest(document, key);
    const struct td_field *field =
        is_rest ? NULL : begin_field(document, key, len == 0, TD_FIELD_BYTES, TD_FIELD_BYTES);
    if (!is_rest && field == NULL)
        return false;
    if (form_of(document) == TD_DOCUMENT_PROTOBUF) {
        td_wire_tag(document->out, field->number, TD_WIRE_BYTES);
        td_wire_varint(document->out, len);
    } else {
        td_buffer_putc(document->out, '"');
    }
    return true;
}

void td_document_end_bytes(struct td_document *document)
{
    if (form_of(document) != TD_DOCUMENT_PROTOBUF)
        td_buffer_putc(document->out, '"');
}

void td_document_add_bytes(struct td_document *document, const char *key, struct td_text bytes)
{
    if (!td_document_begin_bytes(document, key, bytes.len))
        return;
    if (form_of(document) == TD_DOCUMENT_PROTOBUF)
        td_buffer_append(document->out, bytes.p, bytes.len);
    else
        td_base64_append(document->out, bytes.p, bytes.len);
    td_document_end_bytes(document);
}

void td_document_add_seconds(struct td_document *document, const char *key, double seconds)
{
    if (begin_rest(document, key)) {
        td_buffer_printf(document->out, "%.3f", seconds);
        return;
    }
    double rounded = round(seconds * 1000) / 1000; /* as in JSON */
    const struct td_field *field = begin_field(document, key, rounded == 0, TD_FIELD_DOUBLE, TD_FIELD_DOUBLE);
    if (field != NULL && form_of(document) == TD_DOCUMENT_PROTO_JSON)
        td_buffer_printf(document->out, "%.3f", seconds);
    else if (field != NULL)
        td_wire_double(document->out, field->number, rounded);
}

void td_document_add_time(struct td_document *document, const char *key, struct td_wall time)
{
    enum { SECONDS = 1, NANOS = 2 }; /* of google.protobuf.Timestamp */
    char text[40];
    struct td_buffer *out = document->out;
    struct td_text shown = td_text_n(text, td_wall_rfc3339(time, text, sizeof text));
    if (begin_rest(document, key)) {
        td_json_write_string(out, shown);
        return;
    }
    const struct td_field *field = begin_field(document, key, false, TD_FIELD_TIMESTAMP, TD_FIELD_TIMESTAMP);
    if (field != NULL && form_of(document) == TD_DOCUMENT_PROTO_JSON) {
        td_json_write_string(out, shown);
    } else if (field != NULL) {
        const uint32_t ms = time.nanoseconds / 1000000; /* as in the text */
        size_t start = td_wire_begin(out, field->number);
        if (time.seconds != 0)
            td_wire_u64(out, SECONDS, (uint64_t)time.seconds);
        if (ms != 0)
            td_wire_u64(out, NANOS, (uint64_t)ms * 1000000);
        td_wire_end(out, start);
    }
}

void td_document_add_bool(struct td_document *document, const char *key, bool value)
{
    const struct td_text text = value ? TD_TEXT("true") : TD_TEXT("false");
    if (begin_rest(document, key)) {
        td_buffer_append(document->out, text.p, text.len);
        return;
    }
    const struct td_field *field = begin_field(document, key, !value, TD_FIELD_BOOL, TD_FIELD_BOOL);
    if (field != NULL && form_of(document) == TD_DOCUMENT_PROTO_JSON)
        td_buffer_append(document->out, text.p, text.len);
    else if (field != NULL)
        write_varint(document, field, value);
}

void td_document_add_null(struct td_document *document, const char *key)
{
    td_document_add_raw(document, key, TD_TEXT("null"));
}

/* ---- JSON within messages ------------------------------------------------------------------------------- */

/* Writes a google.protobuf.Struct, if the text is an object that fits one. */
static void write_struct(struct td_document *document, const struct td_field *field, struct td_text json)
{
    struct td_buffer *out = document->out;
    if (!td_struct_fits(json, true))
        return;
    if (form_of(document) == TD_DOCUMENT_PROTO_JSON) {
        write_field_key(document, field);
        td_buffer_append(out, json.p, json.len);
        return;
    }
    size_t start = td_wire_begin(out, field->number);
    (void)td_wire_struct(out, json);
    td_wire_end(out, start);
}

/* Writes a list of google.protobuf.Struct, if the text is an array; elements that do not fit are left out. */
static void write_structs(struct td_document *document, const struct td_field *field, struct td_text text)
{
    struct td_json json;
    td_json_init(&json, text, 0, NULL);
    if (td_json_next(&json) != TD_JSON_ARRAY_BEGIN)
        return;
    td_document_begin_array(document, field->name);
    for (enum td_json_token token = td_json_next(&json); token == TD_JSON_OBJECT_BEGIN; token = td_json_next(&json)) {
        struct td_text element = td_text_skip(text, json.start);
        element.len = td_json_value_len(element);
        write_struct(document, field, element);
        for (unsigned depth = json.depth; json.depth >= depth;)
            if (td_json_next(&json) == TD_JSON_ERROR)
                break;
    }
    td_document_end(document);
}

void td_document_add_raw(struct td_document *document, const char *key, struct td_text json)
{
    if (begin_rest(document, key)) {
        td_buffer_append(document->out, json.p, json.len);
        return;
    }
    if (form_of(document) == TD_DOCUMENT_REST || !may_write(document) || td_text_equals(json, "null"))
        return;
    const struct td_field *field = field_of(document, key);
    if (field != NULL && field->type == TD_FIELD_STRUCT && field->is_repeated && key != NULL)
        write_structs(document, field, json);
    else if (field != NULL && field->type == TD_FIELD_STRUCT)
        write_struct(document, field, json);
}

void td_document_add_member(struct td_document *document, struct td_text name, struct td_text json)
{
    enum { FIELDS = 1, KEY = 1, VALUE = 2 }; /* of google.protobuf.Struct and of its map's entries */
    struct td_buffer *out = document->out;
    if (!may_write(document) || innermost(document)->is_left_out)
        return;
    if (form_of(document) == TD_DOCUMENT_PROTOBUF) {
        size_t len = out->len, start = td_wire_begin(out, FIELDS);
        td_wire_text(out, KEY, name);
        size_t value = td_wire_begin(out, VALUE);
        bool fits = td_wire_value(out, json);
        td_wire_end(out, value);
        td_wire_end(out, start);
        out->len = fits ? out->len : len;
    } else if (form_of(document) == TD_DOCUMENT_REST || td_struct_fits(json, false)) {
        write_key(document, NULL);
        td_json_write_string(out, name);
        td_buffer_putc(out, ':');
        td_buffer_append(out, json.p, json.len);
    }
}

void td_document_add_members(struct td_document *document, struct td_text members)
{
    if (begin_rest(document, NULL))
        td_buffer_append(document->out, members.p, members.len);
}

/* ---- levels --------------------------------------------------------------------------------------------- */

/* Sets what the level is in the message, and in protobuf writes its tag. */
static void begin_message_level(struct td_document *document, const char *key, struct td_document_level *level)
{
    if (document->depth == 0) {
        level->message = document->kind->message;
        return;
    }
    const struct td_field *field = field_of(document, key);
    bool is_element = innermost(document)->is_array;
    bool is_object = field != NULL && (field->type == TD_FIELD_MESSAGE || field->type == TD_FIELD_STRUCT);
    level->is_left_out = field == NULL || (level->is_array ? is_element || !field->is_repeated
                                                           : !is_object || is_element != field->is_repeated);
    if (level->is_left_out)
        return;
    level->message = field->message;
    level->field = field;
    if (form_of(document) == TD_DOCUMENT_PROTO_JSON)
        write_field_key(document, field);
    else if (!level->is_array)
        level->start = td_wire_begin(document->out, field->number);
}

static void begin_level(struct td_document *document, const char *key, bool is_array)
{
    struct td_document_level level = {.is_array = is_array, .start = SIZE_MAX};
    if (document->depth == TD_DOCUMENT_DEPTH) {
        document->out->failed = true;
        return;
    }
    if (form_of(document) != TD_DOCUMENT_REST)
        begin_message_level(document, key, &level);
    else if (document->depth > 0)
        write_key(document, key);
    if (form_of(document) != TD_DOCUMENT_PROTOBUF && !level.is_left_out)
        td_buffer_putc(document->out, is_array ? '[' : '{');
    document->levels[document->depth++] = level;
}

void td_document_begin_object(struct td_document *document, const char *key)
{
    begin_level(document, key, false);
}

void td_document_begin_array(struct td_document *document, const char *key)
{
    begin_level(document, key, true);
}

void td_document_end(struct td_document *document)
{
    if (document->depth == 0)
        return;
    const struct td_document_level *level = innermost(document);
    document->depth--;
    if (level->is_left_out)
        return;
    if (form_of(document) != TD_DOCUMENT_PROTOBUF)
        td_buffer_putc(document->out, level->is_array ? ']' : '}');
    else if (level->start != SIZE_MAX)
        td_wire_end(document->out, level->start);
}

void td_document_resume(struct td_document *document, struct td_buffer *out, const struct td_document_kind *kind,
                        const char *key, bool has_members)
{
    td_document_init_kind(document, out, kind);
    struct td_document_level *object = &document->levels[0], *array = &document->levels[1];
    *object = (struct td_document_level){.message = kind->message, .has_members = true, .start = SIZE_MAX};
    *array = (struct td_document_level){.is_array = true, .has_members = has_members, .start = SIZE_MAX};
    if (kind->form != TD_DOCUMENT_REST) {
        array->field = find_field(document, object, key);
        array->is_left_out = array->field == NULL;
        array->message = array->is_left_out ? NULL : array->field->message;
    }
    document->depth = 2;
}
