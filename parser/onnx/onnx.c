/* The plan. The model is one protobuf message. Its fields are read in their order: metadata, and the initialisers of
 * the graph. Nodes are skipped, and with them everything inside them. At the end the model is checked for the fields
 * that every model has, and the files beside it that hold tensors are numbered.
 *
 * What is hard: any file can be read as protobuf to some degree. So field types, single fields and mandatory fields are
 * checked as the reference's checker does, and names and structure have a budget (protobuf.h). */
#include "parser/onnx/onnx.h"

#include "core/buffer.h"
#include "core/checked.h"
#include "core/utf8.h"
#include "parser/format/manifest.h"
#include "parser/format/names.h"
#include "parser/onnx/onnx_tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER_NAME = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_DOMAIN = 4,
    MODEL_VERSION = 5,
    MODEL_DOC_STRING = 6,
    MODEL_GRAPH = 7,
    MODEL_OPSET_IMPORT = 8,
    MODEL_METADATA_PROPS = 14,
    GRAPH_INITIALIZER = 5,
    GRAPH_SPARSE_INITIALIZER = 15,
    SPARSE_VALUES = 1,
    SPARSE_INDICES = 2,
    SPARSE_DIMS = 3,
    PAIR_KEY = 1, /* key of StringStringEntryProto, or domain of OperatorSetIdProto */
    PAIR_VALUE = 2,
};

struct location {
    const char *path;
    size_t tensor; /* its number in the manifest */
};

struct reader {
    struct td_onnx onnx;
    uint64_t seen; /* numbers of the fields, of those that may occur once, that were met */
    uint64_t ir_version;
    bool has_opset;
    size_t tensor_capacity, metadata_capacity, omitted;
    struct location *locations; /* of tensors in other files, in the arena */
    size_t location_count, location_capacity;
};

/* ---- tensors ------------------------------------------------------------------------------------------- */

static bool add_location(struct reader *r, const char *path)
{
    struct td_arena *arena = &r->onnx.manifest->arena;
    struct location *locations =
        td_arena_grow(arena, r->locations, r->location_count, &r->location_capacity, sizeof *locations);
    if (locations == NULL)
        return td_error_no_memory(r->onnx.err);
    r->locations = locations;
    locations[r->location_count++] = (struct location){.path = path, .tensor = r->onnx.manifest->tensor_count - 1};
    return true;
}

/* Lists the tensor under its own name with `suffix`, which may be "". */
static bool add_tensor(struct reader *r, const struct td_onnx_tensor *read, const char *name, const char *suffix)
{
    struct td_manifest *manifest = r->onnx.manifest;
    struct td_tensor tensor = read->tensor;
    struct td_buffer text;
    tensor.name = name;
    if (*suffix != '\0') {
        td_buffer_init(&text);
        td_buffer_puts(&text, name);
        td_buffer_puts(&text, suffix);
        tensor.name = text.failed ? NULL : td_arena_strndup(&manifest->arena, td_buffer_text(&text));
        td_buffer_fini(&text);
        if (tensor.name == NULL)
            return td_error_no_memory(r->onnx.err);
    }
    tensor.name_len = (uint32_t)strlen(tensor.name);
    return td_manifest_add_tensor(manifest, &tensor, &r->tensor_capacity, r->onnx.err) != NULL &&
           (read->location == NULL || add_location(r, read->location));
}

static bool check_name(struct reader *r, const struct td_onnx_tensor *read)
{
    return (read->name != NULL && read->name_len > 0) ||
           td_error_at(r->onnx.err, TD_INVALID_ARGUMENT, read->at, "an initialiser has no name");
}

static bool read_initializer(struct reader *r, const struct td_protobuf_field *field)
{
    struct td_onnx_tensor read;
    return td_onnx_read_tensor(&r->onnx, field, &read) && check_name(r, &read) && add_tensor(r, &read, read.name, "");
}

/* Lists the dense tensor that the values and indices stand for, which is not stored. */
static bool add_dense(struct reader *r, const struct td_onnx_tensor *values, const uint64_t *dims, uint32_t rank)
{
    struct td_onnx_tensor dense = {.tensor = {.dtype = values->tensor.dtype, .rank = rank, .reason = "sparse"}};
    uint64_t elems = 1;
    bool fits = true;
    for (uint32_t i = 0; i < rank; i++)
        fits = fits && td_mul_u64(elems, dims[i], &elems);
    if (!fits || !td_dtype_nbytes(dense.tensor.dtype, elems, &dense.tensor.nbytes) || dense.tensor.nbytes > INT64_MAX)
        dense.tensor.nbytes = 0;
    if (rank > 0) {
        uint64_t *shape = td_arena_array(&r->onnx.manifest->arena, rank, sizeof *shape);
        if (shape == NULL)
            return td_error_no_memory(r->onnx.err);
        memcpy(shape, dims, rank * sizeof *shape);
        dense.tensor.shape = shape;
    }
    return add_tensor(r, &dense, values->name, "");
}

/* Reads a SparseTensorProto, whose name is that of its values. */
static bool read_sparse(struct reader *r, const struct td_protobuf_field *message)
{
    const uint64_t end = message->at + message->len;
    struct td_onnx_tensor values = {.at = message->tag_at};
    struct td_onnx_tensor indices = {.at = message->tag_at};
    uint64_t dims[TD_MAX_RANK];
    uint32_t rank = 0;
    uint64_t seen = 0;
    if (!td_onnx_expect(&r->onnx, message, TD_WIRE_BYTES))
        return false;
    for (r->onnx.in.pos = message->at; r->onnx.in.pos < end;) {
        struct td_protobuf_field field;
        bool ok = td_protobuf_next(&r->onnx.in, end, &field);
        if (ok && (field.number == SPARSE_VALUES || field.number == SPARSE_INDICES))
            ok = td_onnx_once(&r->onnx, &field, &seen) &&
                 td_onnx_read_tensor(&r->onnx, &field, field.number == SPARSE_VALUES ? &values : &indices);
        else if (ok && field.number == SPARSE_DIMS)
            ok = td_onnx_read_dims(&r->onnx, &field, dims, &rank);
        if (!ok)
            return false;
    }
    if (values.tensor.dtype == NULL || indices.tensor.dtype == NULL)
        return td_error_at(r->onnx.err, TD_INVALID_ARGUMENT, message->tag_at,
                           "a sparse initialiser lacks its values or indices");
    return check_name(r, &values) && add_dense(r, &values, dims, rank) &&
           add_tensor(r, &values, values.name, ".values") && add_tensor(r, &indices, values.name, ".indices");
}

/* Reads the initialisers of the graph. Skips nodes with everything inside them (constants, bodies of loops). */
static bool read_graph(struct reader *r, const struct td_protobuf_field *message)
{
    const uint64_t end = message->at + message->len;
    for (r->onnx.in.pos = message->at; r->onnx.in.pos < end;) {
        struct td_protobuf_field field;
        if (!td_protobuf_next(&r->onnx.in, end, &field))
            return false;
        if (field.number == GRAPH_INITIALIZER && !read_initializer(r, &field))
            return false;
        if (field.number == GRAPH_SPARSE_INITIALIZER && !read_sparse(r, &field))
            return false;
    }
    return true;
}

/* ---- metadata ------------------------------------------------------------------------------------------ */

/* Adds an entry; key must be in the arena. */
static bool add_metadata(struct reader *r, const char *key, const struct td_buffer *json)
{
    struct td_manifest *manifest = r->onnx.manifest;
    if (manifest->metadata_count == TD_METADATA_MAX) {
        r->omitted++;
        return true;
    }
    struct td_metadata *metadata = td_arena_grow(&manifest->arena, manifest->metadata, manifest->metadata_count,
                                                 &r->metadata_capacity, sizeof *metadata);
    char *value = json->failed || metadata == NULL ? NULL : td_arena_strndup(&manifest->arena, td_buffer_text(json));
    if (value == NULL)
        return td_error_no_memory(r->onnx.err);
    manifest->metadata = metadata;
    metadata[manifest->metadata_count++] = (struct td_metadata){.key = key, .value = value};
    return true;
}

static bool add_number(struct reader *r, const char *key, uint64_t value)
{
    struct td_buffer json;
    td_buffer_init(&json);
    td_buffer_printf(&json, "%" PRId64, (int64_t)value);
    bool ok = add_metadata(r, key, &json);
    td_buffer_fini(&json);
    return ok;
}

/* Adds a text, or its beginning, as a metadata entry. */
static bool add_text(struct reader *r, const char *key, const struct td_protobuf_field *field)
{
    char text[TD_METADATA_TEXT_MAX + 1] = "";
    struct td_buffer json;
    size_t len = field->len < TD_METADATA_TEXT_MAX ? (size_t)field->len : TD_METADATA_TEXT_MAX;
    if (!td_onnx_expect(&r->onnx, field, TD_WIRE_BYTES) ||
        !td_input_read(r->onnx.in.input, field->at, text, len, r->onnx.err))
        return false;
    if (len < field->len) /* do not cut within a character */
        for (size_t back = 0; back < 3 && len > 0 && !td_utf8_valid(text, len); back++)
            len--;
    td_buffer_init(&json);
    td_metadata_write_text(&json, td_text_n(text, len), td_utf8_valid(text, len), field->len);
    bool ok = add_metadata(r, key, &json);
    td_buffer_fini(&json);
    return ok;
}

/* Reads a pair of metadata_props, or a domain with its version, as an entry with the key "prefix.KEY"; "prefix" for an
 * empty key. */
static bool read_pair(struct reader *r, const struct td_protobuf_field *message, const char *prefix)
{
    const uint64_t end = message->at + message->len;
    struct td_protobuf_field value = {0};
    struct td_buffer key;
    const char *name = "";
    uint64_t seen = 0;
    if (!td_onnx_expect(&r->onnx, message, TD_WIRE_BYTES))
        return false;
    for (r->onnx.in.pos = message->at; r->onnx.in.pos < end;) {
        struct td_protobuf_field field;
        if (!td_protobuf_next(&r->onnx.in, end, &field))
            return false;
        if (field.number != PAIR_KEY && field.number != PAIR_VALUE)
            continue;
        if (!td_onnx_once(&r->onnx, &field, &seen))
            return false;
        if (field.number == PAIR_VALUE)
            value = field;
        else
            name = td_onnx_text(&r->onnx, &field, "a key of the metadata");
        if (name == NULL)
            return false;
    }
    td_buffer_init(&key);
    td_buffer_puts(&key, prefix);
    if (*name != '\0') {
        td_buffer_putc(&key, '.');
        td_buffer_puts(&key, name);
    }
    char *copy = key.failed ? NULL : td_arena_strndup(&r->onnx.manifest->arena, td_buffer_text(&key));
    td_buffer_fini(&key);
    if (copy == NULL)
        return td_error_no_memory(r->onnx.err);
    if (value.number == 0)
        return true;
    return value.wire == TD_WIRE_VARINT ? add_number(r, copy, value.value) : add_text(r, copy, &value);
}

/* Refuses repeated keys, as the reference's checker does for metadata_props, and because JSON needs unique keys. Adds
 * the number of omitted entries. */
static bool check_metadata(struct reader *r)
{
    struct td_manifest *manifest = r->onnx.manifest;
    struct td_names names = td_metadata_keys(manifest->metadata, manifest->metadata_count);
    struct td_order *order;
    if (!td_names_order(&names, &order, r->onnx.err))
        return false;
    size_t twice = td_names_duplicate(&names, order);
    free(order);
    if (twice < names.count)
        return td_error_set(r->onnx.err, TD_INVALID_ARGUMENT, "the metadata have \"%.96s\" twice",
                            manifest->metadata[twice].key);
    return td_manifest_note_omitted(manifest, r->omitted, r->onnx.err);
}

/* ---- the model ----------------------------------------------------------------------------------------- */

static bool read_model_field(struct reader *r, const struct td_protobuf_field *field)
{
    static const char *const names[] = {
        [MODEL_IR_VERSION] = "ir_version",
        [MODEL_PRODUCER_NAME] = "producer_name",
        [MODEL_PRODUCER_VERSION] = "producer_version",
        [MODEL_DOMAIN] = "domain",
        [MODEL_VERSION] = "model_version",
        [MODEL_DOC_STRING] = "doc_string",
    };
    if (field->number == MODEL_OPSET_IMPORT) {
        r->has_opset = true;
        return read_pair(r, field, "opset_import");
    }
    if (field->number == MODEL_METADATA_PROPS)
        return read_pair(r, field, "metadata_props");
    if (field->number > MODEL_GRAPH)
        return true;
    if (!td_onnx_once(&r->onnx, field, &r->seen))
        return false;
    if (field->number == MODEL_GRAPH)
        return td_onnx_expect(&r->onnx, field, TD_WIRE_BYTES) && read_graph(r, field);
    if (field->number != MODEL_IR_VERSION && field->number != MODEL_VERSION)
        return add_text(r, names[field->number], field);
    if (field->number == MODEL_IR_VERSION)
        r->ir_version = field->value;
    return td_onnx_expect(&r->onnx, field, TD_WIRE_VARINT) && add_number(r, names[field->number], field->value);
}

static bool read_model(struct reader *r, uint64_t end)
{
    while (r->onnx.in.pos < end) {
        struct td_protobuf_field field;
        if (!td_protobuf_next(&r->onnx.in, end, &field) || !read_model_field(r, &field))
            return false;
    }
    return true;
}

/* Requires the fields that the reference's checker requires of a model, so that other messages are refused. */
static bool check_model(struct reader *r)
{
    enum { OPSETS_SINCE = 3 };
    const char *lacks = NULL;
    if ((r->seen & 1U << MODEL_IR_VERSION) == 0)
        lacks = "ir_version";
    else if ((r->seen & 1U << MODEL_GRAPH) == 0)
        lacks = "graph";
    else if (r->ir_version >= OPSETS_SINCE && !r->has_opset)
        lacks = "opset_import";
    return lacks == NULL || td_error_at(r->onnx.err, TD_INVALID_ARGUMENT, r->onnx.in.pos,
                                        "it has no %s, so it is not an ONNX model or is cut off", lacks);
}

static struct td_text location_path(const void *context, size_t i)
{
    const char *path = ((const struct location *)context)[i].path;
    return td_text_of(path);
}

/* Numbers the files beside the model, and sets the file of each tensor in them. */
static bool number_files(struct reader *r)
{
    struct td_manifest *manifest = r->onnx.manifest;
    struct td_names names = {.count = r->location_count, .context = r->locations, .get = location_path};
    if (names.count == 0)
        return true;
    uint32_t *numbers = malloc(names.count * sizeof *numbers);
    if (numbers == NULL)
        return td_error_no_memory(r->onnx.err);
    bool ok =
        td_names_distinct(&names, &manifest->arena, &manifest->files, &manifest->file_count, numbers, r->onnx.err);
    for (size_t i = 0; ok && i < names.count; i++)
        manifest->tensors[r->locations[i].tensor].file = numbers[i] + 1;
    free(numbers);
    return ok;
}

static bool parse_onnx(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                       struct td_error *err)
{
    struct reader r = {.onnx = {.manifest = manifest, .err = err}};
    if (input->size_bytes > INT32_MAX)
        return td_error_at(err, TD_INVALID_ARGUMENT, 0,
                           "%" PRIu64 " bytes; a protobuf message has at most 2,147,483,647, so the weights of "
                           "a larger model are in files beside it",
                           input->size_bytes);
    td_protobuf_init(&r.onnx.in, input, limits->max_header_bytes, err);
    return read_model(&r, input->size_bytes) && check_model(&r) && check_metadata(&r) && number_files(&r) &&
           td_manifest_finish(manifest, err);
}

static const char *const extensions[] = {".onnx", NULL};

const struct td_format td_format_onnx = {.name = "onnx", .extensions = extensions, .parse = parse_onnx};
