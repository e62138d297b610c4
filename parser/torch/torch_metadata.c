#include "parser/torch/torch_metadata.h"

#include "core/decimal.h"
#include "core/json/json.h"
#include "core/utf8.h"
#include "parser/format/manifest.h"
#include "parser/torch/torch_storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    METADATA_TEXT_MAX = 1000, /* bytes of a string */
    METADATA_ARRAY_MAX = 64,  /* items of an array */
};

static void write_text(struct td_buffer *out, struct td_text text, bool utf8)
{
    size_t head = text.len < METADATA_TEXT_MAX ? text.len : METADATA_TEXT_MAX;
    while (utf8 && head < text.len && head > 0 && ((unsigned char)text.p[head] & 0xC0) == 0x80)
        head--; /* not within a character */
    td_metadata_write_text(out, td_text_n(text.p, head), utf8, text.len);
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

/* The bytes of a bytes or bytearray, in any protocol's spelling. */
struct bytes {
    struct td_text text;
    bool latin1; /* the text is UTF-8 with a character for each byte */
};

static bool is_builtin_call(const struct td_pickle *p, td_pickle_ref ref, const char *name)
{
    return td_pickle_is_call(p, ref, "builtins", name) || td_pickle_is_call(p, ref, "__builtin__", name);
}

/* Finds the bytes of a value. Protocols below 3 have no bytes and write _codecs.encode("text", "latin1"), or bytes()
 * for none. Protocols below 5 write a bytearray as bytearray(bytes) or bytearray(). */
static bool find_bytes(const struct td_pickle *p, td_pickle_ref ref, struct bytes *out)
{
    td_pickle_ref args = td_pickle_args(p, ref);
    *out = (struct bytes){.text = TD_TEXT("")};
    if (is_builtin_call(p, ref, "bytearray") || is_builtin_call(p, ref, "bytes")) {
        if (td_pickle_count(p, args) == 0)
            return true;
        ref = td_pickle_item(p, args, 0);
        args = td_pickle_args(p, ref);
    }
    if (td_pickle_is_call(p, ref, "_codecs", "encode")) {
        ref = td_pickle_item(p, args, 0);
        out->latin1 = td_pickle_string_is(p, td_pickle_item(p, args, 1), "latin1");
        if (!out->latin1 || !td_pickle_is_utf8(p, ref))
            return false;
    } else if (td_pickle_kind(p, ref) != TD_PICKLE_BYTES && td_pickle_kind(p, ref) != TD_PICKLE_BYTEARRAY) {
        return false;
    }
    out->text.p = td_pickle_text(p, ref, &out->text.len);
    return true;
}

/* Copies the bytes as far as there is room, and sets *total to their number. Returns false when a character is no byte.
 */
static bool copy_bytes(const struct bytes *bytes, uint8_t *out, size_t room, size_t *total)
{
    const uint8_t *text = (const uint8_t *)bytes->text.p;
    *total = 0;
    if (!bytes->latin1) {
        memcpy(out, text, bytes->text.len < room ? bytes->text.len : room);
        *total = bytes->text.len;
        return true;
    }
    for (size_t i = 0; i < bytes->text.len; i++, ++*total) {
        uint8_t byte = text[i];
        if (byte > 0xC3)
            return false;
        if (byte >= 0x80) /* U+0080 to U+00FF: C2 or C3, and another */
            byte = (uint8_t)(byte << 6 | (text[++i] & 0x3F));
        if (*total < room)
            out[*total] = byte;
    }
    return true;
}

static bool write_bytes(const struct td_pickle *p, td_pickle_ref ref, struct td_buffer *out)
{
    struct bytes bytes;
    uint8_t head[METADATA_TEXT_MAX + 1]; /* one more: where to cut */
    size_t len;
    if (!find_bytes(p, ref, &bytes) || !copy_bytes(&bytes, head, sizeof head, &len))
        return false;
    size_t shown = len < METADATA_TEXT_MAX ? len : METADATA_TEXT_MAX;
    for (int i = 0; i < 3 && shown < len && shown > 0 && (head[shown] & 0xC0) == 0x80; i++)
        shown--; /* not within a character */
    write_text(out, td_text_n((const char *)head, len), td_utf8_valid(head, shown));
    return true;
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

/* Reads the bytes of a number, which Python 2 wrote as a str. Returns false unless there are `wanted` bytes. */
static bool read_number_bytes(const struct td_pickle *p, td_pickle_ref ref, uint8_t *out, size_t wanted)
{
    struct bytes bytes = {0};
    size_t total;
    if (td_pickle_kind(p, ref) == TD_PICKLE_STRING)
        bytes.text.p = td_pickle_text(p, ref, &bytes.text.len);
    else if (!find_bytes(p, ref, &bytes))
        return false;
    return bytes.text.len <= 2 * wanted && copy_bytes(&bytes, out, wanted, &total) && total == wanted;
}

enum { WORDS_MAX = 16, GROUP = 1000000000, GROUPS_MAX = 18 }; /* GROUP to the power GROUPS_MAX is more than 2^512 */

/* Divides the number by GROUP. Returns the remainder; *left says whether the quotient is above 0. */
static uint32_t take_group(uint32_t words[WORDS_MAX], bool *left)
{
    uint64_t rest = 0;
    *left = false;
    for (size_t i = WORDS_MAX; i-- > 0;) {
        rest = rest << 32 | words[i];
        words[i] = (uint32_t)(rest / GROUP);
        rest %= GROUP;
        *left = *left || words[i] != 0;
    }
    return (uint32_t)rest;
}

/* Writes all digits of an integer of more than 64 bits, nine at a time; of more than 512 bits only its size. */
static void write_big_int(const struct td_pickle *p, td_pickle_ref ref, struct td_buffer *out)
{
    uint32_t words[WORDS_MAX] = {0}; /* the magnitude, lowest word first */
    uint32_t groups[GROUPS_MAX];
    size_t count = 0;
    size_t len;
    const uint8_t *bytes = td_pickle_big_int(p, ref, &len);
    bool negative = (bytes[len - 1] & 0x80) != 0;
    uint64_t carry = negative ? 1 : 0;
    if (len > sizeof words) { /* by hand: see td_metadata_write_text */
        td_buffer_printf(out, "{\"reason\":\"an integer of %zu bytes\"}", len);
        return;
    }
    for (size_t i = 0; i < len; i++)
        words[i / 4] |= (uint32_t)(negative ? (uint8_t)~bytes[i] : bytes[i]) << i % 4 * 8;
    for (size_t i = 0; i < WORDS_MAX; i++, carry >>= 32) {
        carry += words[i];
        words[i] = (uint32_t)carry;
    }
    for (bool left = true; left && count < GROUPS_MAX; count++)
        groups[count] = take_group(words, &left);
    td_buffer_printf(out, negative ? "-%" PRIu32 : "%" PRIu32, groups[--count]);
    while (count > 0)
        td_buffer_printf(out, "%09" PRIu32, groups[--count]);
}

/* Writes numpy.core.multiarray.scalar(dtype, bytes) of the usual little-endian kinds. */
static bool write_numpy_scalar(const struct td_pickle *p, td_pickle_ref ref, struct td_buffer *out)
{
    td_pickle_ref args = td_pickle_args(p, ref);
    uint8_t bytes[8] = {0};
    float single = 0;
    double number = 0;
    uint64_t bits = 0;
    if (!td_pickle_is_call(p, ref, "numpy.core.multiarray", "scalar") &&
        !td_pickle_is_call(p, ref, "numpy._core.multiarray", "scalar"))
        return false;
    const struct td_dtype *dtype = td_torch_numpy_dtype(p, td_pickle_item(p, args, 0));
    size_t len = dtype != NULL ? dtype->block_bytes : 0;
    if (len == 0 || len > sizeof bytes || !read_number_bytes(p, td_pickle_item(p, args, 1), bytes, len))
        return false;
    memcpy(&number, bytes, len == sizeof number ? len : 0);
    memcpy(&single, bytes, len == sizeof single ? len : 0);
    for (size_t i = 0; i < len; i++)
        bits |= (uint64_t)bytes[i] << 8 * i;
    if (strcmp(dtype->name, "F64") == 0 || strcmp(dtype->name, "F32") == 0) {
        bool is_single = len == sizeof single;
        td_json_write_real(out, is_single ? (double)single : number, is_single);
    } else if (strcmp(dtype->name, "BOOL") == 0) {
        td_buffer_puts(out, bits != 0 ? "true" : "false");
    } else if (dtype->name[0] == 'U') {
        td_buffer_u64(out, bits);
    } else if (dtype->name[0] == 'I') {
        td_buffer_printf(out, "%" PRId64, (int64_t)(bits << (64 - 8 * len)) >> (64 - 8 * len));
    } else {
        return false;
    }
    return true;
}

/* ---- values -------------------------------------------------------------------------------------------- */

/* Writes torch.device("cuda", 1) as "cuda:1". */
static bool write_device(const struct td_pickle *p, td_pickle_ref ref, struct td_buffer *out)
{
    enum { TYPE_MAX = 64 };
    char text[TYPE_MAX + 32];
    size_t len;
    int64_t index;
    td_pickle_ref args = td_pickle_args(p, ref);
    const char *type = td_pickle_text(p, td_pickle_item(p, args, 0), &len);
    if (!td_pickle_is_call(p, ref, "torch", "device") || !td_pickle_is_utf8(p, td_pickle_item(p, args, 0)) ||
        len > TYPE_MAX)
        return false;
    if (td_pickle_int(p, td_pickle_item(p, args, 1), &index))
        (void)snprintf(text, sizeof text, "%.*s:%" PRId64, (int)len, type, index);
    else
        (void)snprintf(text, sizeof text, "%.*s", (int)len, type);
    td_json_write_cstring(out, text);
    return true;
}

/* Writes a type such as "torch.float32". */
static bool write_type(const struct td_pickle *p, td_pickle_ref ref, struct td_buffer *out)
{
    size_t len;
    if (td_torch_dtype(p, ref) == NULL)
        return false;
    const char *name = td_pickle_text(p, td_pickle_name(p, ref), &len);
    td_buffer_printf(out, "\"torch.%.*s\"", (int)len, name);
    return true;
}

/* Writes a value without parts. Returns false for other values. */
static bool write_scalar(const struct td_pickle *p, td_pickle_ref ref, struct td_buffer *out)
{
    int64_t integer;
    double number;
    size_t len;
    const char *text;
    switch (td_pickle_kind(p, ref)) {
    case TD_PICKLE_NONE:
        td_buffer_puts(out, "null");
        return true;
    case TD_PICKLE_BOOL:
        td_buffer_puts(out, td_pickle_bool(p, ref) ? "true" : "false");
        return true;
    case TD_PICKLE_INT:
        if (td_pickle_int(p, ref, &integer))
            td_buffer_printf(out, "%" PRId64, integer);
        else
            write_big_int(p, ref, out);
        return true;
    case TD_PICKLE_FLOAT:
        (void)td_pickle_float(p, ref, &number);
        td_json_write_real(out, number, false);
        return true;
    case TD_PICKLE_STRING:
        text = td_pickle_text(p, ref, &len);
        write_text(out, td_text_n(text, len), td_pickle_is_utf8(p, ref));
        return true;
    case TD_PICKLE_BYTES:
    case TD_PICKLE_BYTEARRAY:
        return write_bytes(p, ref, out);
    case TD_PICKLE_GLOBAL:
        return write_type(p, ref, out);
    case TD_PICKLE_OBJECT:
        return write_numpy_scalar(p, ref, out) || write_device(p, ref, out) || write_bytes(p, ref, out);
    default:
        return false;
    }
}

bool td_torch_is_array(const struct td_pickle *p, td_pickle_ref ref)
{
    enum td_pickle_kind kind = td_pickle_kind(p, ref);
    return kind == TD_PICKLE_LIST || kind == TD_PICKLE_TUPLE || kind == TD_PICKLE_SET || kind == TD_PICKLE_FROZENSET;
}

/* Returns the bytes of a text that is read to its end because its characters are counted; 0 for other values. */
static uint64_t counted_bytes(const struct td_pickle *p, td_pickle_ref ref)
{
    struct bytes bytes;
    return find_bytes(p, ref, &bytes) && bytes.latin1 ? bytes.text.len : 0;
}

uint64_t td_torch_metadata_bytes(const struct td_pickle *p, td_pickle_ref ref)
{
    uint64_t sum = counted_bytes(p, ref);
    uint32_t count = td_torch_is_array(p, ref) ? td_pickle_count(p, ref) : 0;
    for (uint32_t i = 0; i < count && i < METADATA_ARRAY_MAX; i++)
        sum += counted_bytes(p, td_pickle_item(p, ref, i));
    return sum;
}

/* Writes a list, tuple or set of scalars, or its beginning. Returns false when that holds anything else. */
static bool write_array(const struct td_pickle *p, td_pickle_ref ref, struct td_buffer *out)
{
    uint32_t count = td_pickle_count(p, ref);
    if (!td_torch_is_array(p, ref) || count == 0)
        return false;
    if (count > METADATA_ARRAY_MAX) /* by hand: see td_metadata_write_text */
        td_buffer_printf(out, "{\"length\":%" PRIu32 ",\"first\":", count);
    td_buffer_putc(out, '[');
    for (uint32_t i = 0; i < count && i < METADATA_ARRAY_MAX; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        if (!write_scalar(p, td_pickle_item(p, ref, i), out))
            return false;
    }
    td_buffer_puts(out, count > METADATA_ARRAY_MAX ? "]}" : "]");
    return true;
}

/* Returns whether everything past the beginning of a long array is a scalar too: otherwise tensors would be missed. */
static bool is_plain_array(const struct td_pickle *p, td_pickle_ref ref)
{
    uint32_t count = td_pickle_count(p, ref);
    for (uint32_t i = METADATA_ARRAY_MAX; i < count; i++) {
        enum td_pickle_kind kind = td_pickle_kind(p, td_pickle_item(p, ref, i));
        if (kind < TD_PICKLE_NONE || kind > TD_PICKLE_BYTEARRAY)
            return false;
    }
    return true;
}

bool td_torch_write_metadata(const struct td_pickle *p, td_pickle_ref ref, struct td_buffer *out)
{
    return write_scalar(p, ref, out) || (write_array(p, ref, out) && is_plain_array(p, ref));
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

enum { QUOTED_MAX = 256 }; /* most bytes of a string in a tuple */

static size_t room_left(const struct td_buffer *out, size_t max_bytes)
{
    return out->len > max_bytes ? 0 : max_bytes + 1 - out->len;
}

static void write_escaped(struct td_text text, size_t max_bytes, struct td_buffer *out)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < text.len && room_left(out, max_bytes) > 0; i++) {
        unsigned char c = (unsigned char)text.p[i];
        const char escape[] = {'\\', 'x', hex[c >> 4], hex[c & 15]};
        if (c >= 0x20 && c < 0x7f)
            td_buffer_putc(out, text.p[i]);
        else
            td_buffer_append(out, escape, sizeof escape);
    }
}

static void write_key_text(struct td_text text, bool utf8, size_t max_bytes, struct td_buffer *out)
{
    size_t left = room_left(out, max_bytes);
    if (utf8 && memchr(text.p, '\0', text.len < left ? text.len : left) == NULL)
        td_buffer_append(out, text.p, text.len < left ? text.len : left);
    else
        write_escaped(text, max_bytes, out);
}

/* Appends None, a bool, an int of 64 bits or a float. Returns false for all else. */
static bool write_plain(const struct td_pickle *p, td_pickle_ref key, struct td_buffer *out)
{
    int64_t integer;
    double real;
    if (td_pickle_kind(p, key) == TD_PICKLE_NONE)
        td_buffer_puts(out, "None");
    else if (td_pickle_kind(p, key) == TD_PICKLE_BOOL)
        td_buffer_puts(out, td_pickle_bool(p, key) ? "True" : "False");
    else if (td_pickle_int(p, key, &integer))
        td_buffer_printf(out, "%" PRId64, integer);
    else if (td_pickle_float(p, key, &real))
        td_write_decimal(out, real, false);
    else
        return false;
    return true;
}

/* Appends a short string that needs no escapes, in quotes. Returns false for all else. */
static bool write_quoted(const struct td_pickle *p, td_pickle_ref ref, struct td_buffer *out)
{
    size_t len;
    const char *text = td_pickle_text(p, ref, &len);
    if (!td_pickle_is_utf8(p, ref) || len > QUOTED_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f || c == '\'' || c == '\\')
            return false;
    }
    td_buffer_putc(out, '\'');
    td_buffer_append(out, text, len);
    td_buffer_putc(out, '\'');
    return true;
}

static bool write_tuple(const struct td_pickle *p, td_pickle_ref key, size_t max_bytes, struct td_buffer *out)
{
    uint32_t count = td_pickle_count(p, key);
    size_t before = out->len;
    td_buffer_putc(out, '(');
    for (uint32_t i = 0; i < count && room_left(out, max_bytes) > 0; i++) {
        td_pickle_ref item = td_pickle_item(p, key, i);
        if (!write_plain(p, item, out) && !write_quoted(p, item, out)) {
            out->len = before;
            return false;
        }
        td_buffer_puts(out, i + 1 < count ? ", " : count == 1 ? "," : "");
    }
    td_buffer_putc(out, ')');
    return true;
}

bool td_torch_write_key(const struct td_pickle *p, td_pickle_ref key, size_t max_bytes, struct td_buffer *out)
{
    size_t len;
    const char *text = td_pickle_text(p, key, &len);
    if (text != NULL)
        write_key_text(td_text_n(text, len), td_pickle_is_utf8(p, key), max_bytes, out);
    else if (td_pickle_kind(p, key) == TD_PICKLE_TUPLE)
        return write_tuple(p, key, max_bytes, out);
    else
        return write_plain(p, key, out);
    return true;
}
