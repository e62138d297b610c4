/* A reader of FlatBuffers over bytes in memory. Source: the page "FlatBuffers Internals" of its documentation: a table
 * begins with the distance to its vtable, which holds for each field the field's distance from the table's start.
 *
 * The reader knows no schema: the caller names fields by their number in the schema's order and gives their types.
 * Every distance, vtable, vector and text is checked against the bytes, whatever the caller asks for. Alignment is not
 * asked for. Tables may share bytes, so that a walk over tables needs a bound of its own. A function that returns false
 * has set the error: TD_INVALID_ARGUMENT with the position. */
#ifndef TD_PARSER_ROWS_ARROW_FLATBUFFER_H
#define TD_PARSER_ROWS_ARROW_FLATBUFFER_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_flatbuffer {
    const uint8_t *bytes; /* borrowed */
    size_t len;
    uint64_t base; /* where the bytes begin in their file; added to positions in errors */
    struct td_error *err;
};

/* A table; its vtable and fields are within the bytes. All zero: a table without fields. */
struct td_flat_table {
    size_t at;
    size_t vtable;
    uint16_t vtable_bytes; /* 0: there is no table */
    uint16_t table_bytes;
};

/* A vector; its elements are within the bytes. */
struct td_flat_vector {
    size_t at; /* of the first element */
    uint32_t count;
};

/* Finds the table to which the first four bytes lead. */
bool td_flat_root(const struct td_flatbuffer *buffer, struct td_flat_table *out);

/* Read a number of `bytes` bytes (1, 2, 4 or 8), little-endian: *out is `absent`, which fits these bytes, when the
 * table does not have the field. td_flat_signed extends the sign. */
bool td_flat_unsigned(const struct td_flatbuffer *buffer, const struct td_flat_table *table, unsigned field,
                      unsigned bytes, uint64_t absent, uint64_t *out);
bool td_flat_signed(const struct td_flatbuffer *buffer, const struct td_flat_table *table, unsigned field,
                    unsigned bytes, int64_t absent, int64_t *out);

/* Finds the table of a field. Without the field *out is all zero. */
bool td_flat_child(const struct td_flatbuffer *buffer, const struct td_flat_table *table, unsigned field,
                   struct td_flat_table *out);

/* Finds the vector of a field, with elements of `element_bytes`; without the field *out is empty. */
bool td_flat_vector(const struct td_flatbuffer *buffer, const struct td_flat_table *table, unsigned field,
                    size_t element_bytes, struct td_flat_vector *out);

/* Finds the text of a field, borrowed and perhaps not UTF-8; without the field *out is empty. */
bool td_flat_text(const struct td_flatbuffer *buffer, const struct td_flat_table *table, unsigned field,
                  struct td_text *out);

/* Finds the i-th table (below the count) of a vector of tables, which has elements of 4 bytes. */
bool td_flat_element(const struct td_flatbuffer *buffer, const struct td_flat_vector *vector, uint32_t i,
                     struct td_flat_table *out);

#endif
