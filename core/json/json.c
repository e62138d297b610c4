/* A state machine over the bytes. td_json_next reads one token; `expect` says which tokens may follow; a stack of one
 * bit per level says whether that level is an array or an object. Nothing is decoded while tokens are read: a string is
 * checked (escapes, UTF-8, control bytes) and noted by its place in the text, and td_json_string decodes it on demand.
 *
 * Two places are easy to get wrong. An escaped surrogate pair is one character, and half of one is a fault. And the
 * position of an error is `start`: it is the beginning of the latest token, moved to the faulty byte where that is
 * known. */
#include "core/json/json.h"

#include "core/decimal.h"
#include "core/digits.h"
#include "core/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum json_expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END,
    EXPECT_KEY,
    EXPECT_KEY_OR_END,
    EXPECT_COMMA_OR_END,
    EXPECT_END,
    EXPECT_NOTHING
};

void td_json_init(struct td_json *json, struct td_text text, uint64_t base, struct td_error *err)
{
    memset(json, 0, sizeof *json);
    json->text = text;
    json->base = base;
    json->expect = EXPECT_VALUE;
    json->err = err;
}

bool td_json_fail(struct td_json *json, const char *format, ...)
{
    char message[TD_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    json->expect = EXPECT_NOTHING;
    return td_error_at(json->err, TD_INVALID_ARGUMENT, json->base + json->start, "%s", message);
}

/* Records at the next byte that `what` is expected there. */
static enum td_json_token json_error_here(struct td_json *json, const char *what)
{
    json->start = json->pos;
    if (json->pos >= json->text.len)
        (void)td_json_fail(json, "JSON ends too early: %s expected", what);
    else
        (void)td_json_fail(json, "not JSON: %s expected", what);
    return TD_JSON_ERROR;
}

static void json_skip_space(struct td_json *json)
{
    while (json->pos < json->text.len) {
        char c = json->text.p[json->pos];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return;
        json->pos++;
    }
}

/* Returns the value of the four digits of a \u escape at p, or -1. */
static int32_t hex_quad(const char *p, size_t len)
{
    if (len < 4)
        return -1;
    int32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        int digit = td_hex_digit(p[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Decodes the escape sequence at p (p[0] is the backslash) to *cp. Returns its length in bytes, or 0 for a fault. */
static size_t json_escape(const char *p, size_t len, uint32_t *cp)
{
    if (len < 2)
        return 0;
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char *known = p[1] == '\0' ? NULL : strchr(from, p[1]);
    if (known != NULL) {
        *cp = (uint8_t)to[known - from];
        return 2;
    }
    if (p[1] != 'u')
        return 0;
    int32_t high = hex_quad(p + 2, len - 2);
    if (high < 0 || (high >= 0xDC00 && high <= 0xDFFF))
        return 0;
    if (high < 0xD800 || high > 0xDBFF) {
        *cp = (uint32_t)high;
        return 6;
    }
    if (len < 12 || p[6] != '\\' || p[7] != 'u')
        return 0;
    int32_t low = hex_quad(p + 8, len - 8);
    if (low < 0xDC00 || low > 0xDFFF)
        return 0;
    *cp = 0x10000U + (((uint32_t)high - 0xD800U) << 10) + ((uint32_t)low - 0xDC00U);
    return 12;
}

/* Checks the string whose opening quote is at pos. Moves pos past the closing quote. */
static bool json_scan_string(struct td_json *json)
{
    const char *text = json->text.p;
    size_t pos = json->pos + 1;
    json->value = pos;
    json->escaped = false;
    for (;;) {
        if (pos >= json->text.len) {
            json->start = json->text.len;
            return td_json_fail(json, "JSON ends within a string");
        }
        uint8_t byte = (uint8_t)text[pos];
        if (byte == '"')
            break;
        if (byte == '\\') {
            uint32_t cp;
            size_t n = json_escape(text + pos, json->text.len - pos, &cp);
            if (n == 0) {
                json->start = pos;
                return td_json_fail(json, "bad escape or lone surrogate in a JSON string");
            }
            json->escaped = true;
            pos += n;
        } else if (byte >= 0x20 && byte < 0x80) {
            pos++;
        } else {
            size_t n = byte < 0x20 ? 0 : td_utf8_sequence((const uint8_t *)text + pos, json->text.len - pos);
            if (n == 0) {
                json->start = pos;
                return td_json_fail(json,
                                    byte < 0x20 ? "raw control byte in a JSON string" : "JSON string is not UTF-8");
            }
            pos += n;
        }
    }
    json->value_len = pos - json->value;
    json->pos = pos + 1;
    return true;
}

static bool is_digit(const struct td_json *json, size_t pos)
{
    return pos < json->text.len && json->text.p[pos] >= '0' && json->text.p[pos] <= '9';
}

/* Checks the number at pos and moves pos past it. RFC 8259 section 6:
 * -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)? */
static bool json_scan_number(struct td_json *json)
{
    size_t pos = json->pos;
    if (json->text.p[pos] == '-')
        pos++;
    if (!is_digit(json, pos))
        return td_json_fail(json, "bad number in JSON");
    if (json->text.p[pos] == '0')
        pos++;
    else
        while (is_digit(json, pos))
            pos++;
    if (pos < json->text.len && json->text.p[pos] == '.') {
        if (!is_digit(json, ++pos))
            return td_json_fail(json, "bad number in JSON");
        while (is_digit(json, pos))
            pos++;
    }
    if (pos < json->text.len && (json->text.p[pos] == 'e' || json->text.p[pos] == 'E')) {
        pos++;
        if (pos < json->text.len && (json->text.p[pos] == '+' || json->text.p[pos] == '-'))
            pos++;
        if (!is_digit(json, pos))
            return td_json_fail(json, "bad number in JSON");
        while (is_digit(json, pos))
            pos++;
    }
    json->value = json->pos;
    json->value_len = pos - json->pos;
    json->pos = pos;
    return true;
}

static bool json_in_array(const struct td_json *json)
{
    unsigned level = json->depth - 1;
    return (json->is_array[level / 64] >> (level % 64) & 1) != 0;
}

static enum td_json_token json_open(struct td_json *json, bool array)
{
    if (json->depth == TD_JSON_MAX_DEPTH) {
        (void)td_json_fail(json, "JSON is nested deeper than %d levels", TD_JSON_MAX_DEPTH);
        return TD_JSON_ERROR;
    }
    uint64_t bit = UINT64_C(1) << (json->depth % 64);
    uint64_t *word = &json->is_array[json->depth / 64];
    *word = array ? *word | bit : *word & ~bit;
    json->depth++;
    json->pos++;
    json->expect = array ? EXPECT_VALUE_OR_END : EXPECT_KEY_OR_END;
    return array ? TD_JSON_ARRAY_BEGIN : TD_JSON_OBJECT_BEGIN;
}

static void json_after_value(struct td_json *json)
{
    json->expect = json->depth == 0 ? EXPECT_END : EXPECT_COMMA_OR_END;
}

static enum td_json_token json_close(struct td_json *json)
{
    bool array = json_in_array(json);
    json->depth--;
    json->pos++;
    json_after_value(json);
    return array ? TD_JSON_ARRAY_END : TD_JSON_OBJECT_END;
}

static enum td_json_token json_literal(struct td_json *json, const char *word, enum td_json_token token)
{
    size_t n = strlen(word);
    if (json->text.len - json->pos < n || memcmp(json->text.p + json->pos, word, n) != 0)
        return json_error_here(json, "a value");
    json->pos += n;
    json_after_value(json);
    return token;
}

static enum td_json_token json_value(struct td_json *json)
{
    switch (json->text.p[json->pos]) {
    case '{':
        return json_open(json, false);
    case '[':
        return json_open(json, true);
    case '"':
        if (!json_scan_string(json))
            return TD_JSON_ERROR;
        json_after_value(json);
        return TD_JSON_STRING;
    case 't':
        return json_literal(json, "true", TD_JSON_TRUE);
    case 'f':
        return json_literal(json, "false", TD_JSON_FALSE);
    case 'n':
        return json_literal(json, "null", TD_JSON_NULL);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        if (!json_scan_number(json))
            return TD_JSON_ERROR;
        json_after_value(json);
        return TD_JSON_NUMBER;
    default:
        return json_error_here(json, "a value");
    }
}

static enum td_json_token json_key(struct td_json *json)
{
    if (json->text.p[json->pos] != '"')
        return json_error_here(json, "a key in quotes");
    if (!json_scan_string(json))
        return TD_JSON_ERROR;
    json_skip_space(json);
    if (json->pos >= json->text.len || json->text.p[json->pos] != ':')
        return json_error_here(json, "':'");
    json->pos++;
    json->expect = EXPECT_VALUE;
    return TD_JSON_KEY;
}

/* Names what may stand at the next byte, for an error. */
static const char *what_may_follow(const struct td_json *json)
{
    switch (json->expect) {
    case EXPECT_VALUE_OR_END:
        return "a value or ']'";
    case EXPECT_KEY:
        return "a key in quotes";
    case EXPECT_KEY_OR_END:
        return "a key in quotes or '}'";
    case EXPECT_COMMA_OR_END:
        return json_in_array(json) ? "',' or ']'" : "',' or '}'";
    default:
        return "a value";
    }
}

enum td_json_token td_json_next(struct td_json *json)
{
    if (json->expect == EXPECT_NOTHING)
        return TD_JSON_ERROR;
    json_skip_space(json);
    json->start = json->pos;
    bool at_end = json->pos >= json->text.len;
    char c = at_end ? '\0' : json->text.p[json->pos];
    if (json->expect == EXPECT_END) {
        if (!at_end)
            return json_error_here(json, "the end");
        return TD_JSON_END;
    }
    if (at_end)
        return json_error_here(json, what_may_follow(json));
    if (json->expect == EXPECT_COMMA_OR_END) {
        bool array = json_in_array(json);
        if (c == (array ? ']' : '}'))
            return json_close(json);
        if (c != ',')
            return json_error_here(json, what_may_follow(json));
        json->pos++;
        json_skip_space(json);
        json->start = json->pos;
        json->expect = array ? EXPECT_VALUE : EXPECT_KEY;
        if (json->pos >= json->text.len)
            return json_error_here(json, array ? "a value" : "a key");
        c = json->text.p[json->pos];
    }
    if ((json->expect == EXPECT_VALUE_OR_END && c == ']') || (json->expect == EXPECT_KEY_OR_END && c == '}'))
        return json_close(json);
    if (json->expect == EXPECT_KEY || json->expect == EXPECT_KEY_OR_END)
        return json_key(json);
    return json_value(json);
}

bool td_json_expect(struct td_json *json, enum td_json_token wanted, const char *what)
{
    enum td_json_token token = td_json_next(json);
    if (token == wanted)
        return true;
    if (token == TD_JSON_ERROR)
        return false;
    return td_json_fail(json, "%s expected", what);
}

bool td_json_skip(struct td_json *json)
{
    unsigned depth = json->depth;
    do {
        enum td_json_token token = td_json_next(json);
        if (token == TD_JSON_ERROR || token == TD_JSON_END)
            return false;
    } while (json->depth > depth || json->expect == EXPECT_VALUE);
    return true;
}

bool td_json_seek(struct td_json *json, const char *key)
{
    while (td_json_next(json) == TD_JSON_KEY) {
        if (td_json_equals(json, key))
            return true;
        if (!td_json_skip(json))
            return false;
    }
    return false;
}

bool td_json_string(struct td_json *json, char *out, size_t capacity, size_t *len)
{
    const char *p = json->text.p + json->value;
    const char *end = p + json->value_len;
    size_t used = 0;
    if (!json->escaped && json->value_len < capacity) { /* true of nearly every name */
        memcpy(out, p, json->value_len);
        used = json->value_len;
        p = end;
    }
    while (p < end) {
        char utf8[4];
        const char *from = p;
        size_t n = 1;
        if (*p == '\\') {
            uint32_t cp = 0;
            size_t taken = json_escape(p, (size_t)(end - p), &cp);
            if (taken == 0 || cp == 0)
                return td_json_fail(json, "string holds a NUL");
            n = td_utf8_encode(cp, utf8);
            from = utf8;
            p += taken;
        } else {
            p++;
        }
        if (n >= capacity - used)
            return td_json_fail(json, "string is longer than %zu bytes", capacity - 1);
        memcpy(out + used, from, n);
        used += n;
    }
    if (capacity == 0)
        return td_json_fail(json, "no room for a string");
    out[used] = '\0';
    *len = used;
    return true;
}

void td_json_append_string(const struct td_json *json, struct td_buffer *out)
{
    const char *p = json->text.p + json->value;
    const char *end = p + json->value_len;
    while (p < end) {
        const char *escape = json->escaped ? memchr(p, '\\', (size_t)(end - p)) : NULL;
        const char *plain_end = escape == NULL ? end : escape;
        td_buffer_append(out, p, (size_t)(plain_end - p));
        p = plain_end;
        if (escape != NULL) {
            char utf8[4];
            uint32_t cp = 0;
            p += json_escape(p, (size_t)(end - p), &cp); /* td_json_next has checked it */
            td_buffer_append(out, utf8, td_utf8_encode(cp, utf8));
        }
    }
}

bool td_json_read_real(struct td_text number, double *out)
{
    char text[64];
    char *longer = NULL;
    if (number.len >= sizeof text && (longer = malloc(number.len + 1)) == NULL)
        return false;
    char *copy = longer == NULL ? text : longer;
    memcpy(copy, number.p, number.len);
    copy[number.len] = '\0';
    *out = strtod(copy, NULL); /* by the locale "C" */
    free(longer);
    return isfinite(*out);
}

bool td_json_equals_n(const struct td_json *json, struct td_text text)
{
    const char *p = json->text.p + json->value;
    if (!json->escaped)
        return json->value_len == text.len && memcmp(p, text.p, text.len) == 0;
    const char *end = p + json->value_len;
    while (p < end) {
        char utf8[4] = {*p};
        size_t n = 1;
        size_t taken = 1;
        if (*p == '\\') {
            uint32_t cp = 0;
            taken = json_escape(p, (size_t)(end - p), &cp);
            n = td_utf8_encode(cp, utf8);
        }
        if (n > text.len || memcmp(utf8, text.p, n) != 0)
            return false;
        text.p += n;
        text.len -= n;
        p += taken;
    }
    return text.len == 0;
}

bool td_json_equals(const struct td_json *json, const char *text)
{
    return td_json_equals_n(json, td_text_of(text));
}

bool td_json_u64(struct td_json *json, uint64_t *out)
{
    struct td_text raw = td_json_raw(json);
    struct td_text rest = raw;
    uint64_t value;
    bool fits;
    (void)td_digits_take(&rest, &value, &fits);
    if (rest.len > 0)
        return td_json_fail(json, "%.*s is not a whole number from 0 to 2^64-1", TD_SHOW(raw, 40));
    if (!fits)
        return td_json_fail(json, "%.*s is larger than 2^64-1", TD_SHOW(raw, 40));
    *out = value;
    return true;
}

size_t td_json_count_members(struct td_json json)
{
    json.err = NULL; /* the caller's own pass meets the same fault and reports it */
    size_t count = 0;
    while (td_json_next(&json) == TD_JSON_KEY && td_json_skip(&json))
        count++;
    return count;
}

size_t td_json_find_member(struct td_json json, struct td_text name, unsigned nth)
{
    json.err = NULL;
    while (td_json_next(&json) == TD_JSON_KEY) {
        if (td_json_equals_n(&json, name) && nth-- == 0)
            return json.start;
        if (!td_json_skip(&json))
            break;
    }
    return 0;
}

size_t td_json_value_len(struct td_text text)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.len; i++) {
        const char c = text.p[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && depth == 0 && (c == ',' || c == ':' || c == '}' || c == ']'))
            return i;
        else if (!in_string && (c == '}' || c == ']') && --depth == 0)
            return i + 1;
    }
    return 0;
}

bool td_json_minify(struct td_text text, struct td_buffer *out, struct td_error *err)
{
    struct td_json json;
    td_json_init(&json, text, 0, err);
    bool comma = false; /* a value has ended at this level, so the next one needs a comma */
    for (;;) {
        enum td_json_token token = td_json_next(&json);
        if (token == TD_JSON_ERROR)
            return false;
        if (token == TD_JSON_END)
            return !out->failed || td_error_no_memory(err);
        bool closes = token == TD_JSON_OBJECT_END || token == TD_JSON_ARRAY_END;
        if (comma && !closes)
            td_buffer_putc(out, ',');
        if (token == TD_JSON_KEY) { /* without whitespace around its colon */
            td_buffer_append(out, text.p + json.start, json.value_len + 2);
            td_buffer_putc(out, ':');
        } else {
            td_buffer_append(out, text.p + json.start, json.pos - json.start);
        }
        comma = token != TD_JSON_KEY && token != TD_JSON_OBJECT_BEGIN && token != TD_JSON_ARRAY_BEGIN;
    }
}

bool td_json_is_plain(struct td_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t byte = (uint8_t)text.p[i];
        if (byte < 0x20 || byte > 0x7E || byte == '"' || byte == '\\')
            return false;
    }
    return true;
}

/* Returns a mask in which the high bit of each byte of `word` that is below `limit`, at most 0x80, is set. The lowest
 * set bit is exact: bytes after a hit may be marked wrongly. */
static uint64_t bytes_below(uint64_t word, uint8_t limit)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    return (word - ones * limit) & ~word & (ones * 0x80);
}

/* Returns the number of bytes at the beginning that stand in a JSON string as they are. */
static size_t count_plain(const char *p, size_t len)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    size_t i = 0;
    for (uint64_t word; i + sizeof word <= len; i += sizeof word) { /* eight bytes at a time */
        memcpy(&word, p + i, sizeof word);
        if ((bytes_below(word, 0x20) | bytes_below(word ^ ones * '"', 1) | bytes_below(word ^ ones * '\\', 1) |
             bytes_below(word ^ ones * 0x7F, 1)) != 0)
            break;
    }
    for (; i < len; i++) {
        uint8_t byte = (uint8_t)p[i];
        if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F)
            break;
    }
    return i;
}

void td_json_write_string(struct td_buffer *out, struct td_text text)
{
    td_buffer_putc(out, '"');
    for (;;) {
        size_t plain = count_plain(text.p, text.len);
        td_buffer_append(out, text.p, plain);
        if (plain == text.len)
            break;
        uint8_t byte = (uint8_t)text.p[plain];
        text = td_text_skip(text, plain + 1);
        if (byte == '"' || byte == '\\') {
            td_buffer_putc(out, '\\');
            td_buffer_putc(out, (char)byte);
        } else if (byte == '\n') {
            td_buffer_puts(out, "\\n");
        } else {
            td_buffer_printf(out, "\\u%04x", byte);
        }
    }
    td_buffer_putc(out, '"');
}

void td_json_write_cstring(struct td_buffer *out, const char *text)
{
    td_json_write_string(out, td_text_of(text));
}

void td_json_write_real(struct td_buffer *out, double value, bool single)
{
    if (isnan(value))
        td_buffer_puts(out, "\"NaN\"");
    else if (isinf(value))
        td_buffer_puts(out, value < 0 ? "\"-Infinity\"" : "\"Infinity\"");
    else
        td_write_decimal(out, value, single);
}
