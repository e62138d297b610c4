/* Accepts what numpy.load accepts: keys in any order, white space, commas before a closing bracket, both quotes, the L
 * that Python 2 wrote after integers (versions 1.0 and 2.0), bytes after the data. Is stricter in that the literal must
 * be one that NumPy writes: no comments, no computed values, no type names such as 'float32', no key twice.
 *
 * The header is parsed once from left to right. A structured type is a list of fields whose types may be lists again;
 * the bytes of the open lists are kept on a stack of MAX_STRUCT_DEPTH sums, so nothing recurses. */
#include "parser/npy.h"

#include "core/checked.h"
#include "core/digits.h"
#include "core/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAGIC_BYTES = 6,
    PREFIX_SHORT_BYTES = 10,   /* magic, version, and a length of two bytes: 1.0 */
    PREFIX_LONG_BYTES = 12,    /* the same with a length of four bytes: 2.0 and 3.0 */
    MAX_STRUCT_DEPTH = 16,     /* of types within types */
    MAX_ITEM_BYTES = INT32_MAX /* NumPy's own limit */
};

static const uint8_t magic[MAGIC_BYTES] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

struct header {
    char *text; /* owned */
    size_t len, pos;
    uint64_t base; /* of the text in the file */
    uint8_t major;
    struct td_error *err;
};

struct type {
    const struct td_dtype *dtype;
    uint64_t item_bytes;
    bool pickled; /* the data's size is not known from the header */
    const char *reason;
    bool big_endian;
};

struct array {
    struct type type;
    bool fortran_order;
    uint64_t dims[TD_MAX_RANK];
    uint32_t rank;
};

/* ---- Tokens ---- */

static bool fail_header(const struct header *h, const char *wanted)
{
    size_t left = h->len - h->pos;
    (void)td_error_at(h->err, TD_INVALID_ARGUMENT, h->base + h->pos, "npy header: %s, not \"%.*s\"", wanted,
                      (int)(left < 32 ? left : 32), h->text + h->pos);
    return false;
}

static char peek_char(struct header *h)
{
    while (h->pos < h->len && h->text[h->pos] != '\0' && strchr(" \t\n\r\f", h->text[h->pos]) != NULL)
        h->pos++;
    return h->pos < h->len ? h->text[h->pos] : '\0';
}

static bool take_char(struct header *h, char c)
{
    if (peek_char(h) != c || h->pos == h->len)
        return false;
    h->pos++;
    return true;
}

static bool need_char(struct header *h, char c, const char *wanted)
{
    return take_char(h, c) || fail_header(h, wanted);
}

static bool is_word_char(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (uint8_t)c >= 0x80;
}

static bool take_word(struct header *h, const char *word)
{
    size_t len = strlen(word);
    (void)peek_char(h);
    if (h->len - h->pos < len || memcmp(h->text + h->pos, word, len) != 0)
        return false;
    if (h->pos + len < h->len && is_word_char(h->text[h->pos + len]))
        return false;
    h->pos += len;
    return true;
}

/* Reads a string in quotes. *text[0..*len) is the text between them, with escapes as they are. */
static bool read_string(struct header *h, const char *wanted, const char **text, size_t *len)
{
    char quote = peek_char(h);
    if (quote != '\'' && quote != '"')
        return fail_header(h, wanted);
    size_t begin = h->pos + 1;
    size_t at = begin;
    while (at < h->len && h->text[at] != quote && h->text[at] != '\n') {
        if (h->text[at] == '\\')
            at++;
        if (at < h->len)
            at++;
    }
    if (at == h->len || h->text[at] != quote)
        return fail_header(h, "a string has no end");
    *text = h->text + begin;
    *len = at - begin;
    h->pos = at + 1;
    return true;
}

static bool read_u64(struct header *h, uint64_t *value)
{
    char c = peek_char(h);
    struct td_text rest = td_text_n(h->text + h->pos, h->len - h->pos);
    uint64_t number;
    bool fits;
    size_t digits = td_digits_take(&rest, &number, &fits);
    if (digits == 0)
        return fail_header(h, "dimensions must be whole numbers of 0 or more");
    if (!fits || number > INT64_MAX)
        return fail_header(h, "dimensions must be below 2^63");
    if (c == '0' && number != 0)
        return fail_header(h, "numbers must not begin with 0");
    h->pos += digits;
    size_t end = h->pos;
    if (h->major >= 3 || !take_word(h, "L"))
        h->pos = end;
    if (h->pos < h->len && is_word_char(h->text[h->pos]))
        return fail_header(h, "a whole number must end here");
    *value = number;
    return true;
}

/* Reads a tuple of whole numbers. */
static bool read_dims(struct header *h, uint64_t dims[TD_MAX_RANK], uint32_t *rank)
{
    uint32_t count = 0;
    bool has_comma = false;
    if (!need_char(h, '(', "a tuple such as (3, 4) must come here"))
        return false;
    while (!take_char(h, ')')) {
        if (count == TD_MAX_RANK)
            return fail_header(h, "an array has 64 dimensions at most");
        if (count > 0 && !has_comma)
            return fail_header(h, "a comma or a ) must come here");
        if (!read_u64(h, &dims[count++]))
            return false;
        has_comma = take_char(h, ',');
    }
    if (count == 1 && !has_comma) {
        h->pos--;
        return fail_header(h, "a tuple of one number needs a comma, as in (3,)");
    }
    *rank = count;
    return true;
}

/* ---- Types ---- */

/* Types with a size of their own. ml_dtypes' float8_e5m2 is saved as "f1", which NumPy itself cannot load. */
static const struct {
    char kind;
    uint8_t bytes;
    const char *dtype;
} plain_types[] = {
    {'b', 1, "BOOL"},       {'i', 1, "I8"},          {'i', 2, "I16"},    {'i', 4, "I32"},    {'i', 8, "I64"},
    {'u', 1, "U8"},         {'u', 2, "U16"},         {'u', 4, "U32"},    {'u', 8, "U64"},    {'f', 1, "OPAQUE"},
    {'f', 2, "F16"},        {'f', 4, "F32"},         {'f', 8, "F64"},    {'f', 16, "F128"},  {'c', 8, "C64"},
    {'c', 16, "C128"},      {'c', 32, "C256"},       {'O', 0, "OBJECT"}, {'O', 4, "OBJECT"}, {'O', 8, "OBJECT"},
    {'M', 8, "DATETIME64"}, {'m', 8, "TIMEDELTA64"},
};

static const struct td_dtype *dtype_named(const char *name)
{
    return td_dtype_find(td_text_of(name));
}

static const struct td_dtype *plain_type(char kind, uint64_t bytes)
{
    for (size_t i = 0; i < sizeof plain_types / sizeof *plain_types; i++)
        if (plain_types[i].kind == kind && plain_types[i].bytes == bytes)
            return dtype_named(plain_types[i].dtype);
    return NULL;
}

/* Returns whether the text can follow M8 and m8: "[ns]", "[10D]" or nothing. */
static bool is_time_unit(struct td_text text)
{
    static const char *const units[] = {"Y",  "M",  "W",  "D",  "h",  "m",  "s",
                                        "ms", "us", "ns", "ps", "fs", "as", "generic"};
    if (text.len == 0)
        return true;
    if (text.len < 3 || text.p[0] != '[' || text.p[text.len - 1] != ']')
        return false;
    text.p++;
    text.len -= 2;
    for (unsigned digits = 0; digits < 10 && text.len > 0 && *text.p >= '0' && *text.p <= '9'; digits++) {
        text.p++;
        text.len--;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strlen(units[i]) == text.len && memcmp(units[i], text.p, text.len) == 0)
            return true;
    return false;
}

/* Sets a type whose size is part of its name: bytes, text, raw memory. */
static bool set_sized_type(struct type *type, char kind, uint64_t number)
{
    if (kind != 'S' && kind != 'U' && kind != 'V' && kind != 'a')
        return false;
    type->item_bytes = kind == 'U' ? number * 4 : number;
    type->dtype = dtype_named(kind == 'V' ? "OPAQUE" : "STRING");
    type->reason = kind == 'V' ? "opaque" : "strings";
    return type->item_bytes <= MAX_ITEM_BYTES;
}

/* Finds numpy.dtype(text) for the type strings of the array protocol, which numpy.save writes. */
static bool find_type(struct td_text text, struct type *type)
{
    char order = '|';
    if (text.len > 0 && strchr("<>|=", *text.p) != NULL && *text.p != '\0') {
        order = *text.p++;
        text.len--;
    }
    if (text.len == 0)
        return false;
    char kind = *text.p++;
    text.len--;
    uint64_t number;
    (void)td_digits_take(&text, &number, NULL);
    if (number > MAX_ITEM_BYTES)
        return false;
    *type = (struct type){.item_bytes = number};
    if (set_sized_type(type, kind, number))
        return text.len == 0;
    type->dtype = plain_type(kind, number);
    if (type->dtype == NULL)
        return false;
    if (kind == 'O') {
        type->pickled = true;
        type->reason = "pickled objects";
    } else if (type->dtype->block_bytes == 0) {
        type->reason = "opaque";
    } else if (order == '>' && number > 1) {
        type->big_endian = true;
    }
    if (kind == 'M' || kind == 'm')
        return is_time_unit(text);
    return text.len == 0;
}

static bool read_type_string(struct header *h, struct type *type)
{
    const char *text;
    size_t len;
    (void)peek_char(h);
    size_t begin = h->pos;
    if (!read_string(h, "descr must be a type such as '<f4' or a list of fields", &text, &len))
        return false;
    if (find_type(td_text_n(text, len), type))
        return true;
    h->pos = begin;
    return fail_header(h, "descr must be a type that NumPy knows, such as '<f4'");
}

/* Reads a field up to its type: its name, or its title and name. */
static bool begin_field(struct header *h)
{
    const char *text;
    size_t len;
    static const char wanted[] = "a field must be a tuple of a name and a type";
    if (!need_char(h, '(', wanted))
        return false;
    if (take_char(h, '(')) {
        if (!read_string(h, wanted, &text, &len) || !need_char(h, ',', wanted) ||
            !read_string(h, wanted, &text, &len) || !need_char(h, ')', wanted))
            return false;
    } else if (!read_string(h, wanted, &text, &len)) {
        return false;
    }
    return need_char(h, ',', wanted);
}

/* Reads the rest of a field whose type has item_bytes: an optional shape and the end. Adds the field's bytes to *sum.
 */
static bool end_field(struct header *h, uint64_t item_bytes, uint64_t *sum)
{
    uint64_t dims[TD_MAX_RANK];
    uint32_t rank = 0;
    static const char wanted[] = "a field must end with ) or with its shape and )";
    bool has_comma = take_char(h, ',');
    if (has_comma && peek_char(h) != ')') {
        if (peek_char(h) == '(') {
            if (!read_dims(h, dims, &rank))
                return false;
        } else {
            if (!read_u64(h, &dims[0]))
                return false;
            rank = 1;
        }
        (void)take_char(h, ',');
    }
    for (uint32_t i = 0; i < rank; i++)
        if (!td_mul_u64(item_bytes, dims[i], &item_bytes) || item_bytes > MAX_ITEM_BYTES)
            return fail_header(h, "an item has 2^31-1 bytes at most");
    *sum += item_bytes; /* both at most MAX_ITEM_BYTES */
    return *sum > MAX_ITEM_BYTES ? fail_header(h, "an item has 2^31-1 bytes at most") : need_char(h, ')', wanted);
}

/* Called after a field, or after the [ of a list that may be empty. Closes lists until another field begins, or until
 * none is open. */
static bool close_lists(struct header *h, uint64_t *sums, unsigned *depth)
{
    for (;;) {
        if (take_char(h, ']')) {
            if (--*depth == 0)
                return true;
            if (!end_field(h, sums[*depth], &sums[*depth - 1]))
                return false;
        } else {
            if (!need_char(h, ',', "a comma or a ] must come here"))
                return false;
            if (peek_char(h) != ']')
                return begin_field(h);
        }
    }
}

/* Reads descr: a type string, or a list of fields, whose types may be lists again. */
static bool read_descr(struct header *h, struct type *type)
{
    uint64_t sums[MAX_STRUCT_DEPTH]; /* bytes so far of each open list */
    unsigned depth = 0;
    bool pickled = false;
    struct type item;
    do {
        if (take_char(h, '[')) {
            if (depth == MAX_STRUCT_DEPTH)
                return fail_header(h, "types are nested 16 deep at most");
            sums[depth++] = 0;
            if (peek_char(h) != ']') {
                if (!begin_field(h))
                    return false;
                continue;
            }
        } else {
            if (!read_type_string(h, &item))
                return false;
            if (depth == 0) {
                *type = item;
                return true;
            }
            pickled = pickled || item.pickled;
            if (!end_field(h, item.item_bytes, &sums[depth - 1]))
                return false;
        }
        if (!close_lists(h, sums, &depth))
            return false;
    } while (depth > 0);
    *type = (struct type){
        .dtype = dtype_named("COMPOUND"), .item_bytes = sums[0], .pickled = pickled, .reason = "structured"};
    return true;
}

/* ---- The dict ---- */

enum { KEY_DESCR, KEY_FORTRAN_ORDER, KEY_SHAPE, KEY_COUNT };

static const char *const key_names[KEY_COUNT] = {"descr", "fortran_order", "shape"};

static bool read_value(struct header *h, unsigned key, struct array *array)
{
    switch (key) {
    case KEY_DESCR:
        return read_descr(h, &array->type);
    case KEY_SHAPE:
        return read_dims(h, array->dims, &array->rank);
    default:
        array->fortran_order = take_word(h, "True");
        return array->fortran_order || take_word(h, "False") || fail_header(h, "fortran_order must be True or False");
    }
}

static bool read_dict(struct header *h, struct array *array)
{
    bool seen[KEY_COUNT] = {false};
    bool has_comma = true;
    if (!need_char(h, '{', "a dict must come here"))
        return false;
    while (!take_char(h, '}')) {
        const char *text;
        size_t len;
        unsigned key = 0;
        if (!has_comma)
            return fail_header(h, "a comma or a } must come here");
        if (!read_string(h, "a key must come here", &text, &len))
            return false;
        while (key < KEY_COUNT && (strlen(key_names[key]) != len || memcmp(key_names[key], text, len) != 0))
            key++;
        if (key == KEY_COUNT || seen[key]) {
            h->pos -= len + 2;
            return fail_header(h, "the keys must be descr, fortran_order and shape, each once");
        }
        seen[key] = true;
        if (!need_char(h, ':', "a colon must come here") || !read_value(h, key, array))
            return false;
        has_comma = take_char(h, ',');
    }
    for (unsigned key = 0; key < KEY_COUNT; key++)
        if (!seen[key])
            return td_error_at(h->err, TD_INVALID_ARGUMENT, h->base, "npy header: it has no %s", key_names[key]);
    (void)peek_char(h);
    return h->pos == h->len || fail_header(h, "nothing may follow the dict");
}

/* ---- The file ---- */

/* Refuses a header of version 3.0 that is not UTF-8. The other versions use Latin-1, in which all bytes are characters.
 */
static bool check_encoding(const struct header *h)
{
    if (h->major < 3)
        return true;
    if (!td_utf8_valid(h->text, h->len))
        return td_error_at(h->err, TD_INVALID_ARGUMENT, h->base, "npy header of version 3.0 is not UTF-8");
    size_t chars = 0;
    for (size_t i = 0; i < h->len; i++)
        chars += ((uint8_t)h->text[i] & 0xc0) != 0x80;
    return chars <= TD_NPY_HEADER_MAX_CHARS ||
           td_error_at(h->err, TD_INVALID_ARGUMENT, 8, "npy header has %zu characters, %d at most are read", chars,
                       TD_NPY_HEADER_MAX_CHARS);
}

/* Reads the prefix, checks the length in it, and reads the header. */
static bool load_header(struct header *h, const struct td_input *input, const struct td_limits *limits)
{
    uint8_t prefix[PREFIX_LONG_BYTES] = {0};
    size_t prefix_len = input->size_bytes < sizeof prefix ? (size_t)input->size_bytes : sizeof prefix;
    if (!td_input_read(input, 0, prefix, prefix_len, h->err))
        return false;
    if (memcmp(prefix, magic, sizeof magic) != 0)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, 0, "no npy file: it does not begin with \\x93NUMPY");
    h->major = prefix[6];
    if (h->major < 1 || h->major > 3 || prefix[7] != 0)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, 6, "npy version %u.%u is unknown; 1.0, 2.0 and 3.0 are known",
                           h->major, prefix[7]);
    h->base = h->major == 1 ? PREFIX_SHORT_BYTES : PREFIX_LONG_BYTES;
    uint64_t len = h->major == 1 ? td_load_le16(prefix + 8) : td_load_le32(prefix + 8);
    if (prefix_len < h->base || len > input->size_bytes - h->base)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, prefix_len < h->base ? prefix_len : 8,
                           "npy header of %" PRIu64 " bytes is not all there: the file has %" PRIu64, len,
                           input->size_bytes);
    if (len > (h->major == 3 ? 4 : 1) * (uint64_t)TD_NPY_HEADER_MAX_CHARS)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, 8,
                           "npy header has %" PRIu64 " bytes, %d characters at most are read", len,
                           TD_NPY_HEADER_MAX_CHARS);
    h->len = (size_t)len;
    h->text = (char *)td_input_load(input, h->base, len, limits->max_header_bytes, h->err);
    return h->text != NULL && check_encoding(h);
}

/* Refuses a file that ends before its data do. More bytes may follow: numpy.load reads several arrays from one file. */
static bool check_data(const struct header *h, const struct array *array, uint64_t data_bytes)
{
    uint64_t bytes = array->type.item_bytes;
    bool empty = array->type.pickled || bytes == 0;
    bool fits = true;
    for (uint32_t i = 0; i < array->rank; i++)
        empty = empty || array->dims[i] == 0;
    for (uint32_t i = 0; i < array->rank && !empty; i++)
        fits = fits && td_mul_u64(bytes, array->dims[i], &bytes);
    if (empty || (fits && bytes <= data_bytes))
        return true;
    if (!fits)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, h->base, "npy array would have more than 2^64-1 bytes");
    return td_error_at(h->err, TD_INVALID_ARGUMENT, h->base,
                       "npy array has %" PRIu64 " bytes, but the file ends after %" PRIu64 " of them", bytes,
                       data_bytes);
}

/* Sets the strides of a column-major array; NULL for an empty array, where they do not matter and might overflow. */
static bool fortran_strides(struct td_tensor *tensor, struct td_arena *arena, struct td_error *err)
{
    uint64_t step = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] == 0)
            return true;
    uint64_t *strides = td_arena_array(arena, tensor->rank, sizeof *strides);
    if (strides == NULL)
        return td_error_no_memory(err);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        strides[i] = step;
        if (!td_mul_u64(step, tensor->shape[i], &step))
            return td_error_set(err, TD_INVALID_ARGUMENT, "npy array would have more than 2^64-1 elements");
    }
    tensor->strides = strides;
    return true;
}

static bool make_tensor(const struct header *h, const struct array *array, const struct td_input *input,
                        struct td_arena *arena, struct td_tensor *tensor)
{
    uint64_t data_at = h->base + h->len;
    *tensor = (struct td_tensor){
        .name = "",
        .rank = array->rank,
        .dtype = array->type.dtype,
        .offset = data_at,
        .reason = array->type.reason,
        .big_endian = array->type.big_endian,
    };
    if (!check_data(h, array, input->size_bytes - data_at))
        return false;
    if (array->rank > 0) {
        uint64_t *shape = td_arena_array(arena, array->rank, sizeof *shape);
        if (shape == NULL)
            return td_error_no_memory(h->err);
        memcpy(shape, array->dims, array->rank * sizeof *shape);
        tensor->shape = shape;
        if (array->fortran_order && !fortran_strides(tensor, arena, h->err))
            return false;
    }
    return td_tensor_place(tensor, data_at, input->size_bytes, h->base, h->err);
}

bool td_npy_probe(const struct td_input *input, bool *is_npy, struct td_error *err)
{
    uint8_t begin[MAGIC_BYTES];
    *is_npy = false;
    if (input->size_bytes < sizeof begin)
        return true;
    if (!td_input_read(input, 0, begin, sizeof begin, err))
        return false;
    *is_npy = memcmp(begin, magic, sizeof begin) == 0;
    return true;
}

bool td_npy_read(const struct td_input *input, const struct td_limits *limits, struct td_arena *arena,
                 struct td_tensor *tensor, uint64_t *header_bytes, struct td_error *err)
{
    struct header h = {.err = err};
    struct array array = {.rank = 0};
    bool ok = load_header(&h, input, limits) && read_dict(&h, &array) && make_tensor(&h, &array, input, arena, tensor);
    *header_bytes = h.base + h.len;
    free(h.text);
    return ok;
}

static bool npy_parse(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                      struct td_error *err)
{
    uint64_t header_bytes;
    manifest->tensors = td_arena_alloc(&manifest->arena, sizeof *manifest->tensors);
    if (manifest->tensors == NULL)
        return td_error_no_memory(err);
    if (!td_npy_read(input, limits, &manifest->arena, manifest->tensors, &header_bytes, err))
        return false;
    manifest->tensor_count = 1;
    manifest->bare = true;
    return td_manifest_finish(manifest, err);
}

static const char *const extensions[] = {".npy", NULL};

const struct td_format td_format_npy = {
    .name = "npy",
    .extensions = extensions,
    .parse = npy_parse,
};
