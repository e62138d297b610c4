/* The walk enters each field once, in the order of a batch's nodes, with a stack of the fields that are open. It writes
 * the text of a type in three parts: the text before it, its head, and, when its children are done, its tail. */
#include "parser/rows/arrow/arrow_schema.h"

#include "core/input.h"
#include "core/json/json.h"
#include "core/utf8.h"
#include "parser/rows/index/row_memory.h"

#include <inttypes.h>
#include <string.h>

/* The union Type of Schema.fbs. */
enum type {
    COLUMNS = 0, /* ours: the fields of the schema itself */
    NULL_TYPE = 1,
    INT,
    FLOATING_POINT,
    BINARY,
    UTF8,
    BOOL,
    DECIMAL,
    DATE,
    TIME,
    TIMESTAMP,
    INTERVAL,
    LIST,
    STRUCT,
    UNION,
    FIXED_SIZE_BINARY,
    FIXED_SIZE_LIST,
    MAP,
    DURATION,
    LARGE_BINARY,
    LARGE_UTF8,
    LARGE_LIST,
    RUN_END_ENCODED,
    BINARY_VIEW,
    UTF8_VIEW,
    LIST_VIEW,
    LARGE_LIST_VIEW,
    TYPES,
    ENTRIES = 255, /* ours: the struct within a map */
};

/* A field takes at least a distance to it (4 bytes), its table (4) and a distance to its type (4), with a table (4). */
enum { LEAST_FIELD_BYTES = 16 };

struct field {
    struct td_text name;
    bool is_nullable;
    enum type type;
    struct td_flat_table details; /* of the type */
    struct td_flat_vector children;
    bool has_dictionary, is_ordered;
    int64_t dictionary;  /* the dictionary's number */
    unsigned index_bits; /* of a dictionary */
    bool index_is_signed;
    uint64_t items;       /* of a fixed-size list */
    bool has_keys_sorted; /* of a map */
    bool is_hidden;       /* it has no node: a dictionary holds it */
};

/* A field that is open. */
struct level {
    struct field field;
    uint32_t next;             /* child to enter */
    uint32_t node;             /* of the field */
    struct td_text entries;    /* name of a map's child */
    struct td_flat_vector ids; /* of a union */
};

struct walk {
    const struct td_flatbuffer *buffer;
    struct td_arrow_schema *out;
    struct td_buffer *columns; /* NULL: no texts */
    struct td_buffer *traits;  /* NULL: no traits */
    struct td_buffer text;     /* of the type of the column */
    uint64_t fields_left, name_bytes_left, metadata_bytes_left;
    struct td_error *err;
    size_t depth;
    struct level levels[TD_ARROW_MAX_DEPTH + 1];
};

static const char *const obstacles[TD_ARROW_OBSTACLES] = {
    [TD_ARROW_COMPRESSED] = "the file's record batches are compressed; write it without compression",
    [TD_ARROW_BIG_ENDIAN] = "the file is big-endian",
    [TD_ARROW_UNION] = "a column has a union type, and rows of unions are not cut",
    [TD_ARROW_RUN_END] = "a column is run-end encoded, and its rows are not cut",
    [TD_ARROW_VIEW] = "a column has a view type (such as string_view), and rows of views are not cut",
    [TD_ARROW_UNKNOWN_TYPE] = "a column has a type that is not known",
    [TD_ARROW_REPLACED] = "the file replaces the values of a dictionary between its record batches",
};

const char *td_arrow_obstacle_text(uint64_t obstacle)
{
    return obstacle < TD_ARROW_OBSTACLES ? obstacles[obstacle] : obstacles[TD_ARROW_UNKNOWN_TYPE];
}

size_t td_arrow_buffers_of(enum td_arrow_layout layout)
{
    static const uint8_t counts[] = {
        [TD_ARROW_NULL] = 0, [TD_ARROW_FIXED] = 2,      [TD_ARROW_BYTES] = 3,
        [TD_ARROW_LIST] = 2, [TD_ARROW_FIXED_LIST] = 1, [TD_ARROW_STRUCT] = 1,
    };
    return counts[layout];
}

static bool refuse_table(const struct walk *walk, const struct td_flat_table *table, const char *what, int64_t value)
{
    return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->buffer->base + table->at, "%s: %" PRId64, what, value);
}

/* ---- the layout and the head of a type ---- */

/* Reads an integer type of 8, 16, 32 or 64 bits. */
static bool read_int(const struct walk *walk, const struct td_flat_table *table, unsigned *bits, bool *is_signed)
{
    int64_t width;
    uint64_t sign;
    if (!td_flat_signed(walk->buffer, table, 0, 4, 0, &width) || !td_flat_unsigned(walk->buffer, table, 1, 1, 0, &sign))
        return false;
    if (width != 8 && width != 16 && width != 32 && width != 64)
        return refuse_table(walk, table, "bits of an integer, which are 8, 16, 32 or 64", width);
    *bits = (unsigned)width;
    *is_signed = sign != 0;
    return true;
}

static void write_int(struct td_buffer *text, unsigned bits, bool is_signed)
{
    td_buffer_printf(text, "%sint%u", is_signed ? "" : "u", bits);
}

/* Reads a number of a type, which must be in [least, most]. */
static bool read_detail(const struct walk *walk, const struct field *field, unsigned number, unsigned bytes,
                        int64_t absent, int64_t least, int64_t most, int64_t *out)
{
    if (!td_flat_signed(walk->buffer, &field->details, number, bytes, absent, out))
        return false;
    return (*out >= least && *out <= most) || refuse_table(walk, &field->details, "a number of a type is wrong", *out);
}

static const char *const units[] = {"s", "ms", "us", "ns"};

/* Reads numbers, and writes their text. */
static bool read_number(struct walk *walk, const struct field *field, uint64_t *width)
{
    static const char *const floats[] = {"halffloat", "float", "double"};
    int64_t precision = 0, scale = 0, bits = 0;
    unsigned int_bits = 0;
    bool is_signed = false;
    switch (field->type) {
    case INT:
        if (!read_int(walk, &field->details, &int_bits, &is_signed))
            return false;
        *width = int_bits;
        write_int(&walk->text, int_bits, is_signed);
        return true;
    case FLOATING_POINT:
        if (!read_detail(walk, field, 0, 2, 0, 0, 2, &precision))
            return false;
        *width = UINT64_C(16) << precision;
        td_buffer_puts(&walk->text, floats[precision]);
        return true;
    default: /* DECIMAL */
        if (!read_detail(walk, field, 0, 4, 0, INT32_MIN, INT32_MAX, &precision) ||
            !read_detail(walk, field, 1, 4, 0, INT32_MIN, INT32_MAX, &scale) ||
            !read_detail(walk, field, 2, 4, 128, 32, 256, &bits))
            return false;
        if ((bits & (bits - 1)) != 0)
            return refuse_table(walk, &field->details, "bits of a decimal, which are 32, 64, 128 or 256", bits);
        *width = (uint64_t)bits;
        td_buffer_printf(&walk->text, "decimal%" PRId64 "(%" PRId64 ", %" PRId64 ")", bits, precision, scale);
        return true;
    }
}

/* Reads types of dates and times, and writes their text. */
static bool read_time(struct walk *walk, const struct field *field, uint64_t *width)
{
    static const char *const intervals[] = {"month_interval", "day_time_interval", "month_day_nano_interval"};
    const int64_t absent = field->type == TIMESTAMP || field->type == INTERVAL ? 0 : 1;
    const int64_t most = field->type == DATE ? 1 : field->type == INTERVAL ? 2 : 3;
    struct td_text zone;
    int64_t unit, bits;
    if (!read_detail(walk, field, 0, 2, absent, 0, most, &unit))
        return false;
    *width = 64;
    switch (field->type) {
    case DATE:
        *width = unit == 0 ? 32 : 64;
        td_buffer_puts(&walk->text, unit == 0 ? "date32[day]" : "date64[ms]");
        return true;
    case TIME:
        if (!read_detail(walk, field, 1, 4, 32, 32, 64, &bits))
            return false;
        if (bits != (unit < 2 ? 32 : 64))
            return refuse_table(walk, &field->details, "bits of a time that do not fit its unit", bits);
        *width = (uint64_t)bits;
        td_buffer_printf(&walk->text, "time%" PRId64 "[%s]", bits, units[unit]);
        return true;
    case TIMESTAMP:
        if (!td_flat_text(walk->buffer, &field->details, 1, &zone))
            return false;
        td_buffer_printf(&walk->text, "timestamp[%s", units[unit]);
        if (zone.len > 0 && zone.len <= walk->name_bytes_left && td_utf8_valid(zone.p, zone.len)) {
            walk->name_bytes_left -= zone.len;
            td_buffer_puts(&walk->text, ", tz=");
            td_buffer_append(&walk->text, zone.p, zone.len);
        }
        td_buffer_putc(&walk->text, ']');
        return true;
    case INTERVAL:
        *width = UINT64_C(32) << unit;
        td_buffer_puts(&walk->text, intervals[unit]);
        return true;
    default: /* DURATION */
        td_buffer_printf(&walk->text, "duration[%s]", units[unit]);
        return true;
    }
}

/* Reads types that hold other fields, or lists of bytes. Writes the head of their text. */
static bool read_sized(struct walk *walk, struct field *field, uint64_t *width)
{
    int64_t size;
    uint64_t keys_sorted;
    switch (field->type) {
    case FIXED_SIZE_BINARY:
        if (!read_detail(walk, field, 0, 4, 0, 0, INT32_MAX, &size))
            return false;
        *width = 8 * (uint64_t)size;
        td_buffer_printf(&walk->text, "fixed_size_binary[%" PRId64 "]", size);
        return true;
    case FIXED_SIZE_LIST:
        if (!read_detail(walk, field, 0, 4, 0, 0, INT32_MAX, &size))
            return false;
        *width = field->items = (uint64_t)size;
        td_buffer_puts(&walk->text, "fixed_size_list<");
        return true;
    case MAP:
        if (!td_flat_unsigned(walk->buffer, &field->details, 0, 1, 0, &keys_sorted))
            return false;
        field->has_keys_sorted = keys_sorted != 0;
        *width = 4;
        td_buffer_puts(&walk->text, "map<");
        return true;
    default: { /* UNION */
        int64_t mode;
        if (!read_detail(walk, field, 0, 2, 0, 0, 1, &mode))
            return false;
        td_buffer_puts(&walk->text, mode == 0 ? "sparse_union<" : "dense_union<");
        return true;
    }
    }
}

enum { LAYOUT_NONE = -1, ANY_CHILDREN = -1 };

/* The properties that all fields of a type share. */
static const struct {
    int layout;
    int children;
    const char *head; /* NULL: depends on the details */
    uint64_t width;
    enum td_arrow_obstacle obstacle;
    bool (*read)(struct walk *walk, const struct field *field, uint64_t *width);
} types[TYPES] = {
    [NULL_TYPE] = {.layout = TD_ARROW_NULL, .head = "null"},
    [INT] = {.layout = TD_ARROW_FIXED, .read = read_number},
    [FLOATING_POINT] = {.layout = TD_ARROW_FIXED, .read = read_number},
    [BINARY] = {.layout = TD_ARROW_BYTES, .head = "binary", .width = 4},
    [UTF8] = {.layout = TD_ARROW_BYTES, .head = "string", .width = 4},
    [BOOL] = {.layout = TD_ARROW_FIXED, .head = "bool", .width = 1},
    [DECIMAL] = {.layout = TD_ARROW_FIXED, .read = read_number},
    [DATE] = {.layout = TD_ARROW_FIXED, .read = read_time},
    [TIME] = {.layout = TD_ARROW_FIXED, .read = read_time},
    [TIMESTAMP] = {.layout = TD_ARROW_FIXED, .read = read_time},
    [INTERVAL] = {.layout = TD_ARROW_FIXED, .read = read_time},
    [LIST] = {.layout = TD_ARROW_LIST, .children = 1, .head = "list<", .width = 4},
    [STRUCT] = {.layout = TD_ARROW_STRUCT, .children = ANY_CHILDREN, .head = "struct<"},
    [UNION] = {.layout = LAYOUT_NONE, .children = ANY_CHILDREN, .obstacle = TD_ARROW_UNION},
    [FIXED_SIZE_BINARY] = {.layout = TD_ARROW_FIXED},
    [FIXED_SIZE_LIST] = {.layout = TD_ARROW_FIXED_LIST, .children = 1},
    [MAP] = {.layout = TD_ARROW_LIST, .children = 1},
    [DURATION] = {.layout = TD_ARROW_FIXED, .read = read_time},
    [LARGE_BINARY] = {.layout = TD_ARROW_BYTES, .head = "large_binary", .width = 8},
    [LARGE_UTF8] = {.layout = TD_ARROW_BYTES, .head = "large_string", .width = 8},
    [LARGE_LIST] = {.layout = TD_ARROW_LIST, .children = 1, .head = "large_list<", .width = 8},
    [RUN_END_ENCODED] = {LAYOUT_NONE, 2, "run_end_encoded<", 0, TD_ARROW_RUN_END, NULL},
    [BINARY_VIEW] = {.layout = LAYOUT_NONE, .head = "binary_view", .obstacle = TD_ARROW_VIEW},
    [UTF8_VIEW] = {.layout = LAYOUT_NONE, .head = "string_view", .obstacle = TD_ARROW_VIEW},
    [LIST_VIEW] = {LAYOUT_NONE, 1, "list_view<", 0, TD_ARROW_VIEW, NULL},
    [LARGE_LIST_VIEW] = {LAYOUT_NONE, 1, "large_list_view<", 0, TD_ARROW_VIEW, NULL},
};

static void meet_obstacle(struct td_arrow_schema *out, enum td_arrow_obstacle obstacle)
{
    if (out->obstacle == TD_ARROW_NO_OBSTACLE)
        out->obstacle = obstacle;
}

static bool add_node(struct walk *walk, enum td_arrow_layout layout, uint64_t width, uint32_t parent)
{
    struct td_arrow_schema *out = walk->out;
    if (!td_row_memory_reserve(&out->nodes, &out->node_capacity, out->node_count + 1, sizeof *out->nodes, out->budget,
                               walk->err))
        return false;
    out->nodes[out->node_count++] = (struct td_arrow_node){.layout = layout, .parent = parent, .width = width};
    out->buffer_count += td_arrow_buffers_of(layout);
    return true;
}

/* Writes the head of the field's type, and adds its node. */
static bool read_type(struct walk *walk, struct field *field, uint32_t parent)
{
    if (field->type == ENTRIES)
        return field->is_hidden || add_node(walk, TD_ARROW_STRUCT, 0, parent);
    if (field->type >= TYPES) {
        meet_obstacle(walk->out, TD_ARROW_UNKNOWN_TYPE);
        td_buffer_printf(&walk->text, "type %d, which is not known", (int)field->type);
        return true;
    }
    uint64_t width = types[field->type].width;
    const int layout = types[field->type].layout, children = types[field->type].children;
    if (children != ANY_CHILDREN && field->children.count != (uint32_t)children)
        return refuse_table(walk, &field->details, "children of a field whose type has another number",
                            field->children.count);
    bool ok = true;
    if (types[field->type].read != NULL)
        ok = types[field->type].read(walk, field, &width);
    else if (types[field->type].head != NULL)
        td_buffer_puts(&walk->text, types[field->type].head);
    else
        ok = read_sized(walk, field, &width);
    if (!ok || field->is_hidden)
        return ok;
    if (field->has_dictionary)
        return add_node(walk, TD_ARROW_FIXED, field->index_bits, parent);
    if (layout == LAYOUT_NONE)
        meet_obstacle(walk->out, types[field->type].obstacle);
    return layout == LAYOUT_NONE || add_node(walk, (enum td_arrow_layout)layout, width, parent);
}

/* ---- the text around a type ---- */

static void write_name(struct walk *walk, struct td_text name)
{
    td_buffer_append(&walk->text, name.p, name.len);
}

/* Writes the text before the type of the level's child `i`. */
static void write_before(struct walk *walk, const struct level *level, uint32_t i, const struct field *child)
{
    switch (level->field.type) {
    case COLUMNS:
        td_buffer_clear(&walk->text);
        break;
    case MAP:
        break;
    case ENTRIES:
        td_buffer_puts(&walk->text, i > 0 ? ", " : "");
        break;
    case RUN_END_ENCODED:
        td_buffer_puts(&walk->text, i > 0 ? ", values: " : "run_ends: ");
        break;
    default:
        td_buffer_puts(&walk->text, i > 0 ? ", " : "");
        write_name(walk, child->name);
        td_buffer_puts(&walk->text, ": ");
    }
    if (child->has_dictionary)
        td_buffer_puts(&walk->text, "dictionary<values=");
}

/* Writes the name of a part of a map when it is not the usual one. */
static void write_odd_name(struct walk *walk, struct td_text name, const char *usual)
{
    if (td_text_equals(name, usual))
        return;
    td_buffer_puts(&walk->text, " ('");
    write_name(walk, name);
    td_buffer_puts(&walk->text, "')");
}

/* Writes the tail of a type that has children. */
static void write_tail(struct walk *walk, const struct level *level)
{
    switch (level->field.type) {
    case FIXED_SIZE_LIST:
        td_buffer_printf(&walk->text, ">[%" PRIu64 "]", level->field.items);
        break;
    case MAP:
        td_buffer_puts(&walk->text, level->field.has_keys_sorted ? ", keys_sorted" : "");
        write_odd_name(walk, level->entries, "entries");
        td_buffer_putc(&walk->text, '>');
        break;
    case ENTRIES:
        break;
    default:
        td_buffer_putc(&walk->text, '>');
    }
}

static void write_column(struct walk *walk, uint32_t i, struct td_text name)
{
    if (walk->columns == NULL)
        return;
    td_buffer_puts(walk->columns, i > 0 ? ",{\"name\":" : "{\"name\":");
    td_json_write_string(walk->columns, name);
    td_buffer_puts(walk->columns, ",\"type\":");
    td_json_write_string(walk->columns, td_buffer_text(&walk->text));
    td_buffer_putc(walk->columns, '}');
}

/* Writes the text after the type of the level's child `i`. */
static bool write_behind(struct walk *walk, const struct level *level, uint32_t i, const struct field *child)
{
    if (child->has_dictionary) {
        td_buffer_puts(&walk->text, ", indices=");
        write_int(&walk->text, child->index_bits, child->index_is_signed);
        td_buffer_printf(&walk->text, ", ordered=%d>", child->is_ordered ? 1 : 0);
    }
    enum type around = level->field.type;
    if (around == COLUMNS)
        write_column(walk, i, child->name);
    else if (around == ENTRIES)
        write_odd_name(walk, child->name, i == 0 ? "key" : "value");
    else if (around != MAP && around != RUN_END_ENCODED && !child->is_nullable)
        td_buffer_puts(&walk->text, " not null");
    if (around == UNION) {
        uint32_t id = i < level->ids.count ? td_load_le32(walk->buffer->bytes + level->ids.at + 4 * (size_t)i) : i;
        td_buffer_printf(&walk->text, "=%" PRId32, (int32_t)id);
    }
    return true;
}

/* ---- the walk ---- */

static bool read_dictionary(const struct walk *walk, const struct td_flat_table *table, struct field *out)
{
    enum { ID, INDEX_TYPE, IS_ORDERED };
    struct td_flat_table index;
    uint64_t is_ordered;
    out->has_dictionary = true;
    out->index_bits = 32; /* without an index type */
    out->index_is_signed = true;
    if (!td_flat_child(walk->buffer, table, INDEX_TYPE, &index) ||
        !td_flat_unsigned(walk->buffer, table, IS_ORDERED, 1, 0, &is_ordered) ||
        !td_flat_signed(walk->buffer, table, ID, 8, 0, &out->dictionary))
        return false;
    out->is_ordered = is_ordered != 0;
    return index.vtable_bytes == 0 || read_int(walk, &index, &out->index_bits, &out->index_is_signed);
}

static bool add_text_trait(struct walk *walk, struct td_text text)
{
    td_buffer_u64(walk->traits, text.len);
    td_buffer_putc(walk->traits, ' ');
    if (text.len > walk->metadata_bytes_left)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->buffer->base, "fields share metadata of many bytes");
    walk->metadata_bytes_left -= text.len;
    td_buffer_append(walk->traits, text.p, text.len);
    return td_row_memory_check(walk->traits, walk->err);
}

/* Adds the key-value metadata in field `number` of the table to the traits. */
static bool add_metadata_traits(struct walk *walk, const struct td_flat_table *table, unsigned number)
{
    enum { KEY, VALUE, LEAST_PAIR_BYTES = 4 };
    struct td_flat_vector pairs;
    struct td_flat_table pair;
    struct td_text key;
    struct td_text value;
    if (!td_flat_vector(walk->buffer, table, number, 4, &pairs))
        return false;
    for (uint32_t i = 0; i < pairs.count; i++) {
        if (walk->metadata_bytes_left < LEAST_PAIR_BYTES)
            return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->buffer->base, "fields share their metadata");
        walk->metadata_bytes_left -= LEAST_PAIR_BYTES;
        if (!td_flat_element(walk->buffer, &pairs, i, &pair) || !td_flat_text(walk->buffer, &pair, KEY, &key) ||
            !td_flat_text(walk->buffer, &pair, VALUE, &value) || !add_text_trait(walk, key) ||
            !add_text_trait(walk, value))
            return false;
    }
    td_buffer_putc(walk->traits, ';');
    return td_row_memory_check(walk->traits, walk->err);
}

static bool add_traits(struct walk *walk, const struct td_flat_table *table, const struct field *field)
{
    enum { METADATA = 6 };
    if (walk->traits == NULL)
        return true;
    td_buffer_putc(walk->traits, field->is_nullable ? 'n' : '-');
    if (field->has_dictionary)
        td_buffer_printf(walk->traits, "d%" PRId64 " ", field->dictionary);
    return add_metadata_traits(walk, table, METADATA);
}

static bool read_field(struct walk *walk, const struct level *level, uint32_t i, struct field *out)
{
    enum { NAME, NULLABLE, TYPE, TYPE_DETAILS, DICTIONARY, CHILDREN };
    const struct td_flatbuffer *buffer = walk->buffer;
    struct td_flat_table table, dictionary;
    uint64_t is_nullable, type;
    *out = (struct field){.is_hidden = level->field.is_hidden || level->field.has_dictionary};
    if (walk->fields_left == 0)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, buffer->base, "fields of a schema share their bytes");
    walk->fields_left--;
    if (!td_flat_element(buffer, &level->field.children, i, &table) ||
        !td_flat_text(buffer, &table, NAME, &out->name) ||
        !td_flat_unsigned(buffer, &table, NULLABLE, 1, 0, &is_nullable) ||
        !td_flat_unsigned(buffer, &table, TYPE, 1, 0, &type) ||
        !td_flat_child(buffer, &table, TYPE_DETAILS, &out->details) ||
        !td_flat_child(buffer, &table, DICTIONARY, &dictionary) ||
        !td_flat_vector(buffer, &table, CHILDREN, 4, &out->children))
        return false;
    if (type == COLUMNS || type == ENTRIES)
        return refuse_table(walk, &table, "a field has a type that there is not", (int64_t)type);
    if (out->name.len > walk->name_bytes_left || !td_utf8_valid(out->name.p, out->name.len))
        return refuse_table(walk, &table, "the name of a field is not UTF-8, or fields share names of many bytes",
                            (int64_t)out->name.len);
    walk->name_bytes_left -= out->name.len;
    out->is_nullable = is_nullable != 0;
    out->type = (enum type)type;
    return (dictionary.vtable_bytes == 0 || read_dictionary(walk, &dictionary, out)) && add_traits(walk, &table, out);
}

/* Opens a field whose children are entered next. */
static bool open_field(struct walk *walk, const struct field *field)
{
    if (walk->depth > TD_ARROW_MAX_DEPTH)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->buffer->base,
                           "fields are nested in each other more than %d deep", TD_ARROW_MAX_DEPTH);
    struct level *level = &walk->levels[walk->depth++];
    *level = (struct level){.field = *field, .node = (uint32_t)walk->out->node_count - 1};
    return field->type != UNION || td_flat_vector(walk->buffer, &field->details, 1, 4, &level->ids);
}

/* Enters the next child of the innermost level. */
static bool enter_child(struct walk *walk)
{
    struct level *level = &walk->levels[walk->depth - 1];
    uint32_t i = level->next++;
    struct field field;
    if (!read_field(walk, level, i, &field))
        return false;
    if (level->field.type == MAP) {
        if (field.type != STRUCT || field.has_dictionary || field.children.count != 2)
            return refuse_table(walk, &field.details, "a map's entries are not a struct of two fields",
                                (int64_t)field.type);
        field.type = ENTRIES;
        level->entries = field.name;
    }
    write_before(walk, level, i, &field);
    if (!read_type(walk, &field, level->field.type == COLUMNS ? TD_ARROW_NO_PARENT : level->node))
        return false;
    bool has_tail = field.type == ENTRIES || (field.type < TYPES && types[field.type].children != 0);
    if (has_tail)
        return open_field(walk, &field);
    return write_behind(walk, level, i, &field);
}

/* Ends the innermost level, whose children are done. */
static bool leave_level(struct walk *walk)
{
    const struct level *level = &walk->levels[--walk->depth];
    if (walk->depth == 0)
        return true;
    const struct level *around = &walk->levels[walk->depth - 1];
    write_tail(walk, level);
    return write_behind(walk, around, around->next - 1, &level->field);
}

/* Forgets the text of the type when nobody asks for it, and checks that there was memory for it. */
static bool check_text(struct walk *walk)
{
    if (walk->columns == NULL)
        td_buffer_clear(&walk->text);
    return td_row_memory_check(&walk->text, walk->err) &&
           (walk->columns == NULL || td_row_memory_check(walk->columns, walk->err));
}

bool td_arrow_schema_read(const struct td_flatbuffer *buffer, const struct td_flat_table *schema,
                          struct td_budget *budget, const struct td_arrow_texts *texts, struct td_arrow_schema *out,
                          struct td_error *err)
{
    enum { ENDIANNESS, FIELDS, METADATA };
    struct td_flatbuffer own = *buffer;
    struct td_buffer *columns = texts == NULL ? NULL : texts->columns;
    struct walk walk = {
        .buffer = &own, .out = out, .columns = columns, .traits = texts == NULL ? NULL : texts->traits, .err = err};
    int64_t endianness;
    own.err = err;
    *out = (struct td_arrow_schema){.budget = budget};
    walk.fields_left = buffer->len / LEAST_FIELD_BYTES;
    walk.name_bytes_left = buffer->len;
    walk.metadata_bytes_left = buffer->len;
    struct field root = {.type = COLUMNS};
    if (!td_flat_signed(&own, schema, ENDIANNESS, 2, 0, &endianness) ||
        !td_flat_vector(&own, schema, FIELDS, 4, &root.children) ||
        (walk.traits != NULL && !add_metadata_traits(&walk, schema, METADATA)))
        return false;
    if (endianness != 0)
        meet_obstacle(out, TD_ARROW_BIG_ENDIAN);
    td_buffer_init_budget(&walk.text, budget);
    if (columns != NULL)
        td_buffer_putc(columns, '[');
    bool ok = open_field(&walk, &root);
    while (ok && walk.depth > 0) {
        const struct level *level = &walk.levels[walk.depth - 1];
        ok = (level->next < level->field.children.count ? enter_child(&walk) : leave_level(&walk)) && check_text(&walk);
    }
    if (ok && columns != NULL) {
        td_buffer_putc(columns, ']');
        ok = td_row_memory_check(columns, err);
    }
    td_buffer_fini(&walk.text);
    return ok;
}

bool td_arrow_schema_equal(const struct td_arrow_schema *a, const struct td_arrow_schema *b)
{
    if (a->obstacle != b->obstacle || a->buffer_count != b->buffer_count || a->node_count != b->node_count)
        return false;
    for (size_t i = 0; i < a->node_count; i++) {
        const struct td_arrow_node *x = &a->nodes[i];
        const struct td_arrow_node *y = &b->nodes[i];
        if (x->layout != y->layout || x->parent != y->parent || x->width != y->width)
            return false;
    }
    return true;
}

void td_arrow_schema_fini(struct td_arrow_schema *schema)
{
    td_row_memory_free(schema->nodes, schema->node_capacity, sizeof *schema->nodes, schema->budget);
    *schema = (struct td_arrow_schema){0};
}
