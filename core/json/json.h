/* JSON (RFC 8259): a pull reader over a bounded text, and functions that write strings and numbers.
 *
 * The reader exists because cJSON holds numbers as doubles, recurses on nesting and cuts strings at an escaped NUL.
 * This reader keeps 64-bit integers exact, uses no recursion and no heap, and takes time linear in the text. It refuses
 * bad UTF-8, lone surrogates, raw control bytes and anything after the value. Small texts are read whole instead
 * (core/json/json_document.h). Threads: one per reader. */
#ifndef TD_CORE_JSON_JSON_H
#define TD_CORE_JSON_JSON_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_JSON_MAX_DEPTH = 128 }; /* serde_json's recursion limit, which safetensors inherits */

enum td_json_token {
    TD_JSON_ERROR, /* the td_error given to td_json_init says why; all later tokens are this one */
    TD_JSON_OBJECT_BEGIN,
    TD_JSON_OBJECT_END,
    TD_JSON_ARRAY_BEGIN,
    TD_JSON_ARRAY_END,
    TD_JSON_KEY, /* with its colon */
    TD_JSON_STRING,
    TD_JSON_NUMBER,
    TD_JSON_TRUE,
    TD_JSON_FALSE,
    TD_JSON_NULL,
    TD_JSON_END, /* the text ends after its one value */
};

struct td_json {
    struct td_text text;                       /* borrowed */
    uint64_t base;                             /* where the text begins in its file; added to positions in errors */
    size_t pos;                                /* next byte to read */
    size_t start;                              /* where the latest token begins */
    size_t value, value_len;                   /* the latest KEY/STRING (between the quotes, still escaped) or NUMBER */
    bool escaped;                              /* the latest KEY/STRING holds a backslash */
    uint8_t expect;                            /* what may follow; the reader's own */
    unsigned depth;                            /* of objects and arrays that are open */
    uint64_t is_array[TD_JSON_MAX_DEPTH / 64]; /* a bit for each of them */
    struct td_error *err;
};

/* Starts reading the text, which must outlive the reader. All functions below report faults in *err as
 * TD_INVALID_ARGUMENT, at base + the position in the text; err may be NULL. */
void td_json_init(struct td_json *json, struct td_text text, uint64_t base, struct td_error *err);

/* Reads the next token. Returns TD_JSON_ERROR at a fault. */
enum td_json_token td_json_next(struct td_json *json);

/* Reads the next token. Returns whether it is `wanted`; else sets an error, in which `what` names what is wanted ("an
 * object"). */
bool td_json_expect(struct td_json *json, enum td_json_token wanted, const char *what);

/* Moves to the value of this key in the object that has begun. Returns false if no such key follows. */
bool td_json_seek(struct td_json *json, const char *key);

/* Skips the next value with everything in it, or the next key with its value. Returns false at a fault, or when the
 * text ends. Call only where a value or a key may follow. */
bool td_json_skip(struct td_json *json);

/* Decodes the latest KEY or STRING to out (capacity bytes; value_len + 1 always suffice) as UTF-8 with a NUL, and sets
 * *len to its length without that NUL. Returns false and records a fault when the text is longer, or holds an escaped
 * NUL, because a C string would cut it. */
bool td_json_string(struct td_json *json, char *out, size_t capacity, size_t *len);

/* Appends the latest KEY or STRING, decoded, as UTF-8; it may hold NULs. */
void td_json_append_string(const struct td_json *json, struct td_buffer *out);

/* Returns the latest NUMBER, or the latest KEY or STRING between its quotes and still escaped, as it stands in the text
 * (borrowed). */
static inline struct td_text td_json_raw(const struct td_json *json)
{
    return td_text_n(json->text.p + json->value, json->value_len);
}

/* Return whether the latest KEY or STRING, decoded, is this UTF-8 text. */
bool td_json_equals(const struct td_json *json, const char *text);
bool td_json_equals_n(const struct td_json *json, struct td_text text);

/* Sets *out to the latest NUMBER. Returns false and records a fault for a sign, a fraction, an exponent or a number
 * above 2^64-1. */
bool td_json_u64(struct td_json *json, uint64_t *out);

/* Reads a NUMBER, as td_json_raw returns it, as the nearest double. Returns false when it is beyond the doubles, or
 * memory is short. */
bool td_json_read_real(struct td_text number, double *out);

/* Returns the number of members of the object that `json` has just begun, up to the first fault. `json` is a copy of
 * the caller's reader, which does not move and meets and reports the fault itself. */
size_t td_json_count_members(struct td_json json);

/* Returns the position in the text (without `base`) of the key of the nth member (from 0) with this name in the object
 * that `json` has just begun; 0 when the object has fewer such members. `json` is a copy, as above. Reads the object
 * again, so call this only to report an error. */
size_t td_json_find_member(struct td_json json, struct td_text name, unsigned nth);

/* Records a fault at the latest token; the reader then stops. Returns false. */
bool td_json_fail(struct td_json *json, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the length of the value at the beginning of the text: an object or array up to its closing bracket, any other
 * value up to the ',', ':' or bracket after it. Returns 0 when the text ends before that. Looks only at brackets and
 * quotes, and does not check that the text is JSON. */
size_t td_json_value_len(struct td_text text);

/* Appends the text, one JSON value, to out without insignificant whitespace and otherwise byte for byte, so numbers
 * keep every digit. Errors (the contents of out are then undefined): TD_INVALID_ARGUMENT with the position when the
 * text is not JSON, TD_RESOURCE_EXHAUSTED. */
bool td_json_minify(struct td_text text, struct td_buffer *out, struct td_error *err);

/* Returns whether the text is printable ASCII without quotes and backslashes: text that td_utf8_escape and
 * td_json_write_string copy as it is. */
bool td_json_is_plain(struct td_text text);

/* Append the text, which must be UTF-8, as a JSON string in quotes. Quotes, backslashes, DEL and controls are
 * escaped. */
void td_json_write_string(struct td_buffer *out, struct td_text text);
void td_json_write_cstring(struct td_buffer *out, const char *text);

/* Appends a number as td_write_decimal does. JSON has no spelling for values that are not finite, so those become the
 * strings "NaN", "Infinity" and "-Infinity". */
void td_json_write_real(struct td_buffer *out, double value, bool single);

#endif
