#include "parser/torch_object.h"

#include "core/buffer.h"
#include "core/checked.h"
#include "core/json.h"
#include "core/utf8.h"
#include "parser/names.h"
#include "parser/torch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    METADATA_MAX = 1000,      /* entries; the number of the rest is told */
    METADATA_TEXT_MAX = 1000, /* bytes of a string */
    METADATA_ARRAY_MAX = 64,  /* items of an array */
    DEPTH_MAX = 1000,         /* containers within one another */
    PARTS_DEPTH_MAX = 8,      /* tensors made of tensors made of ...: the walk recurses here alone */
    PATH_MAX_BYTES = 16383,   /* of a name: a shared key could be repeated at every depth */
    VISITS_PER_VALUE = 16,    /* how often values may be met again through sharing, on average */
    VISITS_FREE = 100000,
};

struct frame {
    td_pickle_ref ref;
    struct td_pickle_map map;
    uint32_t next;   /* item to visit */
    size_t path_len; /* of the container's own path */
    uint8_t stage;   /* of a module: parameters, buffers, modules */
    bool is_module;
    bool is_map;
    bool is_root; /* its parts' names begin the path: no dot */
};

struct walk {
    struct td_pickle *pickle;
    const struct td_torch_places *places;
    struct td_manifest *manifest;
    struct td_buffer path;
    struct frame *frames;
    size_t depth, frame_capacity;
    size_t tensor_capacity, metadata_capacity;
    size_t omitted; /* metadata entries past the limit */
    unsigned parts_depth;
    uint64_t visits_left;
    struct td_error *err;
};

/* ---- types --------------------------------------------------------------------------------------------- */

struct type_name {
    const char *torch;
    const char *dtype;
};

/* torch/storage.py, _dtype_to_storage_type_map; and what old versions had. */
static const struct type_name storages[] = {
    {"DoubleStorage", "F64"},
    {"FloatStorage", "F32"},
    {"HalfStorage", "F16"},
    {"LongStorage", "I64"},
    {"IntStorage", "I32"},
    {"ShortStorage", "I16"},
    {"CharStorage", "I8"},
    {"ByteStorage", "U8"},
    {"BoolStorage", "BOOL"},
    {"BFloat16Storage", "BF16"},
    {"ComplexDoubleStorage", "C128"},
    {"ComplexFloatStorage", "C64"},
    {"QInt8Storage", "QINT8"},
    {"QInt32Storage", "QINT32"},
    {"QUInt8Storage", "QUINT8"},
    {"QUInt4x2Storage", "QUINT4x2"},
    {"QUInt2x4Storage", "QUINT2x4"},
    {"UntypedStorage", "U8"},
    {"_UntypedStorage", "U8"},
    /* TorchScript alone, pickler.cpp: every ScalarType has a storage there */
    {"Float8_e4m3fnStorage", "F8_E4M3"},
    {"Float8_e5m2Storage", "F8_E5M2"},
    {"Float8_e4m3fnuzStorage", "F8_E4M3FNUZ"},
    {"Float8_e5m2fnuzStorage", "F8_E5M2FNUZ"},
    {"Float8_e8m0fnuStorage", "F8_E8M0"},
    {"Float4_e2m1fn_x2Storage", "F4_E2M1_X2"},
    {"UInt16Storage", "U16"},
    {"UInt32Storage", "U32"},
    {"UInt64Storage", "U64"},
    {"ComplexHalfStorage", "C32"},
    {"Bits1x8Storage", "BITS1x8"},
    {"Bits2x4Storage", "BITS2x4"},
    {"Bits4x2Storage", "BITS4x2"},
    {"Bits8Storage", "BITS8"},
    {"Bits16Storage", "BITS16"},
};

/* c10/core/ScalarType.h */
static const struct type_name types[] = {
    {"float64", "F64"},
    {"float32", "F32"},
    {"float16", "F16"},
    {"bfloat16", "BF16"},
    {"int64", "I64"},
    {"int32", "I32"},
    {"int16", "I16"},
    {"int8", "I8"},
    {"uint8", "U8"},
    {"uint16", "U16"},
    {"uint32", "U32"},
    {"uint64", "U64"},
    {"bool", "BOOL"},
    {"complex32", "C32"},
    {"complex64", "C64"},
    {"complex128", "C128"},
    {"qint8", "QINT8"},
    {"quint8", "QUINT8"},
    {"qint32", "QINT32"},
    {"quint4x2", "QUINT4x2"},
    {"quint2x4", "QUINT2x4"},
    {"float8_e4m3fn", "F8_E4M3"},
    {"float8_e5m2", "F8_E5M2"},
    {"float8_e4m3fnuz", "F8_E4M3FNUZ"},
    {"float8_e5m2fnuz", "F8_E5M2FNUZ"},
    {"float8_e8m0fnu", "F8_E8M0"},
    {"float4_e2m1fn_x2", "F4_E2M1_X2"},
    {"bits8", "BITS8"},
    {"bits16", "BITS16"},
    {"bits1x8", "BITS1x8"},
    {"bits2x4", "BITS2x4"},
    {"bits4x2", "BITS4x2"},
};

static const struct td_dtype *find_type(const struct type_name *list, size_t count, const char *name,
                                        size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i].torch) == len && memcmp(list[i].torch, name, len) == 0)
            return td_dtype_find(list[i].dtype, strlen(list[i].dtype));
    return NULL;
}

const struct td_dtype *td_torch_dtype(const struct td_pickle *pickle, uint32_t ref)
{
    size_t len = 0;
    const char *name = td_pickle_text(pickle, td_pickle_name(pickle, ref), &len);
    if (name == NULL || !td_pickle_string_is(pickle, td_pickle_module(pickle, ref), "torch"))
        return NULL;
    return find_type(types, sizeof types / sizeof *types, name, len);
}

/* numpy.dtype('f4', ...): its type, or NULL. */
static const struct td_dtype *numpy_dtype(const struct td_pickle *p, td_pickle_ref ref)
{
    static const struct type_name names[] = {
        {"f8", "F64"}, {"f4", "F32"},  {"f2", "F16"}, {"i8", "I64"},   {"i4", "I32"},
        {"i2", "I16"}, {"i1", "I8"},   {"u8", "U64"}, {"u4", "U32"},   {"u2", "U16"},
        {"u1", "U8"},  {"b1", "BOOL"}, {"c8", "C64"}, {"c16", "C128"},
    };
    size_t len = 0;
    const char *name = td_pickle_is_call(p, ref, "numpy", "dtype")
                           ? td_pickle_text(p, td_pickle_item(p, td_pickle_args(p, ref), 0), &len)
                           : NULL;
    return name == NULL ? NULL : find_type(names, sizeof names / sizeof *names, name, len);
}

/* ---- storages ------------------------------------------------------------------------------------------ */

static bool refuse(struct td_error *err, const struct td_pickle *pickle, td_pickle_ref at, const char *what)
{
    return td_error_at(err, TD_INVALID_ARGUMENT, td_pickle_position(pickle, at), "%s", what);
}

/* Every value that is looked at counts, those met again through sharing too. */
static bool charge(struct walk *w, td_pickle_ref at, uint64_t values)
{
    if (values > w->visits_left)
        return refuse(w->err, w->pickle, at, "values are shared so often that they unfold without end");
    w->visits_left -= values;
    return true;
}

static bool read_count(const struct td_pickle *pickle, td_pickle_ref ref, uint64_t *out)
{
    int64_t value;
    if (!td_pickle_int(pickle, ref, &value) || value < 0)
        return false;
    *out = (uint64_t)value;
    return true;
}

/* (view_key, offset, numel) of files before 0.4. */
static bool read_view(const struct td_pickle *pickle, td_pickle_ref view, struct td_torch_storage *storage,
                      struct td_error *err)
{
    if (td_pickle_kind(pickle, view) == TD_PICKLE_NOTHING || td_pickle_kind(pickle, view) == TD_PICKLE_NONE)
        return true;
    storage->is_view = true;
    if (td_pickle_kind(pickle, view) != TD_PICKLE_TUPLE ||
        !read_count(pickle, td_pickle_item(pickle, view, 1), &storage->view_offset) ||
        !read_count(pickle, td_pickle_item(pickle, view, 2), &storage->view_numel) ||
        !td_range_within(storage->view_offset, storage->view_numel, storage->numel))
        return refuse(err, pickle, view, "a view of a storage leaves it, or is not (key, offset, size)");
    return true;
}

bool td_torch_storage_read(const struct td_pickle *pickle, td_pickle_ref ref, bool *is_storage,
                           struct td_torch_storage *storage, struct td_error *err)
{
    td_pickle_ref id = td_pickle_persistent(pickle, ref);
    td_pickle_ref class = td_pickle_item(pickle, id, 1);
    size_t len = 0;
    memset(storage, 0, sizeof *storage);
    *is_storage = !td_pickle_string_is(pickle, td_pickle_item(pickle, id, 0), "module");
    if (!*is_storage)
        return true;
    if (!td_pickle_string_is(pickle, td_pickle_item(pickle, id, 0), "storage"))
        return refuse(err, pickle, ref, "a persistent id is not ('storage', ...)");
    storage->key = td_pickle_text(pickle, td_pickle_item(pickle, id, 2), &storage->key_len);
    if (!td_pickle_is_utf8(pickle, td_pickle_item(pickle, id, 2)) ||
        !td_is_plain_file_name(storage->key, storage->key_len))
        return refuse(err, pickle, ref, "a storage's key is not the plain name of a record");
    if (!read_count(pickle, td_pickle_item(pickle, id, 4), &storage->numel))
        return refuse(err, pickle, ref, "a storage's number of elements is no whole number from 0 on");
    const char *name = td_pickle_text(pickle, td_pickle_name(pickle, class), &len);
    if (name == NULL)
        return refuse(err, pickle, ref, "a storage's class is no global");
    storage->dtype = find_type(storages, sizeof storages / sizeof *storages, name, len);
    if (storage->dtype != NULL && !td_mul_u64(storage->numel, storage->dtype->block_bytes, &storage->nbytes))
        return refuse(err, pickle, ref, "a storage has more than 2^64-1 bytes");
    return read_view(pickle, td_pickle_item(pickle, id, 5), storage, err);
}

/* ---- the manifest -------------------------------------------------------------------------------------- */

/* Room for one more item of a growing array in the arena; what it outgrows stays there, at most as much again. */
static void *grow(struct td_arena *arena, void *items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    size_t more = *capacity == 0 ? 16 : *capacity * 2;
    void *grown = td_arena_array(arena, more, size);
    if (grown != NULL && count > 0)
        memcpy(grown, items, count * size);
    *capacity = grown != NULL ? more : *capacity;
    return grown;
}

/* The path as a name; NULL when out of memory. */
static const char *copy_path(struct walk *w)
{
    char *copy = td_arena_strndup(&w->manifest->arena, w->path.len > 0 ? w->path.data : "", w->path.len);
    if (copy == NULL)
        (void)td_error_no_memory(w->err);
    return copy;
}

static struct td_tensor *add_tensor(struct walk *w)
{
    struct td_manifest *manifest = w->manifest;
    struct td_tensor *tensors = grow(&manifest->arena, manifest->tensors, manifest->tensor_count,
                                     &w->tensor_capacity, sizeof *tensors);
    const char *name = tensors != NULL ? copy_path(w) : NULL;
    if (name == NULL) {
        (void)td_error_no_memory(w->err);
        return NULL;
    }
    manifest->tensors = tensors;
    struct td_tensor *tensor = &tensors[manifest->tensor_count++];
    *tensor = (struct td_tensor){.name = name, .name_len = (uint32_t)w->path.len};
    return tensor;
}

static void write_text(struct td_buffer *out, const char *text, size_t len, bool utf8)
{
    char shown[4 * METADATA_TEXT_MAX + 1];
    size_t head = len < METADATA_TEXT_MAX ? len : METADATA_TEXT_MAX;
    while (utf8 && head < len && head > 0 && ((unsigned char)text[head] & 0xC0) == 0x80)
        head--; /* not within a character */
    if (head < len)
        td_buffer_printf(out, "{\"length\":%zu,\"first\":", len);
    if (utf8) {
        td_json_write_string(out, text, head);
    } else {
        td_utf8_escape(text, head, shown, sizeof shown);
        td_json_write_cstring(out, shown);
    }
    if (head < len)
        td_buffer_putc(out, '}');
}

/* A number's bytes. Python 3 writes bytes in protocol 2 as _codecs.encode("text", "latin1"): a character each. */
static bool read_number_bytes(const struct td_pickle *p, td_pickle_ref ref, uint8_t *out, size_t wanted)
{
    bool latin1 = td_pickle_is_call(p, ref, "_codecs", "encode");
    if (latin1)
        ref = td_pickle_item(p, td_pickle_args(p, ref), 0);
    size_t len = 0;
    size_t count = 0;
    const uint8_t *text = (const uint8_t *)td_pickle_text(p, ref, &len);
    for (size_t i = 0; text != NULL && i < len && count < wanted; i++) {
        bool two = latin1 && text[i] >= 0xC2 && text[i] <= 0xC3 && i + 1 < len;
        out[count++] = (uint8_t)(two ? text[i] << 6 | (text[i + 1] & 0x3F) : text[i]);
        i += two ? 1 : 0;
        if (count == wanted)
            return i + 1 == len;
    }
    return false;
}

/* numpy.core.multiarray.scalar(dtype, bytes), the usual little-endian kinds. */
static bool write_numpy_scalar(const struct walk *w, td_pickle_ref ref, struct td_buffer *out)
{
    const struct td_pickle *p = w->pickle;
    td_pickle_ref args = td_pickle_args(p, ref);
    uint8_t bytes[8] = {0};
    float single = 0;
    double number = 0;
    uint64_t bits = 0;
    if (!td_pickle_is_call(p, ref, "numpy.core.multiarray", "scalar") &&
        !td_pickle_is_call(p, ref, "numpy._core.multiarray", "scalar"))
        return false;
    const struct td_dtype *dtype = numpy_dtype(p, td_pickle_item(p, args, 0));
    size_t len = dtype != NULL ? dtype->block_bytes : 0;
    if (len == 0 || len > sizeof bytes || !read_number_bytes(p, td_pickle_item(p, args, 1), bytes, len))
        return false;
    memcpy(&number, bytes, len == sizeof number ? len : 0);
    memcpy(&single, bytes, len == sizeof single ? len : 0);
    for (size_t i = 0; i < len; i++)
        bits |= (uint64_t)bytes[i] << 8 * i;
    if (strcmp(dtype->name, "F64") == 0 || strcmp(dtype->name, "F32") == 0) {
        number = len == sizeof number ? number : (double)single;
        td_buffer_printf(out, isfinite(number) ? "%.17g" : "\"%g\"", number);
    } else if (strcmp(dtype->name, "BOOL") == 0) {
        td_buffer_puts(out, bits != 0 ? "true" : "false");
    } else if (dtype->name[0] == 'U') {
        td_buffer_u64(out, bits);
    } else if (dtype->name[0] == 'I') {
        td_buffer_printf(out, "%" PRId64, (int64_t)(bits << (64 - 8 * len)) >> (64 - 8 * len));
    } else {
        return false;
    }
    return true;
}

/* A value without parts as JSON; false when it has parts. */
static bool write_scalar(const struct walk *w, td_pickle_ref ref, struct td_buffer *out)
{
    const struct td_pickle *p = w->pickle;
    int64_t integer;
    double number;
    size_t len;
    const char *text;
    switch (td_pickle_kind(p, ref)) {
    case TD_PICKLE_NONE:
        td_buffer_puts(out, "null");
        return true;
    case TD_PICKLE_BOOL:
        td_buffer_puts(out, td_pickle_bool(p, ref) ? "true" : "false");
        return true;
    case TD_PICKLE_INT:
        if (td_pickle_int(p, ref, &integer))
            td_buffer_printf(out, "%" PRId64, integer);
        else
            td_buffer_puts(out, "\"a number of more than 64 bits\"");
        return true;
    case TD_PICKLE_FLOAT:
        (void)td_pickle_float(p, ref, &number);
        td_buffer_printf(out, isfinite(number) ? "%.17g" : "\"%g\"", number);
        return true;
    case TD_PICKLE_STRING:
        text = td_pickle_text(p, ref, &len);
        write_text(out, text, len, td_pickle_is_utf8(p, ref));
        return true;
    case TD_PICKLE_OBJECT:
        return write_numpy_scalar(w, ref, out);
    default:
        return false;
    }
}

static bool is_array(const struct td_pickle *p, td_pickle_ref ref)
{
    return td_pickle_kind(p, ref) == TD_PICKLE_LIST || td_pickle_kind(p, ref) == TD_PICKLE_TUPLE;
}

/* A list or tuple of scalars, all of it or its beginning; false when it holds anything else. */
static bool write_array(const struct walk *w, td_pickle_ref ref, struct td_buffer *out)
{
    uint32_t count = td_pickle_count(w->pickle, ref);
    if (!is_array(w->pickle, ref) || count == 0)
        return false;
    if (count > METADATA_ARRAY_MAX)
        td_buffer_printf(out, "{\"length\":%" PRIu32 ",\"first\":", count);
    td_buffer_putc(out, '[');
    for (uint32_t i = 0; i < count && i < METADATA_ARRAY_MAX; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        if (!write_scalar(w, td_pickle_item(w->pickle, ref, i), out))
            return false;
    }
    td_buffer_puts(out, count > METADATA_ARRAY_MAX ? "]}" : "]");
    return true;
}

/* Everything past the head of a long array must be a scalar too, or tensors would be passed over. */
static bool is_plain_array(const struct walk *w, td_pickle_ref ref)
{
    uint32_t count = td_pickle_count(w->pickle, ref);
    for (uint32_t i = METADATA_ARRAY_MAX; i < count; i++) {
        enum td_pickle_kind kind = td_pickle_kind(w->pickle, td_pickle_item(w->pickle, ref, i));
        if (kind < TD_PICKLE_NONE || kind > TD_PICKLE_STRING)
            return false;
    }
    return true;
}

static bool push_metadata(struct walk *w, const struct td_buffer *json)
{
    struct td_manifest *manifest = w->manifest;
    if (manifest->metadata_count == METADATA_MAX) {
        w->omitted++;
        return true;
    }
    struct td_metadata *metadata = grow(&manifest->arena, manifest->metadata, manifest->metadata_count,
                                        &w->metadata_capacity, sizeof *metadata);
    if (metadata == NULL || json->failed)
        return td_error_no_memory(w->err);
    manifest->metadata = metadata;
    const char *key = copy_path(w);
    const char *value = td_arena_strndup(&manifest->arena, json->data, json->len);
    if (key == NULL || value == NULL)
        return td_error_no_memory(w->err);
    metadata[manifest->metadata_count++] = (struct td_metadata){.key = key, .value = value};
    return true;
}

/* Metadata under the present path, if the value is one; *done says whether it was. */
static bool add_metadata(struct walk *w, td_pickle_ref ref, bool *done)
{
    struct td_buffer json;
    if (is_array(w->pickle, ref) && !charge(w, ref, td_pickle_count(w->pickle, ref)))
        return false;
    td_buffer_init(&json);
    *done = write_scalar(w, ref, &json) || (write_array(w, ref, &json) && is_plain_array(w, ref));
    bool ok = !json.failed || td_error_no_memory(w->err);
    ok = ok && (!*done || push_metadata(w, &json));
    td_buffer_fini(&json);
    return ok;
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

static bool tensor_refuse(const struct walk *w, const struct td_tensor *tensor, td_pickle_ref at,
                          const char *what)
{
    return td_error_at(w->err, TD_INVALID_ARGUMENT, td_pickle_position(w->pickle, at), "tensor \"%.96s\": %s",
                       tensor->name, what);
}

/* A torch.Size, tuple or list. */
static td_pickle_ref unwrap_size(const struct walk *w, td_pickle_ref ref)
{
    if (td_pickle_is_call(w->pickle, ref, "torch", "Size"))
        ref = td_pickle_item(w->pickle, td_pickle_args(w->pickle, ref), 0);
    enum td_pickle_kind kind = td_pickle_kind(w->pickle, ref);
    return kind == TD_PICKLE_TUPLE || kind == TD_PICKLE_LIST ? ref : TD_PICKLE_NIL;
}

static bool read_numbers(struct walk *w, const struct td_tensor *tensor, td_pickle_ref ref, const char *what,
                         const uint64_t **out)
{
    uint32_t count = td_pickle_count(w->pickle, ref);
    uint64_t *numbers = td_arena_array(&w->manifest->arena, count, sizeof *numbers);
    *out = NULL; /* and so it stays for a scalar */
    if (numbers == NULL)
        return td_error_no_memory(w->err);
    for (uint32_t i = 0; i < count; i++)
        if (!read_count(w->pickle, td_pickle_item(w->pickle, ref, i), &numbers[i]))
            return tensor_refuse(w, tensor, ref, what);
    *out = count > 0 ? numbers : NULL;
    return true;
}

static bool set_shape(struct walk *w, struct td_tensor *tensor, td_pickle_ref size, td_pickle_ref stride)
{
    td_pickle_ref sizes = unwrap_size(w, size);
    td_pickle_ref strides = unwrap_size(w, stride);
    if (sizes == TD_PICKLE_NIL || strides == TD_PICKLE_NIL)
        return tensor_refuse(w, tensor, size, "its size or stride is no tuple of numbers");
    tensor->rank = td_pickle_count(w->pickle, sizes);
    if (tensor->rank != td_pickle_count(w->pickle, strides))
        return tensor_refuse(w, tensor, size, "it has not as many strides as dimensions");
    if (tensor->rank > TD_MAX_RANK) {
        tensor->rank = 0;
        return tensor_refuse(w, tensor, size, "it has more than 64 dimensions");
    }
    return read_numbers(w, tensor, sizes, "its size is not of whole numbers from 0 on", &tensor->shape) &&
           read_numbers(w, tensor, strides, "its strides are not whole numbers from 0 on", &tensor->strides);
}

/* TorchScript says the types of lists and dicts by calls around them: restore_type_tag(value, type), build_intlist(list)
 * and so on. What is within, or the value itself. */
static td_pickle_ref unwrap_tag(const struct td_pickle *p, td_pickle_ref ref)
{
    enum { TAGS_MAX = 16 };
    static const char *const tags[] = {"restore_type_tag", "build_intlist", "build_tensorlist",
                                       "build_doublelist", "build_boollist"};
    for (size_t i = 0; i < TAGS_MAX; i++) {
        td_pickle_ref callable = td_pickle_callable(p, ref);
        bool found = false;
        for (size_t k = 0; k < sizeof tags / sizeof *tags && !found; k++)
            found = td_pickle_is_global(p, callable, "torch.jit._pickle", tags[k]);
        if (!found)
            break;
        ref = td_pickle_item(p, td_pickle_args(p, ref), 0);
    }
    return ref;
}

/* {"conj": True} or {"neg": True}: the values are not what the bytes say. */
static const char *bits_reason(const struct walk *w, td_pickle_ref metadata)
{
    metadata = unwrap_tag(w->pickle, metadata);
    if (td_pickle_kind(w->pickle, metadata) != TD_PICKLE_DICT) /* looking into lists of pairs is slow */
        return NULL;
    if (td_pickle_bool(w->pickle, td_pickle_get(w->pickle, metadata, "conj")))
        return "conjugated";
    return td_pickle_bool(w->pickle, td_pickle_get(w->pickle, metadata, "neg")) ? "negated" : NULL;
}

static const struct td_dtype *opaque(void)
{
    return td_dtype_find("OPAQUE", strlen("OPAQUE"));
}

/* A tensor over a storage. dtype NIL: the storage's own. */
static bool place_tensor(struct walk *w, struct td_tensor *tensor, td_pickle_ref storage_ref,
                         td_pickle_ref offset_ref, td_pickle_ref dtype_ref)
{
    const struct td_pickle *p = w->pickle;
    struct td_torch_storage storage;
    struct td_torch_place place;
    bool is_storage = false;
    uint64_t offset;
    uint64_t bytes;
    uint64_t pos = td_pickle_position(p, storage_ref);
    if (td_pickle_kind(p, storage_ref) != TD_PICKLE_PERSISTENT)
        return tensor_refuse(w, tensor, storage_ref, "its storage is no persistent id");
    if (!td_torch_storage_read(p, storage_ref, &is_storage, &storage, w->err))
        return false;
    if (!is_storage)
        return tensor_refuse(w, tensor, storage_ref, "its storage is no storage");
    if (!w->places->find(w->places->context, &storage, pos, &place, w->err))
        return false;
    tensor->dtype = dtype_ref == TD_PICKLE_NIL ? storage.dtype : td_torch_dtype(p, dtype_ref);
    if (tensor->dtype == NULL) {
        tensor->dtype = opaque();
        tensor->strides = NULL;
        tensor->reason = "of a type that is not known";
        return true;
    }
    if (strncmp(tensor->dtype->name, "QUINT4x2", 8) == 0 ||
        strncmp(tensor->dtype->name, "QUINT2x4", 8) == 0) {
        tensor->strides = NULL;
        tensor->nbytes = place.nbytes;
        tensor->reason = "packed below a byte";
        return true;
    }
    uint64_t elem_bytes = tensor->dtype->block_bytes;
    if (!read_count(p, offset_ref, &offset) || !td_mul_u64(offset, elem_bytes, &bytes))
        return tensor_refuse(w, tensor, offset_ref, "its storage offset is no whole number from 0 on");
    if (storage.is_view && storage.dtype != NULL) {
        place.begin += storage.view_offset * storage.dtype->block_bytes; /* within the storage: read_view */
        place.nbytes = storage.view_numel * storage.dtype->block_bytes;
    }
    if (!td_add_u64(place.begin, bytes, &tensor->offset))
        return tensor_refuse(w, tensor, offset_ref, "it lies past 2^64-1");
    if (place.reason != NULL)
        tensor->reason = place.reason;
    else if (w->places->big_endian && elem_bytes > 1)
        tensor->reason = "big-endian";
    return td_tensor_place(tensor, place.begin, place.begin + place.nbytes, pos, w->err);
}

/* _rebuild_tensor(storage, offset, size, stride), v2(..., requires_grad, hooks, metadata), v3(..., dtype, metadata),
 * _rebuild_qtensor(storage, offset, size, stride, quantizer, ...). */
static bool read_strided(struct walk *w, td_pickle_ref args, uint32_t dtype_at, uint32_t metadata_at)
{
    const struct td_pickle *p = w->pickle;
    struct td_tensor *tensor = add_tensor(w);
    if (tensor == NULL)
        return false;
    const char *bits = metadata_at > 0 ? bits_reason(w, td_pickle_item(p, args, metadata_at)) : NULL;
    if (!set_shape(w, tensor, td_pickle_item(p, args, 2), td_pickle_item(p, args, 3)) ||
        !place_tensor(w, tensor, td_pickle_item(p, args, 0), td_pickle_item(p, args, 1),
                      dtype_at > 0 ? td_pickle_item(p, args, dtype_at) : TD_PICKLE_NIL))
        return false;
    if (tensor->reason == NULL)
        tensor->reason = bits;
    return true;
}

static bool visit_part(struct walk *w, td_pickle_ref ref, const char *name);

/* The quantizers that torch can load, and how many items each has. */
static bool is_quantizer(const struct td_pickle *p, td_pickle_ref quantizer)
{
    td_pickle_ref scheme = td_pickle_item(p, quantizer, 0);
    uint32_t count = td_pickle_count(p, quantizer);
    if (td_pickle_is_global(p, scheme, "torch", "per_tensor_affine"))
        return count == 3;
    return count == 4 && (td_pickle_is_global(p, scheme, "torch", "per_channel_affine") ||
                          td_pickle_is_global(p, scheme, "torch", "per_channel_affine_float_qparams"));
}

/* A list of scales or of zero points must be as long as the axis; tensors of them are looked at once they are read. */
static bool is_as_long(const struct td_pickle *p, td_pickle_ref ref, uint64_t length)
{
    enum td_pickle_kind kind = td_pickle_kind(p, ref);
    return kind == TD_PICKLE_LIST ? td_pickle_count(p, ref) == length : kind == TD_PICKLE_OBJECT;
}

/* (qscheme, scale, zero point) or (qscheme, scales, zero points, axis) of a quantised tensor. */
static bool read_quantizer(struct walk *w, size_t at, td_pickle_ref quantizer)
{
    const struct td_pickle *p = w->pickle;
    const struct td_tensor *tensor = &w->manifest->tensors[at];
    td_pickle_ref axis_ref = td_pickle_item(p, quantizer, 3);
    int64_t axis = 0;
    if (!is_quantizer(p, quantizer))
        return tensor_refuse(w, tensor, quantizer, "its quantizer is none that torch can load");
    if (axis_ref == TD_PICKLE_NIL)
        return visit_part(w, td_pickle_item(p, quantizer, 1), "q_scale") &&
               visit_part(w, td_pickle_item(p, quantizer, 2), "q_zero_point");
    if (!td_pickle_int(p, axis_ref, &axis) || axis < 0 || (uint64_t)axis >= tensor->rank)
        return tensor_refuse(w, tensor, axis_ref, "its quantisation axis is none of its dimensions");
    uint64_t length = tensor->shape[axis];
    if (!is_as_long(p, td_pickle_item(p, quantizer, 1), length) ||
        !is_as_long(p, td_pickle_item(p, quantizer, 2), length))
        return tensor_refuse(w, tensor, quantizer, "it has not one scale for each index of its axis");
    size_t before = w->manifest->tensor_count;
    if (!visit_part(w, td_pickle_item(p, quantizer, 1), "q_per_channel_scales") ||
        !visit_part(w, td_pickle_item(p, quantizer, 2), "q_per_channel_zero_points") ||
        !visit_part(w, axis_ref, "q_per_channel_axis"))
        return false;
    tensor = &w->manifest->tensors[at];
    for (size_t i = before; i < w->manifest->tensor_count; i++) {
        const struct td_tensor *part = &w->manifest->tensors[i];
        if (part->rank != 1 || part->shape == NULL || part->shape[0] != tensor->shape[axis])
            return tensor_refuse(w, tensor, quantizer, "it has not one scale for each index of its axis");
    }
    return true;
}

static bool read_quantized(struct walk *w, td_pickle_ref args)
{
    size_t at = w->manifest->tensor_count;
    return read_strided(w, args, 0, 0) && read_quantizer(w, at, td_pickle_item(w->pickle, args, 4));
}

static bool set_nbytes(struct td_tensor *tensor)
{
    uint64_t elems = 1;
    bool fits = true;
    for (uint32_t i = 0; tensor->shape != NULL && i < tensor->rank; i++)
        fits = fits && td_mul_u64(elems, tensor->shape[i], &elems);
    if (!fits || !td_dtype_nbytes(tensor->dtype, elems, &tensor->nbytes))
        tensor->nbytes = 0;
    return true;
}

/* A tensor without bytes of its own in the file: type, shape and strides where they are said. */
static bool read_unstored(struct walk *w, const struct td_dtype *dtype, td_pickle_ref size,
                          td_pickle_ref stride, const char *reason)
{
    struct td_tensor *tensor = add_tensor(w);
    td_pickle_ref sizes = unwrap_size(w, size);
    if (tensor == NULL)
        return false;
    tensor->reason = reason;
    tensor->dtype = dtype != NULL ? dtype : opaque();
    if (unwrap_size(w, stride) != TD_PICKLE_NIL)
        return set_shape(w, tensor, size, stride) && set_nbytes(tensor);
    if (sizes == TD_PICKLE_NIL || td_pickle_count(w->pickle, sizes) > TD_MAX_RANK)
        return true;
    if (!read_numbers(w, tensor, sizes, "its size is not of whole numbers from 0 on", &tensor->shape))
        return false;
    tensor->rank = td_pickle_count(w->pickle, sizes);
    return set_nbytes(tensor);
}

/* A tensor made of others, which are listed below its name; its type is that of the last one named "values". */
static bool read_parts(struct walk *w, td_pickle_ref parts, uint32_t first, td_pickle_ref size,
                       const char *const *names, const char *reason)
{
    size_t at = w->manifest->tensor_count;
    if (!read_unstored(w, NULL, size, TD_PICKLE_NIL, reason))
        return false;
    for (uint32_t i = 0; names[i] != NULL; i++) {
        size_t before = w->manifest->tensor_count;
        if (!visit_part(w, td_pickle_item(w->pickle, parts, first + i), names[i]))
            return false;
        if (strcmp(names[i], "values") == 0 && w->manifest->tensor_count == before + 1)
            w->manifest->tensors[at].dtype = w->manifest->tensors[before].dtype;
    }
    return set_nbytes(&w->manifest->tensors[at]);
}

enum layout { LAYOUT_COO, LAYOUT_ROWS, LAYOUT_COLUMNS };

/* serialization._get_layout("torch.sparse_csr"), or c10/core/Layout.h's number in TorchScript. */
static enum layout layout_of(const struct td_pickle *p, td_pickle_ref ref)
{
    enum { SPARSE_CSR = 2, SPARSE_CSC = 4, SPARSE_BSR = 5, SPARSE_BSC = 6 };
    td_pickle_ref name = td_pickle_item(p, td_pickle_args(p, ref), 0);
    int64_t number = 0;
    (void)td_pickle_int(p, ref, &number);
    if (number == SPARSE_CSR || number == SPARSE_BSR || td_pickle_string_is(p, name, "torch.sparse_csr") ||
        td_pickle_string_is(p, name, "torch.sparse_bsr"))
        return LAYOUT_ROWS;
    if (number == SPARSE_CSC || number == SPARSE_BSC || td_pickle_string_is(p, name, "torch.sparse_csc") ||
        td_pickle_string_is(p, name, "torch.sparse_bsc"))
        return LAYOUT_COLUMNS;
    return LAYOUT_COO;
}

/* _rebuild_sparse_tensor(layout, (indices, values, size, ...)), or (compressed indices, plain indices, values, size); in
 * TorchScript (layout number, size, requires_grad, indices ..., values, hooks). */
static bool read_sparse(struct walk *w, td_pickle_ref args)
{
    static const char *const coo[] = {"indices", "values", NULL};
    static const char *const rows[] = {"crow_indices", "col_indices", "values", NULL};
    static const char *const columns[] = {"ccol_indices", "row_indices", "values", NULL};
    static const char *const *const names[] = {coo, rows, columns};
    enum { SCRIPT_PARTS_AT = 3 };
    const struct td_pickle *p = w->pickle;
    enum layout layout = layout_of(p, td_pickle_item(p, args, 0));
    td_pickle_ref parts = td_pickle_item(p, args, 1);
    if (td_pickle_kind(p, td_pickle_item(p, args, 0)) == TD_PICKLE_INT)
        return read_parts(w, args, SCRIPT_PARTS_AT, parts, names[layout], "sparse");
    return read_parts(w, parts, 0, td_pickle_item(p, parts, layout == LAYOUT_COO ? 2 : 3), names[layout],
                      "sparse");
}

/* ---- NumPy's ------------------------------------------------------------------------------------------- */

/* An array: its bytes are in the pickle. State: (version, shape, dtype, is_fortran, bytes). */
static bool read_numpy(struct walk *w, td_pickle_ref ref)
{
    const struct td_pickle *p = w->pickle;
    td_pickle_ref state = td_pickle_state(p, ref);
    return read_unstored(w, numpy_dtype(p, td_pickle_item(p, state, 2)), td_pickle_item(p, state, 1),
                         TD_PICKLE_NIL, "stored inside the pickle");
}

/* A storage that was saved by itself: a tensor of one dimension. */
static bool read_bare_storage(struct walk *w, td_pickle_ref ref)
{
    struct td_torch_storage storage;
    struct td_torch_place place;
    bool is_storage;
    uint64_t pos = td_pickle_position(w->pickle, ref);
    if (!td_torch_storage_read(w->pickle, ref, &is_storage, &storage, w->err))
        return false;
    if (!is_storage)
        return w->places->has_modules ||
               refuse(w->err, w->pickle, ref, "a persistent id is not ('storage', ...)");
    if (storage.dtype == NULL)
        return true;
    struct td_tensor *tensor = add_tensor(w);
    uint64_t *shape = td_arena_array(&w->manifest->arena, 1, sizeof *shape);
    if (tensor == NULL || shape == NULL)
        return td_error_no_memory(w->err);
    if (!w->places->find(w->places->context, &storage, pos, &place, w->err))
        return false;
    *shape = storage.is_view ? storage.view_numel : storage.numel;
    tensor->dtype = storage.dtype;
    tensor->rank = 1;
    tensor->shape = shape;
    tensor->offset = place.begin + storage.view_offset * storage.dtype->block_bytes;
    tensor->reason = place.reason;
    if (tensor->reason == NULL && w->places->big_endian && storage.dtype->block_bytes > 1)
        tensor->reason = "big-endian";
    return td_tensor_place(tensor, place.begin, place.begin + place.nbytes, pos, w->err);
}

/* ---- objects that stand for tensors -------------------------------------------------------------------- */

enum rebuild {
    REBUILD_NONE,
    REBUILD_V1,
    REBUILD_V2,
    REBUILD_V3,
    REBUILD_Q,
    REBUILD_WRAPPED,   /* argument 0 is the tensor */
    REBUILD_CONVERTED, /* likewise, and argument 1 the type that it gets */
    REBUILD_FROM_TYPE, /* (function, type, args, state) */
    REBUILD_SPARSE,
    REBUILD_NESTED,
    REBUILD_META,
    REBUILD_WRAPPER,
    REBUILD_INLINE,
};

static const struct {
    const char *module, *name;
    enum rebuild what;
} rebuilds[] = {
    {"torch._utils", "_rebuild_tensor", REBUILD_V1},
    {"torch._utils", "_rebuild_tensor_v2", REBUILD_V2},
    {"torch._utils", "_rebuild_tensor_v3", REBUILD_V3},
    {"torch._utils", "_rebuild_qtensor", REBUILD_Q},
    {"torch._utils", "_rebuild_parameter", REBUILD_WRAPPED},
    {"torch._utils", "_rebuild_parameter_with_state", REBUILD_WRAPPED},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", REBUILD_CONVERTED},
    {"torch._tensor", "_rebuild_from_type_v2", REBUILD_FROM_TYPE},
    {"torch._tensor", "_rebuild_from_type", REBUILD_FROM_TYPE}, /* of before 1.9, in torch.tensor then */
    {"torch.tensor", "_rebuild_from_type", REBUILD_FROM_TYPE},
    {"torch.tensor", "_rebuild_from_type_v2", REBUILD_FROM_TYPE},
    {"torch._utils", "_rebuild_sparse_tensor", REBUILD_SPARSE},
    {"torch._utils", "_rebuild_nested_tensor", REBUILD_NESTED},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", REBUILD_META},
    {"torch._utils", "_rebuild_wrapper_subclass", REBUILD_WRAPPER},
    {"torch._utils", "_rebuild_device_tensor_from_numpy", REBUILD_INLINE},
    {"torch._utils", "_rebuild_xla_tensor", REBUILD_INLINE},
    {"numpy.core.multiarray", "_reconstruct", REBUILD_INLINE},
    {"numpy._core.multiarray", "_reconstruct", REBUILD_INLINE},
    {"numpy._core.numeric", "_frombuffer", REBUILD_INLINE},
    {"numpy.core.numeric", "_frombuffer", REBUILD_INLINE},
};

static enum rebuild rebuild_of(const struct td_pickle *p, td_pickle_ref callable)
{
    for (size_t i = 0; i < sizeof rebuilds / sizeof *rebuilds; i++)
        if (td_pickle_is_global(p, callable, rebuilds[i].module, rebuilds[i].name))
            return rebuilds[i].what;
    return REBUILD_NONE;
}

/* Follows Parameter(...) and the like to the call that makes the tensor. *converted is the type that it is given when it
 * is loaded, or NIL. */
static enum rebuild unwrap_tensor(const struct walk *w, td_pickle_ref ref, td_pickle_ref *args,
                                  td_pickle_ref *converted)
{
    const struct td_pickle *p = w->pickle;
    td_pickle_ref callable = td_pickle_callable(p, ref);
    *args = td_pickle_args(p, ref);
    *converted = TD_PICKLE_NIL;
    for (int i = 0; i < 16; i++) {
        enum rebuild what = rebuild_of(p, callable);
        if (what == REBUILD_FROM_TYPE) {
            callable = td_pickle_item(p, *args, 0);
            *args = td_pickle_item(p, *args, 2);
        } else if (what == REBUILD_WRAPPED || what == REBUILD_CONVERTED) {
            if (what == REBUILD_CONVERTED && *converted == TD_PICKLE_NIL)
                *converted = td_pickle_item(p, *args, 1);
            td_pickle_ref inner = td_pickle_item(p, *args, 0);
            callable = td_pickle_callable(p, inner);
            *args = td_pickle_args(p, inner);
        } else {
            return what;
        }
    }
    return REBUILD_NONE;
}

/* The tensor that is rebuilt so; *done is false when it is none. */
static bool read_rebuilt(struct walk *w, td_pickle_ref ref, enum rebuild what, td_pickle_ref args, bool *done)
{
    static const char *const nested[] = {"values", "sizes", "strides", "storage_offsets", NULL};
    const td_pickle_ref none = TD_PICKLE_NIL;
    const struct td_pickle *p = w->pickle;
    *done = true;
    switch (what) {
    case REBUILD_V1:
        return read_strided(w, args, 0, 0);
    case REBUILD_V2:
        return read_strided(w, args, 0, 6);
    case REBUILD_V3:
        return read_strided(w, args, 6, 7);
    case REBUILD_Q:
        return read_quantized(w, args);
    case REBUILD_SPARSE:
        return read_sparse(w, args);
    case REBUILD_NESTED:
        return read_parts(w, args, 0, none, nested, "nested");
    case REBUILD_META:
        return read_unstored(w, td_torch_dtype(p, td_pickle_item(p, args, 0)), td_pickle_item(p, args, 1),
                             td_pickle_item(p, args, 2), "on the meta device, so never stored");
    case REBUILD_WRAPPER:
        return read_unstored(w, td_torch_dtype(p, td_pickle_item(p, args, 1)), td_pickle_item(p, args, 2),
                             none, "a subclass without a storage");
    case REBUILD_INLINE:
        return read_numpy(w, ref);
    default:
        *done = false;
        return true;
    }
}

/* The tensor that this object stands for, if it does. */
static bool read_tensor(struct walk *w, td_pickle_ref ref, bool *done)
{
    td_pickle_ref args;
    td_pickle_ref converted;
    size_t at = w->manifest->tensor_count;
    enum rebuild what = unwrap_tensor(w, ref, &args, &converted);
    if (!read_rebuilt(w, ref, what, args, done))
        return false;
    if (!*done || converted == TD_PICKLE_NIL || at == w->manifest->tensor_count)
        return true;
    struct td_tensor *tensor = &w->manifest->tensors[at];
    if (tensor->reason == NULL && td_torch_dtype(w->pickle, converted) != tensor->dtype)
        tensor->reason = "converted when it is loaded";
    return true;
}

/* What _rebuild_parameter_with_state and _rebuild_from_type_v2 set on the tensor, or NIL. state_dict() shows none of it,
 * so within a module only a tensor that is made of it has any. */
static td_pickle_ref tensor_state(const struct walk *w, td_pickle_ref ref)
{
    const struct td_pickle *p = w->pickle;
    td_pickle_ref callable = td_pickle_callable(p, ref);
    td_pickle_ref args;
    td_pickle_ref converted;
    bool in_module = w->depth > 0 && w->frames[w->depth - 1].is_module;
    if (!td_pickle_is_global(p, callable, "torch._utils", "_rebuild_parameter_with_state") &&
        rebuild_of(p, callable) != REBUILD_FROM_TYPE)
        return TD_PICKLE_NIL;
    if (in_module && unwrap_tensor(w, ref, &args, &converted) != REBUILD_WRAPPER)
        return TD_PICKLE_NIL;
    return td_pickle_item(p, td_pickle_args(p, ref), 3);
}

/* ---- the walk ------------------------------------------------------------------------------------------ */

static bool push(struct walk *w, const struct frame *frame)
{
    if (w->depth == DEPTH_MAX)
        return refuse(w->err, w->pickle, frame->ref, "containers lie more than 1,000 deep");
    if (w->depth == w->frame_capacity) {
        size_t capacity = w->frame_capacity == 0 ? 32 : w->frame_capacity * 2;
        struct frame *frames = realloc(w->frames, capacity * sizeof *frames);
        if (frames == NULL)
            return td_error_no_memory(w->err);
        w->frames = frames;
        w->frame_capacity = capacity;
    }
    w->frames[w->depth++] = *frame;
    return true;
}

static bool is_module(const struct td_pickle *p, td_pickle_ref ref)
{
    struct td_pickle_map map;
    td_pickle_ref state = td_pickle_state(p, ref);
    return td_pickle_kind(p, state) == TD_PICKLE_DICT && /* looking into lists of pairs is slow */
           td_pickle_map(p, td_pickle_get(p, state, "_parameters"), &map) &&
           td_pickle_map(p, td_pickle_get(p, state, "_modules"), &map);
}

/* How the parts of a container are met; false when it has none. */
static bool open_frame(const struct walk *w, td_pickle_ref ref, struct frame *frame)
{
    struct td_pickle *p = w->pickle;
    *frame = (struct frame){.ref = ref, .path_len = w->path.len};
    switch (td_pickle_kind(p, ref)) {
    case TD_PICKLE_LIST:
    case TD_PICKLE_TUPLE:
    case TD_PICKLE_SET:
    case TD_PICKLE_FROZENSET:
        return true;
    case TD_PICKLE_DICT:
        frame->is_map = td_pickle_map(p, ref, &frame->map);
        return true;
    case TD_PICKLE_OBJECT:
        break;
    default:
        return false;
    }
    frame->is_module = is_module(p, ref);
    if (frame->is_module)
        return true;
    frame->is_map = td_pickle_map(p, ref, &frame->map);
    if (!frame->is_map && td_pickle_count(p, ref) == 0 && td_pickle_state(p, ref) == TD_PICKLE_NIL)
        frame->ref = td_pickle_args(p, ref); /* nobody knows what it is; its arguments may hold tensors */
    return true;
}

/* Appends ".key" for the part that comes next. */
static bool path_add(struct walk *w, td_pickle_ref key, uint32_t index)
{
    const struct td_pickle *p = w->pickle;
    size_t len;
    int64_t number;
    if (!w->frames[w->depth - 1].is_root)
        td_buffer_putc(&w->path, '.');
    const char *text = td_pickle_text(p, key, &len);
    if (text != NULL && (w->path.len > PATH_MAX_BYTES || len > PATH_MAX_BYTES - w->path.len))
        return refuse(w->err, p, key, "a tensor's name is longer than 16,383 bytes");
    if (text != NULL && td_pickle_is_utf8(p, key) && memchr(text, '\0', len) == NULL)
        td_buffer_append(&w->path, text, len);
    else if (text != NULL)
        for (size_t i = 0; i < len; i++)
            td_buffer_printf(
                &w->path, (unsigned char)text[i] >= 0x20 && (unsigned char)text[i] < 0x7f ? "%c" : "\\x%02x",
                (unsigned char)text[i]);
    else if (td_pickle_int(p, key, &number))
        td_buffer_printf(&w->path, "%" PRId64, number);
    else
        td_buffer_u64(&w->path, index);
    return true;
}

/* What costs time without being visited. When nothing is left, the next visit fails. */
static bool spend(struct walk *w)
{
    if (w->visits_left == 0)
        return false;
    w->visits_left--;
    return true;
}

/* Buffers that the module does not save: a set of names, before protocol 4 a call of set() with a list. */
static bool is_unsaved(struct walk *w, td_pickle_ref module, td_pickle_ref name)
{
    const struct td_pickle *p = w->pickle;
    td_pickle_ref names = td_pickle_get(p, td_pickle_state(p, module), "_non_persistent_buffers_set");
    if (td_pickle_kind(p, names) == TD_PICKLE_OBJECT)
        names = td_pickle_item(p, td_pickle_args(p, names), 0);
    size_t len;
    size_t other_len;
    const char *text = td_pickle_text(p, name, &len);
    for (uint32_t i = 0; text != NULL && i < td_pickle_count(p, names) && spend(w); i++) {
        const char *other = td_pickle_text(p, td_pickle_item(p, names, i), &other_len);
        if (other != NULL && other_len == len && memcmp(other, text, len) == 0)
            return true;
    }
    return false;
}

/* The next part of a module: parameters, then buffers, then modules, as nn.Module.state_dict walks them. */
static td_pickle_ref next_of_module(struct walk *w, struct frame *frame, td_pickle_ref *key)
{
    static const char *const stages[] = {"_parameters", "_buffers", "_modules"};
    const struct td_pickle *p = w->pickle;
    for (; frame->stage < 3; frame->stage++, frame->next = 0) {
        struct td_pickle_map map;
        (void)td_pickle_map(p, td_pickle_get(p, td_pickle_state(p, frame->ref), stages[frame->stage]), &map);
        while (frame->next < map.count) {
            *key = td_pickle_map_key(p, &map, frame->next);
            td_pickle_ref value = td_pickle_map_value(p, &map, frame->next++);
            bool left_out = td_pickle_kind(p, value) == TD_PICKLE_NONE ||
                            (frame->stage == 1 && is_unsaved(w, frame->ref, *key));
            if (!left_out || !spend(w))
                return value;
        }
    }
    return TD_PICKLE_NIL;
}

/* NIL: there is no more. */
static td_pickle_ref next_part(struct walk *w, struct frame *frame, td_pickle_ref *key)
{
    *key = TD_PICKLE_NIL;
    if (frame->is_module)
        return next_of_module(w, frame, key);
    if (frame->is_map) {
        *key = td_pickle_map_key(w->pickle, &frame->map, frame->next);
        return td_pickle_map_value(w->pickle, &frame->map, frame->next++);
    }
    return td_pickle_item(w->pickle, frame->ref, frame->next++);
}

/* Begins to walk a container, unless that is being walked already. */
static bool enter(struct walk *w, td_pickle_ref ref, bool is_root)
{
    struct frame frame;
    if (!open_frame(w, ref, &frame) || !td_pickle_mark(w->pickle, frame.ref))
        return true;
    frame.is_root = is_root;
    return push(w, &frame);
}

/* The attributes of an object: a dict, or, where its class has slots, two of them, the first often None. */
static bool enter_state(struct walk *w, td_pickle_ref state, bool is_root)
{
    const struct td_pickle *p = w->pickle;
    td_pickle_ref slots = td_pickle_item(p, state, 1);
    if (td_pickle_kind(p, state) == TD_PICKLE_TUPLE && td_pickle_count(p, state) == 2 &&
        td_pickle_kind(p, slots) == TD_PICKLE_DICT)
        return enter(w, slots, is_root) && enter(w, td_pickle_item(p, state, 0), is_root);
    return enter(w, state, is_root);
}

/* One value under the present path. */
static bool visit(struct walk *w, td_pickle_ref ref)
{
    const struct td_pickle *p = w->pickle;
    bool done = false;
    bool is_root = w->depth == 0 && w->path.len == 0;
    if (w->path.failed)
        return td_error_no_memory(w->err);
    if (!charge(w, ref, 1))
        return false;
    ref = unwrap_tag(p, ref);
    if (td_pickle_kind(p, ref) == TD_PICKLE_PERSISTENT)
        return read_bare_storage(w, ref);
    if (td_pickle_kind(p, ref) == TD_PICKLE_OBJECT && !read_tensor(w, ref, &done))
        return false;
    if (done) /* it may have attributes */
        return enter_state(w, tensor_state(w, ref), is_root);
    if (!add_metadata(w, ref, &done))
        return false;
    if (done)
        return true;
    /* An OrderedDict's attributes are a state_dict()'s _metadata: versions of modules. */
    bool has_state = td_pickle_kind(p, ref) == TD_PICKLE_OBJECT && !is_module(p, ref) &&
                     !td_pickle_is_call(p, ref, "collections", "OrderedDict");
    return (!has_state || enter_state(w, td_pickle_state(p, ref), is_root)) && enter(w, ref, is_root);
}

/* The next part of the container on top of the stack, or its end. */
static bool step(struct walk *w)
{
    struct frame *frame = &w->frames[w->depth - 1];
    td_pickle_ref key;
    uint32_t index = frame->next;
    td_pickle_ref part = next_part(w, frame, &key);
    w->path.len = frame->path_len;
    if (part == TD_PICKLE_NIL) {
        td_pickle_unmark(w->pickle, frame->ref);
        w->depth--;
        return true;
    }
    return path_add(w, key, index) && visit(w, part);
}

/* All of a part is walked at once: the next part's name takes the place of this one's in the path. */
static bool visit_part(struct walk *w, td_pickle_ref ref, const char *name)
{
    size_t path_len = w->path.len;
    size_t depth = w->depth;
    if (w->parts_depth == PARTS_DEPTH_MAX)
        return refuse(w->err, w->pickle, ref, "tensors are made of one another more than 8 deep");
    w->parts_depth++;
    if (path_len > 0)
        td_buffer_putc(&w->path, '.');
    td_buffer_puts(&w->path, name);
    bool ok = ref == TD_PICKLE_NIL || visit(w, ref);
    while (ok && w->depth > depth)
        ok = step(w);
    w->path.len = path_len;
    w->parts_depth--;
    return ok;
}

static bool add_omitted(struct walk *w)
{
    char text[32];
    struct td_manifest *manifest = w->manifest;
    if (w->omitted == 0)
        return true;
    (void)snprintf(text, sizeof text, "%zu", w->omitted + 1); /* it takes the place of one */
    manifest->metadata[METADATA_MAX - 1] = (struct td_metadata){
        .key = "(further entries)", .value = td_arena_strndup(&manifest->arena, text, strlen(text))};
    return manifest->metadata[METADATA_MAX - 1].value != NULL || td_error_no_memory(w->err);
}

/* torch looks every id up, whether a tensor comes of it or not. */
static bool check_ids(const struct walk *w)
{
    for (td_pickle_ref ref = 1; ref <= w->pickle->value_count; ref++) {
        struct td_torch_storage storage;
        struct td_torch_place place;
        bool is_storage;
        uint64_t pos = td_pickle_position(w->pickle, ref);
        if (td_pickle_kind(w->pickle, ref) != TD_PICKLE_PERSISTENT)
            continue;
        if (!td_torch_storage_read(w->pickle, ref, &is_storage, &storage, w->err))
            return false;
        if (!is_storage && !w->places->has_modules)
            return refuse(w->err, w->pickle, ref, "a persistent id is not ('storage', ...)");
        if (is_storage && !w->places->find(w->places->context, &storage, pos, &place, w->err))
            return false;
    }
    return true;
}

/* Of items with equal keys the last counts, as in Python; that there were such is said. */
static bool add_duplicates(struct walk *w)
{
    struct td_buffer json;
    size_t path_len = w->path.len;
    if (w->pickle->duplicate_count == 0)
        return true;
    td_buffer_init(&json);
    td_buffer_u64(&json, w->pickle->duplicate_count);
    td_buffer_puts(&w->path, path_len > 0 ? ".(repeated keys)" : "(repeated keys)");
    bool ok = w->path.failed || json.failed ? td_error_no_memory(w->err) : push_metadata(w, &json);
    w->path.len = path_len;
    td_buffer_fini(&json);
    return ok;
}

bool td_torch_walk(struct td_pickle *pickle, td_pickle_ref root, const struct td_torch_places *places,
                   const char *prefix, struct td_manifest *manifest, struct td_error *err)
{
    struct walk w = {.pickle = pickle,
                     .places = places,
                     .manifest = manifest,
                     .tensor_capacity = manifest->tensor_count,
                     .metadata_capacity = manifest->metadata_count,
                     .visits_left = VISITS_FREE + (uint64_t)VISITS_PER_VALUE * pickle->value_count,
                     .err = err};
    td_buffer_init(&w.path);
    td_buffer_puts(&w.path, prefix);
    manifest->shares_bytes = true;
    bool ok = check_ids(&w) && add_duplicates(&w) && visit(&w, root);
    while (ok && w.depth > 0)
        ok = step(&w);
    ok = ok && add_omitted(&w);
    td_buffer_fini(&w.path);
    free(w.frames);
    return ok;
}
