/* Compares slices and plans with a naive loop over elements. The first byte says what the rest of the input is: the
 * text of a slice or of a shard, the numbers of a box, the pieces of a plan, or the runs of a layout, which may be any
 * numbers. */
#include "slicing/runs.h"

#include "storage/body.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

enum { MOST_TENSORS = 3, MOST_RANK = 6, MOST_ELEMS = 8192, MOST_BYTES = 1 << 17, MOST_PIECES = 12, RANGES = 4 };

struct stream {
    const uint8_t *p;
    size_t len;
};

static uint8_t next(struct stream *in)
{
    if (in->len == 0)
        return 0;
    in->len--;
    return *in->p++;
}

static uint64_t below(struct stream *in, uint64_t bound)
{
    return next(in) % bound;
}

static size_t place(struct stream *in, size_t bound)
{
    size_t high = next(in);
    return (high << 8 | next(in)) % bound;
}

/* Returns a number: the next byte, or from 240 on the next eight bytes. */
static uint64_t any_number(struct stream *in)
{
    uint64_t small = next(in);
    uint64_t large = 0;
    if (small < 240)
        return small;
    for (size_t i = 0; i < 8; i++)
        large |= (uint64_t)next(in) << 8 * i;
    return large;
}

/* The sources. Source i is tensor i after `i` other bytes. */
struct world {
    struct td_tensor tensors[MOST_TENSORS];
    uint64_t shapes[MOST_TENSORS][TD_MAX_RANK];
    struct td_blob *blobs[MOST_TENSORS];
    uint32_t count;
    int opened, closed;
    uint8_t wanted[MOST_BYTES];
    size_t len;
    bool splits; /* a run begins or ends within a block */
};

static struct world world;

static const struct td_tensor *world_get(const void *context, size_t i)
{
    (void)context;
    FUZZ_CHECK(i < world.count);
    return &world.tensors[i];
}

static bool world_open(void *context, uint32_t source, struct td_blob **blob, uint64_t *base, struct td_error *err)
{
    (void)context;
    (void)err;
    FUZZ_CHECK(source < world.count);
    world.opened++;
    *blob = td_blob_ref(world.blobs[source]);
    *base = source;
    return true;
}

static void world_close(void *context)
{
    (void)context;
    world.closed++;
}

static uint64_t elems_of(const struct td_tensor *tensor)
{
    uint64_t elems = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        elems *= tensor->shape[i];
    return elems;
}

static void add_blob(uint64_t len)
{
    uint32_t i = world.count;
    char *bytes = malloc((size_t)len + i + 1);
    FUZZ_CHECK(bytes != NULL);
    for (size_t k = 0; k < len + i; k++)
        bytes[k] = (char)(k * 37 + (k >> 8) * 11 + i * 101 + 1);
    FUZZ_CHECK(td_blob_from_heap(bytes, (size_t)len + i, &world.blobs[i], NULL));
    world.count++;
}

/* Adds a tensor. Returns false when the elements do not fill whole blocks, or are too many to compare. */
static bool add_tensor(const struct td_dtype *dtype, uint32_t rank, const uint64_t *shape)
{
    struct td_tensor *tensor = &world.tensors[world.count];
    memcpy(world.shapes[world.count], shape, rank * sizeof *shape);
    *tensor = (struct td_tensor){
        .name = "t", .name_len = 1, .rank = rank, .dtype = dtype, .shape = world.shapes[world.count]};
    uint64_t elems = elems_of(tensor);
    if (elems > MOST_ELEMS || !td_dtype_nbytes(dtype, elems, &tensor->nbytes) || tensor->nbytes > MOST_BYTES)
        return false;
    add_blob(tensor->nbytes);
    return true;
}

static void world_begin(void)
{
    world.count = 0;
    world.opened = world.closed = 0;
    world.len = 0;
    world.splits = false;
}

static void world_end(void)
{
    for (uint32_t i = 0; i < world.count; i++) {
        FUZZ_CHECK(atomic_load(&world.blobs[i]->refs) == 1);
        td_blob_unref(world.blobs[i]);
    }
}

static const struct td_dtype *pick_dtype(struct stream *in)
{
    static const char *const names[] = {"U8", "BF16", "F32", "C128", "F4", "Q8_0", "Q4_K", "F6_E2M3", "F6_E3M2", "F64"};
    const char *name = names[next(in) % (sizeof names / sizeof *names)];
    return td_dtype_find(td_text_of(name));
}

/* Appends elements [from, from + count) of a tensor to the wanted bytes. */
static void want_elems(uint32_t tensor, uint64_t from, uint64_t count)
{
    const struct td_dtype *dtype = world.tensors[tensor].dtype;
    uint64_t block = dtype->block_elems;
    world.splits = world.splits || (count > 0 && (from % block != 0 || count % block != 0));
    for (uint64_t e = from; e < from + count && !world.splits; e++) {
        if (e % block != 0)
            continue;
        FUZZ_CHECK(world.len + dtype->block_bytes <= MOST_BYTES);
        memcpy(world.wanted + world.len, world.blobs[tensor]->bytes + tensor + e / block * dtype->block_bytes,
               dtype->block_bytes);
        world.len += dtype->block_bytes;
    }
}

static void want_zeros(const struct td_dtype *dtype, uint64_t count)
{
    world.splits = world.splits || count % dtype->block_elems != 0;
    if (world.splits)
        return;
    size_t bytes = (size_t)(count / dtype->block_elems * dtype->block_bytes);
    FUZZ_CHECK(bytes <= MOST_BYTES - world.len);
    memset(world.wanted + world.len, 0, bytes);
    world.len += bytes;
}

/* Appends a box to the wanted bytes, element by element; contiguous elements are appended together. */
static void want_box(uint32_t tensor, const struct td_selection *selection)
{
    const struct td_tensor *t = &world.tensors[tensor];
    uint64_t index[TD_MAX_RANK] = {0};
    uint64_t count = 1;
    uint64_t first = 0;
    uint64_t run = 0;
    for (uint32_t i = 0; i < t->rank; i++)
        count *= selection->sizes[i];
    for (uint64_t n = 0; n < count; n++) {
        uint64_t at = 0;
        for (uint32_t i = 0; i < t->rank; i++)
            at = at * t->shape[i] + selection->starts[i] + index[i];
        if (run > 0 && at != first + run) {
            want_elems(tensor, first, run);
            run = 0;
        }
        if (run++ == 0)
            first = at;
        for (uint32_t i = t->rank; i-- > 0 && ++index[i] == selection->sizes[i];)
            index[i] = 0;
    }
    want_elems(tensor, first, run);
}

static void check_bytes(const struct td_body *body, size_t off)
{
    struct td_body_cursor cursor = {0};
    static uint8_t got[MOST_BYTES];
    size_t len = (size_t)body->total_bytes;
    size_t half = len / 3;
    FUZZ_CHECK(td_body_read(body, &cursor, got, half, NULL) &&
               td_body_read(body, &cursor, got + half, len - half, NULL));
    FUZZ_CHECK(memcmp(got, world.wanted + off, len) == 0);
}

/* Checks a range, cut out before the extents are resolved, and after. */
static void check_range(struct td_blob *blob, size_t off, size_t len)
{
    struct td_body body;
    struct td_body cut;
    td_body_init(&body);
    FUZZ_CHECK(td_body_append(&body, blob, off, len, NULL));
    check_bytes(&body, off);
    FUZZ_CHECK(td_body_resolve(&body, NULL) && body.total_bytes == len);
    check_bytes(&body, off);
    td_body_fini(&body);
    td_body_init(&body);
    td_body_init(&cut);
    FUZZ_CHECK(td_body_append(&body, blob, 0, world.len, NULL) && td_body_resolve(&body, NULL));
    FUZZ_CHECK(td_body_cut(&body, off, len, &cut, NULL) && cut.total_bytes == len);
    check_bytes(&cut, off);
    FUZZ_CHECK(td_body_resolve(&cut, NULL));
    check_bytes(&cut, off);
    td_body_fini(&body);
    td_body_fini(&cut);
}

/* Checks that the whole layout and some ranges of it give the wanted bytes. */
static void check_layout(struct td_layout *layout, struct stream *in)
{
    struct td_blob *blob;
    const struct td_source_opener opener = {NULL, world_open, world_close};
    FUZZ_CHECK(layout->total_bytes == world.len);
    FUZZ_CHECK(td_blob_composed(layout, &opener, &blob, NULL) && blob->len_bytes == world.len);
    check_range(blob, 0, world.len);
    for (int i = 0; i < RANGES; i++) {
        size_t off = place(in, world.len + 1);
        size_t len = place(in, world.len - off + 1);
        check_range(blob, off, len);
    }
    FUZZ_CHECK(td_blob_unchanged(blob) && world.closed == 0);
    td_blob_unref(blob);
    FUZZ_CHECK(world.closed == 1 && world.opened <= (int)world.count);
}

static struct td_layout *new_layout(void)
{
    struct td_layout *layout = td_layout_create(NULL, NULL);
    FUZZ_CHECK(layout != NULL);
    return layout;
}

/* Checks a selection of a tensor that fits into memory. */
static void check_selection(const struct td_dtype *dtype, uint32_t rank, const uint64_t *shape,
                            const struct td_selection *selection, struct stream *in)
{
    struct td_error err = TD_ERROR_INIT;
    uint64_t nbytes = 0;
    if (!add_tensor(dtype, rank, shape))
        return;
    struct td_layout *layout = new_layout();
    want_box(0, selection);
    bool fits = td_selection_nbytes(selection, shape, dtype, &nbytes, &err);
    FUZZ_CHECK(fits != world.splits);
    FUZZ_CHECK(td_layout_append_selection(layout, 0, &world.tensors[0], selection, NULL) == fits);
    if (fits) {
        FUZZ_CHECK(nbytes == world.len);
        check_layout(layout, in);
    } else {
        fuzz_check_refusal(&err, UINT64_MAX);
    }
    td_layout_unref(layout);
}

/* Parses a text for any shape. The selection must be within the shape. */
static void fuzz_text(struct stream *in, bool slice)
{
    uint64_t shape[TD_MAX_RANK];
    struct td_selection selection;
    struct td_error err = TD_ERROR_INIT;
    const struct td_dtype *dtype = pick_dtype(in);
    uint32_t rank = (uint32_t)below(in, MOST_RANK + 1);
    uint64_t elems = 1;
    bool vast = false;
    for (uint32_t i = 0; i < rank; i++) {
        shape[i] = any_number(in);
        vast = vast || __builtin_mul_overflow(elems, shape[i], &elems);
    }
    bool ok = (slice ? td_slice_parse : td_shard_parse)(td_text_n((const char *)in->p, in->len), rank, shape,
                                                        &selection, &err);
    if (!ok) {
        FUZZ_CHECK(err.code == TD_INVALID_ARGUMENT);
        fuzz_check_refusal(&err, UINT64_MAX);
        return;
    }
    FUZZ_CHECK(selection.rank == rank);
    for (uint32_t i = 0; i < rank; i++) {
        FUZZ_CHECK(selection.starts[i] <= shape[i] && selection.sizes[i] <= shape[i] - selection.starts[i]);
        FUZZ_CHECK((selection.dropped >> i & 1) == 0 || (slice && selection.sizes[i] == 1));
    }
    uint64_t nbytes;
    (void)td_selection_nbytes(&selection, shape, dtype, &nbytes, NULL);
    if (!vast && elems <= MOST_ELEMS)
        check_selection(dtype, rank, shape, &selection, in);
}

static void fuzz_box(struct stream *in)
{
    uint64_t shape[TD_MAX_RANK];
    const struct td_dtype *dtype = pick_dtype(in);
    uint32_t rank = (uint32_t)below(in, MOST_RANK + 1);
    struct td_selection selection = {.rank = rank};
    for (uint32_t i = 0; i < rank; i++) {
        shape[i] = below(in, 9);
        if (i + 1 == rank && dtype->block_elems > 4)
            shape[i] *= dtype->block_elems;
        selection.starts[i] = below(in, shape[i] + 1);
        selection.sizes[i] = below(in, shape[i] - selection.starts[i] + 1);
        if (i + 1 == rank && dtype->block_elems > 4 && (next(in) & 3) != 0) {
            selection.starts[i] -= selection.starts[i] % dtype->block_elems;
            selection.sizes[i] -= selection.sizes[i] % dtype->block_elems;
        }
    }
    check_selection(dtype, rank, shape, &selection, in);
}

/* Returns a piece that is within its source. */
static struct td_plan_piece pick_piece(struct stream *in, uint32_t axis)
{
    struct td_plan_piece piece = {.tensor = TD_PIECE_ZEROS, .count = 1};
    if (next(in) % 5 == 0) {
        piece.size = below(in, 5);
        return piece;
    }
    piece.tensor = (uint32_t)below(in, world.count);
    const struct td_tensor *tensor = &world.tensors[piece.tensor];
    uint64_t size = tensor->rank > 0 ? tensor->shape[axis] : 1;
    piece.start = below(in, size + 1);
    piece.size = below(in, size - piece.start + 1);
    if ((next(in) & 1) != 0 && piece.start + piece.size < size) {
        piece.count = 2 + below(in, 2);
        piece.stride = below(in, (size - piece.start - piece.size) / (piece.count - 1) + 1);
    }
    return piece;
}

/* Appends one row of a piece to the wanted bytes, box by box. */
static void want_row(const struct td_plan_piece *piece, const struct td_dtype *dtype, uint64_t row, uint64_t inner,
                     uint32_t axis)
{
    if (piece->tensor == TD_PIECE_ZEROS) {
        want_zeros(dtype, piece->size * inner);
        return;
    }
    const struct td_tensor *tensor = &world.tensors[piece->tensor];
    uint64_t size = tensor->rank > 0 ? tensor->shape[axis] : 1;
    for (uint64_t i = 0; i < piece->count; i++)
        want_elems(piece->tensor, (row * size + piece->start + i * piece->stride) * inner, piece->size * inner);
}

/* Computes the wanted bytes of the plan. Returns false when they are too many or not whole blocks. */
static bool want_plan(const struct td_plan_piece *pieces, size_t count, uint64_t cells, uint32_t axis)
{
    const struct td_tensor *first = &world.tensors[0];
    uint64_t outer = 1;
    uint64_t inner = 1;
    uint64_t elems = 0;
    bool all_zeros = true;
    for (uint32_t i = 0; i < first->rank; i++) {
        outer *= i < axis ? first->shape[i] : 1;
        inner *= i > axis ? first->shape[i] : 1;
    }
    for (size_t i = 0; i < count; i++) {
        elems += outer * inner * pieces[i].size * pieces[i].count;
        all_zeros = all_zeros && pieces[i].tensor == TD_PIECE_ZEROS;
    }
    if (elems > MOST_ELEMS)
        return false;
    if (all_zeros) { /* only the sum matters, and the plan must have it right */
        want_zeros(first->dtype, elems);
        return !world.splits;
    }
    size_t each = count / (size_t)cells;
    for (size_t cell = 0; cell < count; cell += each) {
        const struct td_plan_piece *p = &pieces[cell];
        if (each == 1 && p->tensor != TD_PIECE_ZEROS && p->count == 1) {
            struct td_selection box; /* one box is whole runs across rows */
            const struct td_tensor *tensor = &world.tensors[p->tensor];
            td_selection_all(tensor->rank, tensor->shape, &box);
            if (tensor->rank > 0) {
                box.starts[axis] = p->start;
                box.sizes[axis] = p->size;
            }
            want_box(p->tensor, &box);
            continue;
        }
        for (uint64_t row = 0; row < outer; row++)
            for (size_t i = 0; i < each; i++)
                want_row(&p[i], first->dtype, row, inner, axis);
    }
    return true;
}

static void check_plan(struct td_plan_piece *pieces, size_t count, uint64_t cells, uint32_t axis, struct stream *in)
{
    static const struct td_tensor_list none;
    struct td_tensor_list list = none;
    struct td_error err = TD_ERROR_INIT;
    uint64_t unused[1] = {0};
    struct td_plan plan = {.pieces = pieces, .piece_count = count};
    struct td_plan_output output = {"out", world.tensors[0].dtype, 0, unused, world.len, axis, cells, 0, count, false,
                                    0};
    list.count = world.count;
    list.get = world_get;
    struct td_layout *layout = new_layout();
    if (world.splits)
        output.nbytes = 1; /* wrong on purpose */
    bool ok = td_layout_append_output(layout, 0, &plan, &output, &list, &err);
    FUZZ_CHECK(ok == !world.splits);
    FUZZ_CHECK(ok || err.code == TD_FAILED_PRECONDITION || err.code == TD_INTERNAL);
    if (ok)
        check_layout(layout, in);
    td_layout_unref(layout);
}

static void fuzz_plan(struct stream *in)
{
    uint64_t shape[TD_MAX_RANK];
    struct td_plan_piece pieces[MOST_PIECES];
    const struct td_dtype *dtype = pick_dtype(in);
    uint32_t rank = (uint32_t)below(in, 5);
    uint32_t axis = rank > 0 ? (uint32_t)below(in, rank) : 0;
    uint32_t tensors = 1 + (uint32_t)below(in, MOST_TENSORS);
    for (uint32_t i = 0; i < rank; i++) {
        shape[i] = 1 + below(in, 5);
        if (i + 1 == rank && dtype->block_elems > 4)
            shape[i] *= dtype->block_elems;
    }
    for (uint32_t i = 0; i < tensors; i++) {
        if (rank > 0 && (axis + 1 < rank || dtype->block_elems <= 4))
            shape[axis] = below(in, 9);
        if (!add_tensor(dtype, rank, shape))
            return;
    }
    uint64_t cells = 1 + below(in, 3);
    size_t count = (size_t)cells * (1 + (size_t)below(in, MOST_PIECES / cells));
    for (size_t i = 0; i < count; i++)
        pieces[i] = pick_piece(in, axis);
    if (want_plan(pieces, count, cells, axis))
        check_plan(pieces, count, cells, axis, in);
}

/* Reads a layout of any numbers. Reading may fail, but must not leave a source. */
static void probe_layout(struct td_layout *layout, struct stream *in)
{
    static uint8_t got[1024];
    struct td_blob *blob;
    struct td_body body;
    struct td_error err = TD_ERROR_INIT;
    const struct td_source_opener opener = {NULL, world_open, world_close};
    uint64_t off = layout->total_bytes == 0 ? 0 : any_number(in) % layout->total_bytes;
    uint64_t left = layout->total_bytes - off;
    size_t len = left < sizeof got ? (size_t)left : sizeof got;
    FUZZ_CHECK(td_blob_composed(layout, &opener, &blob, NULL));
    FUZZ_CHECK(td_blob_read(blob, off, got, len, &err) || err.code == TD_INTERNAL);
    td_error_init(&err);
    td_body_init(&body);
    FUZZ_CHECK(td_body_append(&body, blob, off, left, NULL));
    FUZZ_CHECK(td_body_resolve(&body, &err) || err.code == TD_INTERNAL);
    FUZZ_CHECK(body.total_bytes == left);
    td_body_fini(&body);
    td_blob_unref(blob);
}

/* Appends the wanted bytes of a block. Returns false when they do not fit, or leave their source. */
static bool want_block(uint64_t rounds, const struct td_run *runs, size_t count)
{
    bool empty = true;
    for (size_t r = 0; r < count; r++)
        empty = empty && (runs[r].len == 0 || runs[r].count == 0);
    for (uint64_t round = 0; round < rounds && !empty; round++) {
        for (size_t r = 0; r < count; r++) {
            const struct td_run *run = &runs[r];
            for (uint64_t i = 0; i < run->count && run->len > 0; i++) {
                if (run->len > MOST_BYTES - world.len)
                    return false;
                if (run->source == TD_RUN_ZEROS) {
                    memset(world.wanted + world.len, 0, (size_t)run->len);
                } else {
                    const struct td_blob *blob = world.blobs[run->source];
                    unsigned __int128 at = (unsigned __int128)run->off + (unsigned __int128)round * run->step +
                                           (unsigned __int128)i * run->stride + run->source;
                    if (at + run->len > blob->len_bytes)
                        return false;
                    memcpy(world.wanted + world.len, blob->bytes + (uint64_t)at, (size_t)run->len);
                }
                world.len += (size_t)run->len;
            }
        }
    }
    return true;
}

/* Returns whether the numbers of a block stay within 2^64-1. The numbers may be larger than those of any plan; only the
 * sums are checked. */
static bool block_fits(uint64_t rounds, const struct td_run *runs, size_t count, uint64_t before)
{
    const unsigned __int128 most = UINT64_MAX;
    unsigned __int128 round_bytes = 0;
    for (size_t r = 0; r < count; r++) {
        const struct td_run *run = &runs[r];
        if (rounds == 0 || run->len == 0 || run->count == 0)
            continue;
        unsigned __int128 bytes = (unsigned __int128)run->len * run->count;
        unsigned __int128 pieces = (unsigned __int128)(run->count - 1) * run->stride;
        unsigned __int128 steps = (unsigned __int128)(rounds - 1) * run->step;
        if (bytes > most || (run->source != TD_RUN_ZEROS &&
                             (pieces > most || steps > most || pieces + steps + run->off + run->len > most)))
            return false;
        round_bytes += bytes;
        if (round_bytes > most)
            return false;
    }
    return round_bytes == 0 || (round_bytes <= most / rounds && round_bytes * rounds <= most - before);
}

static void fuzz_layout(struct stream *in)
{
    struct td_run runs[3];
    struct td_layout *layout = new_layout();
    uint64_t total = 0;
    bool readable = true;
    for (int i = 0; i < MOST_TENSORS; i++)
        add_blob(256);
    for (size_t blocks = (size_t)below(in, 7); blocks > 0; blocks--) {
        uint64_t rounds = (next(in) & 1) != 0 ? any_number(in) : 1;
        size_t count = (size_t)below(in, 4);
        for (size_t r = 0; r < count; r++) {
            uint32_t source = (uint32_t)below(in, MOST_TENSORS + 1);
            runs[r] = (struct td_run){.source = source < MOST_TENSORS ? source : TD_RUN_ZEROS,
                                      .off = any_number(in),
                                      .len = any_number(in),
                                      .count = any_number(in),
                                      .stride = any_number(in),
                                      .step = any_number(in)};
        }
        bool ok = td_layout_append(layout, rounds, runs, count, NULL);
        FUZZ_CHECK(ok == block_fits(rounds, runs, count, total));
        readable = readable && ok && want_block(rounds, runs, count);
        total = layout->total_bytes;
        FUZZ_CHECK(layout->block_count == 0 || layout->ends[layout->block_count - 1] == total);
    }
    if (readable)
        check_layout(layout, in);
    probe_layout(layout, in);
    td_layout_unref(layout);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stream in = {data, size};
    world_begin();
    switch (next(&in) % 5) {
    case 0:
        fuzz_text(&in, true);
        break;
    case 1:
        fuzz_text(&in, false);
        break;
    case 2:
        fuzz_box(&in);
        break;
    case 3:
        fuzz_plan(&in);
        break;
    default:
        fuzz_layout(&in);
    }
    world_end();
    return 0;
}
