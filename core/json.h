/* JSON (RFC 8259): a pull reader over a bounded text, and string writing.
 *
 * The reader exists because cJSON holds numbers as doubles, recurses on nesting and cuts strings at an escaped
 * NUL. This one keeps 64-bit integers exact, uses no recursion and no heap, runs in time linear in the text, and
 * refuses what strict readers refuse: bad UTF-8, lone surrogates, raw control bytes, anything after the value. */
#ifndef TD_CORE_JSON_H
#define TD_CORE_JSON_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_JSON_MAX_DEPTH = 128 }; /* serde_json's recursion limit, which safetensors inherits */

enum td_json_token {
    TD_JSON_ERROR, /* see the td_error given to init; every later call repeats it */
    TD_JSON_OBJECT_BEGIN,
    TD_JSON_OBJECT_END,
    TD_JSON_ARRAY_BEGIN,
    TD_JSON_ARRAY_END,
    TD_JSON_KEY, /* its colon is consumed too */
    TD_JSON_STRING,
    TD_JSON_NUMBER,
    TD_JSON_TRUE,
    TD_JSON_FALSE,
    TD_JSON_NULL,
    TD_JSON_END, /* the whole text was one value */
};

struct td_json {
    struct td_text text;     /* borrowed */
    uint64_t base;           /* added to positions in errors: where the text begins in its file */
    size_t pos;              /* next byte to read */
    size_t start;            /* where the latest token begins */
    size_t value, value_len; /* the latest KEY/STRING (between the quotes, still escaped) or NUMBER */
    bool escaped;            /* that string holds a backslash */
    uint8_t expect;
    unsigned depth;
    uint64_t is_array[TD_JSON_MAX_DEPTH / 64];
    struct td_error *err;
};

/* Starts reading text[0..len), which must outlive the reader. Faults are reported in *err at base + position. */
void td_json_init(struct td_json *json, struct td_text text, uint64_t base, struct td_error *err);

enum td_json_token td_json_next(struct td_json *json);

/* Reads one token and requires it to be `wanted`; `what` names it in the error ("an object"). */
bool td_json_expect(struct td_json *json, enum td_json_token wanted, const char *what);

/* Passes over one whole value. */
bool td_json_skip(struct td_json *json);

/* Decodes the latest KEY or STRING into out (capacity bytes): UTF-8, NUL-terminated, length in *len. An escaped
 * NUL is refused, so a C string is never a truncated name. value_len + 1 bytes always suffice. */
bool td_json_string(struct td_json *json, char *out, size_t capacity, size_t *len);

/* Returns the latest KEY or STRING as it stands in the text, between its quotes and still escaped, or the latest
 * NUMBER. */
static inline struct td_text td_json_raw(const struct td_json *json)
{
    return td_text_n(json->text.p + json->value, json->value_len);
}

/* True when the latest KEY or STRING decodes to exactly this UTF-8 text. */
bool td_json_equals(const struct td_json *json, const char *text);
bool td_json_equals_n(const struct td_json *json, struct td_text text);

/* The latest NUMBER as an exact unsigned integer; false (and an error) for a sign, a fraction, an exponent or
 * anything past 2^64-1. */
bool td_json_u64(struct td_json *json, uint64_t *out);

/* Records a fault at the latest token. Returns false. */
bool td_json_fail(struct td_json *json, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for the latest KEY: "unknown key "x"; KNOWN". `known` says what is right. */
bool td_json_unknown_key(struct td_json *json, const char *known);

/* Appends text[0..len), one JSON value, to out without insignificant whitespace and otherwise byte for byte,
 * so numbers keep every digit. Returns false (out is then rubbish) when it is not JSON. */
bool td_json_minify(struct td_text text, struct td_buffer *out, struct td_error *err);

/* Appends text[0..len) as a JSON string with quotes. The text must be UTF-8; DEL and controls are escaped. */
void td_json_write_string(struct td_buffer *out, struct td_text text);
void td_json_write_cstring(struct td_buffer *out, const char *text);

/* Appends a number as td_write_decimal spells it. JSON has no word for the others, so "NaN", "Infinity" and "-Infinity"
 * are strings. */
void td_json_write_real(struct td_buffer *out, double value, bool single);

#endif
