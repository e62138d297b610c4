/* Datasets in chunks: layout, filters and fill value (IV.A.2.i, l, e and f of the specification) become a coding, whose
 * list of chunks comes from the index (hdf5_chunk_index). A dataset whose filters, sizes or index cannot be read gets a
 * reason, and the rest of the file is not affected: the index is read with an error and a budget of its own. */
#include "parser/hdf5/hdf5_chunked.h"

#include "core/checked.h"
#include "parser/hdf5/hdf5_chunk_index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Reading row by row unpacks a chunk once for each of its rows, unless all chunks side by side fit into the cache.
     * At most TIMES_MAX times are allowed, with ROW_CACHE_BYTES of cache. */
    TIMES_MAX = 64,
    ROW_CACHE_BYTES = 64 * 1024 * 1024,
};

/* ---- layout -------------------------------------------------------------------------------------------- */

static void read_shape(struct td_h5_cursor *c, unsigned rank, unsigned width, struct td_h5_chunked *out)
{
    if (rank < 2 || rank > TD_CODING_RANK_MAX + 1) { /* the last dimension is the element's size */
        c->bad = true;
        return;
    }
    out->rank = rank - 1;
    for (unsigned i = 0; i + 1 < rank; i++)
        out->shape[i] = td_h5_number(c, width);
    uint64_t elem_bytes = td_h5_number(c, width);
    c->bad = c->bad || elem_bytes > UINT32_MAX;
    out->elem_bytes = (uint32_t)elem_bytes;
}

static void read_version_4(struct td_h5 *h, struct td_h5_cursor *c, struct td_h5_chunked *out, const char **reason)
{
    enum { PLAIN_EDGES = 0x01, SINGLE_FILTERED = 0x02 };
    unsigned flags = td_h5_u8(c);
    unsigned rank = td_h5_u8(c);
    unsigned width = td_h5_u8(c);
    c->bad = c->bad || width < 1 || width > 8;
    if (c->bad)
        return;
    read_shape(c, rank, width, out);
    out->plain_edges = (flags & PLAIN_EDGES) != 0;
    unsigned index = td_h5_u8(c);
    if (index < TD_H5_INDEX_SINGLE || index > TD_H5_INDEX_TREE_2) {
        *reason = "chunked, with an index of an unknown kind";
        return;
    }
    out->index = (enum td_h5_index)index;
    static const uint8_t parameters[] = {0, 0, 0, 1, 5, 6}; /* bytes; the index's header says the same */
    if (index == TD_H5_INDEX_SINGLE && (flags & SINGLE_FILTERED) != 0) {
        out->single_bytes = td_h5_number(c, h->length_bytes);
        out->single_skipped = td_h5_u32(c);
    }
    (void)td_h5_take(c, parameters[index]);
    out->addr = td_h5_number(c, h->offset_bytes);
}

bool td_h5_chunked_layout(struct td_h5 *h, struct td_h5_cursor c, unsigned version, unsigned rank,
                          struct td_h5_chunked *out, const char **reason)
{
    uint64_t at = c.addr;
    *out = (struct td_h5_chunked){.index = TD_H5_INDEX_TREE_1};
    if (version >= 4) {
        read_version_4(h, &c, out, reason);
    } else {
        if (version < 3)
            (void)td_h5_take(&c, 5);
        else
            rank = td_h5_u8(&c);
        out->addr = td_h5_number(&c, h->offset_bytes);
        read_shape(&c, rank, 4, out);
    }
    return !c.bad || td_h5_fail(h, at, "layout: its message is too short, or has %u dimensions", rank);
}

/* ---- filters ------------------------------------------------------------------------------------------- */

/* Takes the description of one filter. Returns false when the filter is unknown, so that its chunks cannot be read. */
static bool take_filter(struct td_h5_cursor *c, unsigned version, struct td_coding_filter *out)
{
    enum { DEFLATE = 1, SHUFFLE = 2, FLETCHER32 = 3, LZF = 32000, FIRST_WITH_NAME = 256, DEFLATE_LEVEL_MAX = 9 };
    unsigned id = td_h5_u16(c);
    size_t name_len = version == 1 || id >= FIRST_WITH_NAME ? td_h5_u16(c) : 0;
    (void)td_h5_take(c, 2); /* flags */
    size_t values = td_h5_u16(c);
    (void)td_h5_take(c, version == 1 ? (name_len + 7) / 8 * 8 : name_len);
    uint32_t first = values > 0 ? td_h5_u32(c) : 0;
    if (values > 0)
        (void)td_h5_take(c, 4 * ((version == 1 ? (values + 1) / 2 * 2 : values) - 1));
    *out = (struct td_coding_filter){.elem_bytes = first};
    switch (id) {
    case DEFLATE:
        out->kind = TD_FILTER_DEFLATE;
        return values == 1 && first <= DEFLATE_LEVEL_MAX; /* as libhdf5 has it */
    case SHUFFLE:
        out->kind = TD_FILTER_SHUFFLE;
        return values == 1 && first > 0; /* likewise */
    case FLETCHER32:
        out->kind = TD_FILTER_FLETCHER32;
        return true;
    case LZF:
        out->kind = TD_FILTER_LZF;
        return true;
    default:
        return false;
    }
}

/* Reads the filters of a complete message. Returns false when one of them is unknown, or two compress. */
static bool read_filters(struct td_h5_cursor c, struct td_coding_grid *grid)
{
    unsigned version = td_h5_u8(&c);
    unsigned count = td_h5_u8(&c);
    unsigned compressing = 0;
    if (version == 1)
        (void)td_h5_take(&c, 6);
    if (count > TD_CODING_FILTERS_MAX)
        return false;
    for (unsigned i = 0; i < count; i++) {
        struct td_coding_filter *filter = &grid->filters[i];
        if (!take_filter(&c, version, filter) || c.bad)
            return false;
        compressing += filter->kind == TD_FILTER_DEFLATE || filter->kind == TD_FILTER_LZF;
    }
    grid->filter_count = count;
    return compressing <= 1;
}

/* ---- the fill value ------------------------------------------------------------------------------------ */

/* Returns where the value begins in its message. Returns NULL and *len 0 when the message has no value, or when the
 * value is never written: libhdf5 then leaves a reader's memory unchanged, and h5py's memory is zeros. *len is SIZE_MAX
 * when the message is too short. */
static const uint8_t *fill_bytes(struct td_h5_message message, size_t *len)
{
    enum { TIME_NEVER = 1, V3_TIME_SHIFT = 2, V3_TIME_BITS = 0x03, V3_HAS_VALUE = 0x20 };
    struct td_h5_cursor c = message.body;
    bool has_value = true;
    if (message.type == TD_H5_FILL) {
        unsigned version = td_h5_u8(&c);
        if (version < 3) {
            (void)td_h5_u8(&c); /* when space is allocated */
            bool is_written = td_h5_u8(&c) != TIME_NEVER;
            has_value = (td_h5_u8(&c) != 0 || version == 1) && is_written;
        } else {
            unsigned flags = td_h5_u8(&c);
            has_value = (flags & V3_HAS_VALUE) != 0 && (flags >> V3_TIME_SHIFT & V3_TIME_BITS) != TIME_NEVER;
        }
    }
    *len = has_value ? td_h5_u32(&c) : 0;
    const uint8_t *bytes = td_h5_take(&c, c.bad ? 0 : *len);
    if (c.bad)
        *len = SIZE_MAX;
    return bytes;
}

/* Reads the fill value. Returns false when it is not of the dataset's type; *ok is false when out of memory. */
static bool read_fill(struct td_h5 *h, const struct td_h5_message *message, struct td_coding_grid *grid, bool *ok)
{
    *ok = true;
    if (message == NULL)
        return true;
    if ((message->flags & TD_H5_MESSAGE_SHARED) != 0)
        return false;
    size_t len;
    const uint8_t *bytes = fill_bytes(*message, &len);
    if (len == 0)
        return true;
    if (bytes == NULL || len != grid->elem_bytes)
        return false;
    uint8_t *fill = td_arena_alloc(&h->manifest->arena, len);
    if (fill == NULL)
        return *ok = td_h5_no_memory(h);
    memcpy(fill, bytes, len);
    grid->fill = fill;
    return true;
}

/* ---- chunks -------------------------------------------------------------------------------------------- */

/* Computes the size of a chunk. Returns false on an overflow, and when filtered chunks are too large to unpack. */
static bool measure_chunk(const struct td_coding_grid *grid, uint64_t *bytes)
{
    *bytes = grid->elem_bytes;
    for (uint32_t i = 0; i < grid->rank; i++)
        if (!td_mul_u64(*bytes, grid->chunk_shape[i], bytes))
            return false;
    return *bytes <= INT64_MAX && (grid->filter_count == 0 || *bytes <= TD_CODING_CHUNK_MAX_BYTES);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns how many times a chunk is unpacked when the array is read row by row. */
static uint64_t times_unpacked(const struct td_coding_grid *grid, uint64_t chunk_bytes)
{
    uint64_t times = 1;
    uint64_t side_by_side = chunk_bytes; /* bytes of the chunks that are read before the next row of the first one */
    for (uint32_t i = grid->rank; i-- > 1;) {
        uint64_t along = (grid->shape[i] - 1) / grid->chunk_shape[i] + 1;
        if (!td_mul_u64(side_by_side, along, &side_by_side))
            side_by_side = UINT64_MAX;
        uint64_t rows = min_u64(grid->chunk_shape[i - 1], grid->shape[i - 1]);
        if (side_by_side > ROW_CACHE_BYTES && !td_mul_u64(times, rows, &times))
            return UINT64_MAX;
    }
    return times;
}

static int compare_chunks(const void *a, const void *b)
{
    const struct td_coding_chunk *x = a;
    const struct td_coding_chunk *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

/* Sorts the list and copies it to the arena. */
static bool keep_chunks(struct td_h5_chunk_reader *r, struct td_coding_grid *grid)
{
    struct td_h5 *h = r->h;
    struct td_h5_chunk_list *list = r->list;
    for (size_t i = 1; i < list->count; i++)
        if (list->chunks[i - 1].number > list->chunks[i].number) {
            qsort(list->chunks, list->count, sizeof *list->chunks, compare_chunks);
            break;
        }
    for (size_t i = 1; i < list->count; i++)
        if (list->chunks[i - 1].number == list->chunks[i].number)
            return td_h5_fail(h, r->layout->addr, "one chunk occurs twice");
    struct td_coding_chunk *kept = td_arena_array(&h->manifest->arena, list->count, sizeof *kept);
    if (kept == NULL)
        return td_h5_no_memory(h);
    if (list->count > 0)
        memcpy(kept, list->chunks, list->count * sizeof *kept);
    grid->chunks = kept;
    grid->chunk_count = list->count;
    return true;
}

static void count_along(struct td_h5_chunk_reader *r)
{
    for (uint32_t i = 0; i < r->layout->rank; i++) {
        uint64_t size = r->layout->shape[i];
        uint64_t max = r->space->max_dims[i];
        r->along[i] = (r->space->dims[i] - 1) / size + 1;
        r->max_along[i] = max == TD_H5_UNLIMITED ? UINT64_MAX : (max - 1) / size + 1;
    }
}

/* Makes the error of the index the tensor's reason. */
static bool damaged_index(struct td_h5 *h, const struct td_error *own, const char **reason)
{
    char text[TD_ERROR_MESSAGE_BYTES + 64];
    int len = snprintf(text, sizeof text, "chunked, with a damaged index: %s", own->message);
    *reason = td_arena_strndup(&h->manifest->arena, td_text_n(text, (size_t)len));
    return *reason != NULL || td_h5_no_memory(h);
}

/* Reads the index with an error and a budget of its own: a bad index only gives this tensor a reason. */
static bool read_index(struct td_h5_chunk_reader *r, struct td_coding_grid *grid, const char **reason)
{
    struct td_h5 *h = r->h;
    struct td_error own = TD_ERROR_INIT;
    struct td_error *outer = h->err;
    uint64_t budget = h->budget_bytes;
    h->err = &own;
    h->budget_bytes = h->chunk_budget_bytes;
    r->list->count = 0;
    count_along(r);
    bool ok = td_h5_read_chunks(r) && keep_chunks(r, grid);
    h->chunk_budget_bytes = h->budget_bytes;
    h->budget_bytes = budget;
    h->err = outer;
    if (ok)
        return true;
    if (own.code == TD_INVALID_ARGUMENT)
        return damaged_index(h, &own, reason);
    if (own.code == TD_RESOURCE_EXHAUSTED && own.pos != TD_ERROR_POS_NONE) /* td_h5_read's bound */
        *reason = "chunked, with more chunks or a longer index than are read of one file";
    else
        return td_error_set(outer, own.code, "%s", own.message);
    return true;
}

/* Copies the shapes of the grid to the arena, because the messages end before the coding. */
static bool keep_shapes(struct td_h5 *h, const struct td_h5_chunked *layout, const struct td_tensor *tensor,
                        struct td_coding_grid *grid)
{
    uint64_t *chunk_shape = td_arena_array(&h->manifest->arena, layout->rank, sizeof *chunk_shape);
    if (chunk_shape == NULL)
        return td_h5_no_memory(h);
    memcpy(chunk_shape, layout->shape, layout->rank * sizeof *chunk_shape);
    grid->rank = layout->rank;
    grid->elem_bytes = layout->elem_bytes;
    grid->shape = tensor->shape;
    grid->chunk_shape = chunk_shape;
    return true;
}

static bool is_sound(const struct td_h5_chunked *layout, const struct td_h5_space *space,
                     const struct td_tensor *tensor)
{
    if (layout->rank != space->rank || layout->elem_bytes != tensor->dtype->block_bytes || layout->elem_bytes == 0)
        return false;
    for (uint32_t i = 0; i < layout->rank; i++)
        if (layout->shape[i] == 0 || (space->max_dims[i] != TD_H5_UNLIMITED && space->max_dims[i] < space->dims[i]))
            return false;
    return true;
}

bool td_h5_chunked_tensor(struct td_h5 *h, const struct td_h5_chunked *layout, const struct td_h5_space *space,
                          const struct td_h5_message *filters, const struct td_h5_message *fill, const char *text,
                          struct td_h5_chunk_list *list, struct td_tensor *tensor)
{
    struct td_coding_grid grid = {0};
    struct td_h5_chunk_reader r = {.h = h, .layout = layout, .space = space, .list = list};
    bool ok = true;
    tensor->offset = 0;
    if (filters != NULL && !read_filters(filters->body, &grid)) {
        tensor->reason = text; /* the text names the filters */
        return true;
    }
    if (tensor->nbytes == 0)
        return true;
    if (!is_sound(layout, space, tensor))
        tensor->reason = "chunked, but the chunks do not fit its shape or type";
    else if (!keep_shapes(h, layout, tensor, &grid))
        return false;
    else if (!read_fill(h, fill, &grid, &ok))
        tensor->reason = "chunked, with a fill value of another size";
    else if (!measure_chunk(&grid, &r.chunk_bytes))
        tensor->reason = "in filtered chunks of more than 64 MiB";
    else if (grid.filter_count > 0 && times_unpacked(&grid, r.chunk_bytes) > TIMES_MAX)
        tensor->reason = "in chunks that reading row by row would unpack too often";
    if (!ok || tensor->reason != NULL)
        return ok;
    r.filter_count = grid.filter_count;
    if (!read_index(&r, &grid, &tensor->reason))
        return false;
    struct td_coding *coding = tensor->reason == NULL ? td_manifest_add_coding(h->manifest) : NULL;
    if (coding == NULL)
        return tensor->reason != NULL || td_h5_no_memory(h);
    coding->kind = TD_CODING_CHUNKS;
    coding->text = text;
    coding->size_bytes = tensor->nbytes;
    coding->grid = grid;
    tensor->coding = coding;
    return true;
}
