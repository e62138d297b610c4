#include "parser/torch_metadata.h"

#include "core/json.h"
#include "core/utf8.h"
#include "parser/torch_storage.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    METADATA_TEXT_MAX = 1000, /* bytes of a string */
    METADATA_ARRAY_MAX = 64,  /* items of an array */
};

static void write_text(struct td_buffer *out, const char *text, size_t len, bool utf8)
{
    char shown[4 * METADATA_TEXT_MAX + 1];
    size_t head = len < METADATA_TEXT_MAX ? len : METADATA_TEXT_MAX;
    while (utf8 && head < len && head > 0 && ((unsigned char)text[head] & 0xC0) == 0x80)
        head--; /* not within a character */
    if (head < len)
        td_buffer_printf(out, "{\"length\":%zu,\"first\":", len);
    if (utf8) {
        td_json_write_string(out, text, head);
    } else {
        td_utf8_escape(text, head, shown, sizeof shown);
        td_json_write_cstring(out, shown);
    }
    if (head < len)
        td_buffer_putc(out, '}');
}

/* A number's bytes. Python 3 writes bytes in protocol 2 as _codecs.encode("text", "latin1"): a character each. */
static bool read_number_bytes(const struct td_pickle *p, td_pickle_ref ref, uint8_t *out, size_t wanted)
{
    bool latin1 = td_pickle_is_call(p, ref, "_codecs", "encode");
    if (latin1)
        ref = td_pickle_item(p, td_pickle_args(p, ref), 0);
    size_t len = 0;
    size_t count = 0;
    const uint8_t *text = (const uint8_t *)td_pickle_text(p, ref, &len);
    for (size_t i = 0; text != NULL && i < len && count < wanted; i++) {
        bool two = latin1 && text[i] >= 0xC2 && text[i] <= 0xC3 && i + 1 < len;
        out[count++] = (uint8_t)(two ? text[i] << 6 | (text[i + 1] & 0x3F) : text[i]);
        i += two ? 1 : 0;
        if (count == wanted)
            return i + 1 == len;
    }
    return false;
}

/* numpy.core.multiarray.scalar(dtype, bytes), the usual little-endian kinds. */
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
        number = len == sizeof number ? number : (double)single;
        td_buffer_printf(out, isfinite(number) ? "%.17g" : "\"%g\"", number);
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

/* A value without parts as JSON; false when it has parts. */
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
            td_buffer_puts(out, "\"a number of more than 64 bits\"");
        return true;
    case TD_PICKLE_FLOAT:
        (void)td_pickle_float(p, ref, &number);
        td_buffer_printf(out, isfinite(number) ? "%.17g" : "\"%g\"", number);
        return true;
    case TD_PICKLE_STRING:
        text = td_pickle_text(p, ref, &len);
        write_text(out, text, len, td_pickle_is_utf8(p, ref));
        return true;
    case TD_PICKLE_OBJECT:
        return write_numpy_scalar(p, ref, out);
    default:
        return false;
    }
}

bool td_torch_is_array(const struct td_pickle *p, td_pickle_ref ref)
{
    return td_pickle_kind(p, ref) == TD_PICKLE_LIST || td_pickle_kind(p, ref) == TD_PICKLE_TUPLE;
}

/* A list or tuple of scalars, all of it or its beginning; false when it holds anything else. */
static bool write_array(const struct td_pickle *p, td_pickle_ref ref, struct td_buffer *out)
{
    uint32_t count = td_pickle_count(p, ref);
    if (!td_torch_is_array(p, ref) || count == 0)
        return false;
    if (count > METADATA_ARRAY_MAX)
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

/* Everything past the head of a long array must be a scalar too, or tensors would be passed over. */
static bool is_plain_array(const struct td_pickle *p, td_pickle_ref ref)
{
    uint32_t count = td_pickle_count(p, ref);
    for (uint32_t i = METADATA_ARRAY_MAX; i < count; i++) {
        enum td_pickle_kind kind = td_pickle_kind(p, td_pickle_item(p, ref, i));
        if (kind < TD_PICKLE_NONE || kind > TD_PICKLE_STRING)
            return false;
    }
    return true;
}

bool td_torch_write_metadata(const struct td_pickle *p, td_pickle_ref ref, struct td_buffer *out)
{
    return write_scalar(p, ref, out) || (write_array(p, ref, out) && is_plain_array(p, ref));
}
