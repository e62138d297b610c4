/* The indexes of chunks: B-trees of version 1 (III.A.1 of the specification) and 2 (III.A.2), fixed arrays (VII.C),
 * extensible arrays (VII.D), and the two layouts without an index. Every structure is read once and as a whole. Entries
 * that say "none" are skipped, and so are entries outside of the array as it is now.
 *
 * What is hard: the extensible array. An index block holds the first entries, then names data blocks, then super blocks
 * that name further data blocks; all sizes double by rules and none is stored (struct extensible). Large data blocks
 * consist of pages, and a bitmap says which of these were written. */
#include "parser/hdf5/hdf5_chunk_index.h"

#include "core/checked.h"
#include "parser/hdf5/hdf5_heap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKSUM_BYTES = 4, ANY_LEVEL = 256 };

/* ---- B-tree, version 1 --------------------------------------------------------------------------------- */

struct tree_node {
    uint64_t addr;
    unsigned level; /* that the node must have; ANY_LEVEL for the root */
};

struct tree {
    struct td_h5_chunk_reader *r;
    struct td_h5_buffer bytes;
    struct tree_node *nodes; /* still to be read */
    size_t node_count, node_capacity;
};

static bool tree_push(struct tree *tree, uint64_t addr, unsigned level)
{
    if (!td_h5_grow(tree->r->h, &tree->nodes, &tree->node_capacity, tree->node_count, sizeof *tree->nodes))
        return false;
    tree->nodes[tree->node_count++] = (struct tree_node){.addr = addr, .level = level};
    return true;
}

/* Reads a key (size, skipped filters, first index in each dimension, the last for the element's bytes) and its child.
 */
static bool read_tree_key(struct tree *tree, struct td_h5_cursor *c, unsigned level)
{
    struct td_h5_chunk_reader *r = tree->r;
    uint64_t scaled[TD_CODING_RANK_MAX];
    uint64_t at = c->addr;
    uint64_t bytes = td_h5_u32(c);
    uint32_t skipped = td_h5_u32(c);
    bool on_grid = true;
    for (uint32_t i = 0; i < r->layout->rank; i++) {
        uint64_t offset = td_h5_number(c, 8);
        scaled[i] = offset / r->layout->shape[i];
        on_grid = on_grid && offset % r->layout->shape[i] == 0;
    }
    (void)td_h5_take(c, 8);
    uint64_t child = td_h5_number(c, r->h->offset_bytes);
    if (level > 0)
        return tree_push(tree, child, level - 1);
    return (on_grid || td_h5_fail(r->h, at, "a chunk does not begin on the grid of chunks")) &&
           td_h5_add_chunk(r, scaled, child, bytes, skipped);
}

/* Reads a node. Its children must be one level lower, so the walk ends whatever their addresses are. */
static bool read_tree_node(struct tree *tree, const struct tree_node *node)
{
    enum { TYPE_CHUNKS = 1 };
    static const char what[] = "B-tree node of chunks";
    uint8_t prefix[8 + 2 * 8];
    struct td_h5 *h = tree->r->h;
    size_t prefix_bytes = 8 + 2 * (size_t)h->offset_bytes;
    if (!td_h5_visit(h, node->addr, what) || !td_h5_read(h, node->addr, prefix, prefix_bytes, what))
        return false;
    struct td_h5_cursor c = {.p = prefix, .left = prefix_bytes};
    if (!td_h5_signature(&c, "TREE") || td_h5_u8(&c) != TYPE_CHUNKS)
        return td_h5_fail(h, node->addr, "%s: no signature \"TREE\", or a B-tree of another type", what);
    unsigned level = td_h5_u8(&c);
    unsigned count = td_h5_u16(&c);
    if (node->level != ANY_LEVEL && level != node->level)
        return td_h5_fail(h, node->addr, "%s: level %u where %u would be right", what, level, node->level);
    size_t pair = 8 + 8 * ((size_t)tree->r->layout->rank + 1) + h->offset_bytes;
    uint64_t at = node->addr + prefix_bytes;
    if (!td_h5_load(h, &tree->bytes, 0, at, count * pair, what))
        return false;
    c = (struct td_h5_cursor){.p = tree->bytes.p, .left = count * pair, .addr = at};
    for (unsigned i = 0; i < count; i++)
        if (!read_tree_key(tree, &c, level))
            return false;
    return true;
}

static bool read_tree_1(struct td_h5_chunk_reader *r)
{
    struct tree tree = {.r = r};
    bool ok = tree_push(&tree, r->layout->addr, ANY_LEVEL);
    while (ok && tree.node_count > 0) {
        struct tree_node next = tree.nodes[--tree.node_count];
        ok = read_tree_node(&tree, &next);
    }
    td_h5_buffer_fini(&tree.bytes);
    free(tree.nodes);
    return ok;
}

/* ---- B-tree, version 2 --------------------------------------------------------------------------------- */

static bool read_tree_record(void *context, struct td_h5_cursor record)
{
    struct td_h5_chunk_reader *r = context;
    struct td_h5 *h = r->h;
    uint64_t scaled[TD_CODING_RANK_MAX];
    size_t coordinates = 8 * (size_t)r->layout->rank;
    uint64_t at = record.addr;
    uint64_t bytes = 0;
    uint32_t skipped = 0;
    bool has_room = record.left >= h->offset_bytes + coordinates;
    size_t between = has_room ? record.left - h->offset_bytes - coordinates : 0;
    uint64_t addr = td_h5_number(&record, h->offset_bytes);
    if (r->filter_count > 0) {
        has_room = has_room && between > 4 && between <= 12;
        bytes = has_room ? td_h5_number(&record, (unsigned)between - 4) : 0;
        skipped = td_h5_u32(&record);
    } else {
        has_room = has_room && between == 0;
    }
    for (uint32_t i = 0; i < r->layout->rank; i++)
        scaled[i] = td_h5_number(&record, 8);
    if (!has_room || record.bad)
        return td_h5_fail(h, at, "B-tree of chunks: records are of another size");
    return td_h5_add_chunk(r, scaled, addr, bytes, skipped);
}

/* ---- arrays of entries --------------------------------------------------------------------------------- */

/* The entries of a fixed or an extensible array. */
struct entries {
    struct td_h5_chunk_reader *r;
    uint64_t header_at;
    unsigned client; /* 1: entries have a size and skipped filters; 0: an address alone */
    unsigned entry_bytes;
    unsigned page_bits;
    uint32_t slowest; /* the dimension whose index changes most slowly; the others follow in their order */
    struct td_h5_buffer bytes;
};

/* Returns dimension number i in the array's order. */
static uint32_t dimension(const struct entries *e, uint32_t i)
{
    if (i == 0)
        return e->slowest;
    return i <= e->slowest ? i - 1 : i;
}

static bool read_entry(struct entries *e, struct td_h5_cursor *c, uint64_t index)
{
    struct td_h5_chunk_reader *r = e->r;
    uint64_t scaled[TD_CODING_RANK_MAX];
    uint64_t bytes = 0;
    uint32_t skipped = 0;
    uint64_t addr = td_h5_number(c, r->h->offset_bytes);
    if (e->client == 1) {
        bytes = td_h5_number(c, e->entry_bytes - r->h->offset_bytes - 4);
        skipped = td_h5_u32(c);
    }
    for (uint32_t i = r->layout->rank; i-- > 1;) {
        uint32_t dim = dimension(e, i);
        scaled[dim] = index % r->max_along[dim];
        index /= r->max_along[dim];
    }
    scaled[dimension(e, 0)] = index;
    return td_h5_add_chunk(r, scaled, addr, bytes, skipped);
}

/* Reads a page: count entries and their checksum. */
static bool read_page(struct entries *e, uint64_t addr, uint64_t first, uint64_t count)
{
    static const char what[] = "page of an array of chunks";
    struct td_h5 *h = e->r->h;
    size_t len = (size_t)count * e->entry_bytes; /* at most a page, or what fits into the file */
    if (!td_h5_load(h, &e->bytes, 0, addr, len + CHECKSUM_BYTES, what) ||
        !td_h5_check_sum(h, e->bytes.p, len, td_load_le32(e->bytes.p + len), addr, what))
        return false;
    struct td_h5_cursor c = {.p = e->bytes.p, .left = len, .addr = addr};
    for (uint64_t i = 0; i < count; i++)
        if (!read_entry(e, &c, first + i))
            return false;
    return true;
}

/* Checks the beginning of a structure: signature, version, client, and the address of the header it belongs to. */
static bool check_prefix(struct entries *e, struct td_h5_cursor *c, const char *letters)
{
    struct td_h5 *h = e->r->h;
    uint64_t at = c->addr;
    if (!td_h5_signature(c, letters) || td_h5_u8(c) != 0 || td_h5_u8(c) != e->client ||
        td_h5_number(c, h->offset_bytes) != e->header_at)
        return td_h5_fail(h, at, "array of chunks: no signature \"%s\" of this array at address %" PRIu64, letters, at);
    return true;
}

/* Reads the beginning of a header, which is the same for both kinds of array. */
static bool read_entry_kind(struct entries *e, struct td_h5_cursor *c, const char *letters)
{
    struct td_h5 *h = e->r->h;
    bool known = td_h5_signature(c, letters) && td_h5_u8(c) == 0;
    e->client = td_h5_u8(c);
    e->entry_bytes = td_h5_u8(c);
    unsigned plain = h->offset_bytes;
    bool fits = e->client == 1 ? e->entry_bytes > plain + 4 && e->entry_bytes <= plain + 12 : e->entry_bytes == plain;
    if (!known || e->client > 1 || (e->client == 1) != (e->r->filter_count > 0) || !fits)
        return td_h5_fail(h, e->header_at, "array of chunks: an unknown header, or entries of %u bytes",
                          e->entry_bytes);
    return true;
}

static bool is_initialised(const uint8_t *bitmap, uint64_t bit)
{
    return (bitmap[bit / 8] & (0x80 >> bit % 8)) != 0;
}

/* ---- fixed arrays -------------------------------------------------------------------------------------- */

/* Reads a data block of pages. A bitmap says which of the pages were written. */
static bool read_fixed_pages(struct entries *e, uint64_t addr, uint64_t count)
{
    static const char what[] = "fixed array of chunks";
    struct td_h5 *h = e->r->h;
    uint64_t page = UINT64_C(1) << e->page_bits;
    uint64_t pages = (count - 1) / page + 1;
    uint64_t bitmap_bytes = (pages - 1) / 8 + 1;
    size_t head = 6 + (size_t)h->offset_bytes;
    struct td_h5_buffer bitmap = {0};
    if (bitmap_bytes > h->size_bytes || !td_h5_load(h, &bitmap, 0, addr, head + bitmap_bytes + CHECKSUM_BYTES, what)) {
        td_h5_buffer_fini(&bitmap);
        return h->err->code != TD_OK ? false : td_h5_fail(h, addr, "%s: it leaves the file", what);
    }
    size_t len = head + (size_t)bitmap_bytes;
    struct td_h5_cursor c = {.p = bitmap.p, .left = len, .addr = addr};
    bool ok =
        check_prefix(e, &c, "FADB") && td_h5_check_sum(h, bitmap.p, len, td_load_le32(bitmap.p + len), addr, what);
    uint64_t at = addr + len + CHECKSUM_BYTES;
    for (uint64_t i = 0; ok && i < pages; i++) {
        uint64_t here = i + 1 < pages ? page : count - i * page;
        if (is_initialised(bitmap.p + head, i))
            ok = td_h5_within(h, at, 1) ? read_page(e, at, i * page, here)
                                        : td_h5_fail(h, addr, "%s: a page is past the end of the file", what);
        at += page * e->entry_bytes + CHECKSUM_BYTES;
    }
    td_h5_buffer_fini(&bitmap);
    return ok;
}

/* Reads a data block of entries without pages. */
static bool read_fixed_block(struct entries *e, uint64_t addr, uint64_t count)
{
    static const char what[] = "fixed array of chunks";
    struct td_h5 *h = e->r->h;
    size_t head = 6 + (size_t)h->offset_bytes;
    size_t len = head + (size_t)count * e->entry_bytes; /* a page at most */
    if (!td_h5_load(h, &e->bytes, 0, addr, len + CHECKSUM_BYTES, what))
        return false;
    struct td_h5_cursor c = {.p = e->bytes.p, .left = len, .addr = addr};
    if (!check_prefix(e, &c, "FADB") ||
        !td_h5_check_sum(h, e->bytes.p, len, td_load_le32(e->bytes.p + len), addr, what))
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (!read_entry(e, &c, i))
            return false;
    return true;
}

static bool read_fixed(struct entries *e)
{
    enum { PAGE_BITS_MAX = 20 };
    static const char what[] = "fixed array of chunks";
    struct td_h5 *h = e->r->h;
    uint8_t bytes[8 + 2 * 8 + CHECKSUM_BYTES];
    size_t len = 8 + (size_t)h->length_bytes + h->offset_bytes;
    if (!td_h5_visit(h, e->header_at, what) || !td_h5_read(h, e->header_at, bytes, len + CHECKSUM_BYTES, what))
        return false;
    struct td_h5_cursor c = {.p = bytes, .left = len, .addr = e->header_at};
    if (!read_entry_kind(e, &c, "FAHD") ||
        !td_h5_check_sum(h, bytes, len, td_load_le32(bytes + len), e->header_at, what))
        return false;
    e->page_bits = td_h5_u8(&c);
    uint64_t count = td_h5_number(&c, h->length_bytes);
    uint64_t block = td_h5_number(&c, h->offset_bytes);
    for (uint32_t i = 0; i < e->r->layout->rank; i++)
        if (e->r->max_along[i] == UINT64_MAX)
            return td_h5_fail(h, e->header_at, "%s: a dimension without bound", what);
    if (e->page_bits > PAGE_BITS_MAX)
        return td_h5_fail(h, e->header_at, "%s: pages of 2^%u entries", what, e->page_bits);
    if (td_h5_undefined(h, block) || count == 0)
        return true;
    if (!td_h5_visit(h, block, what))
        return false;
    return count > UINT64_C(1) << e->page_bits ? read_fixed_pages(e, block, count) : read_fixed_block(e, block, count);
}

/* ---- extensible arrays --------------------------------------------------------------------------------- */

/* The sizes of an extensible array, which all follow from its header. Super block u holds 2^(u/2) data blocks of
 * 2^((u+1)/2) * min_entries entries. */
struct extensible {
    struct entries *e;
    unsigned offset_bytes; /* width of an entry's number in the array */
    unsigned in_index;     /* entries in the index block */
    uint64_t min_entries;  /* of a data block */
    unsigned min_pointers; /* of a super block */
    unsigned super_count;  /* super blocks */
    unsigned direct_count; /* the first of these, whose data blocks the index block names itself */
    uint64_t next;         /* number of the next entry */
};

static uint64_t blocks_in(unsigned super)
{
    return UINT64_C(1) << super / 2;
}

static uint64_t entries_in(const struct extensible *x, unsigned super)
{
    return x->min_entries << (super + 1) / 2;
}

/* Reads a data block of a super block. The bitmap, from `bit` on, says which of its pages were written; a NULL bitmap
 * means all. */
static bool read_data_block(struct extensible *x, uint64_t addr, unsigned super, const uint8_t *bitmap, uint64_t bit)
{
    static const char what[] = "extensible array of chunks";
    struct entries *e = x->e;
    struct td_h5 *h = e->r->h;
    uint64_t count = entries_in(x, super);
    uint64_t first = x->next;
    uint64_t page = UINT64_C(1) << e->page_bits;
    bool paged = count > page;
    size_t head = 6 + (size_t)h->offset_bytes + x->offset_bytes;
    size_t len = head + (paged ? 0 : (size_t)count * e->entry_bytes); /* a page at most */
    x->next += count;
    if (td_h5_undefined(h, addr))
        return true;
    if (!td_h5_visit(h, addr, what) || !td_h5_load(h, &e->bytes, 0, addr, len + CHECKSUM_BYTES, what))
        return false;
    struct td_h5_cursor c = {.p = e->bytes.p, .left = len, .addr = addr};
    if (!check_prefix(e, &c, "EADB") ||
        !td_h5_check_sum(h, e->bytes.p, len, td_load_le32(e->bytes.p + len), addr, what))
        return false;
    (void)td_h5_take(&c, x->offset_bytes);
    for (uint64_t i = 0; !paged && i < count; i++)
        if (!read_entry(e, &c, first + i))
            return false;
    uint64_t at = addr + len + CHECKSUM_BYTES;
    for (uint64_t i = 0; paged && i < count / page; i++, at += page * e->entry_bytes + CHECKSUM_BYTES) {
        if (bitmap != NULL && !is_initialised(bitmap, bit + i))
            continue;
        if (!td_h5_within(h, at, 1))
            return td_h5_fail(h, addr, "%s: a page is past the end of the file", what);
        if (!read_page(e, at, first + i * page, page))
            return false;
    }
    return true;
}

static bool read_super_block(struct extensible *x, uint64_t addr, unsigned super)
{
    static const char what[] = "super block of an array of chunks";
    struct entries *e = x->e;
    struct td_h5 *h = e->r->h;
    struct td_h5_buffer bytes = {0};
    uint64_t blocks = blocks_in(super);
    uint64_t pages = entries_in(x, super) >> e->page_bits;
    uint64_t bitmap_bytes = pages > 1 ? (pages + 7) / 8 : 0; /* of each block */
    size_t head = 6 + (size_t)h->offset_bytes + x->offset_bytes;
    uint64_t len;
    if (td_h5_undefined(h, addr)) {
        x->next += blocks * entries_in(x, super);
        return true;
    }
    if (!td_mul_u64(blocks, bitmap_bytes + h->offset_bytes, &len) || len > h->size_bytes)
        return td_h5_fail(h, addr, "%s: %" PRIu64 " blocks do not fit into the file", what, blocks);
    len += head;
    bool ok = td_h5_visit(h, addr, what) && td_h5_load(h, &bytes, 0, addr, len + CHECKSUM_BYTES, what);
    struct td_h5_cursor c = {.p = bytes.p, .left = (size_t)len, .addr = addr};
    ok = ok && check_prefix(e, &c, "EASB") &&
         td_h5_check_sum(h, bytes.p, (size_t)len, td_load_le32(bytes.p + len), addr, what);
    const uint8_t *bitmap = NULL;
    if (ok) {
        (void)td_h5_take(&c, x->offset_bytes);
        bitmap = td_h5_take(&c, (size_t)(blocks * bitmap_bytes));
    }
    for (uint64_t i = 0; ok && i < blocks; i++)
        ok = read_data_block(x, td_h5_number(&c, h->offset_bytes), super, bitmap_bytes > 0 ? bitmap : NULL, i * pages);
    td_h5_buffer_fini(&bytes);
    return ok;
}

static bool read_index_block(struct extensible *x, uint64_t addr)
{
    static const char what[] = "index block of an array of chunks";
    struct entries *e = x->e;
    struct td_h5 *h = e->r->h;
    struct td_h5_buffer bytes = {0};
    size_t pointers = 2 * ((size_t)x->min_pointers - 1) + (x->super_count - x->direct_count);
    size_t len = 6 + (size_t)h->offset_bytes + (size_t)x->in_index * e->entry_bytes + pointers * h->offset_bytes;
    bool ok = td_h5_visit(h, addr, what) && td_h5_load(h, &bytes, 0, addr, len + CHECKSUM_BYTES, what);
    struct td_h5_cursor c = {.p = bytes.p, .left = len, .addr = addr};
    ok = ok && check_prefix(e, &c, "EAIB") && td_h5_check_sum(h, bytes.p, len, td_load_le32(bytes.p + len), addr, what);
    for (; ok && x->next < x->in_index; x->next++)
        ok = read_entry(e, &c, x->next);
    for (unsigned super = 0; ok && super < x->direct_count; super++)
        for (uint64_t i = 0; ok && i < blocks_in(super); i++)
            ok = read_data_block(x, td_h5_number(&c, h->offset_bytes), super, NULL, 0);
    for (unsigned super = x->direct_count; ok && super < x->super_count; super++)
        ok = read_super_block(x, td_h5_number(&c, h->offset_bytes), super);
    td_h5_buffer_fini(&bytes);
    return ok;
}

static unsigned log2_of(uint64_t x)
{
    return x == 0 ? 0 : 63 - (unsigned)__builtin_clzll(x);
}

/* Sets e->slowest to the dimension without bound. Refuses a dataset without exactly one. */
static bool find_slowest(struct entries *e)
{
    unsigned unlimited = 0;
    for (uint32_t i = 0; i < e->r->layout->rank; i++)
        if (e->r->max_along[i] == UINT64_MAX) {
            e->slowest = i;
            unlimited++;
        }
    return unlimited == 1 ||
           td_h5_fail(e->r->h, e->header_at, "extensible array of chunks: %u dimensions without bound, where one is",
                      unlimited);
}

static bool read_extensible(struct entries *e)
{
    enum { FIXED_BYTES = 12, STATISTICS = 6, PAGE_BITS_MAX = 20, MIN_ENTRIES_MAX = 128 };
    static const char what[] = "extensible array of chunks";
    struct td_h5 *h = e->r->h;
    uint8_t bytes[FIXED_BYTES + 7 * 8 + CHECKSUM_BYTES];
    size_t len = FIXED_BYTES + STATISTICS * (size_t)h->length_bytes + h->offset_bytes;
    struct extensible x = {.e = e};
    if (!td_h5_visit(h, e->header_at, what) || !td_h5_read(h, e->header_at, bytes, len + CHECKSUM_BYTES, what))
        return false;
    struct td_h5_cursor c = {.p = bytes, .left = len, .addr = e->header_at};
    if (!read_entry_kind(e, &c, "EAHD") ||
        !td_h5_check_sum(h, bytes, len, td_load_le32(bytes + len), e->header_at, what) || !find_slowest(e))
        return false;
    unsigned bits = td_h5_u8(&c);
    x.in_index = td_h5_u8(&c);
    x.min_entries = td_h5_u8(&c);
    x.min_pointers = td_h5_u8(&c);
    e->page_bits = td_h5_u8(&c);
    (void)td_h5_take(&c, STATISTICS * (size_t)h->length_bytes);
    uint64_t index = td_h5_number(&c, h->offset_bytes);
    x.offset_bytes = (bits + 7) / 8;
    x.direct_count = 2 * log2_of(x.min_pointers);
    x.super_count = bits < log2_of(x.min_entries) ? 0 : 1 + bits - log2_of(x.min_entries);
    bool powers = x.min_entries != 0 && (x.min_entries & (x.min_entries - 1)) == 0 && x.min_pointers != 0 &&
                  (x.min_pointers & (x.min_pointers - 1)) == 0;
    /* with at most 60 bits no number of entries passes 2^64 */
    if (!powers || bits > 60 || e->page_bits > PAGE_BITS_MAX || x.super_count < x.direct_count)
        return td_h5_fail(h, e->header_at, "%s: impossible sizes", what);
    return td_h5_undefined(h, index) || read_index_block(&x, index);
}

static bool read_entries(struct td_h5_chunk_reader *r, bool (*read)(struct entries *))
{
    struct entries e = {.r = r, .header_at = r->layout->addr};
    bool ok = read(&e);
    td_h5_buffer_fini(&e.bytes);
    return ok;
}

/* ---- without an index ---------------------------------------------------------------------------------- */

static bool add_single(struct td_h5_chunk_reader *r)
{
    const uint64_t scaled[TD_CODING_RANK_MAX] = {0};
    for (uint32_t i = 0; i < r->layout->rank; i++)
        if (r->along[i] > 1)
            return td_h5_fail(r->h, r->layout->addr, "a single chunk, where the array has several");
    return td_h5_add_chunk(r, scaled, r->layout->addr, r->layout->single_bytes, r->layout->single_skipped);
}

/* Adds all chunks one after the other, in their order within the largest shape. The file does not store their
 * addresses. Each chunk still counts as if its address were read, so that the bound on bytes read limits their number
 * too. */
static bool add_implicit(struct td_h5_chunk_reader *r)
{
    static const char what[] = "chunks without an index";
    uint64_t scaled[TD_CODING_RANK_MAX] = {0};
    uint32_t rank = r->layout->rank;
    for (;;) {
        if (!td_h5_spend(r->h, r->layout->addr, r->h->offset_bytes, what))
            return false;
        uint64_t number = 0;
        uint64_t addr;
        bool fits = true;
        for (uint32_t i = 0; i < rank; i++)
            fits = fits && td_mul_u64(number, r->max_along[i], &number) && td_add_u64(number, scaled[i], &number);
        if (!fits || !td_mul_u64(number, r->chunk_bytes, &addr) || !td_add_u64(addr, r->layout->addr, &addr))
            return td_h5_fail(r->h, r->layout->addr, "chunks past 2^64-1");
        if (!td_h5_add_chunk(r, scaled, addr, 0, 0))
            return false;
        uint32_t dim = rank;
        while (dim > 0 && ++scaled[dim - 1] == r->along[dim - 1])
            scaled[--dim] = 0;
        if (dim == 0)
            return true;
    }
}

bool td_h5_read_chunks(struct td_h5_chunk_reader *r)
{
    if (td_h5_undefined(r->h, r->layout->addr)) /* nothing was ever written */
        return true;
    switch (r->layout->index) {
    case TD_H5_INDEX_TREE_1:
        return read_tree_1(r);
    case TD_H5_INDEX_SINGLE:
        return add_single(r);
    case TD_H5_INDEX_IMPLICIT:
        return add_implicit(r);
    case TD_H5_INDEX_FIXED:
        return read_entries(r, read_fixed);
    case TD_H5_INDEX_EXTENSIBLE:
        return read_entries(r, read_extensible);
    case TD_H5_INDEX_TREE_2:
        return td_h5_each_record(r->h, r->layout->addr,
                                 r->filter_count > 0 ? TD_H5_TREE_FILTERED_CHUNKS : TD_H5_TREE_CHUNKS, read_tree_record,
                                 r);
    }
    return td_h5_fail(r->h, r->layout->addr, "an index of an unknown kind");
}
