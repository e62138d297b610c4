/* Follows ggml-org/llama.cpp, ggml/src/gguf.cpp (gguf_init_from_reader), and docs/gguf.md in ggml-org/ggml. As in the
 * former, tensors follow in the order of their infos, each padded to the alignment; a dimension may be 0; a file
 * without tensors may end where its pairs end; bytes after the last tensor, its padding included, may be missing or
 * many.
 *
 * What is hard: a GGUF file does not say how long its header is. So the header is read through a window of 64 KiB that
 * only moves forward: counts, pairs, infos. Every count is checked against the bytes that are left before memory is
 * allocated (take_count). Strings and arrays are shown up to a limit and skipped beyond it. */
#include "parser/gguf.h"

#include "core/buffer.h"
#include "core/checked.h"
#include "core/json/json.h"
#include "core/utf8.h"
#include "parser/format/manifest.h"
#include "parser/format/names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW_BYTES = 64 * 1024, /* holds the longest piece that is taken at once, a key */
    MAX_KEY_BYTES = 65535,    /* gguf.md: 2^16-1 */
    NAME_BYTES = 64,          /* GGML_MAX_NAME: names are shorter */
    MAX_DIMS = 4,             /* GGML_MAX_DIMS */
    SHORTEST_PAIR_BYTES = 14, /* length, key of one byte, type, value of one byte */
    SHORTEST_INFO_BYTES = 24, /* length, no name, no dimensions, type, offset */
    DEFAULT_ALIGNMENT = 32,   /* GGUF_DEFAULT_ALIGNMENT */
    MAX_ALIGNMENT = 1 << 24,  /* no writer asks for more */
    MAX_ITEMS = 1 << 30,      /* GGUF_MAX_STRING_LENGTH, GGUF_MAX_ARRAY_ELEMENTS */
    SHOWN_ITEMS = 64,         /* of an array, in the metadata */
};

/* enum gguf_type */
enum value_type {
    VALUE_U8,
    VALUE_I8,
    VALUE_U16,
    VALUE_I16,
    VALUE_U32,
    VALUE_I32,
    VALUE_F32,
    VALUE_BOOL,
    VALUE_STRING,
    VALUE_ARRAY,
    VALUE_U64,
    VALUE_I64,
    VALUE_F64,
    VALUE_TYPE_COUNT,
};

/* Bytes of a value in the file; of a string those of its length, of an array 0. */
static const uint8_t value_bytes[VALUE_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};

/* enum ggml_type. The missing ids are of types that were removed. */
static const char *const type_names[] = {
    [0] = "F32",     [1] = "F16",    [2] = "Q4_0",     [3] = "Q4_1",    [6] = "Q5_0",     [7] = "Q5_1",
    [8] = "Q8_0",    [9] = "Q8_1",   [10] = "Q2_K",    [11] = "Q3_K",   [12] = "Q4_K",    [13] = "Q5_K",
    [14] = "Q6_K",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
    [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",      [25] = "I16",
    [26] = "I32",    [27] = "I64",   [28] = "F64",     [29] = "IQ1_M",  [30] = "BF16",    [34] = "TQ1_0",
    [35] = "TQ2_0",  [39] = "MXFP4", [40] = "NVFP4",   [41] = "Q1_0",   [42] = "Q2_0",
};

enum { TYPE_COUNT = sizeof type_names / sizeof *type_names };

struct gguf {
    const struct td_input *input;
    uint64_t pos; /* of the next byte, in the file */
    uint64_t end; /* the header must end before: the file's end, or the limit */
    uint8_t *window;
    size_t window_capacity, window_len;
    uint64_t window_off; /* in the file */

    const struct td_dtype *types[TYPE_COUNT]; /* by id; NULL: unknown */
    uint64_t pair_count, tensor_count;
    uint64_t *key_at;      /* position of each pair in the file, for errors */
    struct td_buffer text; /* the value that is being written */
    size_t text_charged;
    uint64_t alignment;
    uint64_t next_offset; /* where the next tensor must begin, counted from the start of the data */

    bool big_endian;
    struct td_manifest *manifest;
    size_t max_memory_bytes, arena_limit_bytes; /* 0: none */
    size_t scratch_bytes;
    struct td_error *err;
};

/* Load a number in the file's byte order. */
static uint16_t load_16(const struct gguf *g, const uint8_t *p)
{
    uint16_t x = td_load_le16(p);
    return g->big_endian ? __builtin_bswap16(x) : x;
}

static uint32_t load_32(const struct gguf *g, const uint8_t *p)
{
    uint32_t x = td_load_le32(p);
    return g->big_endian ? __builtin_bswap32(x) : x;
}

static uint64_t load_64(const struct gguf *g, const uint8_t *p)
{
    uint64_t x = td_load_le64(p);
    return g->big_endian ? __builtin_bswap64(x) : x;
}

static bool no_memory(const struct gguf *g)
{
    return td_error_set(g->err, TD_RESOURCE_EXHAUSTED,
                        "out of memory: the header needs more than one file's limit, or than there is");
}

/* Counts scratch against the file's memory limit: lowers the arena's limit by as much. */
static bool charge_scratch(struct gguf *g, size_t bytes)
{
    struct td_arena *arena = &g->manifest->arena;
    if (g->max_memory_bytes == 0)
        return true;
    size_t left = g->max_memory_bytes - g->scratch_bytes;
    if (bytes >= left || arena->used_bytes > left - bytes)
        return no_memory(g);
    left -= bytes;
    g->scratch_bytes += bytes;
    arena->limit_bytes = g->arena_limit_bytes != 0 && g->arena_limit_bytes < left ? g->arena_limit_bytes : left;
    return true;
}

/* ---- the window ---------------------------------------------------------------------------------------- */

/* Requires that n bytes of header are left; `what` names them in errors. */
static bool require_bytes(const struct gguf *g, uint64_t n, const char *what)
{
    if (n > g->input->size_bytes - g->pos)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, g->pos,
                           "the file ends at byte %" PRIu64 ", but %s takes %" PRIu64 " bytes", g->input->size_bytes,
                           what, n);
    if (n > g->end - g->pos)
        return td_error_at(g->err, TD_RESOURCE_EXHAUSTED, g->pos, "the header exceeds the limit of %" PRIu64 " bytes",
                           g->end);
    return true;
}

/* Takes the next n <= WINDOW_BYTES bytes. Returns them, valid until the next call; NULL is an error. */
static const uint8_t *take_bytes(struct gguf *g, size_t n, const char *what)
{
    if (!require_bytes(g, n, what))
        return NULL;
    uint64_t skipped = g->pos - g->window_off;
    if (skipped > g->window_len || n > g->window_len - (size_t)skipped) {
        uint64_t rest = g->input->size_bytes - g->pos;
        g->window_len = 0;
        size_t len = rest < g->window_capacity ? (size_t)rest : g->window_capacity;
        if (!td_input_read(g->input, g->pos, g->window, len, g->err))
            return NULL;
        g->window_off = g->pos;
        g->window_len = len;
        skipped = 0;
    }
    g->pos += n;
    return g->window + skipped;
}

static bool skip_bytes(struct gguf *g, uint64_t n, const char *what)
{
    if (!require_bytes(g, n, what))
        return false;
    g->pos += n;
    return true;
}

static bool take_u32(struct gguf *g, uint32_t *out, const char *what)
{
    const uint8_t *p = take_bytes(g, sizeof *out, what);
    if (p == NULL)
        return false;
    *out = load_32(g, p);
    return true;
}

static bool take_u64(struct gguf *g, uint64_t *out, const char *what)
{
    const uint8_t *p = take_bytes(g, sizeof *out, what);
    if (p == NULL)
        return false;
    *out = load_64(g, p);
    return true;
}

/* Takes a count of things of at least `shortest` bytes each. Refuses a count for which the file has no room. */
static bool take_count(struct gguf *g, uint64_t *count, size_t shortest, const char *what)
{
    uint64_t at = g->pos;
    if (!take_u64(g, count, what))
        return false;
    uint64_t rest = g->input->size_bytes - g->pos;
    if (*count > rest / shortest)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at,
                           "%s is %" PRId64 ", for which the %" PRIu64 " bytes that follow have no room", what,
                           (int64_t)*count, rest);
    if (*count > (g->end - g->pos) / shortest)
        return td_error_at(g->err, TD_RESOURCE_EXHAUSTED, at,
                           "%s is %" PRIu64 ": the header would be longer than the limit of %" PRIu64 " bytes", what,
                           *count, g->end);
    return true;
}

/* ---- values as JSON ------------------------------------------------------------------------------------ */

static void write_signed(struct td_buffer *out, int64_t value)
{
    if (value < 0)
        td_buffer_putc(out, '-');
    td_buffer_u64(out, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

/* Writes the value at p, which is no string, array or bool. */
static void write_number(struct gguf *g, uint32_t type, const uint8_t *p)
{
    struct td_buffer *out = &g->text;
    uint32_t bits32;
    uint64_t bits64;
    float single;
    double value;
    switch (type) {
    case VALUE_U8:
        td_buffer_u64(out, p[0]);
        break;
    case VALUE_I8:
        write_signed(out, (int8_t)p[0]);
        break;
    case VALUE_U16:
        td_buffer_u64(out, load_16(g, p));
        break;
    case VALUE_I16:
        write_signed(out, (int16_t)load_16(g, p));
        break;
    case VALUE_U32:
        td_buffer_u64(out, load_32(g, p));
        break;
    case VALUE_I32:
        write_signed(out, (int32_t)load_32(g, p));
        break;
    case VALUE_U64:
        td_buffer_u64(out, load_64(g, p));
        break;
    case VALUE_I64:
        write_signed(out, (int64_t)load_64(g, p));
        break;
    case VALUE_F32:
        bits32 = load_32(g, p);
        memcpy(&single, &bits32, sizeof single);
        td_json_write_real(out, (double)single, true);
        break;
    default:
        bits64 = load_64(g, p);
        memcpy(&value, &bits64, sizeof value);
        td_json_write_real(out, value, false);
        break;
    }
}

/* Returns the length of text[0..len), the beginning of a longer string, without a character that is cut at the end. */
static size_t whole_characters(const uint8_t *text, size_t len)
{
    size_t at = len;
    while (at > 0 && len - at < 3 && (text[at - 1] & 0xC0) == 0x80)
        at--;
    if (at == 0 || text[at - 1] < 0xC0) /* no character begins before these continuation bytes */
        return len;
    return td_utf8_sequence(text + at - 1, len - at + 1) == 0 ? at - 1 : len;
}

static bool read_string(struct gguf *g)
{
    uint64_t at = g->pos;
    uint64_t len;
    if (!take_u64(g, &len, "the length of a string"))
        return false;
    if (len > MAX_ITEMS)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at, "a string of %" PRIu64 " bytes; there may be %d at most",
                           len, MAX_ITEMS);
    if (!require_bytes(g, len, "a string"))
        return false;
    size_t shown = len < TD_METADATA_TEXT_MAX ? (size_t)len : TD_METADATA_TEXT_MAX;
    const uint8_t *text = take_bytes(g, shown, "a string");
    if (text == NULL)
        return false;
    size_t whole = len == shown ? shown : whole_characters(text, shown);
    td_metadata_write_text(&g->text, td_text_n((const char *)text, whole), td_utf8_valid(text, whole), len);
    return skip_bytes(g, len - shown, "a string");
}

static bool read_bool(struct gguf *g, bool shown)
{
    const uint8_t *p = take_bytes(g, 1, "a bool");
    if (p == NULL)
        return false;
    if (*p > 1)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, g->pos - 1, "a bool is %u; it must be 0 or 1", *p);
    if (shown)
        td_buffer_puts(&g->text, *p == 1 ? "true" : "false");
    return true;
}

/* Reads and writes one value that is no array. Then charges the memory that the text has grown by, so that a long array
 * stops at the limit. */
static bool read_scalar(struct gguf *g, uint32_t type)
{
    if (type == VALUE_STRING) {
        if (!read_string(g))
            return false;
    } else if (type == VALUE_BOOL) {
        if (!read_bool(g, true))
            return false;
    } else {
        const uint8_t *p = take_bytes(g, value_bytes[type], "a value");
        if (p == NULL)
            return false;
        write_number(g, type, p);
    }
    if (g->text.failed)
        return no_memory(g);
    size_t grown = g->text.capacity - g->text_charged;
    g->text_charged = g->text.capacity;
    return grown == 0 || charge_scratch(g, grown);
}

/* Skips items that are not shown, and checks those that can be wrong: bools and strings. */
static bool skip_items(struct gguf *g, uint32_t type, uint64_t count)
{
    if (type != VALUE_STRING && type != VALUE_BOOL)
        return skip_bytes(g, count * value_bytes[type], "an array"); /* at most 2^30 * 8 */
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = g->pos;
        uint64_t len = 0;
        if (type == VALUE_BOOL ? !read_bool(g, false) : !take_u64(g, &len, "the length of a string"))
            return false;
        if (len > MAX_ITEMS)
            return td_error_at(g->err, TD_INVALID_ARGUMENT, at,
                               "a string of %" PRIu64 " bytes; there may be %d at most", len, MAX_ITEMS);
        if (!skip_bytes(g, len, "a string"))
            return false;
    }
    return true;
}

static bool check_type(const struct gguf *g, uint32_t type, uint64_t at, const char *key)
{
    return type < VALUE_TYPE_COUNT ||
           td_error_at(g->err, TD_INVALID_ARGUMENT, at, "\"%.96s\": there is no value type %" PRIu32 "; the last is %d",
                       key, type, VALUE_TYPE_COUNT - 1);
}

static bool read_array(struct gguf *g, const char *key)
{
    uint64_t at = g->pos;
    uint32_t type;
    uint64_t count;
    if (!take_u32(g, &type, "the type of an array") || !check_type(g, type, at, key))
        return false;
    if (type == VALUE_ARRAY)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at, "\"%.96s\": an array of arrays", key);
    at = g->pos;
    if (!take_count(g, &count, value_bytes[type], "the length of an array"))
        return false;
    if (count > MAX_ITEMS)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at,
                           "\"%.96s\": an array of %" PRIu64 " items; there may be %d at most", key, count, MAX_ITEMS);
    uint64_t shown = count < SHOWN_ITEMS ? count : SHOWN_ITEMS;
    if (count > shown) {
        td_buffer_puts(&g->text, "{\"length\":"); /* by hand: see td_metadata_write_text */
        td_buffer_u64(&g->text, count);
        td_buffer_puts(&g->text, ",\"first\":");
    }
    td_buffer_putc(&g->text, '[');
    for (uint64_t i = 0; i < shown; i++) {
        if (i > 0)
            td_buffer_putc(&g->text, ',');
        if (!read_scalar(g, type))
            return false;
    }
    td_buffer_puts(&g->text, count > shown ? "]}" : "]");
    return skip_items(g, type, count - shown);
}

/* ---- pairs --------------------------------------------------------------------------------------------- */

/* Copies text[0..len) to the arena; a text that is not UTF-8 is escaped, as \xNN. NULL is an error. */
static const char *keep_name(struct gguf *g, const uint8_t *text, size_t len)
{
    struct td_arena *arena = &g->manifest->arena;
    char *kept = NULL;
    if (td_utf8_valid(text, len)) {
        kept = td_arena_strndup(arena, td_text_n((const char *)text, len));
    } else {
        kept = td_arena_alloc(arena, 4 * len + 1); /* at most 256 KiB, for a key */
        if (kept != NULL)
            td_utf8_escape(td_text_n((const char *)text, len), kept, 4 * len + 1);
    }
    if (kept == NULL)
        (void)no_memory(g);
    return kept;
}

static const char *read_key(struct gguf *g)
{
    uint64_t at = g->pos;
    uint64_t len;
    if (!take_u64(g, &len, "the length of a key"))
        return NULL;
    if (len == 0 || len > MAX_KEY_BYTES) {
        (void)td_error_at(g->err, TD_INVALID_ARGUMENT, at, "a key of %" PRIu64 " bytes; it must have 1 to %d", len,
                          MAX_KEY_BYTES);
        return NULL;
    }
    const uint8_t *key = take_bytes(g, (size_t)len, "a key");
    if (key == NULL)
        return NULL;
    if (memchr(key, 0, (size_t)len) != NULL) {
        (void)td_error_at(g->err, TD_INVALID_ARGUMENT, at, "the key \"%.96s\" continues after a NUL",
                          (const char *)key);
        return NULL;
    }
    return keep_name(g, key, (size_t)len);
}

/* Reads the value of general.alignment. Its type has been read, at `at`. */
static bool set_alignment(struct gguf *g, uint32_t type, uint64_t at)
{
    if (type != VALUE_U32)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at,
                           "general.alignment has value type %" PRIu32 "; it must be %d, an unsigned 32-bit number",
                           type, VALUE_U32);
    const uint8_t *p = take_bytes(g, sizeof(uint32_t), "general.alignment");
    if (p == NULL)
        return false;
    uint32_t alignment = load_32(g, p);
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > MAX_ALIGNMENT)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, g->pos - sizeof alignment,
                           "general.alignment is %" PRIu32 "; it must be a power of two up to %d", alignment,
                           MAX_ALIGNMENT);
    g->alignment = alignment;
    td_buffer_u64(&g->text, alignment);
    return true;
}

/* Returns the member that a pair of a split file sets; NULL for other pairs. llama.cpp reads only this type there. */
static int32_t *split_member(struct gguf *g, const char *key, uint32_t type)
{
    if (type == VALUE_U16 && strcmp(key, TD_GGUF_SPLIT_NO) == 0)
        return &g->manifest->split_number;
    if (type == VALUE_U16 && strcmp(key, TD_GGUF_SPLIT_COUNT) == 0)
        return &g->manifest->split_count;
    return NULL;
}

static bool set_split(struct gguf *g, int32_t *number)
{
    const uint8_t *p = take_bytes(g, sizeof(uint16_t), "a value");
    if (p == NULL)
        return false;
    *number = load_16(g, p);
    td_buffer_u64(&g->text, load_16(g, p));
    return true;
}

static bool read_pair(struct gguf *g)
{
    struct td_manifest *manifest = g->manifest;
    g->key_at[manifest->metadata_count] = g->pos;
    const char *key = read_key(g);
    if (key == NULL)
        return false;
    uint64_t at = g->pos;
    uint32_t type;
    if (!take_u32(g, &type, "a value type") || !check_type(g, type, at, key))
        return false;
    td_buffer_clear(&g->text);
    bool ok;
    int32_t *split = split_member(g, key, type);
    if (strcmp(key, "general.alignment") == 0)
        ok = set_alignment(g, type, at);
    else if (split != NULL)
        ok = set_split(g, split);
    else
        ok = type == VALUE_ARRAY ? read_array(g, key) : read_scalar(g, type);
    if (!ok)
        return false;
    const char *value = g->text.failed ? NULL : td_arena_strndup(&manifest->arena, td_buffer_text(&g->text));
    if (value == NULL)
        return no_memory(g);
    manifest->metadata[manifest->metadata_count++] = (struct td_metadata){.key = key, .value = value};
    return true;
}

static bool check_keys_unique(struct gguf *g)
{
    const struct td_metadata *metadata = g->manifest->metadata;
    struct td_names names = td_metadata_keys(metadata, g->manifest->metadata_count);
    struct td_order *order;
    if (!td_names_order(&names, &order, g->err))
        return false;
    size_t twice = td_names_duplicate(&names, order);
    free(order);
    return twice == names.count || td_error_at(g->err, TD_INVALID_ARGUMENT, g->key_at[twice],
                                               "two pairs have the key \"%.96s\"", metadata[twice].key);
}

static bool read_pairs(struct gguf *g)
{
    struct td_manifest *manifest = g->manifest;
    size_t count = (size_t)g->pair_count; /* take_count has checked that the file has room for them */
    if (!charge_scratch(g, count * (sizeof *g->key_at + 2 * sizeof(struct td_order))))
        return false;
    manifest->metadata = td_arena_array(&manifest->arena, count, sizeof *manifest->metadata);
    g->key_at = malloc((count + 1) * sizeof *g->key_at);
    if (manifest->metadata == NULL || g->key_at == NULL)
        return no_memory(g);
    while (manifest->metadata_count < count)
        if (!read_pair(g))
            return false;
    return check_keys_unique(g);
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

static const uint8_t *take_name(struct gguf *g, size_t *len)
{
    uint64_t at = g->pos;
    uint64_t bytes;
    if (!take_u64(g, &bytes, "the length of a tensor's name"))
        return NULL;
    if (bytes >= NAME_BYTES) {
        (void)td_error_at(g->err, TD_INVALID_ARGUMENT, at,
                          "a tensor's name of %" PRIu64 " bytes; it may have %d at most", bytes, NAME_BYTES - 1);
        return NULL;
    }
    *len = (size_t)bytes;
    return take_bytes(g, *len, "a tensor's name");
}

static bool read_name(struct gguf *g, struct td_tensor *tensor)
{
    uint64_t at = g->pos;
    size_t len;
    const uint8_t *name = take_name(g, &len);
    if (name == NULL)
        return false;
    if (memchr(name, 0, len) != NULL)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at, "the tensor name \"%.63s\" continues after a NUL",
                           (const char *)name);
    tensor->name = keep_name(g, name, len);
    if (tensor->name == NULL)
        return false;
    tensor->name_len = (uint32_t)strlen(tensor->name);
    return true;
}

/* Reads the dimensions, ne[0] first, into a shape, which has ne[0] last. */
static bool read_dims(struct gguf *g, struct td_tensor *tensor, uint64_t *elems)
{
    uint64_t at = g->pos;
    if (!take_u32(g, &tensor->rank, "a number of dimensions"))
        return false;
    if (tensor->rank > MAX_DIMS)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at,
                           "tensor \"%.96s\" has %" PRIu32 " dimensions; there may be %d at most", tensor->name,
                           tensor->rank, MAX_DIMS);
    const uint8_t *dims = take_bytes(g, tensor->rank * sizeof(uint64_t), "the dimensions of a tensor");
    if (dims == NULL)
        return false;
    if (tensor->rank == 0)
        return true;
    uint64_t *shape = td_arena_array(&g->manifest->arena, tensor->rank, sizeof *shape);
    if (shape == NULL)
        return no_memory(g);
    bool empty = false;
    bool fits = true;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        uint64_t dim = load_64(g, dims + i * sizeof dim);
        shape[tensor->rank - 1 - i] = dim;
        empty = empty || dim == 0;
        fits = fits && dim <= INT64_MAX;
    }
    for (uint32_t i = 0; i < tensor->rank && fits && !empty; i++)
        fits = td_mul_u64(*elems, shape[i], elems) && *elems < INT64_MAX;
    tensor->shape = shape;
    *elems = empty ? 0 : *elems;
    return fits ||
           td_error_at(g->err, TD_INVALID_ARGUMENT, at + sizeof(uint32_t),
                       "tensor \"%.96s\": a dimension or the number of elements is not below 2^63", tensor->name);
}

static void set_byte_order(const struct gguf *g, struct td_tensor *tensor)
{
    struct td_swap swap;
    tensor->big_endian = g->big_endian && tensor->dtype->block_bytes > 1;
    if (tensor->big_endian && !td_dtype_swap(tensor->dtype, &swap))
        tensor->reason = "big-endian, in blocks of an unknown byte order";
}

static bool read_type(struct gguf *g, struct td_tensor *tensor, uint64_t elems)
{
    uint64_t at = g->pos;
    uint32_t id;
    if (!take_u32(g, &id, "a tensor's type"))
        return false;
    if (id >= TYPE_COUNT || g->types[id] == NULL)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at,
                           "tensor \"%.96s\" has type %" PRIu32 ", which was removed or is not known", tensor->name,
                           id);
    tensor->dtype = g->types[id];
    set_byte_order(g, tensor);
    uint64_t row = tensor->shape == NULL ? 1 : tensor->shape[tensor->rank - 1];
    if (row % tensor->dtype->block_elems != 0)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at,
                           "tensor \"%.96s\" has rows of %" PRIu64 " elements; of %s they must be a multiple of %u",
                           tensor->name, row, tensor->dtype->name, tensor->dtype->block_elems);
    if (!td_dtype_nbytes(tensor->dtype, elems, &tensor->nbytes))
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at, "tensor \"%.96s\" takes more than 2^64-1 bytes",
                           tensor->name);
    return true;
}

/* Rounds bytes up to a multiple of the alignment. Returns false on an overflow. */
static bool pad(const struct gguf *g, uint64_t bytes, uint64_t *padded)
{
    if (!td_add_u64(bytes, g->alignment - 1, padded))
        return false;
    *padded &= ~(g->alignment - 1);
    return true;
}

/* Reads an offset, which must be where the tensor before ends: tensors fill the data in the order of their infos. */
static bool read_offset(struct gguf *g, struct td_tensor *tensor)
{
    uint64_t at = g->pos;
    uint64_t padded;
    if (!take_u64(g, &tensor->offset, "a tensor's offset"))
        return false;
    if (tensor->offset != g->next_offset)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at,
                           "tensor \"%.96s\" begins at data byte %" PRIu64 "; it must begin at %" PRIu64
                           ", where the one before it ends, padded to %" PRIu64,
                           tensor->name, tensor->offset, g->next_offset, g->alignment);
    if (!pad(g, tensor->nbytes, &padded) || !td_add_u64(g->next_offset, padded, &g->next_offset))
        return td_error_at(g->err, TD_INVALID_ARGUMENT, at,
                           "tensor \"%.96s\" of %" PRIu64 " bytes at data byte %" PRIu64 " ends past 2^64-1",
                           tensor->name, tensor->nbytes, tensor->offset);
    return true;
}

static bool read_tensors(struct gguf *g)
{
    struct td_manifest *manifest = g->manifest;
    size_t count = (size_t)g->tensor_count;
    if (!charge_scratch(g, count * 2 * sizeof(struct td_order)))
        return false;
    manifest->tensors = td_arena_array(&manifest->arena, count, sizeof *manifest->tensors);
    if (manifest->tensors == NULL)
        return no_memory(g);
    while (manifest->tensor_count < count) {
        struct td_tensor tensor = {0};
        uint64_t elems = 1;
        if (!read_name(g, &tensor) || !read_dims(g, &tensor, &elems) || !read_type(g, &tensor, elems) ||
            !read_offset(g, &tensor))
            return false;
        manifest->tensors[manifest->tensor_count++] = tensor;
    }
    return true;
}

/* Places the tensors. The data begin at the next multiple of the alignment after the infos. */
static bool place_tensors(struct gguf *g)
{
    struct td_manifest *manifest = g->manifest;
    uint64_t size = g->input->size_bytes;
    uint64_t start;
    if (manifest->tensor_count == 0)
        return true;
    if (!pad(g, g->pos, &start) || start > size)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, g->pos,
                           "the file ends at byte %" PRIu64 ", before the padding to %" PRIu64 " where the data begin",
                           size, g->alignment);
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        struct td_tensor *tensor = &manifest->tensors[i];
        if (!td_range_within(tensor->offset, tensor->nbytes, size - start))
            return td_error_at(g->err, TD_INVALID_ARGUMENT, size,
                               "the file ends at byte %" PRIu64
                               ", within or before tensor \"%.96s\", which has %" PRIu64 " bytes at %" PRIu64,
                               size, tensor->name, tensor->nbytes, start + tensor->offset);
        tensor->offset += start;
    }
    return true;
}

/* Returns the position of the second info with this name, for an error: reads the infos from `first` on once more.
 * Returns `first` when no second info is found, because the name was escaped or the file has changed. */
static uint64_t second_info(struct gguf *g, uint64_t first, const struct td_tensor *named)
{
    unsigned seen = 0;
    g->pos = first;
    for (size_t i = 0; i < g->manifest->tensor_count; i++) {
        uint64_t at = g->pos;
        uint32_t rank;
        size_t len;
        const uint8_t *name = take_name(g, &len);
        if (name == NULL)
            break;
        if (len == named->name_len && memcmp(name, named->name, len) == 0 && ++seen == 2)
            return at;
        if (!take_u32(g, &rank, "") || !skip_bytes(g, (uint64_t)rank * sizeof(uint64_t) + 12, ""))
            break;
    }
    return first;
}

static bool finish_manifest(struct gguf *g, uint64_t infos_at)
{
    struct td_manifest *manifest = g->manifest;
    struct td_error *err = g->err;
    if (td_manifest_finish(manifest, err))
        return true;
    for (size_t i = 1; err != NULL && err->pos == TD_ERROR_POS_NONE && i < manifest->tensor_count; i++) {
        const struct td_tensor *t = &manifest->tensors[i];
        if (td_text_compare(td_tensor_name(&t[-1]), td_tensor_name(t)) == 0)
            err->pos = second_info(g, infos_at, t);
    }
    return false;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static bool check_version(struct gguf *g, uint32_t version)
{
    uint64_t at = g->pos - sizeof version;
    if (version != 0 && (version & 0xFFFF) == 0) { /* the test of gguf.cpp and gguf_reader.py for big-endian files */
        g->big_endian = true;
        version = __builtin_bswap32(version);
    }
    if (version == 2 || version == 3)
        return true;
    return td_error_at(g->err, TD_INVALID_ARGUMENT, at, "GGUF version %" PRIu32 "; versions 2 and 3 are read", version);
}

static bool read_counts(struct gguf *g)
{
    uint32_t version;
    const uint8_t *magic = take_bytes(g, 4, "the magic \"GGUF\"");
    if (magic == NULL)
        return false;
    if (memcmp(magic, "GGUF", 4) != 0)
        return td_error_at(g->err, TD_INVALID_ARGUMENT, 0,
                           "the file begins with %02x %02x %02x %02x, not with \"GGUF\"", magic[0], magic[1], magic[2],
                           magic[3]);
    return take_u32(g, &version, "the version") && check_version(g, version) &&
           take_count(g, &g->tensor_count, SHORTEST_INFO_BYTES, "the number of tensors") &&
           take_count(g, &g->pair_count, SHORTEST_PAIR_BYTES, "the number of key-value pairs");
}

static bool read_file(struct gguf *g)
{
    uint64_t size = g->input->size_bytes;
    g->window_capacity = size < WINDOW_BYTES ? (size_t)size : WINDOW_BYTES;
    if (!charge_scratch(g, g->window_capacity))
        return false;
    g->window = malloc(g->window_capacity + 1);
    if (g->window == NULL)
        return no_memory(g);
    for (size_t id = 0; id < TYPE_COUNT; id++)
        if (type_names[id] != NULL)
            g->types[id] = td_dtype_find(td_text_of(type_names[id]));
    if (!read_counts(g) || !read_pairs(g))
        return false;
    uint64_t infos_at = g->pos;
    return read_tensors(g) && place_tensors(g) && finish_manifest(g, infos_at);
}

static bool gguf_parse(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                       struct td_error *err)
{
    struct gguf g = {
        .input = input,
        .end = input->size_bytes < limits->max_header_bytes ? input->size_bytes : limits->max_header_bytes,
        .alignment = DEFAULT_ALIGNMENT,
        .manifest = manifest,
        .max_memory_bytes = limits->max_memory_bytes,
        .arena_limit_bytes = manifest->arena.limit_bytes,
        .err = err,
    };
    bool ok = read_file(&g);
    manifest->arena.limit_bytes = g.arena_limit_bytes;
    td_buffer_fini(&g.text);
    free(g.key_at);
    free(g.window);
    return ok;
}

static const char *const extensions[] = {".gguf", NULL};

const struct td_format td_format_gguf = {
    .name = "gguf",
    .extensions = extensions,
    .splits = true,
    .parse = gguf_parse,
};
