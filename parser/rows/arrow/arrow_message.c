#include "parser/rows/arrow/arrow_message.h"

#include "core/checked.h"
#include "parser/rows/index/row_memory.h"

#include <inttypes.h>
#include <string.h>

enum { LENGTH_BYTES = 4, CONTINUED_BYTES = 8, V4 = 3, V5 = 4 };

#define CONTINUATION UINT32_MAX

const uint8_t td_arrow_end_mark[TD_ARROW_END_BYTES] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};

/* Reads the bytes before the flatbuffer. Sets metadata_bytes to its length, and *len to that of the flatbuffer; 0: the
 * messages end here. */
static bool read_prefix(const struct td_input *input, uint64_t offset, uint64_t end, struct td_arrow_message *out,
                        uint32_t *len, struct td_error *err)
{
    uint8_t bytes[CONTINUED_BYTES];
    *len = 0;
    if (offset == end)
        return true;
    if (end - offset < LENGTH_BYTES)
        return td_error_at(err, TD_INVALID_ARGUMENT, offset, "%" PRIu64 " bytes are left, too few for a message",
                           end - offset);
    if (!td_input_read(input, offset, bytes, LENGTH_BYTES, err))
        return false;
    out->metadata_bytes = LENGTH_BYTES;
    if (td_load_le32(bytes) == CONTINUATION) {
        if (end - offset < CONTINUED_BYTES)
            return td_error_at(err, TD_INVALID_ARGUMENT, offset, "the length of a message is cut off");
        if (!td_input_read(input, offset + LENGTH_BYTES, bytes, LENGTH_BYTES, err))
            return false;
        out->metadata_bytes = CONTINUED_BYTES;
    }
    *len = td_load_le32(bytes);
    if (*len > INT32_MAX || *len > end - offset - out->metadata_bytes)
        return td_error_at(err, TD_INVALID_ARGUMENT, offset,
                           "a message says that its metadata has %" PRIu32 " bytes, %" PRIu64 " are left", *len,
                           end - offset - out->metadata_bytes);
    return true;
}

/* Reads the table Message, and the place of its header. */
static bool read_message(struct td_arrow_message *out, uint64_t end, struct td_error *err)
{
    enum { VERSION, HEADER_TYPE, HEADER, BODY_LENGTH };
    const struct td_flatbuffer *metadata = &out->metadata;
    struct td_flat_table message;
    uint64_t type;
    int64_t body;
    if (!td_flat_root(metadata, &message) || !td_flat_signed(metadata, &message, VERSION, 2, 0, &out->version) ||
        !td_flat_unsigned(metadata, &message, HEADER_TYPE, 1, 0, &type) ||
        !td_flat_child(metadata, &message, HEADER, &out->header) ||
        !td_flat_signed(metadata, &message, BODY_LENGTH, 8, 0, &body))
        return false;
    if (out->version != V4 && out->version != V5)
        return td_error_at(err, TD_INVALID_ARGUMENT, out->offset,
                           "metadata of version V%" PRId64 "; V4 and V5 are read", out->version + 1);
    if (type < TD_ARROW_SCHEMA || type > TD_ARROW_BATCH)
        return td_error_at(err, TD_INVALID_ARGUMENT, out->offset,
                           "a message of type %" PRIu64 "; schemas, dictionaries and record batches are read", type);
    if (out->header.vtable_bytes == 0)
        return td_error_at(err, TD_INVALID_ARGUMENT, out->offset, "a message without a header");
    uint64_t left = end - out->offset - out->metadata_bytes;
    if (body < 0 || (uint64_t)body > left)
        return td_error_at(err, TD_INVALID_ARGUMENT, out->offset,
                           "a message says that its body has %" PRId64 " bytes, %" PRIu64 " are left", body, left);
    out->type = (enum td_arrow_message_type)type;
    out->body_bytes = (uint64_t)body;
    return true;
}

bool td_arrow_message_read(struct td_arrow_reader *reader, uint64_t offset, uint64_t end, struct td_arrow_message *out,
                           struct td_error *err)
{
    uint32_t len;
    *out = (struct td_arrow_message){.type = TD_ARROW_END, .offset = offset};
    if (offset > end || end > reader->input->size_bytes)
        return td_error_set(err, TD_INVALID_ARGUMENT, "a message at %" PRIu64 ", after the end of all at %" PRIu64,
                            offset, end);
    if (!read_prefix(reader->input, offset, end, out, &len, err))
        return false;
    if (len == 0)
        return true;
    if (len > reader->max_metadata_bytes)
        return td_error_at(err, TD_RESOURCE_EXHAUSTED, offset,
                           "the metadata of a message has %" PRIu32 " bytes, more than the limit of %" PRIu64, len,
                           reader->max_metadata_bytes);
    if (!td_row_memory_reserve(&reader->bytes, &reader->capacity, len, 1, reader->budget, err) ||
        !td_input_read(reader->input, offset + out->metadata_bytes, reader->bytes, len, err))
        return false;
    out->metadata =
        (struct td_flatbuffer){.bytes = reader->bytes, .len = len, .base = offset + out->metadata_bytes, .err = err};
    out->metadata_bytes += len;
    return read_message(out, end, err);
}

void td_arrow_reader_fini(struct td_arrow_reader *reader)
{
    td_row_memory_free(reader->bytes, reader->capacity, 1, reader->budget);
    reader->bytes = NULL;
    reader->capacity = 0;
}

bool td_arrow_batch_read(const struct td_arrow_message *message, struct td_arrow_batch *out, struct td_error *err)
{
    enum { LENGTH, NODES, BUFFERS, COMPRESSION };
    struct td_flatbuffer metadata = message->metadata;
    struct td_flat_vector nodes, buffers;
    struct td_flat_table compression;
    int64_t rows;
    metadata.err = err;
    if (!td_flat_signed(&metadata, &message->header, LENGTH, 8, 0, &rows) ||
        !td_flat_vector(&metadata, &message->header, NODES, TD_ARROW_PAIR_BYTES, &nodes) ||
        !td_flat_vector(&metadata, &message->header, BUFFERS, TD_ARROW_PAIR_BYTES, &buffers) ||
        !td_flat_child(&metadata, &message->header, COMPRESSION, &compression))
        return false;
    if (rows < 0)
        return td_error_at(err, TD_INVALID_ARGUMENT, message->offset, "a record batch of %" PRId64 " rows", rows);
    *out = (struct td_arrow_batch){.rows = (uint64_t)rows,
                                   .node_count = nodes.count,
                                   .buffer_count = buffers.count,
                                   .nodes = metadata.bytes + nodes.at,
                                   .buffers = metadata.bytes + buffers.at,
                                   .is_compressed = compression.vtable_bytes != 0,
                                   .body = message->offset + message->metadata_bytes,
                                   .body_bytes = message->body_bytes,
                                   .version = message->version};
    return true;
}

bool td_arrow_dictionary_read(const struct td_arrow_message *message, struct td_arrow_dictionary *out,
                              struct td_error *err)
{
    enum { ID, DATA, IS_DELTA };
    struct td_flatbuffer metadata = message->metadata;
    uint64_t is_delta;
    metadata.err = err;
    if (!td_flat_signed(&metadata, &message->header, ID, 8, 0, &out->id) ||
        !td_flat_unsigned(&metadata, &message->header, IS_DELTA, 1, 0, &is_delta))
        return false;
    out->is_delta = is_delta != 0;
    return true;
}

/* ---- writing ---- */

static void store_le(uint8_t *out, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

/* Places in the flatbuffer, from its first byte. Numbers of 8 bytes, and the tables and structs that hold them, start
 * at multiples of 8. A vector's count precedes its elements. */
enum {
    MESSAGE_VTABLE = 4, /* 12 bytes: for 4 fields */
    MESSAGE = 16,       /* 20 bytes: vtable, header, body length, version, header's type */
    BATCH_VTABLE = 36,  /* 10 bytes: for 3 fields */
    BATCH = 48,         /* 20 bytes: vtable, nodes, length, buffers */
    NODES = 72,
    HEADER_AT = 4,
    BODY_LENGTH_AT = 8,
    VERSION_AT = 16,
    TYPE_AT = 18,
    NODES_AT = 4,
    LENGTH_AT = 8,
    BUFFERS_AT = 16,
};

static size_t nodes_end(size_t node_count)
{
    return NODES + TD_ARROW_PAIR_BYTES * node_count;
}

static void write_vtable(uint8_t *out, unsigned bytes, unsigned table_bytes, const uint8_t *slots, unsigned slot_count)
{
    store_le(out, bytes, 2);
    store_le(out + 2, table_bytes, 2);
    for (unsigned i = 0; i < slot_count; i++)
        store_le(out + 4 + 2 * (size_t)i, slots[i], 2);
}

void td_arrow_batch_write(uint8_t *out, int64_t version, uint64_t rows, size_t node_count, size_t buffer_count)
{
    static const uint8_t message_slots[] = {VERSION_AT, TYPE_AT, HEADER_AT, BODY_LENGTH_AT};
    static const uint8_t batch_slots[] = {LENGTH_AT, NODES_AT, BUFFERS_AT};
    const size_t bytes = TD_ARROW_BATCH_FIXED_BYTES + TD_ARROW_PAIR_BYTES * (node_count + buffer_count);
    const size_t buffers = nodes_end(node_count) + 8;
    memset(out, 0, bytes);
    store_le(out, CONTINUATION, 4);
    store_le(out + 4, bytes - CONTINUED_BYTES, 4);
    uint8_t *flat = out + CONTINUED_BYTES;
    store_le(flat, MESSAGE, 4);
    write_vtable(flat + MESSAGE_VTABLE, 12, 20, message_slots, 4);
    store_le(flat + MESSAGE, MESSAGE - MESSAGE_VTABLE, 4);
    store_le(flat + MESSAGE + HEADER_AT, BATCH - MESSAGE - HEADER_AT, 4);
    store_le(flat + MESSAGE + VERSION_AT, (uint64_t)version, 2);
    store_le(flat + MESSAGE + TYPE_AT, TD_ARROW_BATCH, 1);
    write_vtable(flat + BATCH_VTABLE, 10, 20, batch_slots, 3);
    store_le(flat + BATCH, BATCH - BATCH_VTABLE, 4);
    store_le(flat + BATCH + NODES_AT, NODES - 4 - BATCH - NODES_AT, 4);
    store_le(flat + BATCH + LENGTH_AT, rows, 8);
    store_le(flat + BATCH + BUFFERS_AT, buffers - 4 - BATCH - BUFFERS_AT, 4);
    store_le(flat + NODES - 4, node_count, 4);
    store_le(flat + buffers - 4, buffer_count, 4);
}

void td_arrow_batch_set_body(uint8_t *out, uint64_t body_bytes)
{
    store_le(out + CONTINUED_BYTES + MESSAGE + BODY_LENGTH_AT, body_bytes, 8);
}

void td_arrow_batch_set_node(uint8_t *out, size_t i, uint64_t length, uint64_t null_count)
{
    uint8_t *node = out + CONTINUED_BYTES + nodes_end(i);
    store_le(node, length, 8);
    store_le(node + 8, null_count, 8);
}

void td_arrow_batch_set_buffer(uint8_t *out, size_t node_count, size_t i, uint64_t offset, uint64_t bytes)
{
    uint8_t *buffer = out + CONTINUED_BYTES + nodes_end(node_count) + 8 + TD_ARROW_PAIR_BYTES * i;
    store_le(buffer, offset, 8);
    store_le(buffer + 8, bytes, 8);
}
