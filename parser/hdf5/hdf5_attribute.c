/* Attributes and the strings they point at: the specification's IV.A.2.m, IV.A.2.v and III.E. A string of variable
 * length is an object of the global heap. A collection of that heap is read once, and the addresses of its objects are
 * kept in a map, because many attributes point into one collection. */
#include "parser/hdf5/hdf5_attribute.h"

#include "core/buffer.h"
#include "core/checked.h"
#include "core/json/json.h"
#include "core/utf8.h"
#include "parser/format/manifest.h"
#include "parser/hdf5/hdf5_heap.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ITEMS_MAX = 64,         /* longer lists are cut */
    HEAP_PREFIX_BYTES = 16, /* of the global heap and of its objects: shorter lengths are padded */
};

/* ---- messages ------------------------------------------------------------------------------------------ */

struct attributes {
    struct td_h5 *h;
    td_h5_attribute_fn *each;
    void *context;
};

/* Takes a part of the message that has its own length; version 1 pads it to a multiple of 8. */
static struct td_h5_cursor take_part(struct td_h5_cursor *c, unsigned version, size_t len)
{
    struct td_h5_cursor part = {.left = len, .addr = c->addr};
    part.p = td_h5_take(c, version == 1 ? (len + 7) / 8 * 8 : len);
    return part;
}

static bool read_attribute(void *context, struct td_h5_cursor c)
{
    enum { SHARED_BITS = 0x03 };
    const struct attributes *attributes = context;
    struct td_h5 *h = attributes->h;
    struct td_h5_attribute attribute = {0};
    uint64_t at = c.addr;
    unsigned version = td_h5_u8(&c);
    unsigned flags = td_h5_u8(&c);
    size_t name_len = td_h5_u16(&c);
    size_t type_len = td_h5_u16(&c);
    size_t space_len = td_h5_u16(&c);
    if (version == 3)
        (void)td_h5_take(&c, 1); /* the name's character set */
    struct td_h5_cursor name = take_part(&c, version, name_len);
    struct td_h5_cursor type = take_part(&c, version, type_len);
    struct td_h5_cursor space = take_part(&c, version, space_len);
    if (c.bad || version < 1 || version > 3)
        return td_h5_fail(h, at, "attribute: version %u is unknown, or its message is too short", version);
    if (version > 1 && (flags & SHARED_BITS) != 0) /* the attribute of a committed type is left out */
        return true;
    attribute.name = (const char *)name.p;
    attribute.name_len = strnlen(attribute.name, name_len);
    if (!td_h5_type_read(h, type, &attribute.type) || !td_h5_space_read(h, space, &attribute.space))
        return false;
    uint64_t bytes;
    if (!td_h5_space_elems(&attribute.space, &attribute.elems) ||
        !td_mul_u64(attribute.elems, attribute.type.elem_bytes, &bytes) || bytes > c.left)
        return td_h5_fail(h, at, "attribute \"%.96s\": its value is larger than its message", attribute.name);
    attribute.data = c;
    attribute.data.left = (size_t)bytes;
    return attributes->each(attributes->context, &attribute);
}

bool td_h5_each_attribute(struct td_h5 *h, const struct td_h5_header *header, td_h5_attribute_fn *each, void *context)
{
    struct attributes attributes = {.h = h, .each = each, .context = context};
    struct td_h5_place place = {0};
    struct td_h5_message message;
    bool ok = true;
    while (ok && td_h5_next_message(h, header, &place, &message)) {
        if ((message.flags & TD_H5_MESSAGE_SHARED) != 0)
            continue;
        if (message.type == TD_H5_ATTRIBUTE)
            ok = read_attribute(&attributes, message.body);
        else if (message.type == TD_H5_ATTRIBUTE_INFO)
            ok =
                td_h5_each_dense(h, message.body, "attribute info", TD_H5_TREE_ATTRIBUTES, read_attribute, &attributes);
    }
    return ok && h->err->code == TD_OK;
}

/* ---- strings in the global heap ------------------------------------------------------------------------ */

void td_h5_strings_fini(struct td_h5_strings *strings)
{
    td_h5_buffer_fini(&strings->bytes);
    td_h5_map_fini(&strings->objects);
}

/* Returns the key of an object of the global heap; index 0 stands for the collection itself. */
static uint64_t object_key(uint64_t collection, uint32_t index)
{
    return collection << 16 | index;
}

/* Enters every object of the collection at addr in the map. A damaged collection has none. */
static bool index_collection(struct td_h5 *h, struct td_h5_strings *strings, uint64_t addr)
{
    static const char what[] = "global heap";
    uint8_t prefix[HEAP_PREFIX_BYTES];
    if (!td_h5_within(h, addr, sizeof prefix))
        return true;
    if (!td_h5_read(h, addr, prefix, sizeof prefix, what))
        return false;
    struct td_h5_cursor c = {.p = prefix, .left = sizeof prefix};
    bool known = td_h5_signature(&c, "GCOL") && td_h5_u8(&c) == 1;
    (void)td_h5_take(&c, 3);
    uint64_t len = td_h5_number(&c, h->length_bytes);
    if (!known || len < sizeof prefix || !td_h5_within(h, addr, len))
        return true;
    if (!td_h5_load(h, &strings->bytes, 0, addr, len, what))
        return false;
    c = (struct td_h5_cursor){.p = strings->bytes.p, .left = (size_t)len, .addr = addr};
    (void)td_h5_take(&c, sizeof prefix);
    for (;;) {
        uint32_t index = td_h5_u16(&c);
        (void)td_h5_take(&c, 6); /* references, reserved */
        uint64_t object_len = td_h5_number(&c, h->length_bytes);
        (void)td_h5_take(&c, 8 - h->length_bytes);
        if (c.bad || index == 0 || object_len > c.left) /* 0: the free space, which is always last */
            return true;
        size_t value = (size_t)c.addr;
        bool is_new;
        if (!td_h5_map_add(h, &strings->objects, object_key(addr, index), &value, &is_new))
            return false;
        uint64_t padded = (object_len + 7) / 8 * 8;
        (void)td_h5_take(&c, padded < c.left ? (size_t)padded : c.left);
    }
}

/* Sets *addr to the address of an object's bytes; 0 when there is no such object. */
static bool find_object(struct td_h5 *h, struct td_h5_strings *strings, uint64_t collection, uint32_t index,
                        uint64_t *addr)
{
    enum { ADDRESS_BITS = 48, INDEX_MAX = 0xFFFF };
    size_t value = 0;
    bool is_new;
    *addr = 0;
    if (collection >> ADDRESS_BITS != 0 || index == 0 || index > INDEX_MAX)
        return true;
    if (!td_h5_map_add(h, &strings->objects, object_key(collection, 0), &value, &is_new) ||
        (is_new && !index_collection(h, strings, collection)))
        return false;
    value = 0;
    if (!td_h5_map_add(h, &strings->objects, object_key(collection, index), &value, &is_new))
        return false;
    *addr = value;
    return true;
}

/* Reads a string in the global heap, as much of it as is shown. *text is NULL when the heap holds no such string. */
static bool heap_string(struct td_h5 *h, struct td_h5_strings *strings, struct td_h5_cursor *c, const char **text,
                        size_t *len)
{
    static const char what[] = "string in the global heap";
    uint32_t wanted = td_h5_u32(c);
    uint64_t collection = td_h5_number(c, h->offset_bytes);
    uint32_t index = td_h5_u32(c);
    uint8_t length[8];
    uint64_t addr;
    *text = wanted == 0 ? "" : NULL;
    *len = 0;
    if (c->bad || wanted == 0)
        return true;
    if (!find_object(h, strings, collection, index, &addr))
        return false;
    if (addr == 0)
        return true;
    if (!td_h5_read(h, addr - sizeof length, length, sizeof length, what))
        return false;
    struct td_h5_cursor head = {.p = length, .left = sizeof length};
    if (wanted > td_h5_number(&head, h->length_bytes))
        return true;
    size_t loaded = wanted <= TD_METADATA_TEXT_MAX ? wanted : TD_METADATA_TEXT_MAX + 1; /* one more: where to cut */
    if (!td_h5_load(h, &strings->bytes, 0, addr, loaded, what))
        return false;
    *text = (const char *)strings->bytes.p;
    *len = strnlen(*text, loaded);
    if (*len == loaded)
        *len = wanted;
    return true;
}

/* ---- values as JSON ------------------------------------------------------------------------------------ */

static void write_string(struct td_buffer *out, struct td_text text)
{
    size_t shown = text.len < TD_METADATA_TEXT_MAX ? text.len : TD_METADATA_TEXT_MAX;
    while (shown < text.len && shown > 0 && ((uint8_t)text.p[shown] & 0xC0) == 0x80)
        shown--; /* not within a character */
    td_metadata_write_text(out, td_text_n(text.p, shown), td_utf8_valid(text.p, shown), text.len);
}

static double half_to_double(uint16_t bits)
{
    int exponent = bits >> 10 & 0x1F;
    double mantissa = bits & 0x3FF;
    double value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(mantissa + 1024, exponent - 25);
    if (exponent == 0x1F)
        value = mantissa == 0 ? (double)INFINITY : (double)NAN;
    return (bits & 0x8000) != 0 ? -value : value;
}

static void write_float(struct td_buffer *out, uint64_t bits, uint32_t bytes)
{
    double value;
    float single;
    uint32_t low = (uint32_t)bits;
    if (bytes == 8) {
        memcpy(&value, &bits, sizeof value);
    } else if (bytes == 4) {
        memcpy(&single, &low, sizeof single);
        value = (double)single;
    } else {
        value = half_to_double((uint16_t)bits);
    }
    td_json_write_real(out, value, bytes < 8);
}

static void write_int(struct td_buffer *out, uint64_t bits, uint32_t bytes)
{
    uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    int64_t value = (int64_t)((bits ^ sign) - sign);
    td_buffer_printf(out, "%" PRId64, value);
}

/* Writes the next element at the cursor. */
static bool write_item(struct td_h5 *h, struct td_h5_strings *strings, const struct td_h5_type *type,
                       struct td_h5_cursor *c, struct td_buffer *out)
{
    const char *text;
    size_t len;
    switch (type->kind) {
    case TD_H5_KIND_STRING:
        text = (const char *)td_h5_take(c, type->elem_bytes);
        len = text == NULL ? 0 : strnlen(text, type->elem_bytes);
        break;
    case TD_H5_KIND_VLEN_STRING:
        if (!heap_string(h, strings, c, &text, &len))
            return false;
        break;
    case TD_H5_KIND_UINT:
        td_buffer_u64(out, td_h5_number(c, type->elem_bytes));
        return true;
    case TD_H5_KIND_INT:
        write_int(out, td_h5_number(c, type->elem_bytes), type->elem_bytes);
        return true;
    case TD_H5_KIND_BOOL:
        td_buffer_puts(out, td_h5_u8(c) != 0 ? "true" : "false");
        return true;
    default:
        write_float(out, td_h5_number(c, type->elem_bytes), type->elem_bytes);
        return true;
    }
    if (text == NULL)
        td_buffer_puts(out, "null");
    else
        write_string(out, td_text_n(text, len));
    return true;
}

/* Returns whether values of this kind are shown: strings, and numbers of at most 8 bytes. */
static bool is_shown(const struct td_h5 *h, const struct td_h5_attribute *a)
{
    switch (a->type.kind) {
    case TD_H5_KIND_OTHER:
        return false;
    case TD_H5_KIND_STRING:
        return a->type.elem_bytes > 0;
    case TD_H5_KIND_VLEN_STRING:
        return a->type.elem_bytes == 8 + h->offset_bytes;
    case TD_H5_KIND_FLOAT:
        return a->type.elem_bytes == 8 || a->type.elem_bytes == 4 || strcmp(a->type.dtype->name, "F16") == 0;
    default:
        return true;
    }
}

bool td_h5_attribute_json(struct td_h5 *h, struct td_h5_strings *strings, const struct td_h5_attribute *attribute,
                          struct td_buffer *out)
{
    if (!is_shown(h, attribute) || attribute->space.is_null || attribute->space.rank > 1)
        return true;
    struct td_h5_cursor c = attribute->data;
    if (attribute->space.rank == 0)
        return write_item(h, strings, &attribute->type, &c, out);
    uint64_t shown = attribute->elems < ITEMS_MAX ? attribute->elems : ITEMS_MAX;
    if (shown < attribute->elems) /* by hand: see td_metadata_write_text */
        td_buffer_printf(out, "{\"length\":%" PRIu64 ",\"first\":", attribute->elems);
    td_buffer_putc(out, '[');
    for (uint64_t i = 0; i < shown; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        if (!write_item(h, strings, &attribute->type, &c, out))
            return false;
    }
    td_buffer_puts(out, shown < attribute->elems ? "]}" : "]");
    return true;
}

bool td_h5_attribute_string(struct td_h5 *h, struct td_h5_strings *strings, const struct td_h5_attribute *attribute,
                            const char **text, size_t *len)
{
    struct td_h5_cursor c = attribute->data;
    if (!is_shown(h, attribute) || attribute->space.rank != 0 || attribute->elems != 1)
        return false;
    if (attribute->type.kind == TD_H5_KIND_VLEN_STRING)
        return heap_string(h, strings, &c, text, len) && *text != NULL;
    if (attribute->type.kind != TD_H5_KIND_STRING)
        return false;
    *text = (const char *)td_h5_take(&c, attribute->type.elem_bytes);
    *len = *text == NULL ? 0 : strnlen(*text, attribute->type.elem_bytes);
    return *text != NULL;
}
