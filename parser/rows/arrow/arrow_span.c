#include "parser/rows/arrow/arrow_span.h"

#include "core/checked.h"
#include "parser/rows/index/row_memory.h"

#include <inttypes.h>
#include <string.h>

enum { AT_ONCE_BYTES = 1024, BYTE_BITS = 8 };

static uint64_t item_count(const struct td_arrow_batch *batch, size_t node)
{
    return td_load_le64(batch->nodes + TD_ARROW_PAIR_BYTES * node);
}

static bool has_nulls(const struct td_arrow_batch *batch, size_t node)
{
    return td_load_le64(batch->nodes + TD_ARROW_PAIR_BYTES * node + 8) != 0;
}

static uint64_t offset_in_body(const struct td_arrow_batch *batch, size_t i)
{
    return td_load_le64(batch->buffers + TD_ARROW_PAIR_BYTES * i);
}

uint64_t td_arrow_buffer_at(const struct td_arrow_batch *batch, size_t i)
{
    return batch->body + offset_in_body(batch, i);
}

uint64_t td_arrow_buffer_bytes(const struct td_arrow_batch *batch, size_t i)
{
    return td_load_le64(batch->buffers + TD_ARROW_PAIR_BYTES * i + 8);
}

bool td_arrow_batch_check(const struct td_arrow_schema *schema, const struct td_arrow_batch *batch,
                          struct td_error *err)
{
    uint64_t bytes = 0;
    if (batch->is_compressed)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s", td_arrow_obstacle_text(TD_ARROW_COMPRESSED));
    if (batch->node_count != schema->node_count || batch->buffer_count != schema->buffer_count)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "%zu nodes and %zu buffers, where the schema asks for %zu and %zu", batch->node_count,
                            batch->buffer_count, schema->node_count, schema->buffer_count);
    for (size_t i = 0; i < batch->buffer_count; i++) {
        uint64_t len = td_arrow_buffer_bytes(batch, i);
        if (!td_range_within(offset_in_body(batch, i), len, batch->body_bytes))
            return td_error_set(err, TD_INVALID_ARGUMENT,
                                "buffer %zu leaves the body: %" PRIu64 " bytes at %" PRIu64 " of %" PRIu64, i, len,
                                offset_in_body(batch, i), batch->body_bytes);
        if (!td_add_u64(bytes, len, &bytes) || bytes > batch->body_bytes)
            return td_error_set(err, TD_INVALID_ARGUMENT, "the buffers are longer than the body together");
    }
    return true;
}

/* ---- spans ---- */

static bool too_short(size_t buffer, uint64_t bytes, struct td_error *err)
{
    return td_error_set(err, TD_INVALID_ARGUMENT, "buffer %zu has %" PRIu64 " bytes, too few for its items", buffer,
                        bytes);
}

/* Returns whether the buffer holds items [0, end) of so many bits. */
static bool holds_items(const struct td_arrow_batch *batch, size_t buffer, uint64_t end, uint64_t bits)
{
    uint64_t needed;
    return td_mul_u64(end, bits, &needed) &&
           needed / BYTE_BITS + (needed % BYTE_BITS != 0) <= td_arrow_buffer_bytes(batch, buffer);
}

static bool read_offset(const struct td_input *input, uint64_t at, uint64_t width, uint64_t *out, struct td_error *err)
{
    uint8_t bytes[8] = {0};
    if (!td_input_read(input, at, bytes, (size_t)width, err))
        return false;
    *out = td_load_le64(bytes);
    return true;
}

/* Reads what the span's offsets refer to. `offsets` is the number of their buffer. */
static bool read_inner(const struct td_arrow_batch *batch, const struct td_input *input, size_t offsets, uint64_t width,
                       struct td_arrow_span *span, struct td_error *err)
{
    const uint64_t most = width == 4 ? INT32_MAX : INT64_MAX;
    uint64_t at = td_arrow_buffer_at(batch, offsets), end;
    if (span->length == 0)
        return true; /* an array of no items may lack its one offset */
    if (!holds_items(batch, offsets, span->start + span->length + 1, BYTE_BITS * width))
        return too_short(offsets, td_arrow_buffer_bytes(batch, offsets), err);
    if (!read_offset(input, at + span->start * width, width, &span->inner_start, err) ||
        !read_offset(input, at + (span->start + span->length) * width, width, &end, err))
        return false;
    if (span->inner_start > end || end > most)
        return td_error_set(err, TD_INVALID_ARGUMENT, "offsets of items %" PRIu64 " and %" PRIu64 " descend",
                            span->start, span->start + span->length);
    span->inner_length = end - span->inner_start;
    return true;
}

/* Fills in what the layout needs, and checks the buffers from number `buffer` on. */
static bool fill_span(const struct td_arrow_node *node, const struct td_arrow_batch *batch,
                      const struct td_input *input, size_t buffer, struct td_arrow_span *span, struct td_error *err)
{
    const uint64_t end = span->start + span->length;
    if (node->layout == TD_ARROW_NULL)
        return true;
    if (span->has_bitmap && !holds_items(batch, buffer, end, 1))
        return too_short(buffer, td_arrow_buffer_bytes(batch, buffer), err);
    switch (node->layout) {
    case TD_ARROW_FIXED:
        return holds_items(batch, buffer + 1, end, node->width) ||
               too_short(buffer + 1, td_arrow_buffer_bytes(batch, buffer + 1), err);
    case TD_ARROW_BYTES:
        if (!read_inner(batch, input, buffer + 1, node->width, span, err))
            return false;
        return td_range_within(span->inner_start, span->inner_length, td_arrow_buffer_bytes(batch, buffer + 2)) ||
               too_short(buffer + 2, td_arrow_buffer_bytes(batch, buffer + 2), err);
    case TD_ARROW_LIST:
        return read_inner(batch, input, buffer + 1, node->width, span, err);
    case TD_ARROW_FIXED_LIST:
        if (!td_mul_u64(end, node->width, &span->inner_start))
            return td_error_set(err, TD_INVALID_ARGUMENT, "a fixed-size list has 2^64 items or more");
        span->inner_start = span->start * node->width;
        span->inner_length = span->length * node->width;
        return true;
    default: /* TD_ARROW_STRUCT */
        span->inner_start = span->start;
        span->inner_length = span->length;
        return true;
    }
}

bool td_arrow_spans(const struct td_arrow_schema *schema, const struct td_arrow_batch *batch,
                    const struct td_input *input, uint64_t first, uint64_t count, struct td_arrow_span *spans,
                    struct td_error *err)
{
    size_t buffer = 0;
    for (size_t i = 0; i < schema->node_count; i++) {
        const struct td_arrow_node *node = &schema->nodes[i];
        bool is_column = node->parent == TD_ARROW_NO_PARENT;
        struct td_arrow_span *span = &spans[i];
        *span = (struct td_arrow_span){.start = is_column ? first : spans[node->parent].inner_start,
                                       .length = is_column ? count : spans[node->parent].inner_length};
        uint64_t items = item_count(batch, i);
        if (items > INT64_MAX || !td_range_within(span->start, span->length, items))
            return td_error_set(err, TD_INVALID_ARGUMENT, "node %zu has %" PRIu64 " items; item %" PRIu64 " is missing",
                                i, items, span->start + span->length);
        if (node->layout != TD_ARROW_NULL && span->length > 0 && has_nulls(batch, i)) {
            span->has_bitmap = true;
            if (td_arrow_buffer_bytes(batch, buffer) == 0)
                return td_error_set(err, TD_INVALID_ARGUMENT, "node %zu has nulls, but no bitmap of them", i);
        }
        if (!fill_span(node, batch, input, buffer, span, err))
            return false;
        buffer += td_arrow_buffers_of(node->layout);
    }
    return true;
}

/* ---- bitmaps ---- */

/* Makes room for `count` bits after `bits` of a bitmap, all zero. */
static bool add_zeros(struct td_buffer *out, size_t begin, uint64_t bits, uint64_t count, struct td_error *err)
{
    uint64_t end;
    if (!td_add_u64(bits, count, &end))
        return td_error_no_memory(err);
    uint64_t bytes = end / BYTE_BITS + (end % BYTE_BITS != 0);
    size_t more = (size_t)(bytes - (out->len - begin));
    if (more > 0 && !td_buffer_reserve(out, more))
        return td_row_memory_check(out, err);
    if (more > 0)
        memset(out->data + out->len, 0, more);
    out->len += more;
    return true;
}

/* Returns the bitmap, or NULL in an empty buffer. */
static uint8_t *bitmap_at(const struct td_buffer *out, size_t begin)
{
    return out->data == NULL ? NULL : (uint8_t *)out->data + begin;
}

/* Sets at most 8 bits, which were zero. */
static void put_bits(uint8_t *bitmap, uint64_t at, unsigned value, unsigned count)
{
    unsigned shift = (unsigned)(at % BYTE_BITS);
    uint8_t *byte = bitmap + at / BYTE_BITS;
    byte[0] = (uint8_t)(byte[0] | value << shift);
    if (shift + count > BYTE_BITS)
        byte[1] = (uint8_t)(byte[1] | value >> (BYTE_BITS - shift));
}

static unsigned at_most_8(uint64_t count)
{
    return count < BYTE_BITS ? (unsigned)count : BYTE_BITS;
}

bool td_arrow_add_ones(struct td_buffer *out, size_t begin, uint64_t bits, uint64_t count, struct td_error *err)
{
    if (!add_zeros(out, begin, bits, count, err))
        return false;
    uint8_t *bitmap = bitmap_at(out, begin);
    for (uint64_t done = 0; done < count; done += BYTE_BITS) {
        unsigned now = at_most_8(count - done);
        put_bits(bitmap, bits + done, (1U << now) - 1, now);
    }
    return true;
}

bool td_arrow_copy_bits(const struct td_input *input, uint64_t at, uint64_t first, uint64_t count,
                        struct td_buffer *out, size_t begin, uint64_t bits, uint64_t *zeros, struct td_error *err)
{
    enum { CHUNK_BITS = (AT_ONCE_BYTES - 1) * BYTE_BITS };
    uint8_t bytes[AT_ONCE_BYTES + 1] = {0};
    const unsigned shift = (unsigned)(first % BYTE_BITS);
    if (!add_zeros(out, begin, bits, count, err))
        return false;
    uint8_t *bitmap = bitmap_at(out, begin);
    for (uint64_t done = 0; done < count; done += CHUNK_BITS) {
        uint64_t chunk = count - done < CHUNK_BITS ? count - done : CHUNK_BITS;
        size_t len = (size_t)((shift + chunk + BYTE_BITS - 1) / BYTE_BITS);
        if (!td_input_read(input, at + (first + done) / BYTE_BITS, bytes, len, err))
            return false;
        bytes[len] = 0;
        for (uint64_t i = 0; i < chunk; i += BYTE_BITS) {
            unsigned now = at_most_8(chunk - i);
            unsigned value = (bytes[i / BYTE_BITS] | (unsigned)bytes[i / BYTE_BITS + 1] << BYTE_BITS) >> shift;
            value &= (1U << now) - 1;
            *zeros += now - (unsigned)__builtin_popcount(value);
            put_bits(bitmap, bits + done + i, value, now);
        }
    }
    return true;
}

/* ---- offsets ---- */

static void append_offset(struct td_buffer *out, uint64_t value, uint64_t width)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    td_buffer_append(out, bytes, (size_t)width);
}

bool td_arrow_copy_offsets(const struct td_input *input, uint64_t at, const struct td_arrow_span *span, uint64_t width,
                           uint64_t base, struct td_buffer *out, struct td_error *err)
{
    const uint64_t most = width == 4 ? INT32_MAX : INT64_MAX, per_chunk = AT_ONCE_BYTES / width;
    uint8_t bytes[AT_ONCE_BYTES + 8] = {0};
    uint64_t last = span->inner_start, room;
    const uint64_t end = span->inner_start + span->inner_length;
    if (base > most || span->inner_length > most - base)
        return td_error_set(err, TD_INVALID_ARGUMENT, "items of %" PRIu64 " bytes or more in one column of 32 bits",
                            most);
    if (!td_mul_u64(span->length, width, &room) || room > SIZE_MAX)
        return td_error_no_memory(err);
    if (!td_buffer_reserve(out, (size_t)room))
        return td_row_memory_check(out, err);
    for (uint64_t done = 0; done < span->length; done += per_chunk) {
        uint64_t count = span->length - done < per_chunk ? span->length - done : per_chunk;
        if (!td_input_read(input, at + (span->start + done + 1) * width, bytes, (size_t)(count * width), err))
            return false;
        for (uint64_t i = 0; i < count; i++) {
            uint64_t value = width == 4 ? td_load_le32(bytes + 4 * i) : td_load_le64(bytes + 8 * i);
            if (value < last || value > end)
                return td_error_set(err, TD_INVALID_ARGUMENT, "offset %" PRIu64 " of item %" PRIu64 " descends", value,
                                    span->start + done + i);
            last = value;
            append_offset(out, base + (value - span->inner_start), width);
        }
    }
    return last == end || td_error_set(err, TD_UNAVAILABLE, "the file changed while it was read");
}
