#include "parser/torch/torch_key.h"

#include "core/decimal.h"

#include <inttypes.h>
#include <string.h>

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

static void write_text(struct td_text text, bool utf8, size_t max_bytes, struct td_buffer *out)
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
        write_text(td_text_n(text, len), td_pickle_is_utf8(p, key), max_bytes, out);
    else if (td_pickle_kind(p, key) == TD_PICKLE_TUPLE)
        return write_tuple(p, key, max_bytes, out);
    else
        return write_plain(p, key, out);
    return true;
}
