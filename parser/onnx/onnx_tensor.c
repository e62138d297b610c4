/* A TensorProto holds its elements in one of three ways: as bytes in raw_data, in a field of their type (float_data and
 * so on), or in another file (external_data). Fields come in any order, so they are collected in struct message first
 * and checked against each other at the end. Elements can be served when they are bytes of fixed width in one run. */
#include "parser/onnx/onnx_tensor.h"

#include "core/checked.h"
#include "core/utf8.h"
#include "parser/format/names.h"

#include <inttypes.h>
#include <string.h>

enum {
    TENSOR_DIMS = 1,
    TENSOR_DATA_TYPE = 2,
    TENSOR_SEGMENT = 3,
    TENSOR_FLOAT_DATA = 4,
    TENSOR_INT32_DATA = 5,
    TENSOR_STRING_DATA = 6,
    TENSOR_INT64_DATA = 7,
    TENSOR_NAME = 8,
    TENSOR_RAW_DATA = 9,
    TENSOR_DOUBLE_DATA = 10,
    TENSOR_UINT64_DATA = 11,
    TENSOR_EXTERNAL_DATA = 13,
    TENSOR_DATA_LOCATION = 14,
    DATA_STRING = 8, /* of DataType */
    DATA_UINT4 = 21,
    DATA_INT4 = 22,
    DATA_FLOAT4E2M1 = 23,
    DATA_UINT2 = 25,
    DATA_INT2 = 26,
    ENTRY_KEY = 1, /* of StringStringEntryProto */
    ENTRY_VALUE = 2,
    VALUE_FIELDS_END = 12, /* numbers of fields with elements are below */
};

/* TensorProto.DataType: the dtype, and the field that holds the elements when raw_data does not. */
static const struct {
    const char *dtype;
    uint8_t field;
} types[] = {
    [1] = {"F32", TENSOR_FLOAT_DATA},      [2] = {"U8", TENSOR_INT32_DATA},
    [3] = {"I8", TENSOR_INT32_DATA},       [4] = {"U16", TENSOR_INT32_DATA},
    [5] = {"I16", TENSOR_INT32_DATA},      [6] = {"I32", TENSOR_INT32_DATA},
    [7] = {"I64", TENSOR_INT64_DATA},      [8] = {"STRING", TENSOR_STRING_DATA},
    [9] = {"BOOL", TENSOR_INT32_DATA},     [10] = {"F16", TENSOR_INT32_DATA},
    [11] = {"F64", TENSOR_DOUBLE_DATA},    [12] = {"U32", TENSOR_UINT64_DATA},
    [13] = {"U64", TENSOR_UINT64_DATA},    [14] = {"C64", TENSOR_FLOAT_DATA},
    [15] = {"C128", TENSOR_DOUBLE_DATA},   [16] = {"BF16", TENSOR_INT32_DATA},
    [17] = {"F8_E4M3", TENSOR_INT32_DATA}, [18] = {"F8_E4M3FNUZ", TENSOR_INT32_DATA},
    [19] = {"F8_E5M2", TENSOR_INT32_DATA}, [20] = {"F8_E5M2FNUZ", TENSOR_INT32_DATA},
    [21] = {"U4", TENSOR_INT32_DATA},      [22] = {"I4", TENSOR_INT32_DATA},
    [23] = {"F4", TENSOR_INT32_DATA},      [24] = {"F8_E8M0", TENSOR_INT32_DATA},
    [25] = {"U2", TENSOR_INT32_DATA},      [26] = {"I2", TENSOR_INT32_DATA},
    [27] = {"F6_E2M3", TENSOR_INT32_DATA}, [28] = {"F6_E3M2", TENSOR_INT32_DATA},
};

static const char *const field_names[VALUE_FIELDS_END] = {
    [TENSOR_FLOAT_DATA] = "float_data",   [TENSOR_INT32_DATA] = "int32_data", [TENSOR_STRING_DATA] = "string_data",
    [TENSOR_INT64_DATA] = "int64_data",   [TENSOR_RAW_DATA] = "raw_data",     [TENSOR_DOUBLE_DATA] = "double_data",
    [TENSOR_UINT64_DATA] = "uint64_data",
};

/* The elements in one field. */
struct values {
    uint64_t at, len; /* of the last run, without its tag and length */
    uint64_t runs;    /* number of times that the field occurs and is not empty */
    bool unpacked;    /* an element has a tag of its own */
    uint64_t bytes;   /* of all runs, without tags */
    uint64_t elems;   /* number of strings or varints in all runs */
};

/* A TensorProto while it is read. */
struct message {
    uint64_t seen; /* numbers of the scalar fields that were met */
    uint64_t dims[TD_MAX_RANK];
    uint32_t rank;
    uint64_t data_type;
    struct values values[VALUE_FIELDS_END];
    bool is_external;
    uint64_t keys; /* keys of external_data that were met, a bit each */
    char *location;
    uint64_t offset, length; /* length 0: as long as shape and type imply */
    bool bad_number;
};

/* ---- fields -------------------------------------------------------------------------------------------- */

bool td_onnx_expect(struct td_onnx *onnx, const struct td_protobuf_field *field, enum td_protobuf_wire wire)
{
    return field->wire == wire || td_error_at(onnx->err, TD_INVALID_ARGUMENT, field->tag_at,
                                              "field %" PRIu32 " has wire type %d where ONNX has %d", field->number,
                                              (int)field->wire, (int)wire);
}

bool td_onnx_once(struct td_onnx *onnx, const struct td_protobuf_field *field, uint64_t *seen)
{
    uint64_t bit = UINT64_C(1) << field->number;
    if ((*seen & bit) != 0)
        return td_error_at(onnx->err, TD_INVALID_ARGUMENT, field->tag_at,
                           "field %" PRIu32 " occurs twice; it can have one value", field->number);
    *seen |= bit;
    return true;
}

char *td_onnx_text(struct td_onnx *onnx, const struct td_protobuf_field *field, const char *what)
{
    if (!td_onnx_expect(onnx, field, TD_WIRE_BYTES))
        return NULL;
    char *text = td_protobuf_copy(&onnx->in, field, &onnx->manifest->arena);
    if (text == NULL)
        return NULL;
    if (td_utf8_valid(text, (size_t)field->len) && memchr(text, '\0', (size_t)field->len) == NULL)
        return text;
    (void)td_error_at(onnx->err, TD_INVALID_ARGUMENT, field->at, "%s is not UTF-8 or holds a NUL", what);
    return NULL;
}

static bool add_dim(struct td_onnx *onnx, uint64_t at, uint64_t dim, uint64_t dims[TD_MAX_RANK], uint32_t *rank)
{
    if (dim > INT64_MAX)
        return td_error_at(onnx->err, TD_INVALID_ARGUMENT, at, "a dimension is negative");
    if (*rank == TD_MAX_RANK)
        return td_error_at(onnx->err, TD_INVALID_ARGUMENT, at, "a tensor has more than 64 dimensions");
    dims[(*rank)++] = dim;
    return true;
}

bool td_onnx_read_dims(struct td_onnx *onnx, const struct td_protobuf_field *field, uint64_t dims[TD_MAX_RANK],
                       uint32_t *rank)
{
    if (field->wire == TD_WIRE_VARINT)
        return add_dim(onnx, field->at, field->value, dims, rank);
    if (!td_onnx_expect(onnx, field, TD_WIRE_BYTES))
        return false;
    const uint64_t end = field->at + field->len;
    for (onnx->in.pos = field->at; onnx->in.pos < end;) {
        uint64_t at = onnx->in.pos;
        uint64_t dim;
        if (!td_protobuf_varint(&onnx->in, end, &dim) || !add_dim(onnx, at, dim, dims, rank))
            return false;
    }
    return true;
}

/* Counts the elements of a run of strings or of varints. Sets *elems to 0 for other fields. */
static bool count_elems(struct td_onnx *onnx, const struct td_protobuf_field *field, uint64_t *elems)
{
    *elems = 0;
    switch (field->number) {
    case TENSOR_STRING_DATA:
        *elems = 1;
        return true;
    case TENSOR_INT32_DATA:
    case TENSOR_INT64_DATA:
    case TENSOR_UINT64_DATA:
        *elems = 1;
        return field->wire != TD_WIRE_BYTES || td_protobuf_count_varints(&onnx->in, field, elems);
    default:
        return true;
    }
}

/* Notes elements: packed ones, a single one, or a string. */
static bool add_values(struct td_onnx *onnx, const struct td_protobuf_field *field, struct message *m)
{
    static const uint8_t alone[VALUE_FIELDS_END] = {
        [TENSOR_FLOAT_DATA] = TD_WIRE_FIXED32, [TENSOR_INT32_DATA] = TD_WIRE_VARINT,
        [TENSOR_STRING_DATA] = TD_WIRE_BYTES,  [TENSOR_INT64_DATA] = TD_WIRE_VARINT,
        [TENSOR_RAW_DATA] = TD_WIRE_BYTES,     [TENSOR_DOUBLE_DATA] = TD_WIRE_FIXED64,
        [TENSOR_UINT64_DATA] = TD_WIRE_VARINT,
    };
    struct values *values = &m->values[field->number];
    if (field->wire != TD_WIRE_BYTES && !td_onnx_expect(onnx, field, (enum td_protobuf_wire)alone[field->number]))
        return false;
    if (field->number == TENSOR_RAW_DATA && !td_onnx_once(onnx, field, &m->seen))
        return false;
    if (field->len == 0 && field->number != TENSOR_STRING_DATA)
        return true;
    uint64_t elems;
    if (!count_elems(onnx, field, &elems))
        return false;
    values->unpacked = values->unpacked || field->wire != TD_WIRE_BYTES;
    values->at = field->at;
    values->len = field->len;
    values->bytes += field->len; /* within the file, so no overflow */
    values->elems += elems;
    values->runs++;
    return true;
}

/* ---- external data ------------------------------------------------------------------------------------- */

/* Reads a number as the onnx package does, by Python's int(): decimal digits with single underscores between them, an
 * optional sign before and optional blanks around them. Only ASCII digits are read. Returns false for other texts and
 * for negative numbers. A number that is too large becomes INT64_MAX, which no file reaches. */
static bool read_number(const char *text, uint64_t *out)
{
    static const char blanks[] = " \t\n\v\f\r";
    enum { TEN = 10 };
    uint64_t value = 0;
    bool after_digit = false;
    text += strspn(text, blanks);
    const bool is_negative = *text == '-';
    text += *text == '-' || *text == '+' ? 1 : 0;
    for (; td_is_digit(*text) || (*text == '_' && after_digit); text++) {
        after_digit = *text != '_';
        if (after_digit)
            value = value >= INT64_MAX / TEN ? INT64_MAX : value * TEN + (uint64_t)(*text - '0');
    }
    text += strspn(text, blanks);
    *out = value;
    return after_digit && *text == '\0' && (!is_negative || value == 0);
}

/* Keeps the value of a key of external_data. Ignores unknown keys. */
static bool set_external(struct td_onnx *onnx, const struct td_protobuf_field *at, struct message *m, const char *key,
                         char *value)
{
    static const char *const keys[] = {"location", "offset", "length"};
    enum { LOCATION, OFFSET, LENGTH, KEY_COUNT };
    unsigned k = 0;
    while (k < KEY_COUNT && strcmp(key, keys[k]) != 0)
        k++;
    if (k == KEY_COUNT)
        return true;
    if ((m->keys & (1U << k)) != 0)
        return td_error_at(onnx->err, TD_INVALID_ARGUMENT, at->tag_at, "external_data has \"%s\" twice", key);
    m->keys |= 1U << k;
    if (k == LOCATION) {
        m->location = value;
        return true;
    }
    uint64_t *number = k == OFFSET ? &m->offset : &m->length;
    m->bad_number = !read_number(value, number) || m->bad_number;
    return true;
}

static bool read_external(struct td_onnx *onnx, const struct td_protobuf_field *entry, struct message *m)
{
    const uint64_t end = entry->at + entry->len;
    struct td_protobuf_field field;
    uint64_t seen = 0;
    char *key = NULL;
    char *value = NULL;
    if (!td_onnx_expect(onnx, entry, TD_WIRE_BYTES))
        return false;
    for (onnx->in.pos = entry->at; onnx->in.pos < end;) {
        if (!td_protobuf_next(&onnx->in, end, &field))
            return false;
        if (field.number != ENTRY_KEY && field.number != ENTRY_VALUE)
            continue;
        char **text = field.number == ENTRY_KEY ? &key : &value;
        if (!td_onnx_once(onnx, &field, &seen))
            return false;
        *text = td_onnx_text(onnx, &field, "what external_data says");
        if (*text == NULL)
            return false;
    }
    return key == NULL || value == NULL || set_external(onnx, entry, m, key, value);
}

/* ---- the message --------------------------------------------------------------------------------------- */

static bool read_field(struct td_onnx *onnx, const struct td_protobuf_field *field, struct message *m,
                       struct td_onnx_tensor *out)
{
    enum { EXTERNAL = 1 };
    if (field->number < VALUE_FIELDS_END && field_names[field->number] != NULL)
        return add_values(onnx, field, m);
    switch (field->number) {
    case TENSOR_DIMS:
        return td_onnx_read_dims(onnx, field, m->dims, &m->rank);
    case TENSOR_DATA_TYPE:
        m->data_type = field->value;
        return td_onnx_expect(onnx, field, TD_WIRE_VARINT) && td_onnx_once(onnx, field, &m->seen);
    case TENSOR_DATA_LOCATION:
        m->is_external = field->value == EXTERNAL;
        return td_onnx_expect(onnx, field, TD_WIRE_VARINT) && td_onnx_once(onnx, field, &m->seen) &&
               (field->value <= EXTERNAL ||
                td_error_at(onnx->err, TD_INVALID_ARGUMENT, field->tag_at,
                            "a tensor's data_location is neither 0 (here) nor 1 (external)"));
    case TENSOR_SEGMENT:
        return td_onnx_expect(onnx, field, TD_WIRE_BYTES) && td_onnx_once(onnx, field, &m->seen);
    case TENSOR_NAME:
        if (!td_onnx_once(onnx, field, &m->seen))
            return false;
        out->name = td_onnx_text(onnx, field, "a tensor's name");
        out->name_len = (size_t)field->len;
        return out->name != NULL;
    case TENSOR_EXTERNAL_DATA:
        return read_external(onnx, field, m);
    default:
        return true;
    }
}

static bool tensor_refuse(struct td_onnx *onnx, const struct td_onnx_tensor *out, const char *why)
{
    return td_error_at(onnx->err, TD_INVALID_ARGUMENT, out->at, "tensor \"%.96s\": %s",
                       out->name == NULL ? "" : out->name, why);
}

/* Sets type and shape, and the size in bytes when the elements fill whole bytes. Sets *packed_bytes to that size,
 * rounded up. */
static bool set_shape(struct td_onnx *onnx, const struct message *m, struct td_onnx_tensor *out, uint64_t *packed_bytes)
{
    struct td_tensor *tensor = &out->tensor;
    const char *name = m->data_type < sizeof types / sizeof *types ? types[m->data_type].dtype : "OPAQUE";
    uint64_t elems = 1;
    bool fits = true;
    if (m->data_type == 0 || m->data_type > INT32_MAX) /* UNDEFINED, missing, or cut to 32 bits by other readers */
        return tensor_refuse(onnx, out, "it has no data_type");
    tensor->dtype = td_dtype_find(td_text_of(name));
    tensor->rank = m->rank;
    if (m->rank > 0) {
        uint64_t *shape = td_arena_array(&onnx->manifest->arena, m->rank, sizeof *shape);
        if (shape == NULL)
            return td_error_no_memory(onnx->err);
        memcpy(shape, m->dims, m->rank * sizeof *shape);
        tensor->shape = shape;
    }
    for (uint32_t i = 0; i < m->rank; i++)
        fits = fits && td_mul_u64(elems, m->dims[i], &elems) && elems <= INT64_MAX;
    if (!fits)
        return tensor_refuse(onnx, out, "it has 2^63 elements or more");
    uint64_t blocks = elems / tensor->dtype->block_elems;
    uint64_t bytes;
    if (!td_mul_u64(blocks, tensor->dtype->block_bytes, &bytes) || bytes > INT64_MAX)
        return tensor_refuse(onnx, out, "it has 2^63 bytes or more");
    uint64_t rest = elems % tensor->dtype->block_elems;
    uint64_t bits = rest * tensor->dtype->block_bytes * 8 / tensor->dtype->block_elems;
    *packed_bytes = bytes + (bits + 7) / 8;
    if (rest == 0)
        tensor->nbytes = bytes;
    else
        tensor->reason = "its last byte is not full";
    return true;
}

static void place_external(const struct message *m, uint64_t packed_bytes, struct td_onnx_tensor *out)
{
    struct td_tensor *tensor = &out->tensor;
    const char *path = td_path_clean(m->location) ? m->location : NULL;
    if (tensor->reason != NULL)
        return;
    if (path == NULL)
        tensor->reason = "its external data are not below the model's directory";
    else if (m->bad_number)
        tensor->reason = "the offset or length of its external data is not a number";
    else if (m->length != 0 && m->length != packed_bytes)
        tensor->reason = "its external data do not have the length that its shape and type imply";
    if (tensor->reason != NULL)
        return;
    tensor->offset = m->offset;
    tensor->reason = TD_REASON_OTHER_FILE;
    out->location = path;
}

/* Returns a field that holds elements, or 0. Sets *count to the number of such fields. */
static uint32_t find_values(const struct message *m, unsigned *count)
{
    uint32_t field = 0;
    *count = 0;
    for (uint32_t i = 0; i < VALUE_FIELDS_END; i++) {
        if (m->values[i].runs == 0)
            continue;
        field = i;
        (*count)++;
    }
    return field;
}

/* Returns whether the field has as many elements as `count` and the type imply. */
static bool has_all_elems(const struct message *m, uint32_t field, uint64_t count, uint64_t packed_bytes)
{
    enum { BYTES_OF_32 = 4 };
    const struct values *values = &m->values[field];
    if (field == TENSOR_FLOAT_DATA || field == TENSOR_DOUBLE_DATA)
        return values->bytes == packed_bytes;
    if (m->data_type == DATA_UINT4 || m->data_type == DATA_INT4 || m->data_type == DATA_FLOAT4E2M1 ||
        m->data_type == DATA_UINT2 || m->data_type == DATA_INT2) /* the checker allows four full bytes in each number */
        return values->elems >= (packed_bytes + BYTES_OF_32 - 1) / BYTES_OF_32 && values->elems <= packed_bytes;
    return values->elems == count;
}

/* Places elements that are in a field of their type. Those of fixed width can be served when they are in one run. */
static bool place_typed(struct td_onnx *onnx, const struct message *m, uint32_t field, uint64_t packed_bytes,
                        struct td_onnx_tensor *out)
{
    const struct values *values = &m->values[field];
    struct td_tensor *tensor = &out->tensor;
    uint64_t count = 1; /* does not overflow: set_shape has checked the product */
    for (uint32_t i = 0; i < m->rank; i++)
        count *= m->dims[i];
    if (field != types[m->data_type].field)
        return tensor_refuse(onnx, out, "its elements are in a field of another type");
    if (!has_all_elems(m, field, count, packed_bytes))
        return tensor_refuse(onnx, out, "it does not have as many elements as its shape implies");
    if (field == TENSOR_STRING_DATA)
        return true;
    if (field != TENSOR_FLOAT_DATA && field != TENSOR_DOUBLE_DATA) {
        tensor->reason = "stored as protobuf numbers of variable length";
        return true;
    }
    tensor->offset = values->at;
    if (values->unpacked || values->runs > 1)
        tensor->reason = "stored in several runs";
    return true;
}

static bool place_values(struct td_onnx *onnx, const struct message *m, uint64_t packed_bytes,
                         struct td_onnx_tensor *out)
{
    struct td_tensor *tensor = &out->tensor;
    unsigned count;
    uint32_t field = find_values(m, &count);
    bool is_empty = false;
    for (uint32_t i = 0; i < m->rank; i++)
        is_empty = is_empty || m->dims[i] == 0;
    if (is_empty && count > 0)
        return tensor_refuse(onnx, out, "it has no elements by its shape, but data");
    if (!is_empty && count != 1)
        return tensor_refuse(onnx, out, count == 0 ? "it has no data" : "it has data in two fields");
    if (is_empty || m->data_type >= sizeof types / sizeof *types)
        return true;
    if (field != TENSOR_RAW_DATA)
        return place_typed(onnx, m, field, packed_bytes, out);
    if (m->data_type == DATA_STRING)
        return tensor_refuse(onnx, out, "strings cannot be in raw_data");
    if (m->values[field].len != packed_bytes)
        return td_error_at(onnx->err, TD_INVALID_ARGUMENT, out->at,
                           "tensor \"%.96s\": raw_data has %" PRIu64 " bytes, its shape and type imply %" PRIu64,
                           out->name == NULL ? "" : out->name, m->values[field].len, packed_bytes);
    tensor->offset = m->values[field].at;
    return true;
}

/* Checks the collected fields against each other and fills *out. */
static bool finish_tensor(struct td_onnx *onnx, const struct message *m, struct td_onnx_tensor *out)
{
    struct td_tensor *tensor = &out->tensor;
    uint64_t packed_bytes = 0;
    unsigned count;
    if (!set_shape(onnx, m, out, &packed_bytes))
        return false;
    if (m->data_type >= sizeof types / sizeof *types)
        tensor->reason = "of a type that is not known";
    else if (m->data_type == DATA_STRING)
        tensor->reason = "strings";
    else if ((m->seen & (1U << TENSOR_SEGMENT)) != 0)
        tensor->reason = "a segment of a tensor";
    if (!m->is_external)
        return place_values(onnx, m, packed_bytes, out);
    (void)find_values(m, &count);
    if (count > 0)
        return tensor_refuse(onnx, out, "it is stored externally, but has data as well");
    if (m->location == NULL)
        return tensor_refuse(onnx, out, "it is stored externally, but has no location");
    place_external(m, packed_bytes, out);
    return true;
}

bool td_onnx_read_tensor(struct td_onnx *onnx, const struct td_protobuf_field *message, struct td_onnx_tensor *out)
{
    const uint64_t end = message->at + message->len;
    struct message m = {0};
    struct td_protobuf_field field;
    *out = (struct td_onnx_tensor){.at = message->tag_at};
    if (!td_onnx_expect(onnx, message, TD_WIRE_BYTES))
        return false;
    for (onnx->in.pos = message->at; onnx->in.pos < end;)
        if (!td_protobuf_next(&onnx->in, end, &field) || !read_field(onnx, &field, &m, out))
            return false;
    return finish_tensor(onnx, &m, out);
}
