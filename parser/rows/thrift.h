/* A reader of Thrift's compact protocol, value by value. Source: "Thrift compact protocol encoding" of Apache Thrift.
 *
 * The caller knows the structs: it takes the fields of one until TD_THRIFT_STOP, and for each takes or skips the value.
 * Skipping needs no recursion. Every value takes at least one byte, so that counts are checked against the bytes that
 * are left. A function that returns false has set the error: TD_INVALID_ARGUMENT with the position, or one of the
 * input. */
#ifndef TD_PARSER_ROWS_THRIFT_H
#define TD_PARSER_ROWS_THRIFT_H

#include "core/input.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_thrift_type {
    TD_THRIFT_STOP = 0, /* the end of a struct */
    TD_THRIFT_TRUE = 1, /* the value of a field of type bool is in its type; elements of that type take a byte */
    TD_THRIFT_FALSE = 2,
    TD_THRIFT_BYTE = 3,
    TD_THRIFT_I16 = 4,
    TD_THRIFT_I32 = 5,
    TD_THRIFT_I64 = 6,
    TD_THRIFT_DOUBLE = 7,
    TD_THRIFT_BINARY = 8, /* also texts */
    TD_THRIFT_LIST = 9,
    TD_THRIFT_SET = 10,
    TD_THRIFT_MAP = 11,
    TD_THRIFT_STRUCT = 12,
    TD_THRIFT_UUID = 13,
};

enum { TD_THRIFT_WINDOW_BYTES = 4096, TD_THRIFT_MAX_DEPTH = 64 };

struct td_thrift {
    const struct td_input *input; /* borrowed */
    struct td_error *err;
    uint64_t pos; /* next byte to read */
    uint64_t end; /* of the bytes; at most that of the input */
    uint64_t window_at;
    size_t window_len;
    uint8_t window[TD_THRIFT_WINDOW_BYTES];
};

struct td_thrift_field {
    int32_t id;
    enum td_thrift_type type;
};

/* Begins at `begin`. */
void td_thrift_init(struct td_thrift *reader, const struct td_input *input, uint64_t begin, uint64_t end,
                    struct td_error *err);

/* Reads the head of the next field of a struct. field->id is 0 before the first one, and is that of the field before
 * otherwise. */
bool td_thrift_next(struct td_thrift *reader, struct td_thrift_field *field);

/* Reads the head of the next field as td_thrift_next, for a loop over a struct: returns whether there is a field. *ok
 * begins as true. The caller sets it to whether it could read the value of the field. Returns false at the end of the
 * struct and when *ok is false. Sets *ok to false on an error of its own. */
static inline bool td_thrift_each(struct td_thrift *reader, struct td_thrift_field *field, bool *ok)
{
    *ok = *ok && td_thrift_next(reader, field);
    return *ok && field->type != TD_THRIFT_STOP;
}

/* Reads a value of type I16, I32 or I64; with another type of the field, an error. */
bool td_thrift_int(struct td_thrift *reader, const struct td_thrift_field *field, int64_t *out);

/* Sets the place of a BINARY, and moves past it; with another type of the field, an error. */
bool td_thrift_binary(struct td_thrift *reader, const struct td_thrift_field *field, uint64_t *at, uint64_t *len);

/* Reads the head of a LIST whose elements are structs; with another type of the field or the elements, an error. An
 * empty list may have elements of any type. */
bool td_thrift_structs(struct td_thrift *reader, const struct td_thrift_field *field, uint64_t *count);

/* Moves past the value of the field, whatever is in it, at most TD_THRIFT_MAX_DEPTH deep. */
bool td_thrift_skip(struct td_thrift *reader, const struct td_thrift_field *field);

#endif
