/* A tensor is a call of one of torch's rebuild functions (torch_rebuild names them). Its arguments give storage,
 * offset, size and stride; place_tensor turns these into a place in the file. Tensors made of other tensors (quantised,
 * sparse, nested) are listed without bytes, and their parts under ".values" and so on, by w->visit_part.
 *
 * What is hard: a pickle can add items to a list or dict after a call was given it. torch.load acts on the items at the
 * time of the call, so arguments that grew later are refused (check_settled). */
#include "parser/torch/torch_tensor.h"

#include "core/checked.h"
#include "parser/torch/torch_rebuild.h"
#include "parser/torch/torch_storage.h"

#include <string.h>

const char *td_torch_copy_path(struct td_torch_walker *w)
{
    char *copy = td_arena_strndup(&w->manifest->arena, td_buffer_text(&w->path));
    if (copy == NULL)
        (void)td_error_no_memory(w->err);
    return copy;
}

/* Adds a tensor with the present path as its name. Returns NULL and an error when out of memory. The tensor moves when
 * the next one is added. */
static struct td_tensor *walk_add_tensor(struct td_torch_walker *w)
{
    struct td_tensor tensor = {.name = td_torch_copy_path(w), .name_len = (uint32_t)w->path.len};
    return tensor.name == NULL ? NULL : td_manifest_add_tensor(w->manifest, &tensor, &w->tensor_capacity, w->err);
}

static bool tensor_refuse(const struct td_torch_walker *w, const struct td_tensor *tensor, td_pickle_ref at,
                          const char *what)
{
    return td_error_at(w->err, TD_INVALID_ARGUMENT, td_pickle_position(w->pickle, at), "tensor \"%.96s\": %s",
                       tensor->name, what);
}

/* Returns the tuple or list of a size (within torch.Size where there is one); NIL for all else. */
static td_pickle_ref unwrap_size(const struct td_torch_walker *w, td_pickle_ref ref)
{
    if (td_pickle_is_call(w->pickle, ref, "torch", "Size"))
        ref = td_pickle_item(w->pickle, td_pickle_args(w->pickle, ref), 0);
    enum td_pickle_kind kind = td_pickle_kind(w->pickle, ref);
    return kind == TD_PICKLE_TUPLE || kind == TD_PICKLE_LIST ? ref : TD_PICKLE_NIL;
}

static bool read_numbers(struct td_torch_walker *w, const struct td_tensor *tensor, td_pickle_ref ref, const char *what,
                         const uint64_t **out)
{
    uint32_t count = td_pickle_count(w->pickle, ref);
    uint64_t *numbers = td_arena_array(&w->manifest->arena, count, sizeof *numbers);
    *out = NULL; /* stays NULL for a scalar */
    if (numbers == NULL)
        return td_error_no_memory(w->err);
    for (uint32_t i = 0; i < count; i++)
        if (!td_torch_read_count(w->pickle, td_pickle_item(w->pickle, ref, i), &numbers[i]))
            return tensor_refuse(w, tensor, ref, what);
    *out = count > 0 ? numbers : NULL;
    return true;
}

static bool set_shape(struct td_torch_walker *w, struct td_tensor *tensor, td_pickle_ref size, td_pickle_ref stride)
{
    td_pickle_ref sizes = unwrap_size(w, size);
    td_pickle_ref strides = unwrap_size(w, stride);
    if (sizes == TD_PICKLE_NIL || strides == TD_PICKLE_NIL)
        return tensor_refuse(w, tensor, size, "its size or stride is not a tuple of numbers");
    tensor->rank = td_pickle_count(w->pickle, sizes);
    if (tensor->rank != td_pickle_count(w->pickle, strides))
        return tensor_refuse(w, tensor, size, "it does not have as many strides as dimensions");
    if (tensor->rank > TD_MAX_RANK) {
        tensor->rank = 0;
        return tensor_refuse(w, tensor, size, "it has more than 64 dimensions");
    }
    return read_numbers(w, tensor, sizes, "its sizes are not whole numbers of 0 or more", &tensor->shape) &&
           read_numbers(w, tensor, strides, "its strides are not whole numbers of 0 or more", &tensor->strides);
}

/* Returns why the bytes are not the values: {"conj": True} or {"neg": True}; NULL when they are. torch writes a dict of
 * bools or nothing, but would accept any true value. */
static const char *bits_reason(const struct td_pickle *p, td_pickle_ref metadata)
{
    enum { BITS_MAX = 16 };
    struct td_pickle_map map;
    metadata = td_torch_unwrap_tag(p, metadata);
    enum td_pickle_kind kind = td_pickle_kind(p, metadata);
    if (kind == TD_PICKLE_NOTHING || kind == TD_PICKLE_NONE)
        return NULL;
    if (kind != TD_PICKLE_DICT || !td_pickle_map(p, metadata, &map) || map.count > BITS_MAX)
        return "of metadata that is not known";
    for (uint32_t i = 0; i < map.count; i++)
        if (td_pickle_kind(p, td_pickle_map_value(p, &map, i)) != TD_PICKLE_BOOL)
            return "of metadata that is not known";
    if (td_pickle_bool(p, td_pickle_get(p, metadata, "conj")))
        return "conjugated";
    return td_pickle_bool(p, td_pickle_get(p, metadata, "neg")) ? "negated" : NULL;
}

static const struct td_dtype *opaque(void)
{
    return td_dtype_find(td_text_of("OPAQUE"));
}

/* Sets big_endian, or a reason. torch swaps the bytes of a storage by the storage's type, which is not always the
 * tensor's; the bytes of an untyped storage hold numbers of the tensor's type. */
static void set_byte_order(const struct td_torch_walker *w, const struct td_torch_storage *storage,
                           struct td_tensor *tensor)
{
    struct td_swap own;
    struct td_swap stored;
    if (!w->places->big_endian)
        return;
    bool known = td_dtype_swap(tensor->dtype, &own);
    stored = own;
    if (storage->dtype != NULL && storage->dtype->block_bytes > 1)
        known = known && td_dtype_swap(storage->dtype, &stored) && stored.width == own.width;
    tensor->big_endian = own.width > 1;
    if (tensor->reason == NULL && !known)
        tensor->reason = "big-endian, and of another type than its storage";
}

/* Sets type and place of a tensor over a storage. A NIL dtype means the storage's own. */
static bool place_tensor(struct td_torch_walker *w, struct td_tensor *tensor, td_pickle_ref storage_ref,
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
        return tensor_refuse(w, tensor, storage_ref, "its storage is not a persistent id");
    if (!td_torch_storage_read(p, storage_ref, &is_storage, &storage, w->err))
        return false;
    if (!is_storage)
        return tensor_refuse(w, tensor, storage_ref, "its persistent id is not that of a storage");
    if (!w->places->find(w->places->context, &storage, pos, &place, w->err))
        return false;
    tensor->dtype = dtype_ref == TD_PICKLE_NIL ? storage.dtype : td_torch_dtype(p, dtype_ref);
    if (tensor->dtype == NULL) {
        tensor->dtype = opaque();
        tensor->strides = NULL;
        tensor->reason = "of a type that is not known";
        return true;
    }
    if (strncmp(tensor->dtype->name, "QUINT4x2", 8) == 0 || strncmp(tensor->dtype->name, "QUINT2x4", 8) == 0) {
        tensor->strides = NULL;
        tensor->nbytes = place.nbytes;
        tensor->reason = "packed below a byte";
        return true;
    }
    uint64_t elem_bytes = tensor->dtype->block_bytes;
    if (!td_torch_read_count(p, offset_ref, &offset) || !td_mul_u64(offset, elem_bytes, &bytes))
        return tensor_refuse(w, tensor, offset_ref, "its storage offset is not a whole number of 0 or more");
    if (storage.is_view && storage.dtype != NULL) {
        place.begin += storage.view_offset * storage.dtype->block_bytes; /* within the storage: read_view */
        place.nbytes = storage.view_numel * storage.dtype->block_bytes;
    }
    if (!td_add_u64(place.begin, bytes, &tensor->offset))
        return tensor_refuse(w, tensor, offset_ref, "it is past 2^64-1");
    tensor->reason = place.reason;
    tensor->coding = place.coding;
    set_byte_order(w, &storage, tensor);
    return td_tensor_place(tensor, place.begin, place.begin + place.nbytes, pos, w->err);
}

/* Reads _rebuild_tensor(storage, offset, size, stride), v2(..., requires_grad, hooks, metadata), v3(..., dtype,
 * metadata) or _rebuild_qtensor(storage, offset, size, stride, quantizer, ...). dtype_at and metadata_at are indices of
 * arguments; 0: no such argument. */
static bool read_strided(struct td_torch_walker *w, td_pickle_ref args, uint32_t dtype_at, uint32_t metadata_at)
{
    const struct td_pickle *p = w->pickle;
    struct td_tensor *tensor = walk_add_tensor(w);
    if (tensor == NULL)
        return false;
    const char *bits = metadata_at > 0 ? bits_reason(p, td_pickle_item(p, args, metadata_at)) : NULL;
    if (!set_shape(w, tensor, td_pickle_item(p, args, 2), td_pickle_item(p, args, 3)) ||
        !place_tensor(w, tensor, td_pickle_item(p, args, 0), td_pickle_item(p, args, 1),
                      dtype_at > 0 ? td_pickle_item(p, args, dtype_at) : TD_PICKLE_NIL))
        return false;
    if (tensor->reason == NULL)
        tensor->reason = bits;
    return true;
}

/* Returns whether torch can load the quantizer: its scheme is known and it has the right number of items. */
static bool is_quantizer(const struct td_pickle *p, td_pickle_ref quantizer)
{
    td_pickle_ref scheme = td_pickle_item(p, quantizer, 0);
    uint32_t count = td_pickle_count(p, quantizer);
    if (td_pickle_is_global(p, scheme, "torch", "per_tensor_affine"))
        return count == 3;
    return count == 4 && (td_pickle_is_global(p, scheme, "torch", "per_channel_affine") ||
                          td_pickle_is_global(p, scheme, "torch", "per_channel_affine_float_qparams"));
}

/* Returns whether a list of scales or zero points is as long as the axis. A tensor is checked once it is read. */
static bool is_as_long(const struct td_pickle *p, td_pickle_ref ref, uint64_t length)
{
    enum td_pickle_kind kind = td_pickle_kind(p, ref);
    return kind == TD_PICKLE_LIST ? td_pickle_count(p, ref) == length : kind == TD_PICKLE_OBJECT;
}

/* Reads the quantizer of tensor `at`: (qscheme, scale, zero point) or (qscheme, scales, zero points, axis). */
static bool read_quantizer(struct td_torch_walker *w, size_t at, td_pickle_ref quantizer)
{
    const struct td_pickle *p = w->pickle;
    const struct td_tensor *tensor = &w->manifest->tensors[at];
    td_pickle_ref axis_ref = td_pickle_item(p, quantizer, 3);
    int64_t axis = 0;
    if (!is_quantizer(p, quantizer))
        return tensor_refuse(w, tensor, quantizer, "torch cannot load its quantizer");
    if (axis_ref == TD_PICKLE_NIL)
        return w->visit_part(w, td_pickle_item(p, quantizer, 1), "q_scale") &&
               w->visit_part(w, td_pickle_item(p, quantizer, 2), "q_zero_point");
    if (!td_pickle_int(p, axis_ref, &axis) || axis < 0 || (uint64_t)axis >= tensor->rank)
        return tensor_refuse(w, tensor, axis_ref, "its quantisation axis is not one of its dimensions");
    uint64_t length = tensor->shape[axis];
    if (!is_as_long(p, td_pickle_item(p, quantizer, 1), length) ||
        !is_as_long(p, td_pickle_item(p, quantizer, 2), length))
        return tensor_refuse(w, tensor, quantizer, "it does not have one scale for each index of its axis");
    size_t before = w->manifest->tensor_count;
    if (!w->visit_part(w, td_pickle_item(p, quantizer, 1), "q_per_channel_scales") ||
        !w->visit_part(w, td_pickle_item(p, quantizer, 2), "q_per_channel_zero_points") ||
        !w->visit_part(w, axis_ref, "q_per_channel_axis"))
        return false;
    tensor = &w->manifest->tensors[at];
    for (size_t i = before; i < w->manifest->tensor_count; i++) {
        const struct td_tensor *part = &w->manifest->tensors[i];
        if (part->rank != 1 || part->shape == NULL || part->shape[0] != tensor->shape[axis])
            return tensor_refuse(w, tensor, quantizer, "it does not have one scale for each index of its axis");
    }
    return true;
}

static bool read_quantized(struct td_torch_walker *w, td_pickle_ref args)
{
    size_t at = w->manifest->tensor_count;
    return read_strided(w, args, 0, 0) && read_quantizer(w, at, td_pickle_item(w->pickle, args, 4));
}

/* Sets nbytes to what type and shape imply, 0 past 2^64; drops strides that say row-major. */
static void set_nbytes(struct td_tensor *tensor)
{
    uint64_t elems = 1;
    bool fits = true;
    for (uint32_t i = 0; tensor->shape != NULL && i < tensor->rank; i++)
        fits = fits && td_mul_u64(elems, tensor->shape[i], &elems);
    if (fits && tensor->strides != NULL && td_tensor_is_row_major(tensor, elems))
        tensor->strides = NULL;
    if (!fits || !td_dtype_nbytes(tensor->dtype, elems, &tensor->nbytes))
        tensor->nbytes = 0;
}

/* Returns the size as a tuple or list of at most 64 numbers, or NIL. */
static td_pickle_ref known_size(const struct td_torch_walker *w, td_pickle_ref size)
{
    td_pickle_ref sizes = unwrap_size(w, size);
    return td_pickle_count(w->pickle, sizes) > TD_MAX_RANK ? TD_PICKLE_NIL : sizes;
}

/* Lists a tensor without bytes in the file, with type, shape and strides where they are known. */
static bool read_unstored(struct td_torch_walker *w, const struct td_dtype *dtype, td_pickle_ref size,
                          td_pickle_ref stride, const char *reason)
{
    struct td_tensor *tensor = walk_add_tensor(w);
    td_pickle_ref sizes = known_size(w, size);
    if (tensor == NULL)
        return false;
    tensor->reason = reason;
    tensor->dtype = dtype != NULL ? dtype : opaque();
    if (unwrap_size(w, stride) != TD_PICKLE_NIL) {
        if (!set_shape(w, tensor, size, stride))
            return false;
    } else if (sizes == TD_PICKLE_NIL) {
        return true;
    } else {
        if (!read_numbers(w, tensor, sizes, "its sizes are not whole numbers of 0 or more", &tensor->shape))
            return false;
        tensor->rank = td_pickle_count(w->pickle, sizes);
    }
    set_nbytes(tensor);
    return true;
}

/* Lists a tensor made of other tensors, which are listed below its name. Its type is that of the part named "values".
 * size is NIL for a nested tensor, which has no single size. */
static bool read_parts(struct td_torch_walker *w, td_pickle_ref parts, uint32_t first, td_pickle_ref size,
                       const char *const *names, const char *reason)
{
    size_t at = w->manifest->tensor_count;
    if (!read_unstored(w, NULL, size, TD_PICKLE_NIL, reason))
        return false;
    for (uint32_t i = 0; names[i] != NULL; i++) {
        size_t before = w->manifest->tensor_count;
        if (!w->visit_part(w, td_pickle_item(w->pickle, parts, first + i), names[i]))
            return false;
        if (strcmp(names[i], "values") == 0 && w->manifest->tensor_count == before + 1)
            w->manifest->tensors[at].dtype = w->manifest->tensors[before].dtype;
    }
    if (known_size(w, size) != TD_PICKLE_NIL)
        set_nbytes(&w->manifest->tensors[at]);
    return true;
}

enum layout { LAYOUT_COO, LAYOUT_ROWS, LAYOUT_COLUMNS };

/* Reads serialization._get_layout("torch.sparse_csr"), or the number of c10/core/Layout.h in TorchScript. */
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

/* Reads _rebuild_sparse_tensor(layout, (indices, values, size, ...)), or with (compressed indices, plain indices,
 * values, size); in TorchScript (layout number, size, requires_grad, indices ..., values, hooks). */
static bool read_sparse(struct td_torch_walker *w, td_pickle_ref args)
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
    return read_parts(w, parts, 0, td_pickle_item(p, parts, layout == LAYOUT_COO ? 2 : 3), names[layout], "sparse");
}

/* Returns whether the state has the same part as the constructor was given, or none. torch.load sets the state on the
 * object after the constructor made it. */
static bool same_part(const struct td_pickle *p, td_pickle_ref state, const char *key, td_pickle_ref part)
{
    td_pickle_ref other = td_pickle_get(p, state, key);
    return other == TD_PICKLE_NIL || other == part ||
           (td_pickle_kind(p, other) == TD_PICKLE_NONE &&
            (part == TD_PICKLE_NIL || td_pickle_kind(p, part) == TD_PICKLE_NONE));
}

/* Reads a NestedTensor of torch.nested._internal.nested_tensor, the jagged layout: _rebuild_njt({"values": ...,
 * "offsets": ..., "lengths": None or ..., "_ragged_idx": ...}), or in torch 2.1 to 2.3 NestedTensor(values, offsets),
 * which had no lengths and a fixed ragged dimension. */
static bool read_jagged(struct td_torch_walker *w, const struct td_torch_made *made)
{
    const struct td_pickle *p = w->pickle;
    td_pickle_ref given = td_pickle_item(p, made->args, 0);
    td_pickle_ref state = td_pickle_item(p, td_pickle_args(p, made->call), 3);
    bool is_dict = td_pickle_kind(p, given) == TD_PICKLE_DICT;
    td_pickle_ref values = is_dict ? td_pickle_get(p, given, "values") : given;
    td_pickle_ref offsets = is_dict ? td_pickle_get(p, given, "offsets") : td_pickle_item(p, made->args, 1);
    td_pickle_ref lengths = is_dict ? td_pickle_get(p, given, "lengths") : TD_PICKLE_NIL;
    td_pickle_ref ragged = is_dict ? td_pickle_get(p, given, "_ragged_idx") : TD_PICKLE_NIL;
    size_t at = w->manifest->tensor_count;
    if (!read_unstored(w, NULL, TD_PICKLE_NIL, TD_PICKLE_NIL, "nested (jagged)"))
        return false;
    bool same = same_part(p, state, "_values", values) && same_part(p, state, "_offsets", offsets) &&
                same_part(p, state, "_lengths", lengths);
    if (!same || td_pickle_grew_after(p, state, made->call))
        return tensor_refuse(w, &w->manifest->tensors[at], state, "its state has other parts than it was made of");
    if (!w->visit_part(w, values, "values"))
        return false;
    if (w->manifest->tensor_count > at + 1)
        w->manifest->tensors[at].dtype = w->manifest->tensors[at + 1].dtype;
    return w->visit_part(w, offsets, "offsets") &&
           (td_pickle_kind(p, lengths) == TD_PICKLE_NONE || w->visit_part(w, lengths, "lengths")) &&
           w->visit_part(w, ragged, "ragged_idx");
}

/* ---- NumPy's ------------------------------------------------------------------------------------------- */

/* Lists a NumPy array, whose bytes are in the pickle. Its state is (version, shape, dtype, is_fortran, bytes). */
static bool read_numpy(struct td_torch_walker *w, td_pickle_ref ref)
{
    const struct td_pickle *p = w->pickle;
    td_pickle_ref state = td_pickle_state(p, ref);
    return read_unstored(w, td_torch_numpy_dtype(p, td_pickle_item(p, state, 2)), td_pickle_item(p, state, 1),
                         TD_PICKLE_NIL, "stored inside the pickle");
}

bool td_torch_read_bare_storage(struct td_torch_walker *w, td_pickle_ref ref)
{
    struct td_torch_storage storage;
    struct td_torch_place place;
    bool is_storage;
    uint64_t pos = td_pickle_position(w->pickle, ref);
    if (!td_torch_storage_read(w->pickle, ref, &is_storage, &storage, w->err))
        return false;
    if (!is_storage)
        return w->places->is_legacy ||
               td_torch_refuse(w->err, w->pickle, ref, "a persistent id is not ('storage', ...)");
    if (storage.dtype == NULL)
        return true;
    struct td_tensor *tensor = walk_add_tensor(w);
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
    tensor->coding = place.coding;
    set_byte_order(w, &storage, tensor);
    return td_tensor_place(tensor, place.begin, place.begin + place.nbytes, pos, w->err);
}

/* ---- objects that stand for tensors -------------------------------------------------------------------- */

/* Lists the tensor that the call makes. Sets *done to false when the call makes none. */
static bool read_rebuilt(struct td_torch_walker *w, td_pickle_ref ref, const struct td_torch_made *made, bool *done)
{
    static const char *const nested[] = {"values", "sizes", "strides", "storage_offsets", NULL};
    const td_pickle_ref none = TD_PICKLE_NIL;
    const td_pickle_ref args = made->args;
    const struct td_pickle *p = w->pickle;
    *done = true;
    switch (made->what) {
    case TD_REBUILD_V1:
        return read_strided(w, args, 0, 0);
    case TD_REBUILD_V2:
        return read_strided(w, args, 0, 6);
    case TD_REBUILD_V3:
        return read_strided(w, args, 6, 7);
    case TD_REBUILD_Q:
        return read_quantized(w, args);
    case TD_REBUILD_SPARSE:
        return read_sparse(w, args);
    case TD_REBUILD_NESTED:
        return read_parts(w, args, 0, none, nested, "nested");
    case TD_REBUILD_JAGGED:
        return read_jagged(w, made);
    case TD_REBUILD_META:
        return read_unstored(w, td_torch_dtype(p, td_pickle_item(p, args, 0)), td_pickle_item(p, args, 1),
                             td_pickle_item(p, args, 2), "on the meta device, so never stored");
    case TD_REBUILD_WRAPPER:
        return read_unstored(w, td_torch_dtype(p, td_pickle_item(p, args, 1)), td_pickle_item(p, args, 2), none,
                             "a subclass without a storage");
    case TD_REBUILD_INLINE:
        return read_numpy(w, ref);
    default:
        *done = false;
        return true;
    }
}

/* Returns whether a list or dict that is an argument of the call, or within an argument, did not grow after the call.
 */
static bool is_settled(const struct td_pickle *p, td_pickle_ref ref, td_pickle_ref call)
{
    enum td_pickle_kind kind = td_pickle_kind(p, ref);
    if (kind == TD_PICKLE_OBJECT) {
        ref = td_torch_unwrap_call(p, ref, &call);
        kind = td_pickle_kind(p, ref);
    }
    return (kind != TD_PICKLE_LIST && kind != TD_PICKLE_DICT) || !td_pickle_grew_after(p, ref, call);
}

/* Refuses arguments that grew after the call. Looks at 64 arguments and 64 parts of each: no argument that is read has
 * more parts or is nested deeper. */
static bool check_settled(const struct td_torch_walker *w, const struct td_torch_made *made)
{
    const struct td_pickle *p = w->pickle;
    for (uint32_t i = 0; i < TD_MAX_RANK; i++) {
        td_pickle_ref argument = td_pickle_item(p, made->args, i);
        bool is_open = !is_settled(p, argument, made->call);
        bool has_parts =
            td_pickle_kind(p, argument) == TD_PICKLE_TUPLE || td_pickle_kind(p, argument) == TD_PICKLE_LIST;
        for (uint32_t k = 0; has_parts && k < TD_MAX_RANK && k < td_pickle_count(p, argument); k++)
            is_open = is_open || !is_settled(p, td_pickle_item(p, argument, k), made->call);
        if (is_open)
            return td_torch_refuse(w->err, p, argument, "what a tensor is made of is added to after it was made");
        if (argument == TD_PICKLE_NIL)
            break;
    }
    return true;
}

bool td_torch_read_tensor(struct td_torch_walker *w, td_pickle_ref ref, bool *done)
{
    size_t at = w->manifest->tensor_count;
    struct td_torch_made made = td_torch_unwrap_tensor(w->pickle, ref);
    *done = false;
    if (made.what == TD_REBUILD_NONE)
        return true;
    if (!check_settled(w, &made) || !read_rebuilt(w, ref, &made, done))
        return false;
    if (!*done || made.converted == TD_PICKLE_NIL || at == w->manifest->tensor_count)
        return true;
    struct td_tensor *tensor = &w->manifest->tensors[at];
    if (tensor->reason == NULL && td_torch_dtype(w->pickle, made.converted) != tensor->dtype)
        tensor->reason = "converted when it is loaded";
    return true;
}
