/* The links of a group are stored in one of three ways: a symbol table (B-tree of version 1, local heap), messages in
 * the group's header, or dense storage (hdf5_heap). The specification's III.A.1, III.B-D, IV.A.2.c, g and r. */
#include "parser/hdf5/hdf5_group.h"

#include "parser/hdf5/hdf5_heap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRY_SCRATCH_BYTES = 16 };

/* ---- symbol tables ------------------------------------------------------------------------------------- */

struct table_node {
    uint64_t addr;
    unsigned level; /* that the node must have; ANY_LEVEL for the root */
};

enum { ANY_LEVEL = 256 };

struct table {
    struct td_h5 *h;
    struct td_h5_buffer names; /* the local heap's data */
    uint64_t names_addr;
    size_t names_bytes;
    struct td_h5_buffer node;
    struct table_node *nodes; /* still to be read */
    size_t node_count, node_capacity;
    td_h5_link_fn *each;
    void *context;
};

static bool table_push(struct table *table, uint64_t addr, unsigned level)
{
    if (!td_h5_grow(table->h, &table->nodes, &table->node_capacity, table->node_count, sizeof *table->nodes))
        return false;
    table->nodes[table->node_count++] = (struct table_node){.addr = addr, .level = level};
    return true;
}

static bool read_local_heap(struct table *table, uint64_t addr)
{
    static const char what[] = "local heap";
    uint8_t bytes[8 + 3 * 8];
    struct td_h5 *h = table->h;
    size_t len = 8 + 2 * (size_t)h->length_bytes + h->offset_bytes;
    if (!td_h5_visit(h, addr, what) || !td_h5_read(h, addr, bytes, len, what))
        return false;
    struct td_h5_cursor c = {.p = bytes, .left = len, .addr = addr};
    if (!td_h5_signature(&c, "HEAP") || td_h5_u8(&c) != 0)
        return td_h5_fail(h, addr, "%s: no signature \"HEAP\", or an unknown version", what);
    (void)td_h5_take(&c, 3);
    uint64_t data_bytes = td_h5_number(&c, h->length_bytes);
    (void)td_h5_number(&c, h->length_bytes); /* free space */
    table->names_addr = td_h5_number(&c, h->offset_bytes);
    if (data_bytes == 0)
        return true;
    if (!td_h5_visit(h, table->names_addr, "local heap data") ||
        !td_h5_load(h, &table->names, 0, table->names_addr, data_bytes, "local heap data"))
        return false;
    table->names_bytes = (size_t)data_bytes;
    return true;
}

/* Finds a NUL-terminated string in the local heap. */
static bool heap_string(struct table *table, uint64_t off, uint64_t at, const char **text, size_t *len)
{
    const uint8_t *end = NULL;
    if (off < table->names_bytes)
        end = memchr(table->names.p + off, 0, table->names_bytes - (size_t)off);
    if (end == NULL)
        return td_h5_fail(table->h, at, "a name at byte %" PRIu64 " of the local heap, which has %zu bytes", off,
                          table->names_bytes);
    *text = (const char *)table->names.p + off;
    *len = (size_t)(end - table->names.p) - (size_t)off;
    return true;
}

static bool read_entry(struct table *table, struct td_h5_cursor *c)
{
    enum { CACHE_SOFT_LINK = 2 };
    struct td_h5 *h = table->h;
    struct td_h5_link link = {.at = c->addr};
    uint64_t name = td_h5_number(c, h->offset_bytes);
    link.object = td_h5_number(c, h->offset_bytes);
    unsigned cache = td_h5_u32(c);
    (void)td_h5_take(c, 4);
    uint64_t path = td_h5_u32(c);
    (void)td_h5_take(c, ENTRY_SCRATCH_BYTES - 4);
    if (!heap_string(table, name, link.at, &link.name, &link.name_len))
        return false;
    link.kind = cache == CACHE_SOFT_LINK ? TD_H5_SOFT : TD_H5_HARD;
    if (link.kind == TD_H5_SOFT && !heap_string(table, path, link.at, &link.path, &link.path_len))
        return false;
    return table->each(table->context, &link);
}

static bool read_symbols(struct table *table, uint64_t addr)
{
    static const char what[] = "symbol table node";
    uint8_t prefix[8];
    struct td_h5 *h = table->h;
    if (!td_h5_visit(h, addr, what) || !td_h5_read(h, addr, prefix, sizeof prefix, what))
        return false;
    struct td_h5_cursor c = {.p = prefix, .left = sizeof prefix};
    if (!td_h5_signature(&c, "SNOD") || td_h5_u8(&c) != 1)
        return td_h5_fail(h, addr, "%s: no signature \"SNOD\", or an unknown version", what);
    (void)td_h5_take(&c, 1);
    unsigned count = td_h5_u16(&c);
    size_t entry = 2 * (size_t)h->offset_bytes + 8 + ENTRY_SCRATCH_BYTES;
    if (!td_h5_load(h, &table->node, 0, addr + sizeof prefix, count * entry, what))
        return false;
    c = (struct td_h5_cursor){.p = table->node.p, .left = count * entry, .addr = addr + sizeof prefix};
    for (unsigned i = 0; i < count; i++)
        if (!read_entry(table, &c))
            return false;
    return true;
}

/* Reads a node of the B-tree. Its children must be one level lower, so the walk ends whatever their addresses are. */
static bool read_tree_node(struct table *table, const struct table_node *node)
{
    static const char what[] = "group B-tree node";
    uint8_t prefix[8 + 2 * 8];
    struct td_h5 *h = table->h;
    size_t prefix_bytes = 8 + 2 * (size_t)h->offset_bytes;
    if (!td_h5_visit(h, node->addr, what) || !td_h5_read(h, node->addr, prefix, prefix_bytes, what))
        return false;
    struct td_h5_cursor c = {.p = prefix, .left = prefix_bytes};
    if (!td_h5_signature(&c, "TREE") || td_h5_u8(&c) != 0)
        return td_h5_fail(h, node->addr, "%s: no signature \"TREE\", or a B-tree of another type", what);
    unsigned level = td_h5_u8(&c);
    unsigned count = td_h5_u16(&c);
    if (node->level != ANY_LEVEL && level != node->level)
        return td_h5_fail(h, node->addr, "%s: level %u where %u would be right", what, level, node->level);
    size_t pair = (size_t)h->length_bytes + h->offset_bytes;
    uint64_t at = node->addr + prefix_bytes;
    if (!td_h5_load(h, &table->node, 0, at, count * pair, what))
        return false;
    c = (struct td_h5_cursor){.p = table->node.p, .left = count * pair, .addr = at};
    for (unsigned i = 0; i < count; i++) {
        (void)td_h5_number(&c, h->length_bytes); /* the key: a name to search by */
        if (!table_push(table, td_h5_number(&c, h->offset_bytes), level == 0 ? ANY_LEVEL + 1 : level - 1))
            return false;
    }
    return true;
}

static bool each_symbol(struct td_h5 *h, struct td_h5_cursor body, td_h5_link_fn *each, void *context)
{
    struct table table = {.h = h, .each = each, .context = context};
    uint64_t at = body.addr;
    uint64_t tree = td_h5_number(&body, h->offset_bytes);
    uint64_t heap = td_h5_number(&body, h->offset_bytes);
    if (body.bad)
        return td_h5_fail(h, at, "symbol table: its message is too short");
    bool ok = read_local_heap(&table, heap) && table_push(&table, tree, ANY_LEVEL);
    while (ok && table.node_count > 0) {
        struct table_node next = table.nodes[--table.node_count];
        ok = next.level > ANY_LEVEL ? read_symbols(&table, next.addr) : read_tree_node(&table, &next);
    }
    td_h5_buffer_fini(&table.names);
    td_h5_buffer_fini(&table.node);
    free(table.nodes);
    return ok;
}

/* ---- link messages ------------------------------------------------------------------------------------- */

struct links {
    struct td_h5 *h;
    td_h5_link_fn *each;
    void *context;
};

/* Reads the value of an external link: flags, then a file's name and a path, each with a NUL. */
static bool read_external(struct td_h5_cursor value, struct td_h5_link *link)
{
    (void)td_h5_u8(&value);
    const uint8_t *end = value.bad || value.left == 0 ? NULL : memchr(value.p, 0, value.left);
    if (end == NULL)
        return false;
    link->file = (const char *)value.p;
    link->file_len = (size_t)(end - value.p);
    (void)td_h5_take(&value, link->file_len + 1);
    end = value.left == 0 ? NULL : memchr(value.p, 0, value.left);
    if (end == NULL)
        return false;
    link->path = (const char *)value.p;
    link->path_len = (size_t)(end - value.p);
    return true;
}

static bool read_target(struct td_h5 *h, unsigned type, struct td_h5_cursor *c, struct td_h5_link *link)
{
    enum { TYPE_HARD = 0, TYPE_SOFT = 1, TYPE_EXTERNAL = 64 };
    if (type == TYPE_HARD) {
        link->kind = TD_H5_HARD;
        link->object = td_h5_number(c, h->offset_bytes);
        return !c->bad;
    }
    size_t len = td_h5_u16(c);
    struct td_h5_cursor value = {.left = len, .addr = c->addr};
    value.p = td_h5_take(c, len);
    if (c->bad)
        return false;
    if (type == TYPE_EXTERNAL) {
        link->kind = TD_H5_EXTERNAL_LINK;
        return read_external(value, link);
    }
    link->kind = type == TYPE_SOFT ? TD_H5_SOFT : TD_H5_USER_LINK;
    link->path = (const char *)value.p;
    link->path_len = len;
    return true;
}

static bool read_link(void *context, struct td_h5_cursor c)
{
    enum { HAS_ORDER = 0x04, HAS_TYPE = 0x08, HAS_CHARSET = 0x10 };
    const struct links *links = context;
    struct td_h5_link link = {.at = c.addr};
    unsigned version = td_h5_u8(&c);
    unsigned flags = td_h5_u8(&c);
    if (c.bad || version != 1)
        return td_h5_fail(links->h, link.at, "link: version %u is unknown; 1 is known", version);
    unsigned type = (flags & HAS_TYPE) != 0 ? td_h5_u8(&c) : 0;
    if ((flags & HAS_ORDER) != 0)
        (void)td_h5_take(&c, 8);
    if ((flags & HAS_CHARSET) != 0)
        (void)td_h5_take(&c, 1);
    uint64_t len = td_h5_number(&c, 1U << (flags & 3));
    if (len > c.left)
        c.bad = true;
    link.name_len = c.bad ? 0 : (size_t)len;
    link.name = (const char *)td_h5_take(&c, link.name_len);
    if (c.bad || !read_target(links->h, type, &c, &link))
        return td_h5_fail(links->h, link.at, "link: its message is too short");
    return links->each(links->context, &link);
}

bool td_h5_each_link(struct td_h5 *h, const struct td_h5_header *header, td_h5_link_fn *each, void *context)
{
    struct links links = {.h = h, .each = each, .context = context};
    struct td_h5_place place = {0};
    struct td_h5_message message;
    bool ok = true;
    while (ok && td_h5_next_message(h, header, &place, &message)) {
        if (message.type == TD_H5_SYMBOL_TABLE)
            ok = each_symbol(h, message.body, each, context);
        else if (message.type == TD_H5_LINK)
            ok = read_link(&links, message.body);
        else if (message.type == TD_H5_LINK_INFO)
            ok = td_h5_each_dense(h, message.body, "link info", TD_H5_TREE_LINKS, read_link, &links);
    }
    return ok && h->err->code == TD_OK;
}
