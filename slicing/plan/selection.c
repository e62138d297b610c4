/* Parsing: a text is split at commas; an ellipsis stands for the dimensions that the other items leave. Numbers of any
 * length are read, and clipped to 2^64-1, as NumPy clips. Boxes: dimensions are added from the last to the first; while
 * they are selected whole, they extend the run, then they become levels, and a level that continues the one before is
 * merged with it (add_dimension). */
#include "slicing/plan/selection.h"

#include "core/checked.h"
#include "core/digits.h"
#include "core/text.h"

#include <inttypes.h>
#include <string.h>

enum { SHOWN_BYTES = 60 }; /* most bytes of a client's text in a message */

void td_selection_all(uint32_t rank, const uint64_t *shape, struct td_selection *out)
{
    out->rank = rank;
    out->dropped = 0;
    for (uint32_t i = 0; i < rank; i++) {
        out->starts[i] = 0;
        out->sizes[i] = shape[i];
    }
}

struct number {
    bool negative;
    uint64_t magnitude; /* 2^64-1 also stands for larger numbers */
};

/* Takes a number from the front of the text. Returns false, with the text unchanged, when it does not begin with a
 * number. */
static bool take_number(struct td_text *text, bool may_be_negative, struct number *out)
{
    struct td_text rest = *text;
    bool minus = may_be_negative && td_text_take_char(&rest, '-');
    uint64_t magnitude;
    if (td_digits_take(&rest, &magnitude, NULL) == 0)
        return false;
    *out = (struct number){.negative = minus && magnitude > 0, .magnitude = magnitude};
    *text = rest;
    return true;
}

/* Returns the place of a start or a stop, clipped to the dimension. */
static uint64_t clip(const struct number *number, uint64_t size)
{
    uint64_t within = number->magnitude < size ? number->magnitude : size;
    return number->negative ? size - within : within;
}

/* Computes the index that an integer means, and returns whether the dimension has it. */
static bool index_of(const struct number *number, uint64_t size, uint64_t *index)
{
    *index = number->negative ? size - number->magnitude : number->magnitude;
    return number->negative ? number->magnitude <= size : number->magnitude < size;
}

static bool refuse_item(struct td_text item, uint32_t dim, uint64_t size, const char *why, struct td_error *err)
{
    return td_error_set(err, TD_INVALID_ARGUMENT, "slice: \"%.*s\" for dimension %" PRIu32 " of size %" PRIu64 " %s",
                        TD_SHOW(item, SHOWN_BYTES), dim, size, why);
}

static bool read_integer(struct td_text item, uint32_t dim, uint64_t size, struct td_selection *out,
                         struct td_error *err)
{
    struct number number;
    struct td_text rest = item;
    if (!take_number(&rest, true, &number) || rest.len > 0)
        return refuse_item(item, dim, size, "is not an index, start:stop or ...", err);
    if (!index_of(&number, size, &out->starts[dim]))
        return refuse_item(item, dim, size, "is out of range", err);
    out->sizes[dim] = 1;
    out->dropped |= UINT64_C(1) << dim;
    return true;
}

static bool read_item(struct td_text item, uint32_t dim, uint64_t size, struct td_selection *out, struct td_error *err)
{
    struct td_text rest = item;
    struct number number;
    uint64_t start = 0;
    uint64_t stop = size;
    if (memchr(item.p, ':', item.len) == NULL)
        return read_integer(item, dim, size, out, err);
    if (take_number(&rest, true, &number))
        start = clip(&number, size);
    bool ok = td_text_take_char(&rest, ':');
    if (ok && take_number(&rest, true, &number))
        stop = clip(&number, size);
    if (ok && rest.len > 0 && rest.p[0] == ':')
        return refuse_item(item, dim, size, "has a step; only start:stop is supported", err);
    if (!ok || rest.len > 0)
        return refuse_item(item, dim, size, "is not an index, start:stop or ...", err);
    out->starts[dim] = start;
    out->sizes[dim] = stop > start ? stop - start : 0;
    return true;
}

/* Takes the text up to the next comma, and the comma, from the front. Returns the text without the comma. */
static struct td_text next_item(struct td_text *text)
{
    const char *comma = memchr(text->p, ',', text->len);
    struct td_text item = {text->p, comma == NULL ? text->len : (size_t)(comma - text->p)};
    size_t past = item.len + (comma == NULL ? 0 : 1);
    text->p += past;
    text->len -= past;
    return item;
}

static bool is_ellipsis(struct td_text item)
{
    return item.len == 3 && memcmp(item.p, "...", 3) == 0;
}

static void count_items(struct td_text text, size_t *items, size_t *ellipses)
{
    *items = 1;
    *ellipses = 0;
    for (size_t i = 0; i < text.len; i++)
        *items += text.p[i] == ',';
    for (size_t i = 0; i < *items; i++)
        *ellipses += is_ellipsis(next_item(&text));
}

bool td_slice_parse(struct td_text text, uint32_t rank, const uint64_t *shape, struct td_selection *out,
                    struct td_error *err)
{
    struct td_text whole = {text.p, text.len};
    struct td_text left = whole;
    size_t items;
    size_t ellipses;
    if (text.len == 0)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "slice: is empty; it needs an item per dimension, such as 0:128,:");
    count_items(whole, &items, &ellipses);
    if (ellipses > 1)
        return td_error_set(err, TD_INVALID_ARGUMENT, "slice: \"%.*s\" has %zu ellipses; one is allowed",
                            TD_SHOW(whole, SHOWN_BYTES), ellipses);
    if (items - ellipses > rank)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "slice: \"%.*s\" has %zu items; the tensor has %" PRIu32 " dimensions",
                            TD_SHOW(whole, SHOWN_BYTES), items - ellipses, rank);
    td_selection_all(rank, shape, out);
    uint32_t dim = 0;
    for (size_t i = 0; i < items; i++) {
        struct td_text item = next_item(&left);
        if (is_ellipsis(item)) {
            dim += rank - (uint32_t)(items - 1);
            continue;
        }
        if (!read_item(item, dim, shape[dim], out, err))
            return false;
        dim++;
    }
    return true;
}

/* Replaces a dimension by its piece `chunk` of `count`, as torch.chunk has it: pieces of ceil(size / count), the last
 * ones less or nothing. */
static void take_chunk(uint64_t chunk, uint64_t count, uint64_t *start, uint64_t *size)
{
    uint64_t each = *size / count + (*size % count != 0);
    uint64_t from;
    if (!td_mul_u64(chunk, each, &from) || from > *size)
        from = *size;
    uint64_t left = *size - from;
    *start = from;
    *size = left < each ? left : each;
}

bool td_shard_parse(struct td_text text, uint32_t rank, const uint64_t *shape, struct td_selection *out,
                    struct td_error *err)
{
    struct td_text whole = {text.p, text.len};
    struct td_text rest = whole;
    struct number dim;
    struct number chunk;
    struct number count;
    if (!take_number(&rest, true, &dim) || !td_text_take_char(&rest, ':') || !take_number(&rest, false, &chunk) ||
        !td_text_take_char(&rest, '/') || !take_number(&rest, false, &count) || rest.len > 0)
        return td_error_set(err, TD_INVALID_ARGUMENT, "shard: \"%.*s\" is not of the form DIM:RANK/SIZE, such as 0:1/8",
                            TD_SHOW(whole, SHOWN_BYTES));
    uint64_t index;
    if (!index_of(&dim, rank, &index))
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "shard: \"%.*s\" names a dimension that the tensor lacks; it has %" PRIu32,
                            TD_SHOW(whole, SHOWN_BYTES), rank);
    if (chunk.magnitude >= count.magnitude)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "shard: \"%.*s\" for dimension %" PRIu64 " of size %" PRIu64 ": RANK has to be below SIZE",
                            TD_SHOW(whole, SHOWN_BYTES), index, shape[index]);
    td_selection_all(rank, shape, out);
    take_chunk(chunk.magnitude, count.magnitude, &out->starts[index], &out->sizes[index]);
    return true;
}

uint32_t td_selection_shape(const struct td_selection *selection, uint64_t *shape)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < selection->rank; i++)
        if ((selection->dropped >> i & 1) == 0)
            shape[rank++] = selection->sizes[i];
    return rank;
}

/* Adds dimension `dim`, whose indices are `step` elements apart, to the box of the dimensions after it. Returns false
 * when a number is past 2^64-1. */
static bool add_dimension(const struct td_selection *selection, const uint64_t *shape, uint32_t dim, uint64_t step,
                          bool *contiguous, struct td_box *box)
{
    uint64_t size = selection->sizes[dim];
    uint64_t off;
    if (!td_mul_u64(selection->starts[dim], step, &off) || !td_add_u64(box->off, off, &box->off))
        return false;
    if (*contiguous) {
        *contiguous = size == shape[dim];
        return td_mul_u64(box->len, size, &box->len);
    }
    if (size == 1)
        return true;
    struct td_box_level *inner = box->level_count > 0 ? &box->levels[box->level_count - 1] : NULL;
    uint64_t reach;
    if (inner != NULL && td_mul_u64(inner->count, inner->stride, &reach) && reach == step)
        return td_mul_u64(inner->count, size, &inner->count);
    box->levels[box->level_count++] = (struct td_box_level){.count = size, .stride = step};
    return true;
}

bool td_selection_box(const struct td_selection *selection, const uint64_t *shape, struct td_box *box)
{
    bool contiguous = true;
    uint64_t step = 1;
    *box = (struct td_box){.len = 1};
    for (uint32_t i = 0; i < selection->rank; i++)
        if (selection->sizes[i] == 0) {
            box->len = 0;
            return true;
        }
    for (uint32_t i = selection->rank; i-- > 0;)
        if (!add_dimension(selection, shape, i, step, &contiguous, box) || !td_mul_u64(step, shape[i], &step))
            return false;
    return true;
}

/* Returns whether every run begins and ends between two blocks. */
static bool between_blocks(const struct td_box *box, uint64_t block_elems)
{
    bool between = box->off % block_elems == 0 && box->len % block_elems == 0;
    for (uint32_t i = 0; i < box->level_count; i++)
        between = between && box->levels[i].stride % block_elems == 0;
    return between;
}

bool td_selection_nbytes(const struct td_selection *selection, const uint64_t *shape, const struct td_dtype *dtype,
                         uint64_t *nbytes, struct td_error *err)
{
    struct td_box box;
    if (!td_selection_box(selection, shape, &box))
        return td_error_set(err, TD_INVALID_ARGUMENT, "the shape has more than 2^64-1 elements");
    if (!between_blocks(&box, dtype->block_elems))
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "%s stores blocks of %u elements; the slice begins or ends within one", dtype->name,
                            (unsigned)dtype->block_elems);
    uint64_t elems = box.len;
    bool fits = true;
    for (uint32_t i = 0; i < box.level_count; i++)
        fits = fits && td_mul_u64(elems, box.levels[i].count, &elems);
    if (!fits || !td_dtype_nbytes(dtype, elems, nbytes))
        return td_error_set(err, TD_INVALID_ARGUMENT, "the slice has more than 2^64-1 bytes");
    return true;
}
