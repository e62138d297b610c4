/* Finds the values of a run of rows in a record batch of Arrow IPC, and copies bitmaps and offsets, which have to be
 * shifted. Everything that is read from the file is checked: a hostile batch gives an error, never a place outside of
 * its body. */
#ifndef TD_PARSER_ROWS_ARROW_ARROW_SPAN_H
#define TD_PARSER_ROWS_ARROW_ARROW_SPAN_H

#include "core/buffer.h"
#include "core/input.h"
#include "parser/rows/arrow/arrow_message.h"
#include "parser/rows/arrow/arrow_schema.h"

/* The items of a node that a run of rows has. */
struct td_arrow_span {
    uint64_t start, length;
    uint64_t inner_start, inner_length; /* of a list: the child's items; of TD_ARROW_BYTES: the bytes */
    bool has_bitmap;                    /* some of the node's items are null */
};

/* Returns the place in the input of buffer i, and its bytes. The batch has passed td_arrow_batch_check. */
uint64_t td_arrow_buffer_at(const struct td_arrow_batch *batch, size_t i);
uint64_t td_arrow_buffer_bytes(const struct td_arrow_batch *batch, size_t i);

/* Checks that the batch has the nodes and buffers of the schema, that each buffer is in the body, and that the buffers
 * together are not longer than the body. Errors: TD_INVALID_ARGUMENT; TD_FAILED_PRECONDITION with the obstacle when the
 * batch is compressed. */
bool td_arrow_batch_check(const struct td_arrow_schema *schema, const struct td_arrow_batch *batch,
                          struct td_error *err);

/* Finds what rows [first, first + count) of a checked batch consist of, and fills spans[node_count]. Every buffer is
 * then long enough for its span. Reads the first and the last offset of each span only. Errors: TD_INVALID_ARGUMENT,
 * and those of the input. */
bool td_arrow_spans(const struct td_arrow_schema *schema, const struct td_arrow_batch *batch,
                    const struct td_input *input, uint64_t first, uint64_t count, struct td_arrow_span *spans,
                    struct td_error *err);

/* Appends bits [first, first + count) of the bitmap at `at` of the input to the bitmap of `bits` bits that begins at
 * byte `begin` of out and ends at its end. Adds the number of zeros among them to *zeros. Errors:
 * TD_RESOURCE_EXHAUSTED, and those of the input. */
bool td_arrow_copy_bits(const struct td_input *input, uint64_t at, uint64_t first, uint64_t count,
                        struct td_buffer *out, size_t begin, uint64_t bits, uint64_t *zeros, struct td_error *err);

/* Appends `count` ones to such a bitmap. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_arrow_add_ones(struct td_buffer *out, size_t begin, uint64_t bits, uint64_t count, struct td_error *err);

/* Appends the ends of the span's items, of `width` bytes each, so that the first item begins at `base`; at: place of
 * the node's offsets in the input. Errors: TD_INVALID_ARGUMENT when they descend, leave the span or grow too large for
 * the width; TD_RESOURCE_EXHAUSTED, and those of the input. */
bool td_arrow_copy_offsets(const struct td_input *input, uint64_t at, const struct td_arrow_span *span, uint64_t width,
                           uint64_t base, struct td_buffer *out, struct td_error *err);

#endif
