/* The plan. The walk keeps a list of tasks, one for each hard link in the order in which they are met, and begins with
 * the root group. A task reads the header of its object. A group adds a task for each of its links, and its attributes
 * as metadata; a dataset becomes a tensor. An object that was met before (by_addr) is not read again: a dataset is
 * listed under its further name, a group as "hard link to ...".
 *
 * What is hard: one header, one text buffer and growing arrays are used again for every object, so pointers into them
 * do not outlive the next read. An error of the structure refuses the file; an element type or a storage that cannot be
 * served only gives the tensor a reason. */
#include "parser/hdf5/hdf5.h"

#include "core/buffer.h"
#include "core/checked.h"
#include "core/utf8.h"
#include "parser/format/manifest.h"
#include "parser/format/names.h"
#include "parser/hdf5/hdf5_attribute.h"
#include "parser/hdf5/hdf5_chunked.h"
#include "parser/hdf5/hdf5_file.h"
#include "parser/hdf5/hdf5_group.h"
#include "parser/hdf5/hdf5_object.h"
#include "parser/hdf5/hdf5_type.h"
#include "parser/torch/torch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* A path repeats the names of the groups above; without a bound, deep nesting would take quadratic memory. */
    NAME_BYTES_MAX = 4096,
    REASON_BYTES_MAX = 160,
};

/* An object that the walk has met, by address. */
enum object_kind { OBJECT_GROUP, OBJECT_DATASET, OBJECT_TYPE, OBJECT_UNKNOWN };

struct object {
    enum object_kind kind;
    const char *name;       /* the first path */
    size_t tensor;          /* of a dataset */
    struct td_h5_type type; /* of a committed datatype */
};

/* A hard link. */
struct task {
    uint64_t addr, at;
    const char *name;
    uint32_t name_len;
    bool with_attributes;
};

struct walk {
    struct td_h5 h;
    struct td_h5_header header, type_header;
    struct td_h5_strings strings;
    struct td_h5_map by_addr; /* index into objects */
    struct object *objects;
    size_t object_count, object_capacity;
    struct task *tasks; /* every hard link, in the order they were met */
    size_t task_count, task_capacity, next_task;
    struct td_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    struct td_metadata *metadata;
    size_t metadata_count, metadata_capacity;
    struct td_buffer text;          /* a name, a reason or a value that is being built */
    struct td_h5_chunk_list chunks; /* of the dataset that is being read */
    struct task here;               /* the group that is being read */
    bool is_root;
};

static const struct td_dtype *named_dtype(const char *name)
{
    return td_dtype_find(td_text_of(name));
}

/* ---- names --------------------------------------------------------------------------------------------- */

/* Appends raw bytes as UTF-8. Bytes that are not UTF-8, NULs and the separator (0: none) are written \xNN. */
static void append_escaped(struct td_buffer *out, struct td_text raw, char separator)
{
    const uint8_t *p = (const uint8_t *)raw.p;
    while (raw.len > 0) {
        size_t n = td_utf8_sequence(p, raw.len);
        if (n == 0 || *p == 0 || (separator != 0 && *p == (uint8_t)separator)) {
            td_buffer_printf(out, "\\x%02X", *p);
            n = 1;
        } else {
            td_buffer_append(out, p, n);
        }
        p += n;
        raw.len -= n;
    }
}

/* Copies w->text to the arena. Returns NULL and an error when out of memory. */
static const char *keep_text(struct walk *w)
{
    const char *kept = w->text.failed ? NULL : td_arena_strndup(&w->h.manifest->arena, td_buffer_text(&w->text));
    if (kept == NULL)
        (void)td_h5_no_memory(&w->h);
    return kept;
}

/* Returns the path of a link in the group that is being read, in the arena. NULL is an error. */
static const char *path_of(struct walk *w, const struct td_h5_link *link, uint32_t *len)
{
    if (link->name_len == 0) {
        (void)td_h5_fail(&w->h, link->at, "a link in group \"/%.96s\" has no name", w->here.name);
        return NULL;
    }
    td_buffer_clear(&w->text);
    if (link->name_len <= NAME_BYTES_MAX) {
        td_buffer_append(&w->text, w->here.name, w->here.name_len);
        if (!w->is_root)
            td_buffer_putc(&w->text, '/');
        append_escaped(&w->text, td_text_n(link->name, link->name_len), '/');
    }
    if (link->name_len > NAME_BYTES_MAX || w->text.len > NAME_BYTES_MAX) {
        (void)td_error_at(w->h.err, TD_RESOURCE_EXHAUSTED, w->h.base + link->at,
                          "a path below group \"/%.96s\" is longer than the limit of %d bytes", w->here.name,
                          NAME_BYTES_MAX);
        return NULL;
    }
    *len = (uint32_t)w->text.len;
    return keep_text(w);
}

static bool add_tensor(struct walk *w, const struct td_tensor *tensor)
{
    if (!td_h5_grow(&w->h, &w->tensors, &w->tensor_capacity, w->tensor_count, sizeof *w->tensors))
        return false;
    w->tensors[w->tensor_count++] = *tensor;
    return true;
}

/* Lists something that is no dataset, as an OBJECT without bytes. */
static bool add_other(struct walk *w, const char *name, uint32_t name_len, const char *reason)
{
    struct td_tensor tensor = {.name = name, .name_len = name_len, .dtype = named_dtype("OBJECT"), .reason = reason};
    return add_tensor(w, &tensor);
}

/* ---- links --------------------------------------------------------------------------------------------- */

static void append_shortened(struct td_buffer *out, struct td_text raw)
{
    enum { SHOWN = REASON_BYTES_MAX - 40 };
    append_escaped(out, td_text_n(raw.p, raw.len < SHOWN ? raw.len : SHOWN), 0);
    if (raw.len > SHOWN)
        td_buffer_puts(out, "...");
}

static const char *link_reason(struct walk *w, const struct td_h5_link *link)
{
    td_buffer_clear(&w->text);
    if (link->kind == TD_H5_SOFT) {
        td_buffer_puts(&w->text, "soft link to ");
        append_shortened(&w->text, td_text_n(link->path, link->path_len));
    } else if (link->kind == TD_H5_EXTERNAL_LINK) {
        td_buffer_puts(&w->text, "external link to ");
        append_shortened(&w->text, td_text_n(link->file, link->file_len));
        td_buffer_putc(&w->text, ':');
        append_shortened(&w->text, td_text_n(link->path, link->path_len));
    } else {
        td_buffer_puts(&w->text, "user-defined link");
    }
    return keep_text(w);
}

static bool add_task(struct walk *w, const struct task *task)
{
    if (!td_h5_grow(&w->h, &w->tasks, &w->task_capacity, w->task_count, sizeof *w->tasks))
        return false;
    w->tasks[w->task_count++] = *task;
    return true;
}

static bool add_link(void *context, const struct td_h5_link *link)
{
    struct walk *w = context;
    struct task task = {.addr = link->object, .at = link->at, .with_attributes = w->is_root};
    task.name = path_of(w, link, &task.name_len);
    if (task.name == NULL)
        return false;
    if (link->kind == TD_H5_HARD)
        return add_task(w, &task);
    const char *reason = link_reason(w, link);
    return reason != NULL && add_other(w, task.name, task.name_len, reason);
}

/* ---- datasets ------------------------------------------------------------------------------------------ */

/* The messages of an object's header that describe a dataset. */
struct parts {
    struct td_h5_message type, space, layout, filters, fill;
    bool has_type, has_space, has_layout, has_filters, has_fill, has_external, has_links, has_unknown;
};

/* Refuses a second message of a type that an object has once. libhdf5 takes the first, and no writer writes several.
 * *seen has a bit for each type. */
static bool check_single(struct td_h5 *h, const struct td_h5_message *message, uint32_t *seen)
{
    static const uint32_t single = 1U << TD_H5_DATATYPE | 1U << TD_H5_DATASPACE | 1U << TD_H5_LAYOUT |
                                   1U << TD_H5_FILTERS | 1U << TD_H5_FILL_OLD | 1U << TD_H5_FILL |
                                   1U << TD_H5_EXTERNAL | 1U << TD_H5_SYMBOL_TABLE | 1U << TD_H5_LINK_INFO |
                                   1U << TD_H5_ATTRIBUTE_INFO;
    uint32_t bit = message->type < 32 ? 1U << message->type : 0;
    if ((*seen & single & bit) != 0)
        return td_h5_fail(h, message->body.addr, "object header: two messages of type %u, where one may be",
                          message->type);
    *seen |= bit;
    return true;
}

static bool find_parts(struct td_h5 *h, const struct td_h5_header *header, struct parts *parts)
{
    struct td_h5_place place = {0};
    struct td_h5_message message;
    uint32_t seen = 0;
    *parts = (struct parts){0};
    while (td_h5_next_message(h, header, &place, &message)) {
        if (!check_single(h, &message, &seen))
            return false;
        switch (message.type) {
        case TD_H5_DATATYPE:
            parts->type = message;
            parts->has_type = true;
            break;
        case TD_H5_DATASPACE:
            parts->space = message;
            parts->has_space = true;
            break;
        case TD_H5_LAYOUT:
            parts->layout = message;
            parts->has_layout = true;
            break;
        case TD_H5_FILTERS:
            parts->filters = message;
            parts->has_filters = true;
            break;
        case TD_H5_FILL_OLD: /* libhdf5 writes both, and reads the newer one */
            if (parts->has_fill)
                break;
            parts->fill = message;
            parts->has_fill = true;
            break;
        case TD_H5_FILL:
            parts->fill = message;
            parts->has_fill = true;
            break;
        case TD_H5_EXTERNAL:
            parts->has_external = true;
            break;
        case TD_H5_SYMBOL_TABLE:
        case TD_H5_LINK_INFO:
        case TD_H5_LINK:
            parts->has_links = true;
            break;
        default:
            if (message.type >= TD_H5_KNOWN_TYPES && (message.flags & TD_H5_MESSAGE_FAIL_IF_UNKNOWN) != 0)
                parts->has_unknown = true;
        }
    }
    return h->err->code == TD_OK;
}

struct layout {
    const char *reason; /* of a layout that is neither contiguous nor in chunks that can be read */
    uint64_t addr, bytes;
    bool is_chunked;
    struct td_h5_chunked chunked;
};

/* Reads versions 1 and 2, which libhdf5 wrote before 1.6.3: the size is the product of the dimensions. */
static void read_old_layout(struct td_h5 *h, struct td_h5_cursor *c, unsigned rank, struct layout *out)
{
    out->addr = td_h5_number(c, h->offset_bytes);
    out->bytes = 1;
    for (unsigned i = 0; i < rank; i++)
        if (!td_mul_u64(out->bytes, td_h5_u32(c), &out->bytes))
            c->bad = true;
}

static bool read_layout(struct td_h5 *h, struct td_h5_cursor c, struct layout *out)
{
    enum { VERSION_MAX = 5, CLASS_CONTIGUOUS = 1, CLASS_CHUNKED = 2, CLASS_MAX = 3 };
    static const char *const reasons[] = {"compact", NULL, NULL, "virtual"};
    uint64_t at = c.addr;
    unsigned version = td_h5_u8(&c);
    *out = (struct layout){0};
    if (version < 1 || version > VERSION_MAX)
        return td_h5_fail(h, at, "layout: version %u is unknown; 1 to 5 are known", version);
    unsigned rank = version < 3 ? td_h5_u8(&c) : 0;
    unsigned class = td_h5_u8(&c);
    if (class > CLASS_MAX)
        return td_h5_fail(h, at + 1, "layout: class %u is unknown; 0 to 3 are known", class);
    out->reason = reasons[class];
    out->is_chunked = class == CLASS_CHUNKED;
    if (out->is_chunked)
        return td_h5_chunked_layout(h, c, version, rank, &out->chunked, &out->reason);
    if (class == CLASS_CONTIGUOUS && version < 3) {
        (void)td_h5_take(&c, 5);
        read_old_layout(h, &c, rank, out);
    } else if (class == CLASS_CONTIGUOUS) {
        out->addr = td_h5_number(&c, h->offset_bytes);
        out->bytes = td_h5_number(&c, h->length_bytes);
    }
    return !c.bad || td_h5_fail(h, at, "layout: its message is too short");
}

struct filter {
    unsigned id;
    const char *name;
    bool compresses; /* false for bitshuffle, which compresses only with some parameters */
};

static const struct filter *known_filter(unsigned id)
{
    static const struct filter known[] = {
        {1, "gzip", true},    {2, "shuffle", false},        {3, "fletcher32", false}, {4, "szip", true},
        {5, "nbit", true},    {6, "scaleoffset", true},     {32000, "lzf", true},     {32001, "blosc", true},
        {32004, "lz4", true}, {32008, "bitshuffle", false}, {32015, "zstd", true},    {32026, "blosc2", true},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].id == id)
            return &known[i];
    return NULL;
}

static void append_filter(struct td_buffer *out, unsigned id)
{
    const struct filter *filter = known_filter(id);
    if (filter != NULL)
        td_buffer_puts(out, filter->name);
    else
        td_buffer_printf(out, "filter %u", id);
}

/* Takes the description of a filter. Returns its id. */
static unsigned take_filter(struct td_h5_cursor *c, unsigned version)
{
    enum { FIRST_WITH_NAME = 256 };
    unsigned id = td_h5_u16(c);
    size_t name_len = version == 1 || id >= FIRST_WITH_NAME ? td_h5_u16(c) : 0;
    (void)td_h5_take(c, 2); /* flags */
    size_t values = td_h5_u16(c);
    (void)td_h5_take(c, version == 1 ? (name_len + 7) / 8 * 8 : name_len);
    (void)td_h5_take(c, 4 * (version == 1 ? (values + 1) / 2 * 2 : values));
    return id;
}

static bool compresses(struct td_h5_cursor c, unsigned version, unsigned count)
{
    bool found = false;
    for (unsigned i = 0; i < count && !c.bad; i++) {
        const struct filter *filter = known_filter(take_filter(&c, version));
        found = found || (filter != NULL && filter->compresses);
    }
    return found;
}

/* Returns "compressed (shuffle, gzip)", or "filtered (fletcher32)" where no filter is known to compress; NULL and an
 * error. Sets *none when the list is empty. */
static const char *filters_reason(struct walk *w, struct td_h5_cursor c, bool *none)
{
    enum { SHOWN_MAX = 8 };
    uint64_t at = c.addr;
    unsigned version = td_h5_u8(&c);
    unsigned count = td_h5_u8(&c);
    *none = count == 0;
    if (version == 1)
        (void)td_h5_take(&c, 6);
    td_buffer_clear(&w->text);
    td_buffer_puts(&w->text, compresses(c, version, count) ? "compressed (" : "filtered (");
    for (unsigned i = 0; i < count && !c.bad; i++) {
        unsigned id = take_filter(&c, version);
        if (i > 0 && i <= SHOWN_MAX)
            td_buffer_puts(&w->text, i == SHOWN_MAX ? ", ..." : ", ");
        if (i < SHOWN_MAX)
            append_filter(&w->text, id);
    }
    td_buffer_putc(&w->text, ')');
    if (c.bad || version < 1 || version > 2) {
        (void)td_h5_fail(&w->h, at, "filters: version %u is unknown, or the message is too short", version);
        return NULL;
    }
    return keep_text(w);
}

/* The search for Keras' bfloat16, which is an attribute `dtype` of the dataset. */
struct keras_dtype {
    struct walk *walk;
    bool is_bfloat16;
};

static bool see_keras_dtype(void *context, const struct td_h5_attribute *attribute)
{
    struct keras_dtype *seen = context;
    const char *text;
    size_t len;
    if (attribute->name_len == 5 && memcmp(attribute->name, "dtype", 5) == 0 &&
        td_h5_attribute_string(&seen->walk->h, &seen->walk->strings, attribute, &text, &len))
        seen->is_bfloat16 = len == 8 && memcmp(text, "bfloat16", 8) == 0;
    return seen->walk->h.err->code == TD_OK;
}

/* Reads a datatype that has an object header of its own. Its header is read once and remembered. */
static bool committed_type(struct walk *w, uint64_t addr, uint64_t at, struct td_h5_type *out);

static bool dataset_type(struct walk *w, const struct parts *parts, struct td_h5_type *out)
{
    uint64_t addr;
    if ((parts->type.flags & TD_H5_MESSAGE_SHARED) != 0) {
        if (td_h5_shared_address(&w->h, parts->type.body, &addr))
            return committed_type(w, addr, parts->type.body.addr, out);
        *out = (struct td_h5_type){.dtype = named_dtype("OPAQUE"), .reason = "shared type"};
        return true;
    }
    if (!td_h5_type_read(&w->h, parts->type.body, out))
        return false;
    if (!out->opaque || out->elem_bytes != 2)
        return true;
    struct keras_dtype seen = {.walk = w};
    if (!td_h5_each_attribute(&w->h, &w->header, see_keras_dtype, &seen))
        return false;
    if (seen.is_bfloat16)
        *out = (struct td_h5_type){.dtype = named_dtype("BF16"), .elem_bytes = 2};
    return true;
}

/* Returns why the bytes of a contiguous dataset cannot be served; NULL, after setting tensor->offset, when they can. */
static const char *place_dataset(const struct td_h5 *h, struct td_tensor *tensor, const struct layout *layout)
{
    if (tensor->nbytes == 0) {
        tensor->offset = h->base;
        return layout->bytes == 0 ? NULL : "storage of another size than the shape";
    }
    if (td_h5_undefined(h, layout->addr))
        return "not allocated";
    if (layout->bytes != tensor->nbytes)
        return "storage of another size than the shape";
    if (!td_h5_within(h, layout->addr, layout->bytes))
        return "past the end of the file";
    tensor->offset = h->base + layout->addr;
    return NULL;
}

/* Sets *text to a description of the filters, in the arena; NULL without filters. Returns false on an error. */
static bool describe_filters(struct walk *w, const struct parts *parts, const char **text)
{
    bool none = true;
    *text = NULL;
    if (!parts->has_filters)
        return true;
    if ((parts->filters.flags & TD_H5_MESSAGE_SHARED) != 0) {
        *text = "filtered";
        return true;
    }
    const char *filters = filters_reason(w, parts->filters.body, &none);
    if (!none)
        *text = filters;
    return filters != NULL;
}

/* Sets the place of a dataset's bytes, or the reason why they cannot be served. nbytes is set already. */
static bool set_place(struct walk *w, const struct parts *parts, const struct td_h5_type *type,
                      const struct td_h5_space *space, struct td_tensor *tensor)
{
    struct layout layout;
    const char *filters;
    bool is_shared = (parts->filters.flags & TD_H5_MESSAGE_SHARED) != 0; /* zeros without the message */
    if (!read_layout(&w->h, parts->layout.body, &layout) || !describe_filters(w, parts, &filters))
        return false;
    tensor->big_endian = type->big_endian;
    if (parts->has_external)
        tensor->reason = "external storage";
    else if (filters != NULL && (is_shared || !layout.is_chunked))
        tensor->reason = filters;
    else if (layout.reason != NULL)
        tensor->reason = layout.reason;
    else if (type->reason != NULL)
        tensor->reason = type->reason;
    else if (space->is_null)
        tensor->reason = "no dataspace";
    else if (!layout.is_chunked)
        tensor->reason = place_dataset(&w->h, tensor, &layout);
    else
        return td_h5_chunked_tensor(&w->h, &layout.chunked, space, filters != NULL ? &parts->filters : NULL,
                                    parts->has_fill ? &parts->fill : NULL, filters != NULL ? filters : "chunked",
                                    &w->chunks, tensor);
    return true;
}

static bool read_dataset(struct walk *w, const struct task *task, const struct parts *parts)
{
    struct td_h5 *h = &w->h;
    struct td_h5_type type;
    struct td_h5_space space;
    struct td_tensor tensor = {.name = task->name, .name_len = task->name_len};
    if ((parts->space.flags & TD_H5_MESSAGE_SHARED) != 0)
        return add_other(w, task->name, task->name_len, "shared dataspace");
    if (!dataset_type(w, parts, &type) || !td_h5_space_read(h, parts->space.body, &space))
        return false;
    tensor.dtype = type.dtype;
    tensor.rank = space.rank;
    if (space.rank > 0) {
        uint64_t *shape = td_arena_array(&h->manifest->arena, space.rank, sizeof *shape);
        if (shape == NULL)
            return td_h5_no_memory(h);
        memcpy(shape, space.dims, space.rank * sizeof *shape);
        tensor.shape = shape;
    }
    uint64_t elems;
    if (!td_h5_space_elems(&space, &elems) || !td_dtype_nbytes(tensor.dtype, elems, &tensor.nbytes)) {
        tensor.nbytes = 0;
        tensor.reason = "larger than 2^64 bytes";
        return add_tensor(w, &tensor);
    }
    return set_place(w, parts, &type, &space, &tensor) && add_tensor(w, &tensor);
}

/* ---- objects ------------------------------------------------------------------------------------------- */

/* Returns the record of the object at addr; a new one, with *is_new set, at the first meeting. The pointer is valid
 * until the next call. */
static struct object *object_at(struct walk *w, uint64_t addr, bool *is_new)
{
    size_t index = w->object_count;
    if (!td_h5_grow(&w->h, &w->objects, &w->object_capacity, w->object_count, sizeof *w->objects))
        return NULL;
    if (!td_h5_map_add(&w->h, &w->by_addr, addr, &index, is_new))
        return NULL;
    if (*is_new)
        w->objects[w->object_count++] = (struct object){.kind = OBJECT_UNKNOWN};
    return &w->objects[index];
}

static bool committed_type(struct walk *w, uint64_t addr, uint64_t at, struct td_h5_type *out)
{
    bool is_new;
    struct parts parts;
    struct object *object = object_at(w, addr, &is_new);
    if (object == NULL)
        return false;
    if (is_new) {
        if (!td_h5_header_read(&w->h, &w->type_header, addr) || !find_parts(&w->h, &w->type_header, &parts))
            return false;
        if (parts.has_type && !parts.has_layout && (parts.type.flags & TD_H5_MESSAGE_SHARED) == 0) {
            if (!td_h5_type_read(&w->h, parts.type.body, &object->type))
                return false;
            object->kind = OBJECT_TYPE;
        }
    }
    if (object->kind != OBJECT_TYPE)
        return td_h5_fail(&w->h, at, "datatype: the object at address %" PRIu64 " is not a datatype", addr);
    *out = object->type;
    return true;
}

/* ---- metadata ------------------------------------------------------------------------------------------ */

static bool add_metadata(void *context, const struct td_h5_attribute *attribute)
{
    struct walk *w = context;
    struct td_metadata item;
    td_buffer_clear(&w->text);
    if (!td_h5_attribute_json(&w->h, &w->strings, attribute, &w->text))
        return false;
    if (w->text.len == 0 && !w->text.failed)
        return true;
    item.value = keep_text(w);
    if (item.value == NULL)
        return false;
    td_buffer_clear(&w->text);
    if (!w->is_root) {
        td_buffer_append(&w->text, w->here.name, w->here.name_len);
        td_buffer_putc(&w->text, '@');
    }
    append_escaped(&w->text, td_text_n(attribute->name, attribute->name_len), 0);
    item.key = keep_text(w);
    if (item.key == NULL ||
        !td_h5_grow(&w->h, &w->metadata, &w->metadata_capacity, w->metadata_count, sizeof *w->metadata))
        return false;
    w->metadata[w->metadata_count++] = item;
    return true;
}

/* Drops all but the first of several items with one key. */
static bool unique_metadata(struct walk *w)
{
    struct td_names names = td_metadata_keys(w->metadata, w->metadata_count);
    struct td_order *order;
    if (!td_names_order(&names, &order, w->h.err))
        return false;
    for (size_t i = 1; i < w->metadata_count; i++) { /* stable: equal keys follow each other in their order */
        size_t before = td_order_place(order, i - 1);
        size_t here = td_order_place(order, i);
        if (strcmp(w->metadata[before].key, w->metadata[here].key) == 0)
            w->metadata[here].value = NULL;
    }
    free(order);
    size_t kept = 0;
    for (size_t i = 0; i < w->metadata_count; i++)
        if (w->metadata[i].value != NULL)
            w->metadata[kept++] = w->metadata[i];
    w->metadata_count = kept;
    return true;
}

/* ---- the walk ------------------------------------------------------------------------------------------ */

/* Lists an object that has been listed, under a further hard link. */
static bool link_again(struct walk *w, const struct task *task, const struct object *object)
{
    if (object->kind == OBJECT_DATASET) {
        struct td_tensor tensor = w->tensors[object->tensor];
        tensor.name = task->name;
        tensor.name_len = task->name_len;
        return add_tensor(w, &tensor);
    }
    if (object->kind != OBJECT_GROUP)
        return true;
    td_buffer_clear(&w->text);
    td_buffer_puts(&w->text, "hard link to /");
    append_shortened(&w->text, td_text_of(object->name));
    const char *reason = keep_text(w);
    return reason != NULL && add_other(w, task->name, task->name_len, reason);
}

static bool read_group(struct walk *w, const struct task *task)
{
    if (task->with_attributes && !td_h5_each_attribute(&w->h, &w->header, add_metadata, w))
        return false;
    return td_h5_each_link(&w->h, &w->header, add_link, w);
}

static bool read_object(struct walk *w, const struct task *task, struct object *object)
{
    struct parts parts;
    size_t index = (size_t)(object - w->objects); /* the array may move */
    if (!td_h5_header_read(&w->h, &w->header, task->addr) || !find_parts(&w->h, &w->header, &parts))
        return false;
    object->name = task->name;
    object->tensor = w->tensor_count;
    if (parts.has_unknown || (!parts.has_links && !parts.has_type)) {
        object->kind = OBJECT_DATASET; /* a further link is listed the same way */
        return add_other(w, task->name, task->name_len, "an object of an unknown kind");
    }
    if (parts.has_links) {
        object->kind = OBJECT_GROUP;
        return read_group(w, task);
    }
    if (!parts.has_space || !parts.has_layout) {
        object->kind = OBJECT_TYPE;
        if ((parts.type.flags & TD_H5_MESSAGE_SHARED) != 0)
            return td_h5_fail(&w->h, parts.type.body.addr, "datatype: a committed type that is shared");
        return td_h5_type_read(&w->h, parts.type.body, &object->type);
    }
    bool ok = read_dataset(w, task, &parts);
    w->objects[index].kind = OBJECT_DATASET;
    return ok;
}

static bool do_task(struct walk *w)
{
    struct task task = w->tasks[w->next_task];
    bool is_new;
    w->here = task;
    w->is_root = w->next_task == 0;
    w->next_task++;
    if (!td_h5_within(&w->h, task.addr, 1))
        return td_h5_fail(&w->h, task.at, "\"/%.96s\" links to address %" PRIu64 ", past the end of the file",
                          task.name, task.addr);
    struct object *object = object_at(w, task.addr, &is_new);
    if (object == NULL)
        return false;
    return is_new ? read_object(w, &task, object) : link_again(w, &task, object);
}

static bool walk_file(struct walk *w)
{
    struct task root = {.addr = w->h.root, .name = "", .with_attributes = true};
    if (!add_task(w, &root))
        return false;
    while (w->next_task < w->task_count)
        if (!do_task(w))
            return false;
    if (w->objects[0].kind != OBJECT_GROUP)
        return td_h5_fail(&w->h, w->h.root, "the root object is not a group");
    return true;
}

/* ---- torch archives in HDF5 ---------------------------------------------------------------------------- */

static const char archive[] = "archive/";

struct records {
    const struct td_input *input;
    const struct td_manifest *listing; /* the datasets, sorted */
};

static const struct td_tensor *record_tensor(const struct records *records, struct td_text name)
{
    char path[sizeof archive + NAME_BYTES_MAX];
    if (name.len > NAME_BYTES_MAX)
        return NULL;
    memcpy(path, archive, sizeof archive - 1);
    memcpy(path + sizeof archive - 1, name.p, name.len);
    return td_manifest_find(records->listing, td_text_n(path, sizeof archive - 1 + name.len));
}

static bool record_find(const void *context, struct td_text name, struct td_torch_record *out)
{
    const struct td_tensor *tensor = record_tensor(context, name);
    if (tensor == NULL)
        return false;
    *out = (struct td_torch_record){
        .offset = tensor->offset, .nbytes = tensor->nbytes, .reason = tensor->reason, .coding = tensor->coding};
    if (tensor->reason == NULL && tensor->dtype->block_bytes != 1)
        out->reason = "not a byte dataset";
    return true;
}

static uint8_t *record_load(const void *context, struct td_text name, uint64_t limit_bytes, size_t *out_len,
                            struct td_error *err)
{
    const struct records *records = context;
    struct td_torch_record record;
    if (!record_find(context, name, &record)) {
        (void)td_error_set(err, TD_INVALID_ARGUMENT, "no dataset \"%s%.96s\"", archive, name.p);
        return NULL;
    }
    if (record.reason != NULL || record.coding != NULL) {
        (void)td_error_set(err, TD_INVALID_ARGUMENT, "dataset \"%s%.96s\" cannot be read: %s", archive, name.p,
                           record.reason != NULL ? record.reason : record.coding->text);
        return NULL;
    }
    *out_len = (size_t)record.nbytes;
    return td_input_load(records->input, record.offset, record.nbytes, limit_bytes, err);
}

/* Parses the datasets as records of a torch archive. The listing is a manifest over the walk's tensors, sorted for
 * look-ups. */
static bool parse_archive(struct walk *w, const struct td_limits *limits)
{
    struct td_manifest listing = {.tensors = w->tensors, .tensor_count = w->tensor_count};
    if (!td_manifest_finish(&listing, w->h.err))
        return false;
    struct records records = {.input = w->h.input, .listing = &listing};
    struct td_torch_records torch = {
        .context = &records,
        .find = record_find,
        .load = record_load,
        .file_bytes = w->h.input->size_bytes,
    };
    return td_torch_parse_records(&torch, limits, w->h.manifest, w->h.err);
}

static bool is_archive(const struct walk *w)
{
    static const char pickle[] = "archive/data.pkl";
    for (size_t i = 0; i < w->tensor_count; i++)
        if (w->tensors[i].name_len == sizeof pickle - 1 && strcmp(w->tensors[i].name, pickle) == 0)
            return w->tensors[i].dtype->block_bytes == 1;
    return false;
}

/* ---- the manifest -------------------------------------------------------------------------------------- */

static void *copy_array(struct walk *w, const void *items, size_t count, size_t size)
{
    void *copy = td_arena_array(&w->h.manifest->arena, count, size);
    if (copy == NULL)
        (void)td_h5_no_memory(&w->h);
    else if (count > 0)
        memcpy(copy, items, count * size);
    return copy;
}

static bool fill_manifest(struct walk *w)
{
    struct td_manifest *manifest = w->h.manifest;
    if (!unique_metadata(w))
        return false;
    manifest->tensors = copy_array(w, w->tensors, w->tensor_count, sizeof *w->tensors);
    manifest->metadata = copy_array(w, w->metadata, w->metadata_count, sizeof *w->metadata);
    if (manifest->tensors == NULL || manifest->metadata == NULL)
        return false;
    manifest->tensor_count = w->tensor_count;
    manifest->metadata_count = w->metadata_count;
    manifest->shares_bytes = true;
    return td_manifest_finish(manifest, w->h.err);
}

static void walk_fini(struct walk *w)
{
    td_h5_header_fini(&w->header);
    td_h5_header_fini(&w->type_header);
    td_h5_strings_fini(&w->strings);
    td_h5_map_fini(&w->by_addr);
    free(w->objects);
    free(w->tasks);
    free(w->tensors);
    free(w->metadata);
    free(w->chunks.chunks);
    td_buffer_fini(&w->text);
    td_h5_close(&w->h);
}

static bool hdf5_parse(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                       struct td_error *err)
{
    struct td_error own = TD_ERROR_INIT; /* the walk looks at its error, so it needs one even when err is NULL */
    struct walk *w = calloc(1, sizeof *w);
    size_t arena_limit = manifest->arena.limit_bytes;
    if (w == NULL)
        return td_error_no_memory(err);
    bool ok = td_h5_open(&w->h, input, limits, manifest, &own) && walk_file(w);
    if (ok)
        ok = is_archive(w) ? parse_archive(w, limits) : fill_manifest(w);
    if (own.code == TD_INVALID_ARGUMENT && own.pos == TD_ERROR_POS_NONE)
        own.pos = w->h.base; /* an error of the whole listing: a name that occurs twice */
    walk_fini(w);
    free(w);
    manifest->arena.limit_bytes = arena_limit;
    return ok || td_error_copy(err, &own);
}

static const char *const extensions[] = {".h5", ".hdf5", NULL};

const struct td_format td_format_hdf5 = {
    .name = "hdf5",
    .extensions = extensions,
    .parse = hdf5_parse,
};
