#include "parser/torch/torch_storage.h"

#include "core/checked.h"
#include "parser/format/names.h"

/* ---- types --------------------------------------------------------------------------------------------- */

struct type_name {
    const char *torch;
    const char *dtype;
};

/* torch/storage.py, _dtype_to_storage_type_map; and the classes of old versions. */
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
    /* only in TorchScript, pickler.cpp: there every ScalarType has a storage */
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

static const struct td_dtype *find_type(const struct type_name *list, size_t count, struct td_text name)
{
    for (size_t i = 0; i < count; i++)
        if (td_text_equals(name, list[i].torch))
            return td_dtype_find(td_text_of(list[i].dtype));
    return NULL;
}

const struct td_dtype *td_torch_dtype(const struct td_pickle *pickle, uint32_t ref)
{
    size_t len = 0;
    const char *name = td_pickle_text(pickle, td_pickle_name(pickle, ref), &len);
    if (name == NULL || !td_pickle_string_is(pickle, td_pickle_module(pickle, ref), "torch"))
        return NULL;
    return find_type(types, sizeof types / sizeof *types, td_text_n(name, len));
}

const struct td_dtype *td_torch_numpy_dtype(const struct td_pickle *p, td_pickle_ref ref)
{
    static const struct type_name names[] = {
        {"f8", "F64"}, {"f4", "F32"}, {"f2", "F16"}, {"i8", "I64"}, {"i4", "I32"},  {"i2", "I16"}, {"i1", "I8"},
        {"u8", "U64"}, {"u4", "U32"}, {"u2", "U16"}, {"u1", "U8"},  {"b1", "BOOL"}, {"c8", "C64"}, {"c16", "C128"},
    };
    size_t len = 0;
    const char *name = td_pickle_is_call(p, ref, "numpy", "dtype")
                           ? td_pickle_text(p, td_pickle_item(p, td_pickle_args(p, ref), 0), &len)
                           : NULL;
    return name == NULL ? NULL : find_type(names, sizeof names / sizeof *names, td_text_n(name, len));
}

/* ---- storages ------------------------------------------------------------------------------------------ */

bool td_torch_refuse(struct td_error *err, const struct td_pickle *pickle, td_pickle_ref at, const char *what)
{
    return td_error_at(err, TD_INVALID_ARGUMENT, td_pickle_position(pickle, at), "%s", what);
}

bool td_torch_read_count(const struct td_pickle *pickle, td_pickle_ref ref, uint64_t *out)
{
    int64_t value;
    if (!td_pickle_int(pickle, ref, &value) || value < 0)
        return false;
    *out = (uint64_t)value;
    return true;
}

/* Reads the view (view_key, offset, numel) of files before 0.4. */
static bool read_view(const struct td_pickle *pickle, td_pickle_ref view, struct td_torch_storage *storage,
                      struct td_error *err)
{
    if (td_pickle_kind(pickle, view) == TD_PICKLE_NOTHING || td_pickle_kind(pickle, view) == TD_PICKLE_NONE)
        return true;
    storage->is_view = true;
    storage->view_key = td_pickle_text(pickle, td_pickle_item(pickle, view, 0), &storage->view_key_len);
    if (td_pickle_kind(pickle, view) != TD_PICKLE_TUPLE ||
        td_pickle_kind(pickle, td_pickle_item(pickle, view, 0)) != TD_PICKLE_STRING ||
        !td_torch_read_count(pickle, td_pickle_item(pickle, view, 1), &storage->view_offset) ||
        !td_torch_read_count(pickle, td_pickle_item(pickle, view, 2), &storage->view_numel) ||
        !td_range_within(storage->view_offset, storage->view_numel, storage->numel))
        return td_torch_refuse(err, pickle, view, "a view of a storage leaves it, or is not (key, offset, size)");
    return true;
}

bool td_torch_storage_read(const struct td_pickle *pickle, td_pickle_ref ref, bool *is_storage,
                           struct td_torch_storage *storage, struct td_error *err)
{
    td_pickle_ref id = td_pickle_persistent(pickle, ref);
    td_pickle_ref class = td_pickle_item(pickle, id, 1);
    size_t len = 0;
    *storage = (struct td_torch_storage){.ref = ref};
    *is_storage = !td_pickle_string_is(pickle, td_pickle_item(pickle, id, 0), "module");
    if (!*is_storage)
        return true;
    if (!td_pickle_string_is(pickle, td_pickle_item(pickle, id, 0), "storage"))
        return td_torch_refuse(err, pickle, ref, "a persistent id is not ('storage', ...)");
    storage->key = td_pickle_text(pickle, td_pickle_item(pickle, id, 2), &storage->key_len);
    if (!td_pickle_is_utf8(pickle, td_pickle_item(pickle, id, 2)) ||
        !td_is_plain_file_name(td_text_n(storage->key, storage->key_len)))
        return td_torch_refuse(err, pickle, ref, "a storage's key is not the plain name of a record");
    if (!td_torch_read_count(pickle, td_pickle_item(pickle, id, 4), &storage->numel))
        return td_torch_refuse(err, pickle, ref, "a storage's number of elements is not a whole number of 0 or more");
    const char *name = td_pickle_text(pickle, td_pickle_name(pickle, class), &len);
    if (name == NULL)
        return td_torch_refuse(err, pickle, ref, "a storage's class is not a global");
    storage->dtype = find_type(storages, sizeof storages / sizeof *storages, td_text_n(name, len));
    if (storage->dtype != NULL && !td_mul_u64(storage->numel, storage->dtype->block_bytes, &storage->nbytes))
        return td_torch_refuse(err, pickle, ref, "a storage has more than 2^64-1 bytes");
    return read_view(pickle, td_pickle_item(pickle, id, 5), storage, err);
}
