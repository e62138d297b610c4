/* Three parts: layouts, composed blobs that read by them, and td_body_resolve, which replaces composed blobs in a body
 * by their sources.
 *
 * A layout has three arrays: blocks, the runs of all blocks, and `ends` (where each block ends in the virtual file), by
 * which a binary search finds the block of a byte. Within a block arithmetic finds the round, and a walk over the
 * block's runs finds the run. td_layout_append simplifies each block and joins it with the one before, so that a
 * checkpoint of many small tensors in a row becomes few blocks.
 *
 * What is hard: everything is checked for overflow once, in run_check, so readers may multiply freely. A source is
 * opened at most once while several threads read: `opening` serialises that, and readers load its blob atomically. */
#include "storage/composed.h"

#include "core/array.h"
#include "core/checked.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct td_layout *td_layout_create(struct td_budget *budget, struct td_error *err)
{
    struct td_layout *layout = NULL;
    if (!td_budget_take(budget, sizeof *layout)) {
        (void)td_budget_refuse(budget, sizeof *layout, err);
        return NULL;
    }
    layout = calloc(1, sizeof *layout);
    if (layout == NULL) {
        td_budget_give(budget, sizeof *layout);
        (void)td_error_no_memory(err);
        return NULL;
    }
    atomic_init(&layout->refs, 1);
    layout->budget = budget;
    return layout;
}

struct td_layout *td_layout_ref(struct td_layout *layout)
{
    atomic_fetch_add_explicit(&layout->refs, 1, memory_order_relaxed);
    return layout;
}

void td_layout_unref(struct td_layout *layout)
{
    if (layout == NULL || atomic_fetch_sub_explicit(&layout->refs, 1, memory_order_acq_rel) != 1)
        return;
    struct td_budget *budget = layout->budget;
    size_t bytes = td_layout_memory_bytes(layout);
    free(layout->runs);
    free(layout->blocks);
    free(layout->ends);
    free(layout);
    td_budget_give(budget, bytes);
}

bool td_layout_is_shared(const struct td_layout *layout)
{
    return atomic_load_explicit(&layout->refs, memory_order_acquire) > 1;
}

size_t td_layout_memory_bytes(const struct td_layout *layout)
{
    return sizeof *layout + layout->run_capacity * sizeof *layout->runs +
           layout->block_capacity * sizeof *layout->blocks + layout->end_capacity * sizeof *layout->ends;
}

static bool reserve_runs(struct td_layout *layout, size_t runs, struct td_error *err)
{
    size_t wanted;
    if (!td_add_size(layout->run_count, runs, &wanted))
        return td_error_no_memory(err);
    return td_array_reserve(&layout->runs, &layout->run_capacity, wanted, sizeof *layout->runs, layout->budget, err);
}

static bool reserve_block(struct td_layout *layout, struct td_error *err)
{
    size_t wanted = layout->block_count < 8 ? 8 : layout->block_count + 1;
    return td_array_reserve(&layout->blocks, &layout->block_capacity, wanted, sizeof *layout->blocks, layout->budget,
                            err) &&
           td_array_reserve(&layout->ends, &layout->end_capacity, wanted, sizeof *layout->ends, layout->budget, err);
}

/* Frees the unused room after `count` items of an array. Returns the array, unchanged when realloc fails or count is
 * 0. */
static void *fit_array(struct td_layout *layout, void *items, size_t count, size_t *capacity, size_t size)
{
    void *fitted = count == 0 ? NULL : realloc(items, count * size);
    if (fitted == NULL)
        return items;
    td_budget_give(layout->budget, (*capacity - count) * size);
    *capacity = count;
    return fitted;
}

void td_layout_fit(struct td_layout *layout)
{
    layout->runs = fit_array(layout, layout->runs, layout->run_count, &layout->run_capacity, sizeof *layout->runs);
    layout->blocks =
        fit_array(layout, layout->blocks, layout->block_count, &layout->block_capacity, sizeof *layout->blocks);
    layout->ends = fit_array(layout, layout->ends, layout->block_count, &layout->end_capacity, sizeof *layout->ends);
}

/* Joins pieces that touch into one, and sets the members that then have no meaning to 0. */
static void run_simplify(struct td_run *run, uint64_t rounds)
{
    bool zeros = run->source == TD_RUN_ZEROS;
    if (zeros || run->stride == run->len) {
        run->len *= run->count;
        run->count = 1;
    }
    if (zeros)
        run->off = 0;
    if (zeros || run->count == 1)
        run->stride = 0;
    if (zeros || rounds == 1)
        run->step = 0;
}

/* Returns whether no offset or size of the run overflows, in any of its forms. Sets *bytes to its bytes in one
 * round. */
static bool run_check(const struct td_run *run, uint64_t rounds, uint64_t *bytes)
{
    uint64_t pieces;
    uint64_t steps;
    uint64_t end;
    if (!td_mul_u64(run->len, run->count, bytes))
        return false;
    return run->source == TD_RUN_ZEROS || *bytes == 0 ||
           (td_mul_u64(run->count - 1, run->stride, &pieces) && td_mul_u64(rounds - 1, run->step, &steps) &&
            td_add_u64(run->off, pieces, &end) && td_add_u64(end, steps, &end) && td_add_u64(end, run->len, &end));
}

/* Turns the rounds of a block of one run into pieces of one round, where all pieces then have equal distances. */
static void fold_rounds(struct td_run *run, uint64_t *rounds)
{
    if (run->source == TD_RUN_ZEROS) {
        run->len *= *rounds;
    } else if (run->count == 1) {
        run->count = *rounds;
        run->stride = run->step;
    } else if (run->step / run->count == run->stride && run->step % run->count == 0) {
        run->count *= *rounds;
    } else {
        return;
    }
    *rounds = 1;
    run_simplify(run, 1);
}

/* Returns whether the block is one contiguous piece. */
static bool is_piece(const struct td_block *block, const struct td_run *run)
{
    return block->rounds == 1 && block->run_count == 1 && run->count == 1;
}

/* Extends the last block by the new one, where both are one piece and the new one continues the last. Returns whether
 * it did. */
static bool join_last(struct td_layout *layout, const struct td_block *block)
{
    if (layout->block_count == 0)
        return false;
    const struct td_block *last = &layout->blocks[layout->block_count - 1];
    struct td_run *before = &layout->runs[last->first_run];
    const struct td_run *run = &layout->runs[block->first_run];
    if (!is_piece(last, before) || !is_piece(block, run) || before->source != run->source ||
        (run->source != TD_RUN_ZEROS && before->off + before->len != run->off))
        return false;
    before->len += run->len;
    return true;
}

bool td_layout_append(struct td_layout *layout, uint64_t rounds, const struct td_run *runs, size_t run_count,
                      struct td_error *err)
{
    uint64_t bytes = 0;
    uint32_t sources = layout->source_count;
    struct td_block block = {.rounds = rounds, .first_run = layout->run_count};
    if (td_layout_memory_bytes(layout) > TD_LAYOUT_MAX_MEMORY_BYTES)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "a virtual file would consist of too many pieces; ask for less at once");
    if (!reserve_runs(layout, run_count, err) || !reserve_block(layout, err))
        return false;
    for (size_t i = 0; rounds > 0 && i < run_count; i++) {
        uint64_t here;
        if (!run_check(&runs[i], rounds, &here) || !td_add_u64(bytes, here, &bytes))
            goto too_large;
        if (here == 0)
            continue;
        struct td_run *run = &layout->runs[block.first_run + block.run_count++];
        *run = runs[i];
        run_simplify(run, rounds);
        if (run->source != TD_RUN_ZEROS && run->source >= sources)
            sources = run->source + 1;
    }
    if (block.run_count == 0)
        return true;
    if (!td_mul_u64(bytes, rounds, &bytes) || !td_add_u64(layout->total_bytes, bytes, &bytes))
        goto too_large;
    if (block.run_count == 1 && rounds > 1)
        fold_rounds(&layout->runs[block.first_run], &block.rounds);
    if (!join_last(layout, &block)) {
        layout->blocks[layout->block_count++] = block;
        layout->run_count += block.run_count;
    }
    layout->ends[layout->block_count - 1] = bytes;
    layout->total_bytes = bytes;
    layout->source_count = sources;
    return true;
too_large:
    return td_error_set(err, TD_INVALID_ARGUMENT, "a virtual file would have more than 2^64-1 bytes");
}

/* A source of a composed blob. */
struct opened {
    _Atomic(struct td_blob *) blob; /* NULL: not opened yet. Set after base */
    uint64_t base;
};

struct composed {
    struct td_blob blob;
    struct td_layout *layout;
    struct td_source_opener opener;
    pthread_mutex_t opening; /* held while a source is opened */
    struct opened sources[]; /* layout->source_count of them */
};

static struct composed *composed_of(struct td_blob *blob)
{
    return (struct composed *)(void *)blob;
}

static size_t composed_own_bytes(const struct td_layout *layout)
{
    return sizeof(struct composed) + layout->source_count * sizeof(struct opened);
}

/* Returns what the blob takes from the budget: its own memory and the sender's window. */
static size_t composed_held_bytes(const struct td_layout *layout)
{
    uint64_t all = layout->total_bytes;
    return composed_own_bytes(layout) + (all < TD_COMPOSED_WINDOW_BYTES ? (size_t)all : TD_COMPOSED_WINDOW_BYTES);
}

static void composed_destroy(struct td_blob *blob)
{
    struct composed *c = composed_of(blob);
    struct td_layout *layout = c->layout;
    for (uint32_t i = 0; i < c->layout->source_count; i++)
        td_blob_unref(atomic_load(&c->sources[i].blob));
    c->opener.close(c->opener.context);
    (void)pthread_mutex_destroy(&c->opening);
    free(c);
    td_budget_give(layout->budget, composed_held_bytes(layout));
    td_layout_unref(layout);
}

static bool composed_unchanged(struct td_blob *blob)
{
    struct composed *c = composed_of(blob);
    const struct td_blob *asked = NULL; /* neighbouring sources are mostly one file */
    for (uint32_t i = 0; i < c->layout->source_count; i++) {
        struct td_blob *source = atomic_load_explicit(&c->sources[i].blob, memory_order_acquire);
        if (source == NULL || source == asked)
            continue;
        if (!td_blob_unchanged(source))
            return false;
        asked = source;
    }
    return true;
}

/* Sets *blob (borrowed) and *base to those of a source; opens it first if need be. */
static bool open_source(struct composed *c, uint32_t number, struct td_blob **blob, uint64_t *base,
                        struct td_error *err)
{
    struct opened *source = &c->sources[number];
    *blob = atomic_load_explicit(&source->blob, memory_order_acquire);
    if (*blob == NULL) {
        pthread_mutex_lock(&c->opening);
        *blob = atomic_load_explicit(&source->blob, memory_order_relaxed);
        bool ok = *blob != NULL || c->opener.open(c->opener.context, number, blob, &source->base, err);
        if (ok)
            atomic_store_explicit(&source->blob, *blob, memory_order_release);
        pthread_mutex_unlock(&c->opening);
        if (!ok)
            return false;
    }
    *base = source->base;
    return true;
}

/* Sets *extent to the run's pieces in one round. The extent borrows its blob. */
static bool run_extent(struct composed *c, const struct td_run *run, uint64_t round, struct td_extent *extent,
                       struct td_error *err)
{
    uint64_t base;
    uint64_t last;
    *extent = (struct td_extent){.len = run->len, .count = run->count, .stride = run->stride};
    if (!open_source(c, run->source, &extent->blob, &base, err))
        return false;
    if (!td_add_u64(run->off + round * run->step, base, &extent->off) ||
        !td_add_u64(extent->off, (run->count - 1) * run->stride, &last) ||
        !td_range_within(last, run->len, extent->blob->len_bytes))
        return td_error_set(err, TD_INTERNAL, "a part of a virtual file leaves its source");
    return true;
}

static bool read_run(struct composed *c, const struct td_run *run, uint64_t round, uint64_t from, void *out, size_t len,
                     struct td_error *err)
{
    struct td_extent extent;
    if (run->source == TD_RUN_ZEROS) {
        memset(out, 0, len);
        return true;
    }
    if (!run_extent(c, run, round, &extent, err))
        return false;
    struct td_body body = {.extents = &extent, .extent_count = 1, .total_bytes = run->len * run->count};
    struct td_body_cursor cursor = {.run = from / run->len, .within = from % run->len};
    return td_body_read(&body, &cursor, out, len, err);
}

/* Copies bytes [from, from+len) of one round to out. */
static bool read_round(struct composed *c, const struct td_block *block, uint64_t round, uint64_t from, uint8_t *out,
                       size_t len, struct td_error *err)
{
    for (const struct td_run *run = &c->layout->runs[block->first_run]; len > 0; run++) {
        uint64_t bytes = run->len * run->count;
        if (from >= bytes) {
            from -= bytes;
            continue;
        }
        size_t n = bytes - from < len ? (size_t)(bytes - from) : len;
        if (!read_run(c, run, round, from, out, n, err))
            return false;
        out += n;
        len -= n;
        from = 0;
    }
    return true;
}

/* Returns the index of the block that the byte at off is in. */
static size_t find_block(const struct td_layout *layout, uint64_t off)
{
    size_t low = 0;
    size_t high = layout->block_count - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (layout->ends[middle] > off)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static uint64_t block_start(const struct td_layout *layout, size_t i)
{
    return i == 0 ? 0 : layout->ends[i - 1];
}

static bool composed_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct composed *c = composed_of(blob);
    const struct td_layout *layout = c->layout;
    uint8_t *to = out;
    for (size_t i = find_block(layout, off); len > 0; i++) {
        uint64_t start = block_start(layout, i);
        uint64_t round_bytes = (layout->ends[i] - start) / layout->blocks[i].rounds;
        while (len > 0 && off < layout->ends[i]) {
            uint64_t from = (off - start) % round_bytes;
            size_t n = round_bytes - from < len ? (size_t)(round_bytes - from) : len;
            if (!read_round(c, &layout->blocks[i], (off - start) / round_bytes, from, to, n, err))
                return false;
            to += n;
            off += n;
            len -= n;
        }
    }
    return true;
}

/* Prepares the first block whose source can be damaged. Skips a block that begins before off, because a reader may not
 * read its beginning. */
static bool composed_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    struct composed *c = composed_of(blob);
    const struct td_layout *layout = c->layout;
    size_t first = find_block(layout, off);
    for (size_t i = first; i < layout->block_count && i - first < TD_PREPARE_LOOKAHEAD; i++) {
        struct td_extent extent;
        const struct td_run *run = &layout->runs[layout->blocks[i].first_run];
        uint64_t start = block_start(layout, i);
        if (start < off || run->source == TD_RUN_ZEROS)
            continue;
        if (start - off >= len)
            return true;
        if (!run_extent(c, run, 0, &extent, err))
            return false;
        if (extent.blob->class->prepare != NULL)
            return td_blob_prepare(extent.blob, extent.off, extent.len, for_head, err);
    }
    return true;
}

static const struct td_blob_class composed_class = {
    .destroy = composed_destroy, .read = composed_read, .unchanged = composed_unchanged, .prepare = composed_prepare};

bool td_blob_composed(struct td_layout *layout, const struct td_source_opener *opener, struct td_blob **out,
                      struct td_error *err)
{
    size_t bytes = composed_held_bytes(layout);
    if (!td_budget_take(layout->budget, bytes)) {
        opener->close(opener->context);
        return td_budget_refuse(layout->budget, bytes, err);
    }
    struct composed *c = calloc(1, composed_own_bytes(layout));
    if (c == NULL || pthread_mutex_init(&c->opening, NULL) != 0) {
        free(c);
        td_budget_give(layout->budget, bytes);
        opener->close(opener->context);
        return td_error_no_memory(err);
    }
    td_blob_init(&c->blob, &composed_class, layout->total_bytes);
    c->layout = td_layout_ref(layout);
    c->opener = *opener;
    *out = &c->blob;
    return true;
}

static bool is_composed(const struct td_extent *extent)
{
    return extent->blob->class == &composed_class && extent->count == 1;
}

/* A body that is being resolved. */
struct resolver {
    struct td_body out;
    struct td_blob *zeros; /* NULL until it is needed */
    size_t blocks;         /* counted against TD_RESOLVE_BLOCKS */
};

/* Appends len zeros: runs over one blob of ZEROS_BYTES zeros. */
static bool append_zeros(struct resolver *resolver, uint64_t len, struct td_error *err)
{
    enum { ZEROS_BYTES = 64 * 1024 };
    if (resolver->zeros == NULL) {
        char *zeros = calloc(1, ZEROS_BYTES);
        if (zeros == NULL)
            return td_error_no_memory(err);
        if (!td_blob_from_heap(zeros, ZEROS_BYTES, &resolver->zeros, err))
            return false;
    }
    return td_body_append_runs(&resolver->out, resolver->zeros, 0, ZEROS_BYTES, len / ZEROS_BYTES, 0, err) &&
           td_body_append(&resolver->out, resolver->zeros, 0, len % ZEROS_BYTES, err);
}

/* Appends bytes [off, off+len) of the composed blob; all of them are in block i. */
static bool resolve_block(struct resolver *resolver, struct composed *c, size_t i, uint64_t off, uint64_t len,
                          struct td_error *err)
{
    struct td_extent extent;
    const struct td_block *block = &c->layout->blocks[i];
    const struct td_run *run = &c->layout->runs[block->first_run];
    if (block->rounds > 1 || block->run_count > 1)
        return td_body_append(&resolver->out, &c->blob, off, len, err);
    if (run->source == TD_RUN_ZEROS)
        return append_zeros(resolver, len, err);
    if (!run_extent(c, run, 0, &extent, err))
        return false;
    struct td_body whole = {.extents = &extent, .extent_count = 1, .total_bytes = run->len * run->count};
    return td_body_cut(&whole, off - block_start(c->layout, i), len, &resolver->out, err);
}

static bool resolve_extent(struct resolver *resolver, const struct td_extent *extent, struct td_error *err)
{
    uint64_t off = extent->off;
    uint64_t left = extent->len;
    if (!is_composed(extent))
        return td_body_append_runs(&resolver->out, extent->blob, off, left, extent->count, extent->stride, err);
    struct composed *c = composed_of(extent->blob);
    size_t first = find_block(c->layout, off);
    size_t blocks = find_block(c->layout, off + left - 1) - first + 1;
    if (blocks > TD_RESOLVE_BLOCKS - resolver->blocks)
        return td_body_append(&resolver->out, extent->blob, off, left, err);
    resolver->blocks += blocks;
    for (size_t i = first; left > 0; i++) {
        uint64_t rest = c->layout->ends[i] - off;
        uint64_t len = rest < left ? rest : left;
        if (!resolve_block(resolver, c, i, off, len, err))
            return false;
        off += len;
        left -= len;
    }
    return true;
}

/* Joins extents of one run that touch and are of the same blob. */
static void join_neighbours(struct td_body *body)
{
    size_t kept = 0;
    for (size_t i = 0; i < body->extent_count; i++) {
        struct td_extent *last = kept > 0 ? &body->extents[kept - 1] : NULL;
        struct td_extent next = body->extents[i];
        if (last != NULL && last->blob == next.blob && last->count == 1 && next.count == 1 &&
            last->off + last->len == next.off) {
            last->len += next.len;
            td_blob_unref(next.blob);
        } else {
            body->extents[kept++] = next;
        }
    }
    body->extent_count = kept;
}

bool td_body_resolve(struct td_body *body, struct td_error *err)
{
    struct resolver resolver = {.zeros = NULL};
    bool ok = true;
    bool any = false;
    for (size_t i = 0; i < body->extent_count; i++)
        any = any || is_composed(&body->extents[i]);
    if (!any)
        return true;
    td_body_init(&resolver.out);
    for (size_t i = 0; ok && i < body->extent_count; i++)
        ok = resolve_extent(&resolver, &body->extents[i], err);
    td_blob_unref(resolver.zeros);
    if (!ok) {
        td_body_fini(&resolver.out);
        return false;
    }
    join_neighbours(&resolver.out);
    td_body_fini(body);
    *body = resolver.out;
    return true;
}
