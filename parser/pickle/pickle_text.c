/* Numbers and strings in text, as protocol 0 has them. A decimal of more than 64 bits is converted through `limbs`,
 * 32-bit words with the lowest first, to the bytes of its two's complement. A string with escapes is decoded to the
 * store's text. */
#include "parser/pickle/pickle_text.h"

#include "core/digits.h"
#include "core/utf8.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_DIGITS = 4300, /* sys.int_info.default_max_str_digits: converting takes quadratic time */
    LIMB_DIGITS = 9,
};

/* ---- numbers ---- */

/* Returns whether the text is digits alone, without leading zeros. */
static bool is_decimal(struct td_text text)
{
    if (text.len == 0 || (text.p[0] == '0' && text.len > 1))
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
    return true;
}

/* Replaces limbs[0..count) by limbs * factor + more. Returns the new count. */
static size_t multiply_add(uint32_t *limbs, size_t count, uint32_t factor, uint32_t more)
{
    uint64_t carry = more;
    for (size_t i = 0; i < count; i++) {
        carry += (uint64_t)limbs[i] * factor;
        limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry > 0)
        limbs[count++] = (uint32_t)carry;
    return count;
}

/* Nine digits fill less than a limb; one more limb is for the sign. */
enum { MAX_LIMBS = MAX_DIGITS / LIMB_DIGITS + 2 };

static size_t limbs_of_decimal(struct td_text digits, uint32_t limbs[MAX_LIMBS])
{
    size_t count = 0;
    for (size_t i = 0; i < digits.len;) {
        uint32_t factor = 1;
        uint32_t chunk = 0;
        for (int k = 0; k < LIMB_DIGITS && i < digits.len; k++, i++) {
            factor *= 10;
            chunk = chunk * 10 + (uint32_t)(digits.p[i] - '0');
        }
        count = multiply_add(limbs, count, factor, chunk);
    }
    limbs[count++] = 0; /* the sign */
    return count;
}

static void negate(uint32_t *limbs, size_t count)
{
    uint64_t carry = 1;
    for (size_t i = 0; i < count; i++) {
        carry += (uint32_t)~limbs[i];
        limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* Pushes a decimal of any size. The bytes of one that does not fit into 64 bits go to the store's text. */
static bool push_decimal(struct td_machine *m, struct td_text digits, bool negative)
{
    uint32_t limbs[MAX_LIMBS];
    uint8_t bytes[sizeof limbs];
    size_t count = limbs_of_decimal(digits, limbs);
    if (negative)
        negate(limbs, count);
    for (size_t i = 0; i < count * sizeof *limbs; i++)
        bytes[i] = (uint8_t)(limbs[i / 4] >> 8 * (i % 4));
    uint32_t used = td_twos_complement_len(bytes, (uint32_t)(count * sizeof *limbs));
    if (used <= sizeof(int64_t))
        return td_machine_push_int(m, td_load_twos_complement(bytes, used));
    struct td_pool *text = &m->store->text;
    if (!td_pickle_store_reserve(m->store, text, used, 1))
        return td_machine_no_memory(m);
    struct td_pickle_value value = {.kind = TD_PICKLE_INT,
                                    .flags = TD_PICKLE_FLAG_BIG | TD_PICKLE_FLAG_DECODED,
                                    .as.text = {.off = text->count, .len = used}};
    memcpy((char *)text->items + text->count, bytes, used);
    text->count += used;
    return td_machine_push_value(m, value);
}

static bool push_int_line(struct td_machine *m, struct td_text text)
{
    struct td_text digits = text;
    bool negative = td_text_take_char(&digits, '-');
    if (!is_decimal(digits))
        return TD_REFUSE(m, "has \"%.*s\", which is not a decimal number", TD_SHOW(text, 32));
    if (digits.len > MAX_DIGITS)
        return TD_REFUSE(m, "has a number of %zu digits; Python reads at most %d", digits.len, MAX_DIGITS);
    return push_decimal(m, digits, negative);
}

/* Protocols 0 and 1 also write bools as INT: 00 and 01. */
bool td_run_int_line(struct td_machine *m)
{
    const char *text = td_machine_text(m, m->operand.text);
    uint32_t len = m->operand.text.len;
    if (len == 2 && text[0] == '0' && (text[1] == '0' || text[1] == '1'))
        return td_machine_push_bool(m, text[1] == '1');
    return push_int_line(m, td_text_n(text, len));
}

bool td_run_long_line(struct td_machine *m)
{
    const char *text = td_machine_text(m, m->operand.text);
    uint32_t len = m->operand.text.len;
    if (len > 0 && text[len - 1] == 'L')
        len--;
    return push_int_line(m, td_text_n(text, len));
}

/* Accepts only what Python's repr writes; strtod alone would also read hexadecimal and "infinity". */
bool td_run_float_line(struct td_machine *m)
{
    const char *text = td_machine_text(m, m->operand.text);
    uint32_t len = m->operand.text.len;
    char copy[64];
    char *end = copy;
    struct td_pickle_value value = {.kind = TD_PICKLE_FLOAT};
    if (len > 0 && len < sizeof copy) {
        memcpy(copy, text, len);
        copy[len] = '\0';
        const char *digits = copy + (copy[0] == '-');
        bool is_word = strcmp(digits, "inf") == 0 || strcmp(digits, "nan") == 0;
        if (is_word || strspn(copy, "0123456789+-.eE") == len)
            value.as.real = strtod(copy, &end);
    }
    if (end == copy || *end != '\0' || end != copy + len)
        return TD_REFUSE(m, "has \"%.*s\", which is not a number", (int)(len < 32 ? len : 32), text);
    return td_machine_push_value(m, value);
}

/* ---- strings ---- */

/* Reads exactly `digits` hexadecimal digits at text. Returns false when there are fewer. */
static bool read_hex(const char *text, size_t len, size_t digits, uint32_t *out)
{
    uint32_t number = 0;
    if (digits > len)
        return false;
    for (size_t i = 0; i < digits; i++) {
        int digit = td_hex_digit(text[i]);
        if (digit < 0)
            return false;
        number = number << 4 | (uint32_t)digit;
    }
    *out = number;
    return true;
}

/* Writes a code point as UTF-8; a surrogate too, as "surrogatepass" does, and td_utf8_valid then refuses the text. */
static size_t encode_code_point(uint32_t cp, char out[4])
{
    if (cp < 0xd800 || cp > 0xdfff)
        return td_utf8_encode(cp, out);
    out[0] = (char)0xed;
    out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[2] = (char)(0x80 | (cp & 0x3f));
    return 3;
}

/* Decodes one character of Python's raw-unicode-escape: \uXXXX, \UXXXXXXXX, or a byte of Latin-1. Any other backslash
 * stands for itself, and the byte after it is copied too. Returns the bytes read; 0 when the escape is malformed. */
static size_t decode_raw_unicode(const char *text, size_t len, char *out, size_t *out_len)
{
    uint32_t cp;
    if (text[0] == '\\' && len > 1 && (text[1] == 'u' || text[1] == 'U')) {
        size_t digits = text[1] == 'u' ? 4 : 8;
        if (!read_hex(text + 2, len - 2, digits, &cp) || cp > 0x10ffff)
            return 0;
        *out_len = encode_code_point(cp, out);
        return 2 + digits;
    }
    *out_len = td_utf8_encode((uint8_t)text[0], out);
    if (text[0] != '\\' || len == 1)
        return 1;
    *out_len += td_utf8_encode((uint8_t)text[1], out + *out_len);
    return 2;
}

/* Decodes one byte of Python's string_escape, which repr writes between its quotes. An unknown escape stands for
 * itself. Returns the bytes read; 0 when the escape is malformed. */
static size_t decode_escape(const char *text, size_t len, char *out, size_t *out_len)
{
    static const char letters[] = "\\'\"abfnrtv";
    static const char meant[] = "\\'\"\a\b\f\n\r\t\v";
    *out_len = 1;
    out[0] = text[0];
    if (text[0] != '\\')
        return 1;
    if (len == 1)
        return 0;
    const char *letter = memchr(letters, text[1], sizeof letters - 1);
    if (letter != NULL) {
        out[0] = meant[letter - letters];
        return 2;
    }
    if (text[1] == 'x') {
        uint32_t byte;
        if (!read_hex(text + 2, len - 2, 2, &byte))
            return 0;
        out[0] = (char)byte;
        return 4;
    }
    size_t digits = 0;
    unsigned octal = 0;
    while (digits < 3 && 1 + digits < len && text[1 + digits] >= '0' && text[1 + digits] <= '7')
        octal = octal * 8 + (unsigned)(text[1 + digits++] - '0');
    if (digits > 0) {
        out[0] = (char)(uint8_t)octal;
        return 1 + digits;
    }
    out[1] = text[1];
    *out_len = 2;
    return 2;
}

/* Decodes the text to the store's text and pushes a STRING. No character grows to more than twice its length. */
static bool push_decoded(struct td_machine *m, struct td_text text,
                         size_t (*decode)(const char *text, size_t len, char *out, size_t *out_len))
{
    struct td_pool *pool = &m->store->text;
    if (!td_pickle_store_reserve(m->store, pool, 2 * (uint64_t)text.len, 1))
        return td_machine_no_memory(m);
    uint32_t off = pool->count;
    char *out = (char *)pool->items + off;
    size_t used = 0;
    for (size_t i = 0; i < text.len;) {
        char decoded[8];
        size_t out_len;
        size_t read = decode(text.p + i, text.len - i, decoded, &out_len);
        if (read == 0)
            return TD_REFUSE(m, "has a malformed escape \"%.*s\"", (int)(text.len - i < 10 ? text.len - i : 10),
                             text.p + i);
        memcpy(out + used, decoded, out_len);
        used += out_len;
        i += read;
    }
    pool->count += (uint32_t)used;
    struct td_pickle_span span = {.off = off, .len = (uint32_t)used};
    return td_machine_push_text(m, TD_PICKLE_STRING, out, span, TD_PICKLE_FLAG_DECODED);
}

bool td_run_unicode_line(struct td_machine *m)
{
    return push_decoded(m, td_text_n(td_machine_text(m, m->operand.text), m->operand.text.len), decode_raw_unicode);
}

bool td_run_string_line(struct td_machine *m)
{
    const char *text = td_machine_text(m, m->operand.text);
    uint32_t len = m->operand.text.len;
    if (len < 2 || text[0] != text[len - 1] || (text[0] != '\'' && text[0] != '"'))
        return TD_REFUSE(m, "has a text that is not in quotes");
    return push_decoded(m, td_text_n(text + 1, len - 2), decode_escape);
}
