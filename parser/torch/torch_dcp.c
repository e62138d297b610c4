/* `.metadata` is a pickled object with two dicts. storage_data names for each box (tensor, first index) the file and
 * the item that hold it. state_dict_metadata says for each tensor its shape, its type and its chunks, which are boxes
 * with a first index and a size. Neither dict has both places and sizes, so join_pieces sorts the boxes of a tensor
 * from both by their first index and joins them pair by pair.
 *
 * What is hard: the pickle's values can be shared, and each box copies its numbers. So memory is limited in proportion
 * to the pickle's length (check_memory). */
#include "parser/torch/torch_dcp.h"

#include "core/checked.h"
#include "core/utf8.h"
#include "parser/format/manifest.h"
#include "parser/format/names.h"
#include "parser/pickle/pickle.h"
#include "parser/torch/torch_storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One entry of storage_data: the item that holds the box of tensor `name` that begins at `offsets`. */
struct stored {
    struct td_text name;
    td_pickle_ref offsets; /* a tuple, or NIL */
    struct td_text file;
    uint64_t item_offset, item_bytes;
    const char *reason;
};

enum {
    /* Most memory of the result: a part in proportion to the pickle's bytes, and a fixed part for small pickles. */
    MEMORY_PER_BYTE = 32,
    MEMORY_FREE_BYTES = 4 << 20,
    STORED_BYTES = sizeof(struct stored) + sizeof(uint32_t) + 4 * sizeof(struct td_order),
};

struct reader {
    struct td_dcp *dcp;
    struct td_pickle pickle;
    struct stored *stored; /* sorted by name once read */
    size_t stored_count;
    uint32_t *file_numbers; /* per stored */
    struct td_error *err;
};

static bool refuse_metadata(const struct reader *r, td_pickle_ref at, const char *what)
{
    return td_error_at(r->err, TD_INVALID_ARGUMENT, td_pickle_position(&r->pickle, at), "%s", what);
}

/* Returns the attributes of an object, which it copied when they were set. Returns NIL when the container grew later,
 * because the later items are not the object's. */
static td_pickle_ref attributes(const struct reader *r, td_pickle_ref object)
{
    return td_pickle_state_grew(&r->pickle, object) ? TD_PICKLE_NIL : td_pickle_state(&r->pickle, object);
}

/* Returns a member of a dataclass's object, whose attributes are a dict. */
static td_pickle_ref member(const struct reader *r, td_pickle_ref object, const char *name)
{
    td_pickle_ref state = attributes(r, object);
    return td_pickle_kind(&r->pickle, state) == TD_PICKLE_DICT ? td_pickle_get(&r->pickle, state, name) : TD_PICKLE_NIL;
}

/* Returns the tuple or list of torch.Size((3, 4)) or of plain numbers; NIL for all else. */
static td_pickle_ref sizes_of(const struct reader *r, td_pickle_ref ref)
{
    const struct td_pickle *p = &r->pickle;
    if (td_pickle_is_call(p, ref, "torch", "Size")) {
        td_pickle_ref numbers = td_pickle_item(p, td_pickle_args(p, ref), 0);
        ref = td_pickle_grew_after(p, numbers, ref) ? TD_PICKLE_NIL : numbers;
    }
    enum td_pickle_kind kind = td_pickle_kind(p, ref);
    return kind == TD_PICKLE_TUPLE || kind == TD_PICKLE_LIST ? ref : TD_PICKLE_NIL;
}

/* Reads rank numbers, none negative, into the arena. */
static bool read_sizes(const struct reader *r, td_pickle_ref ref, uint32_t rank, const uint64_t **out)
{
    uint64_t *sizes = td_arena_array(&r->dcp->arena, rank, sizeof *sizes);
    if (sizes == NULL)
        return td_error_no_memory(r->err);
    if (ref == TD_PICKLE_NIL || td_pickle_count(&r->pickle, ref) != rank)
        return refuse_metadata(r, ref, "a box does not have as many dimensions as its tensor");
    for (uint32_t i = 0; i < rank; i++) {
        int64_t value;
        if (!td_pickle_int(&r->pickle, td_pickle_item(&r->pickle, ref, i), &value) || value < 0)
            return refuse_metadata(r, ref, "a size or an offset is not a whole number of 0 or more");
        sizes[i] = (uint64_t)value;
    }
    *out = sizes;
    return true;
}

static struct td_text text_of(const struct reader *r, td_pickle_ref ref)
{
    struct td_text name = {0};
    if (td_pickle_is_utf8(&r->pickle, ref))
        name.p = td_pickle_text(&r->pickle, ref, &name.len);
    if (name.p != NULL && memchr(name.p, '\0', name.len) != NULL)
        name.p = NULL;
    return name;
}

static bool read_stored(struct reader *r, td_pickle_ref key, td_pickle_ref value)
{
    const struct td_pickle *p = &r->pickle;
    struct stored *s = &r->stored[r->stored_count++];
    td_pickle_ref transforms = member(r, value, "transform_descriptors");
    int64_t offset;
    int64_t length;
    s->name = text_of(r, member(r, key, "fqn"));
    s->offsets = sizes_of(r, member(r, key, "offset"));
    s->file = text_of(r, member(r, value, "relative_path"));
    if (s->name.p == NULL)
        return refuse_metadata(r, key, "a key of storage_data has no fqn, the tensor's name");
    if (s->file.p == NULL || !td_is_plain_file_name(s->file))
        return refuse_metadata(r, value, "an item's relative_path is not the name of a file beside this one");
    if (!td_pickle_int(p, member(r, value, "offset"), &offset) || offset < 0)
        return refuse_metadata(r, value, "an item's offset is not a whole number of 0 or more");
    if (!td_pickle_int(p, member(r, value, "length"), &length) || length < 0)
        return refuse_metadata(r, value, "an item's length is not a whole number of 0 or more");
    s->item_offset = (uint64_t)offset;
    s->item_bytes = (uint64_t)length;
    s->reason = td_pickle_count(p, transforms) > 0 ? "compressed or otherwise transformed" : NULL;
    return true;
}

static struct td_text stored_name(const void *context, size_t i)
{
    return ((const struct stored *)context)[i].name;
}

static struct td_text stored_file(const void *context, size_t i)
{
    return ((const struct stored *)context)[i].file;
}

static bool read_storage(struct reader *r, td_pickle_ref ref)
{
    struct td_pickle_map map;
    if (!td_pickle_map(&r->pickle, ref, &map))
        return refuse_metadata(r, ref, "storage_data is not a dict");
    /* the entries, their file numbers and the scratch of sorting, before any of them is allocated */
    if (!td_arena_claim(&r->dcp->arena, ((size_t)map.count + 1) * STORED_BYTES))
        return td_error_no_memory(r->err);
    r->stored = calloc((size_t)map.count + 1, sizeof *r->stored);
    r->file_numbers = calloc((size_t)map.count + 1, sizeof *r->file_numbers);
    if (r->stored == NULL || r->file_numbers == NULL)
        return td_error_no_memory(r->err);
    for (uint32_t i = 0; i < map.count; i++)
        if (!read_stored(r, td_pickle_map_key(&r->pickle, &map, i), td_pickle_map_value(&r->pickle, &map, i)))
            return false;
    struct td_names names = {.count = r->stored_count, .context = r->stored, .get = stored_name};
    if (!td_names_sort(&names, r->stored, sizeof *r->stored, r->err))
        return false;
    names.get = stored_file;
    return td_names_distinct(&names, &r->dcp->arena, &r->dcp->files, &r->dcp->file_count, r->file_numbers, r->err);
}

/* Returns the index of the first stored item whose name is this or a later one. */
static size_t stored_find(const struct reader *r, const struct td_dcp_tensor *tensor)
{
    struct td_names names = {.count = r->stored_count, .context = r->stored, .get = stored_name};
    return td_names_search(&names, td_text_n(tensor->name, tensor->name_len), NULL);
}

static bool is_stored_as(const struct reader *r, size_t i, const struct td_dcp_tensor *tensor)
{
    const struct td_text *name = &r->stored[i].name;
    return i < r->stored_count && name->len == tensor->name_len && memcmp(name->p, tensor->name, name->len) == 0;
}

/* The first indices of boxes. */
struct boxes {
    const uint64_t **starts;
    uint32_t rank;
};

static int compare_boxes(const void *context, size_t a, size_t b)
{
    const struct boxes *boxes = context;
    for (uint32_t i = 0; i < boxes->rank; i++)
        if (boxes->starts[a][i] != boxes->starts[b][i])
            return boxes->starts[a][i] < boxes->starts[b][i] ? -1 : 1;
    return 0;
}

static struct td_order *order_boxes(const struct reader *r, const struct boxes *boxes, uint32_t count)
{
    struct td_order *order = calloc((size_t)count + 1, sizeof *order);
    if (order == NULL) {
        (void)td_error_no_memory(r->err);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++)
        order[i] = (struct td_order){.key = boxes->rank > 0 ? boxes->starts[i][0] : 0, .index = i};
    if (!td_order_sort(order, count, compare_boxes, boxes, r->err)) {
        free(order);
        return NULL;
    }
    return order;
}

/* Joins the chunks, which have sizes, with the stored items, which have places, by their first indices. */
static bool join_pieces(struct reader *r, struct td_dcp_tensor *tensor, td_pickle_ref chunks, size_t first,
                        const uint64_t **starts, struct td_dcp_piece *pieces)
{
    uint32_t count = tensor->piece_count;
    const uint64_t **chunk_starts = starts + count;
    struct boxes stored = {.starts = starts, .rank = tensor->rank};
    struct boxes known = {.starts = chunk_starts, .rank = tensor->rank};
    bool ok = true;
    for (uint32_t i = 0; i < count && ok; i++) {
        td_pickle_ref chunk = td_pickle_item(&r->pickle, chunks, i);
        ok = read_sizes(r, r->stored[first + i].offsets, tensor->rank, &starts[i]) &&
             read_sizes(r, sizes_of(r, member(r, chunk, "offsets")), tensor->rank, &chunk_starts[i]);
    }
    struct td_order *by_stored = ok ? order_boxes(r, &stored, count) : NULL;
    struct td_order *by_chunk = by_stored != NULL ? order_boxes(r, &known, count) : NULL;
    ok = by_chunk != NULL;
    for (uint32_t i = 0; i < count && ok; i++) {
        const struct stored *s = &r->stored[first + by_stored[i].index];
        td_pickle_ref chunk = td_pickle_item(&r->pickle, chunks, (uint32_t)by_chunk[i].index);
        const uint64_t *here = starts[by_stored[i].index];
        const uint64_t *there = chunk_starts[by_chunk[i].index];
        pieces[i] = (struct td_dcp_piece){.file = r->file_numbers[first + by_stored[i].index],
                                          .item_offset = s->item_offset,
                                          .item_bytes = s->item_bytes,
                                          .starts = here,
                                          .reason = s->reason};
        ok = (memcmp(here, there, tensor->rank * sizeof *here) == 0 ||
              refuse_metadata(r, chunk, "no item of storage_data begins where a chunk does")) &&
             read_sizes(r, sizes_of(r, member(r, chunk, "sizes")), tensor->rank, &pieces[i].sizes);
    }
    free(by_stored);
    free(by_chunk);
    return ok;
}

static bool read_pieces(struct reader *r, struct td_dcp_tensor *tensor, td_pickle_ref chunks)
{
    size_t first = stored_find(r, tensor);
    uint32_t count = td_pickle_count(&r->pickle, chunks);
    size_t found = 0;
    while (found <= count && is_stored_as(r, first + found, tensor))
        found++;
    if (found != count)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, td_pickle_position(&r->pickle, chunks),
                           "tensor \"%.96s\" has %" PRIu32 " chunks, but storage_data places %s%zu of them",
                           tensor->name, count, found > count ? "more than " : "", found > count ? count : found);
    struct td_dcp_piece *pieces = td_arena_array(&r->dcp->arena, count, sizeof *pieces);
    const uint64_t **starts = calloc(2 * (size_t)count + 1, sizeof *starts);
    tensor->pieces = pieces;
    tensor->piece_count = count;
    bool ok = false;
    if (pieces == NULL || starts == NULL)
        (void)td_error_no_memory(r->err);
    else
        ok = join_pieces(r, tensor, chunks, first, starts, pieces);
    free(starts);
    return ok;
}

/* Returns the type in a TensorProperties, whose state is a tuple that begins with the dtype; in early versions a dict.
 */
static const struct td_dtype *dtype_of(const struct reader *r, td_pickle_ref properties)
{
    td_pickle_ref state = attributes(r, properties);
    td_pickle_ref dtype = td_pickle_kind(&r->pickle, state) == TD_PICKLE_TUPLE ? td_pickle_item(&r->pickle, state, 0)
                                                                               : member(r, properties, "dtype");
    return td_torch_dtype(&r->pickle, dtype);
}

static bool read_tensor(struct reader *r, td_pickle_ref key, td_pickle_ref value)
{
    const struct td_pickle *p = &r->pickle;
    struct td_text name = text_of(r, key);
    td_pickle_ref size = sizes_of(r, member(r, value, "size"));
    td_pickle_ref chunks = member(r, value, "chunks");
    if (size == TD_PICKLE_NIL) /* BytesStorageMetadata: some other object */
        return true;
    if (name.p == NULL || name.len > UINT32_MAX)
        return refuse_metadata(r, key, "a tensor's name is not UTF-8 or holds a NUL");
    struct td_dcp_tensor *tensor = &r->dcp->tensors[r->dcp->tensor_count++];
    tensor->name = td_arena_strndup(&r->dcp->arena, name);
    tensor->name_len = (uint32_t)name.len;
    tensor->rank = td_pickle_count(p, size);
    if (tensor->name == NULL)
        return td_error_no_memory(r->err);
    if (tensor->rank > TD_MAX_RANK)
        return refuse_metadata(r, size, "a tensor has more than 64 dimensions");
    tensor->dtype = dtype_of(r, member(r, value, "properties"));
    if (tensor->dtype == NULL)
        return refuse_metadata(r, value, "a tensor's dtype is unknown");
    return read_sizes(r, size, tensor->rank, &tensor->shape) && read_pieces(r, tensor, chunks);
}

static bool check_memory(const struct reader *r, td_pickle_ref at)
{
    return r->dcp->arena.used_bytes <= MEMORY_FREE_BYTES + MEMORY_PER_BYTE * r->pickle.end ||
           refuse_metadata(r, at, "values are shared so often that they unfold without end");
}

static struct td_text tensor_name(const void *context, size_t i)
{
    const struct td_dcp_tensor *tensors = context;
    return td_text_n(tensors[i].name, tensors[i].name_len);
}

static bool read_tensors(struct reader *r, td_pickle_ref ref)
{
    struct td_pickle_map map;
    struct td_dcp *dcp = r->dcp;
    if (!td_pickle_map(&r->pickle, ref, &map))
        return refuse_metadata(r, ref, "state_dict_metadata is not a dict");
    dcp->tensors = td_arena_array(&dcp->arena, map.count, sizeof *dcp->tensors);
    if (dcp->tensors == NULL)
        return td_error_no_memory(r->err);
    memset(dcp->tensors, 0, map.count * sizeof *dcp->tensors);
    for (uint32_t i = 0; i < map.count; i++)
        if (!read_tensor(r, td_pickle_map_key(&r->pickle, &map, i), td_pickle_map_value(&r->pickle, &map, i)) ||
            !check_memory(r, ref))
            return false;
    struct td_names names = {.count = dcp->tensor_count, .context = dcp->tensors, .get = tensor_name};
    if (!td_names_sort(&names, dcp->tensors, sizeof *dcp->tensors, r->err))
        return false;
    return td_names_duplicate(&names, NULL) == names.count ||
           td_error_set(r->err, TD_INVALID_ARGUMENT, "state_dict_metadata holds a name twice");
}

static bool read_all(struct reader *r)
{
    return (td_arena_claim(&r->dcp->arena, td_pickle_memory_bytes(&r->pickle)) || td_error_no_memory(r->err)) &&
           read_storage(r, member(r, r->pickle.root, "storage_data")) &&
           read_tensors(r, member(r, r->pickle.root, "state_dict_metadata"));
}

bool td_dcp_parse(struct td_dcp *dcp, const struct td_input *input, const struct td_limits *limits,
                  struct td_error *err)
{
    memset(dcp, 0, sizeof *dcp);
    td_arena_init(&dcp->arena, limits->max_memory_bytes);
    uint8_t *text = td_input_load(input, 0, input->size_bytes, limits->max_header_bytes, err);
    if (text == NULL)
        return false;
    struct reader r = {.dcp = dcp, .err = err};
    bool ok = td_arena_claim(&dcp->arena, (size_t)input->size_bytes) || td_error_no_memory(err);
    struct td_pickle_options options = {.max_memory_bytes = td_arena_left(&dcp->arena)};
    ok = ok && td_pickle_parse(&r.pickle, text, (size_t)input->size_bytes, 0, &options, err) && read_all(&r);
    free(r.stored);
    free(r.file_numbers);
    td_pickle_fini(&r.pickle);
    free(text);
    dcp->arena.limit_bytes = limits->max_memory_bytes;
    return ok;
}

void td_dcp_fini(struct td_dcp *dcp)
{
    td_arena_fini(&dcp->arena);
    memset(dcp, 0, sizeof *dcp);
}
