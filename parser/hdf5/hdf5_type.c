/* Datatype and dataspace messages: the specification's IV.A.2.b and IV.A.2.d. A datatype is described bit by bit (size,
 * byte order, place of sign, exponent and mantissa), so a known type is found by comparing all of its description. */
#include "parser/hdf5/hdf5_type.h"

#include "core/checked.h"

#include <inttypes.h>
#include <string.h>

enum type_class {
    CLASS_FIXED_POINT,
    CLASS_FLOAT,
    CLASS_TIME,
    CLASS_STRING,
    CLASS_BITFIELD,
    CLASS_OPAQUE,
    CLASS_COMPOUND,
    CLASS_REFERENCE,
    CLASS_ENUM,
    CLASS_VLEN,
    CLASS_ARRAY,
    CLASS_COMPLEX,
};

/* The first eight bytes of a datatype. */
struct type_head {
    unsigned version;
    enum type_class class;
    uint32_t bits; /* 24 bits, whose meaning depends on the class */
    uint32_t size;
};

static struct type_head take_head(struct td_h5_cursor *c)
{
    struct type_head head;
    uint32_t word = td_h5_u32(c);
    head.class = (enum type_class)(word & 0x0F);
    head.version = (uint8_t)word >> 4;
    head.bits = word >> 8;
    head.size = td_h5_u32(c);
    return head;
}

static const struct td_dtype *named_dtype(const char *name)
{
    return td_dtype_find(td_text_of(name));
}

static void set_type(struct td_h5_type *out, const char *name, const char *reason, enum td_h5_kind kind)
{
    out->dtype = named_dtype(name);
    out->reason = reason;
    out->kind = kind;
}

/* Reads an integer, or a bit field, which is an unsigned integer as in h5py. */
static void read_fixed(struct td_h5_cursor *c, const struct type_head *head, struct td_h5_type *out)
{
    static const char *const names[2][4] = {{"U8", "U16", "U32", "U64"}, {"I8", "I16", "I32", "I64"}};
    enum { BIG_ENDIAN_BIT = 0x01, SIGNED_BIT = 0x08 };
    unsigned offset = td_h5_u16(c);
    unsigned precision = td_h5_u16(c);
    bool is_integer = head->class == CLASS_FIXED_POINT;
    bool is_signed = is_integer && (head->bits & SIGNED_BIT) != 0;
    size_t width = 0;
    while (width < 4 && head->size != UINT32_C(1) << width)
        width++;
    if (width == 4 || offset != 0 || precision != 8 * head->size) {
        set_type(out, "OPAQUE", is_integer ? "integer of an unusual size" : "bit fields of an unusual size",
                 TD_H5_KIND_OTHER);
        return;
    }
    bool swapped = (head->bits & BIG_ENDIAN_BIT) != 0 && head->size > 1;
    out->big_endian = swapped;
    set_type(out, names[is_signed][width], NULL,
             swapped ? TD_H5_KIND_OTHER : (is_signed ? TD_H5_KIND_INT : TD_H5_KIND_UINT));
}

/* All numbers that describe a float. A type is one of these floats only when all of them agree. */
struct float_layout {
    const char *name;
    uint32_t size;
    uint32_t bias;
    uint16_t precision;
    uint8_t sign_at, norm, exponent_at, exponent_bits, mantissa_at, mantissa_bits;
};

/* norm 2: the mantissa's first bit is implied; 0: it is stored. */
static const struct float_layout floats[] = {
    {"F16", 2, 15, 16, 15, 2, 10, 5, 0, 10},    {"F32", 4, 127, 32, 31, 2, 23, 8, 0, 23},
    {"F64", 8, 1023, 64, 63, 2, 52, 11, 0, 52}, {"F128", 16, 16383, 80, 79, 0, 64, 15, 0, 64}, /* x86's long double */
    {"BF16", 2, 127, 16, 15, 2, 7, 8, 0, 7}, /* these three: H5T_FLOAT_* of HDF5 2.0 */
    {"F8_E4M3", 1, 7, 8, 7, 2, 3, 4, 0, 3},     {"F8_E5M2", 1, 15, 8, 7, 2, 2, 5, 0, 2},
};

static void read_float(struct td_h5_cursor *c, const struct type_head *head, struct td_h5_type *out)
{
    enum { BYTE_ORDER_BITS = 0x41, BIG_ENDIAN_BIT = 0x01 };
    struct float_layout got = {.size = head->size};
    unsigned offset = td_h5_u16(c);
    got.precision = td_h5_u16(c);
    got.exponent_at = td_h5_u8(c);
    got.exponent_bits = td_h5_u8(c);
    got.mantissa_at = td_h5_u8(c);
    got.mantissa_bits = td_h5_u8(c);
    got.bias = td_h5_u32(c);
    got.norm = head->bits >> 4 & 3;
    got.sign_at = (uint8_t)(head->bits >> 8);
    unsigned order = head->bits & BYTE_ORDER_BITS;
    for (size_t i = 0; i < sizeof floats / sizeof *floats && offset == 0; i++) {
        const struct float_layout *f = &floats[i];
        if (got.size != f->size || got.bias != f->bias || got.precision != f->precision || got.norm != f->norm ||
            got.sign_at != f->sign_at || got.exponent_at != f->exponent_at || got.exponent_bits != f->exponent_bits ||
            got.mantissa_at != f->mantissa_at || got.mantissa_bits != f->mantissa_bits)
            continue;
        bool swapped = order != 0 && f->size > 1;
        bool is_vax = swapped && order != BIG_ENDIAN_BIT;
        out->big_endian = swapped && !is_vax;
        set_type(out, f->name, is_vax ? "VAX byte order" : NULL, swapped ? TD_H5_KIND_OTHER : TD_H5_KIND_FLOAT);
        return;
    }
    set_type(out, "OPAQUE", "float of an unusual layout", TD_H5_KIND_OTHER);
}

/* Reads the base type of an enumeration or a complex number, which must be a number. */
static void read_number(struct td_h5_cursor *c, struct td_h5_type *out)
{
    struct type_head head = take_head(c);
    out->elem_bytes = head.size;
    if (head.class == CLASS_FIXED_POINT)
        read_fixed(c, &head, out);
    else if (head.class == CLASS_FLOAT)
        read_float(c, &head, out);
    else
        set_type(out, "OPAQUE", "type of an unusual base", TD_H5_KIND_OTHER);
}

/* Takes a NUL-terminated name, padded to a multiple of 8 in versions 1 and 2. Returns NULL and sets c->bad when the
 * name does not end. */
static const char *take_name(struct td_h5_cursor *c, unsigned version)
{
    const uint8_t *end = c->bad || c->left == 0 ? NULL : memchr(c->p, 0, c->left);
    if (end == NULL) {
        c->bad = true;
        return NULL;
    }
    size_t len = (size_t)(end - c->p) + 1;
    return (const char *)td_h5_take(c, version < 3 ? (len + 7) / 8 * 8 : len);
}

/* Reads an enumeration. h5py's booleans are FALSE = 0 and TRUE = 1, in either order, over a number of one byte; any
 * other enumeration has the type of its numbers. */
static void read_enum(struct td_h5_cursor *c, const struct type_head *head, struct td_h5_type *out)
{
    uint32_t members = head->bits & 0xFFFF;
    read_number(c, out);
    if (out->elem_bytes != head->size)
        set_type(out, "OPAQUE", "type of an unusual base", TD_H5_KIND_OTHER);
    if (members != 2 || out->dtype->block_bytes != 1 || out->reason != NULL)
        return;
    const char *first = take_name(c, head->version);
    const char *second = take_name(c, head->version);
    const uint8_t *values = td_h5_take(c, 2);
    if (values == NULL)
        return;
    bool is_bool = strcmp(first, "FALSE") == 0 && strcmp(second, "TRUE") == 0 && values[0] == 0 && values[1] == 1;
    bool is_reversed = strcmp(first, "TRUE") == 0 && strcmp(second, "FALSE") == 0 && values[0] == 1 && values[1] == 0;
    if (is_bool || is_reversed)
        set_type(out, "BOOL", NULL, TD_H5_KIND_BOOL);
}

/* Takes the offset of a compound's member, and everything up to the member's type. */
static uint64_t take_member_offset(struct td_h5_cursor *c, const struct type_head *head)
{
    if (head->version < 3) {
        uint64_t offset = td_h5_u32(c);
        if (head->version == 1)
            (void)td_h5_take(c, 28); /* dimensions, which no writer has used for decades */
        return offset;
    }
    unsigned bytes = 1;
    while (bytes < 4 && head->size >> 8 * bytes != 0)
        bytes++;
    return td_h5_number(c, bytes);
}

static void set_complex(const struct td_h5_type *part, struct td_h5_type *out)
{
    static const char *const names[][2] = {{"F16", "C32"}, {"F32", "C64"}, {"F64", "C128"}, {"F128", "C256"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (part->dtype == named_dtype(names[i][0])) {
            out->big_endian = part->big_endian;
            set_type(out, names[i][1], part->reason, TD_H5_KIND_OTHER);
        }
}

/* Reads a compound type. h5py's complex numbers are a compound {r, i} of two equal floats without padding. */
static void read_compound(struct td_h5_cursor *c, const struct type_head *head, struct td_h5_type *out)
{
    struct td_h5_type parts[2] = {{0}, {0}};
    static const char *const names[] = {"r", "i"};
    set_type(out, "COMPOUND", "compound type", TD_H5_KIND_OTHER);
    if ((head->bits & 0xFFFF) != 2)
        return;
    for (size_t i = 0; i < 2; i++) {
        const char *name = take_name(c, head->version);
        uint64_t offset = take_member_offset(c, head);
        if (name == NULL || strcmp(name, names[i]) != 0)
            return;
        read_number(c, &parts[i]);
        if (c->bad || offset != i * (uint64_t)parts[i].elem_bytes || parts[i].elem_bytes != head->size / 2)
            return;
    }
    if (parts[0].dtype == parts[1].dtype && parts[0].reason == parts[1].reason &&
        parts[0].big_endian == parts[1].big_endian && head->size % 2 == 0)
        set_complex(&parts[0], out);
}

/* Reads HDF5 2.0's own complex numbers: two of the base, in rectangular form. */
static void read_complex(struct td_h5_cursor *c, const struct type_head *head, struct td_h5_type *out)
{
    enum { HOMOGENEOUS = 0x01, FORM_BITS = 0x06 };
    struct td_h5_type part = {0};
    set_type(out, "COMPOUND", "complex type of an unusual layout", TD_H5_KIND_OTHER);
    read_number(c, &part);
    if (!c->bad && (head->bits & HOMOGENEOUS) != 0 && (head->bits & FORM_BITS) == 0 &&
        head->size / 2 == part.elem_bytes && head->size % 2 == 0)
        set_complex(&part, out);
}

static void read_vlen(const struct type_head *head, struct td_h5_type *out)
{
    enum { VLEN_STRING = 1 };
    if ((head->bits & 0x0F) == VLEN_STRING)
        set_type(out, "STRING", "variable-length strings", TD_H5_KIND_VLEN_STRING);
    else
        set_type(out, "OBJECT", "variable-length type", TD_H5_KIND_OTHER);
}

bool td_h5_type_read(struct td_h5 *h, struct td_h5_cursor body, struct td_h5_type *out)
{
    enum { VERSION_MAX = 5 };
    uint64_t at = body.addr;
    struct type_head head = take_head(&body);
    *out = (struct td_h5_type){.elem_bytes = head.size};
    set_type(out, "OPAQUE", "unknown type", TD_H5_KIND_OTHER);
    if (!body.bad && (head.version < 1 || head.version > VERSION_MAX))
        return td_h5_fail(h, at, "datatype: version %u is unknown; 1 to 5 are known", head.version);
    switch (head.class) {
    case CLASS_FIXED_POINT:
    case CLASS_BITFIELD:
        read_fixed(&body, &head, out);
        break;
    case CLASS_FLOAT:
        read_float(&body, &head, out);
        break;
    case CLASS_TIME:
        set_type(out, "OBJECT", "time type", TD_H5_KIND_OTHER);
        break;
    case CLASS_STRING:
        set_type(out, "STRING", "strings", TD_H5_KIND_STRING);
        break;
    case CLASS_OPAQUE:
        set_type(out, "OPAQUE", "opaque type", TD_H5_KIND_OTHER);
        out->opaque = true;
        break;
    case CLASS_COMPOUND:
        read_compound(&body, &head, out);
        body.bad = false; /* the members are read only to recognise complex numbers */
        break;
    case CLASS_REFERENCE:
        set_type(out, "OBJECT", "references", TD_H5_KIND_OTHER);
        break;
    case CLASS_ENUM:
        read_enum(&body, &head, out);
        break;
    case CLASS_VLEN:
        read_vlen(&head, out);
        break;
    case CLASS_ARRAY:
        set_type(out, "OBJECT", "array type", TD_H5_KIND_OTHER);
        break;
    case CLASS_COMPLEX:
        read_complex(&body, &head, out);
        break;
    default:
        break;
    }
    out->elem_bytes = head.size;
    return !body.bad || td_h5_fail(h, at, "datatype: its message is too short");
}

bool td_h5_space_read(struct td_h5 *h, struct td_h5_cursor body, struct td_h5_space *out)
{
    enum { TYPE_NULL = 2, TYPE_MAX = 2, MAX_RANK = 32, HAS_MAX = 0x01 };
    uint64_t at = body.addr;
    unsigned version = td_h5_u8(&body);
    unsigned rank = td_h5_u8(&body);
    bool has_max = (td_h5_u8(&body) & HAS_MAX) != 0;
    unsigned type = td_h5_u8(&body);
    if (version == 1)
        (void)td_h5_take(&body, 4);
    if (body.bad || version < 1 || version > 2)
        return td_h5_fail(h, at, "dataspace: version %u is unknown; 1 and 2 are known", version);
    if (rank > MAX_RANK)
        return td_h5_fail(h, at + 1, "dataspace: %u dimensions are more than HDF5's 32", rank);
    if (version == 2 && (type > TYPE_MAX || (type != 1 && rank > 0)))
        return td_h5_fail(h, at + 3, "dataspace: type %u with %u dimensions", type, rank);
    out->rank = rank;
    out->is_null = version == 2 && type == TYPE_NULL;
    for (unsigned i = 0; i < rank; i++)
        out->max_dims[i] = out->dims[i] = td_h5_number(&body, h->length_bytes);
    const uint64_t unlimited = h->length_bytes < 8 ? (UINT64_C(1) << 8 * h->length_bytes) - 1 : UINT64_MAX;
    for (unsigned i = 0; i < rank && has_max; i++) {
        uint64_t max = td_h5_number(&body, h->length_bytes);
        out->max_dims[i] = max == unlimited ? TD_H5_UNLIMITED : max;
    }
    return !body.bad || td_h5_fail(h, at, "dataspace: its message is too short");
}

bool td_h5_space_elems(const struct td_h5_space *space, uint64_t *elems)
{
    bool fits = true;
    *elems = space->is_null ? 0 : 1;
    for (uint32_t i = 0; i < space->rank; i++)
        if (space->dims[i] == 0) {
            *elems = 0;
            return true;
        }
    for (uint32_t i = 0; i < space->rank; i++)
        fits = fits && td_mul_u64(*elems, space->dims[i], elems);
    return fits;
}
