/* Fractal heaps and B-trees of version 2: the specification's III.G and III.A.2. A heap holds objects in direct blocks;
 * indirect blocks, the rows of a doubling table, name these. The heap is read whole before the B-tree, because the
 * tree's records are in the order of a hash and would read the heap back and forth.
 *
 * What is hard: widths of numbers follow from sizes in the headers (tree_widths, read_heap_header), so the sizes are
 * checked first for every overflow that they could cause (check_table). */
#include "parser/hdf5/hdf5_heap.h"

#include "core/checked.h"
#include "parser/hdf5/hdf5_object.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHECKSUM_BYTES = 4,
    HEAP_HEADER_BYTES_MAX = 22 + 12 * 8 + 3 * 8 + 4,
    TREE_HEADER_BYTES_MAX = 16 + 2 * 8 + 2 + 4,
    TREE_NODE_OVERHEAD_BYTES = 4 + 1 + 1 + CHECKSUM_BYTES,
    TREE_DEPTH_MAX = 16,
    HEAP_BITS_MAX = 64,
};

/* A direct block: the place of its bytes in the heap's numbering, and in memory. */
struct block {
    uint64_t heap_off;
    size_t len, off;
    uint64_t addr;
};

/* An indirect block that is still to be read. */
struct pending {
    uint64_t addr, heap_off;
    unsigned rows;
};

struct heap {
    struct td_h5 *h;
    uint64_t addr;
    unsigned flags, id_bytes, max_bits, width;
    uint64_t start_bytes, max_direct_bytes; /* block sizes, powers of two */
    unsigned max_object_bytes_width;        /* bytes of a length in an object's ID */
    struct td_h5_buffer bytes, node;
    size_t used_bytes;
    struct block *blocks; /* in the order of heap_off */
    size_t block_count, block_capacity;
    struct pending *pending;
    size_t pending_count, pending_capacity;
};

static unsigned log2_of(uint64_t x)
{
    return x == 0 ? 0 : 63 - (unsigned)__builtin_clzll(x);
}

/* Returns the bytes that a number up to `limit` takes. */
static unsigned width_of(uint64_t limit)
{
    return log2_of(limit) / 8 + 1;
}

static bool is_power_of_two(uint64_t x)
{
    return x != 0 && (x & (x - 1)) == 0;
}

static bool heap_fail(struct heap *heap, uint64_t addr, const char *what)
{
    return td_h5_fail(heap->h, addr, "fractal heap: %s", what);
}

static bool add_block(struct heap *heap, uint64_t addr, uint64_t heap_off, uint64_t len)
{
    enum { FLAG_CHECKSUM = 0x02 };
    static const char what[] = "fractal heap block";
    struct td_h5 *h = heap->h;
    unsigned off_bytes = (heap->max_bits + 7) / 8;
    size_t prefix = 4 + 1 + h->offset_bytes + off_bytes;
    if (!td_h5_grow(h, &heap->blocks, &heap->block_capacity, heap->block_count, sizeof *heap->blocks))
        return false;
    if (!td_h5_visit(h, addr, what) || !td_h5_load(h, &heap->bytes, heap->used_bytes, addr, len, what))
        return false;
    uint8_t *p = heap->bytes.p + heap->used_bytes;
    struct td_h5_cursor c = {.p = p, .left = (size_t)len, .addr = addr};
    if (!td_h5_signature(&c, "FHDB") || td_h5_u8(&c) != 0 || td_h5_number(&c, h->offset_bytes) != heap->addr ||
        td_h5_number(&c, off_bytes) != heap_off || c.bad || c.left < CHECKSUM_BYTES)
        return heap_fail(heap, addr, "a block does not belong to this heap");
    if ((heap->flags & FLAG_CHECKSUM) != 0) { /* computed over the whole block with 0 in its place */
        uint8_t stored[CHECKSUM_BYTES];
        memcpy(stored, p + prefix, sizeof stored);
        memset(p + prefix, 0, sizeof stored);
        if (!td_h5_check_sum(h, p, (size_t)len, td_load_le32(stored), addr, what))
            return false;
    }
    heap->blocks[heap->block_count++] =
        (struct block){.heap_off = heap_off, .len = (size_t)len, .off = heap->used_bytes, .addr = addr};
    heap->used_bytes += (size_t)len;
    return true;
}

static bool add_pending(struct heap *heap, uint64_t addr, uint64_t heap_off, unsigned rows)
{
    if (!td_h5_grow(heap->h, &heap->pending, &heap->pending_capacity, heap->pending_count, sizeof *heap->pending))
        return false;
    heap->pending[heap->pending_count++] = (struct pending){.addr = addr, .heap_off = heap_off, .rows = rows};
    return true;
}

/* Computes the block size in a row of the doubling table; the first two rows are equal. Returns false past 2^63. */
static bool row_bytes(const struct heap *heap, unsigned row, uint64_t *bytes)
{
    unsigned doublings = row == 0 ? 0 : row - 1;
    if (log2_of(heap->start_bytes) + doublings >= 63)
        return false;
    *bytes = heap->start_bytes << doublings;
    return true;
}

/* Reads one indirect block: loads its direct blocks, and puts its indirect blocks on the list. */
static bool read_indirect(struct heap *heap, const struct pending *from)
{
    static const char what[] = "fractal heap indirect block";
    struct td_h5 *h = heap->h;
    unsigned off_bytes = (heap->max_bits + 7) / 8;
    size_t prefix = 5 + h->offset_bytes + off_bytes;
    size_t len = prefix + (size_t)from->rows * heap->width * h->offset_bytes;
    if (!td_h5_visit(h, from->addr, what) || !td_h5_load(h, &heap->node, 0, from->addr, len + CHECKSUM_BYTES, what))
        return false;
    struct td_h5_cursor c = {.p = heap->node.p, .left = len, .addr = from->addr};
    if (!td_h5_signature(&c, "FHIB") || td_h5_u8(&c) != 0 || td_h5_number(&c, h->offset_bytes) != heap->addr ||
        td_h5_number(&c, off_bytes) != from->heap_off)
        return heap_fail(heap, from->addr, "an indirect block does not belong to this heap");
    if (!td_h5_check_sum(h, heap->node.p, len, td_load_le32(heap->node.p + len), from->addr, what))
        return false;
    uint64_t at = from->heap_off;
    for (unsigned row = 0; row < from->rows; row++) {
        uint64_t bytes;
        if (!row_bytes(heap, row, &bytes))
            return heap_fail(heap, from->addr, "more rows than its numbering has room for");
        for (unsigned i = 0; i < heap->width; i++) {
            uint64_t addr = td_h5_number(&c, h->offset_bytes);
            bool there = !td_h5_undefined(h, addr);
            if (there && bytes <= heap->max_direct_bytes && !add_block(heap, addr, at, bytes))
                return false;
            unsigned below = log2_of(bytes) - log2_of(heap->start_bytes) - log2_of(heap->width) + 1;
            if (there && bytes > heap->max_direct_bytes && !add_pending(heap, addr, at, below))
                return false;
            if (!td_add_u64(at, bytes, &at))
                return heap_fail(heap, from->addr, "blocks past the end of its numbering");
        }
    }
    return true;
}

/* Checks the sizes that shape the doubling table, so that arithmetic on them cannot overflow. */
static bool check_table(struct heap *heap)
{
    if (!is_power_of_two(heap->width) || !is_power_of_two(heap->start_bytes) ||
        !is_power_of_two(heap->max_direct_bytes) || heap->start_bytes > heap->max_direct_bytes)
        return heap_fail(heap, heap->addr, "its table's width and block sizes are not powers of two in order");
    if (heap->max_bits == 0 || heap->max_bits > HEAP_BITS_MAX ||
        heap->max_direct_bytes > (UINT64_C(1) << (HEAP_BITS_MAX - 2)) ||
        (uint64_t)heap->width * heap->start_bytes > (heap->max_direct_bytes << 1))
        return heap_fail(heap, heap->addr, "its table's sizes are out of bounds");
    return true;
}

static bool read_heap_header(struct heap *heap, uint64_t *root, unsigned *rows)
{
    struct td_h5 *h = heap->h;
    unsigned o = h->offset_bytes;
    unsigned l = h->length_bytes;
    size_t len = 22 + 12 * (size_t)l + 3 * (size_t)o;
    if (!td_h5_visit(h, heap->addr, "fractal heap") ||
        !td_h5_load(h, &heap->node, 0, heap->addr, len + CHECKSUM_BYTES, "fractal heap"))
        return false;
    struct td_h5_cursor c = {.p = heap->node.p, .left = len, .addr = heap->addr};
    bool known = td_h5_signature(&c, "FRHP") && td_h5_u8(&c) == 0;
    heap->id_bytes = td_h5_u16(&c);
    unsigned filter_bytes = td_h5_u16(&c);
    heap->flags = td_h5_u8(&c);
    uint64_t max_object_bytes = td_h5_u32(&c);
    (void)td_h5_take(&c, l + o + l + o + 8 * (size_t)l); /* huge objects, free space, counts */
    heap->width = td_h5_u16(&c);
    heap->start_bytes = td_h5_number(&c, l);
    heap->max_direct_bytes = td_h5_number(&c, l);
    heap->max_bits = td_h5_u16(&c);
    (void)td_h5_u16(&c); /* rows to begin with */
    *root = td_h5_number(&c, o);
    *rows = td_h5_u16(&c);
    if (!known || c.bad)
        return heap_fail(heap, heap->addr, "no signature \"FRHP\", or an unknown version");
    if (filter_bytes != 0)
        return heap_fail(heap, heap->addr, "it is compressed, which is not supported");
    if (!td_h5_check_sum(h, heap->node.p, len, td_load_le32(heap->node.p + len), heap->addr, "fractal heap") ||
        !check_table(heap))
        return false;
    unsigned by_block = (log2_of(heap->max_direct_bytes) + 7) / 8;
    unsigned by_object = width_of(max_object_bytes);
    heap->max_object_bytes_width = by_block < by_object ? by_block : by_object;
    return true;
}

static int compare_blocks(const void *a, const void *b)
{
    const struct block *x = a;
    const struct block *y = b;
    return (x->heap_off > y->heap_off) - (x->heap_off < y->heap_off);
}

static bool heap_load(struct heap *heap)
{
    uint64_t root;
    unsigned rows;
    if (!read_heap_header(heap, &root, &rows))
        return false;
    if (td_h5_undefined(heap->h, root))
        return true;
    if (rows == 0)
        return add_block(heap, root, 0, heap->start_bytes);
    if (rows > HEAP_BITS_MAX)
        return heap_fail(heap, heap->addr, "more rows than its numbering has room for");
    bool ok = add_pending(heap, root, 0, rows);
    while (ok && heap->pending_count > 0) {
        struct pending next = heap->pending[--heap->pending_count];
        ok = read_indirect(heap, &next);
    }
    if (ok && heap->block_count > 1)
        qsort(heap->blocks, heap->block_count, sizeof *heap->blocks, compare_blocks);
    return ok;
}

static void heap_fini(struct heap *heap)
{
    td_h5_buffer_fini(&heap->bytes);
    td_h5_buffer_fini(&heap->node);
    free(heap->blocks);
    free(heap->pending);
}

/* Returns the block that holds the byte at heap_off, or NULL. */
static const struct block *block_find(const struct heap *heap, uint64_t heap_off)
{
    size_t low = 0;
    size_t high = heap->block_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct block *block = &heap->blocks[middle];
        if (heap_off < block->heap_off)
            high = middle;
        else if (heap_off - block->heap_off >= block->len)
            low = middle + 1;
        else
            return block;
    }
    return NULL;
}

/* Finds the object with this ID. Sets *is_huge, and no object, when the object is outside of the heap's blocks. */
static bool heap_get(struct heap *heap, struct td_h5_cursor id, struct td_h5_cursor *object, bool *is_huge)
{
    enum { KIND_MANAGED = 0, KIND_HUGE = 1, KIND_TINY = 2, TINY_SHORT_MAX = 16 };
    uint64_t at = id.addr;
    unsigned first = td_h5_u8(&id);
    unsigned kind = first >> 4 & 3;
    *is_huge = kind == KIND_HUGE;
    if (*is_huge)
        return true;
    if (kind == KIND_TINY) {
        size_t len = (first & 0x0F) + 1U;
        if (heap->id_bytes - 1 > TINY_SHORT_MAX)
            len = ((size_t)(first & 0x0F) << 8 | td_h5_u8(&id)) + 1;
        *object = (struct td_h5_cursor){.left = len, .addr = id.addr};
        object->p = td_h5_take(&id, len);
        return !id.bad || heap_fail(heap, at, "a tiny object leaves its ID");
    }
    uint64_t off = td_h5_number(&id, (heap->max_bits + 7) / 8);
    uint64_t len = td_h5_number(&id, heap->max_object_bytes_width);
    const struct block *block = block_find(heap, off);
    if (kind != KIND_MANAGED || id.bad || block == NULL || len > block->len - (off - block->heap_off))
        return heap_fail(heap, at, "an object's ID points at nothing");
    size_t within = (size_t)(off - block->heap_off);
    *object = (struct td_h5_cursor){
        .p = heap->bytes.p + block->off + within, .left = (size_t)len, .addr = block->addr + within};
    return true;
}

/* ---- the B-tree ---------------------------------------------------------------------------------------- */

struct tree_node {
    uint64_t addr, records;
    unsigned depth; /* 0: a leaf */
};

struct tree {
    struct td_h5 *h;
    struct heap *heap; /* NULL: the records are complete by themselves */
    unsigned type;
    size_t node_bytes, record_bytes;
    unsigned depth;
    unsigned count_width;                     /* bytes of the number of records in a child */
    unsigned total_width[TREE_DEPTH_MAX + 1]; /* bytes of the number of records below a child at this depth */
    uint64_t records_max[TREE_DEPTH_MAX + 1]; /* most records in one node at this depth */
    struct tree_node *nodes;                  /* still to be read */
    size_t node_count, node_capacity;
    struct td_h5_buffer bytes;
    td_h5_object_fn *each;
    void *context;
};

static bool tree_push(struct tree *tree, uint64_t addr, uint64_t records, unsigned depth)
{
    if (!td_h5_grow(tree->h, &tree->nodes, &tree->node_capacity, tree->node_count, sizeof *tree->nodes))
        return false;
    tree->nodes[tree->node_count++] = (struct tree_node){.addr = addr, .records = records, .depth = depth};
    return true;
}

static size_t pointer_bytes(const struct tree *tree, unsigned depth)
{
    return tree->h->offset_bytes + tree->count_width + tree->total_width[depth - 1];
}

/* Computes how many records a node can hold, level by level from the leaves, and how wide numbers up to that are. */
static bool tree_widths(struct tree *tree, uint64_t addr)
{
    if (tree->depth > TREE_DEPTH_MAX || tree->record_bytes == 0 ||
        tree->node_bytes < TREE_NODE_OVERHEAD_BYTES + tree->record_bytes)
        return td_h5_fail(tree->h, addr, "B-tree: %u levels of nodes of %zu bytes with records of %zu", tree->depth,
                          tree->node_bytes, tree->record_bytes);
    uint64_t total = (tree->node_bytes - TREE_NODE_OVERHEAD_BYTES) / tree->record_bytes;
    tree->records_max[0] = total;
    tree->count_width = width_of(total);
    tree->total_width[0] = 0;
    for (unsigned depth = 1; depth <= tree->depth; depth++) {
        size_t pointer = pointer_bytes(tree, depth);
        if (tree->node_bytes < TREE_NODE_OVERHEAD_BYTES + 2 * pointer + tree->record_bytes)
            return td_h5_fail(tree->h, addr, "B-tree: nodes of %zu bytes are too small", tree->node_bytes);
        uint64_t most = (tree->node_bytes - TREE_NODE_OVERHEAD_BYTES - pointer) / (tree->record_bytes + pointer);
        tree->records_max[depth] = most;
        if (!td_mul_u64(total, most + 1, &total) || !td_add_u64(total, most, &total))
            return td_h5_fail(tree->h, addr, "B-tree: %u levels hold more than 2^64 records", tree->depth);
        tree->total_width[depth] = width_of(total);
    }
    return true;
}

static bool tree_open(struct tree *tree, uint64_t addr)
{
    static const char what[] = "B-tree";
    struct td_h5 *h = tree->h;
    size_t len = 16 + (size_t)h->offset_bytes + 2 + h->length_bytes;
    if (!td_h5_visit(h, addr, what) || !td_h5_load(h, &tree->bytes, 0, addr, len + CHECKSUM_BYTES, what))
        return false;
    struct td_h5_cursor c = {.p = tree->bytes.p, .left = len, .addr = addr};
    bool known = td_h5_signature(&c, "BTHD") && td_h5_u8(&c) == 0 && td_h5_u8(&c) == tree->type;
    tree->node_bytes = td_h5_u32(&c);
    tree->record_bytes = td_h5_u16(&c);
    tree->depth = td_h5_u16(&c);
    (void)td_h5_take(&c, 2); /* when to split and to merge */
    uint64_t root = td_h5_number(&c, h->offset_bytes);
    uint64_t records = td_h5_u16(&c);
    if (!known)
        return td_h5_fail(h, addr, "B-tree at address %" PRIu64 ": no signature \"BTHD\" with type %u", addr,
                          tree->type);
    if (!td_h5_check_sum(h, tree->bytes.p, len, td_load_le32(tree->bytes.p + len), addr, what) ||
        !tree_widths(tree, addr))
        return false;
    return td_h5_undefined(h, root) || tree_push(tree, root, records, tree->depth);
}

/* A record begins or ends with other things than the ID, by type; one of a tree without a heap is all that there is. */
static bool read_record(struct tree *tree, struct td_h5_cursor record)
{
    if (tree->heap == NULL)
        return tree->each(tree->context, record);
    struct td_h5_cursor object = {0};
    bool is_huge = false;
    if (tree->type == TD_H5_TREE_LINKS)
        (void)td_h5_take(&record, 4); /* the name's hash */
    struct td_h5_cursor id = {.left = tree->heap->id_bytes, .addr = record.addr};
    id.p = td_h5_take(&record, tree->heap->id_bytes);
    unsigned flags = tree->type == TD_H5_TREE_ATTRIBUTES ? td_h5_u8(&record) : 0;
    if (record.bad)
        return td_h5_fail(tree->h, record.addr, "B-tree: records of %zu bytes are too short", tree->record_bytes);
    if ((flags & TD_H5_MESSAGE_SHARED) != 0) /* in yet another heap: the attribute is left out */
        return true;
    if (!heap_get(tree->heap, id, &object, &is_huge))
        return false;
    if (is_huge && tree->type == TD_H5_TREE_LINKS)
        return td_h5_fail(tree->h, record.addr, "a link is larger than 4096 bytes, which is not supported");
    return is_huge || tree->each(tree->context, object);
}

static bool tree_node_read(struct tree *tree, const struct tree_node *node)
{
    static const char what[] = "B-tree node";
    struct td_h5 *h = tree->h;
    size_t pointer = node->depth > 0 ? pointer_bytes(tree, node->depth) : 0;
    if (node->records > tree->records_max[node->depth])
        return td_h5_fail(h, node->addr, "%s: %" PRIu64 " records do not fit; %" PRIu64 " would", what, node->records,
                          tree->records_max[node->depth]);
    size_t len = 6 + (size_t)node->records * (tree->record_bytes + pointer) + pointer;
    if (!td_h5_visit(h, node->addr, what) || !td_h5_load(h, &tree->bytes, 0, node->addr, len + CHECKSUM_BYTES, what))
        return false;
    struct td_h5_cursor c = {.p = tree->bytes.p, .left = len, .addr = node->addr};
    if (!td_h5_signature(&c, node->depth > 0 ? "BTIN" : "BTLF") || td_h5_u8(&c) != 0 || td_h5_u8(&c) != tree->type)
        return td_h5_fail(h, node->addr, "%s at address %" PRIu64 ": a wrong signature or type", what, node->addr);
    if (!td_h5_check_sum(h, tree->bytes.p, len, td_load_le32(tree->bytes.p + len), node->addr, what))
        return false;
    for (uint64_t i = 0; i < node->records; i++) {
        struct td_h5_cursor record = {.left = tree->record_bytes, .addr = c.addr};
        record.p = td_h5_take(&c, tree->record_bytes);
        if (!read_record(tree, record))
            return false;
    }
    for (uint64_t i = 0; node->depth > 0 && i <= node->records; i++) {
        uint64_t addr = td_h5_number(&c, h->offset_bytes);
        uint64_t records = td_h5_number(&c, tree->count_width);
        (void)td_h5_take(&c, tree->total_width[node->depth - 1]);
        if (!tree_push(tree, addr, records, node->depth - 1))
            return false;
    }
    return true;
}

static bool tree_walk(struct tree *tree, uint64_t addr)
{
    bool ok = tree_open(tree, addr);
    while (ok && tree->node_count > 0) {
        struct tree_node next = tree->nodes[--tree->node_count];
        ok = tree_node_read(tree, &next);
    }
    free(tree->nodes);
    td_h5_buffer_fini(&tree->bytes);
    return ok;
}

bool td_h5_each_dense(struct td_h5 *h, struct td_h5_cursor info, const char *what, unsigned tree_type,
                      td_h5_object_fn *each, void *context)
{
    enum { HAS_ORDER = 0x01 };
    struct heap heap = {.h = h};
    struct tree tree = {.h = h, .heap = &heap, .type = tree_type, .each = each, .context = context};
    uint64_t at = info.addr;
    unsigned version = td_h5_u8(&info);
    if ((td_h5_u8(&info) & HAS_ORDER) != 0)
        (void)td_h5_take(&info, tree_type == TD_H5_TREE_LINKS ? 8 : 2); /* the highest number in the order so far */
    heap.addr = td_h5_number(&info, h->offset_bytes);
    uint64_t tree_addr = td_h5_number(&info, h->offset_bytes);
    if (info.bad || version != 0)
        return td_h5_fail(h, at, "%s: version %u is unknown, or its message is too short", what, version);
    if (td_h5_undefined(h, heap.addr))
        return true;
    bool ok = heap_load(&heap) && tree_walk(&tree, tree_addr);
    heap_fini(&heap);
    return ok;
}

bool td_h5_each_record(struct td_h5 *h, uint64_t tree_addr, unsigned tree_type, td_h5_object_fn *each, void *context)
{
    struct tree tree = {.h = h, .type = tree_type, .each = each, .context = context};
    return tree_walk(&tree, tree_addr);
}
