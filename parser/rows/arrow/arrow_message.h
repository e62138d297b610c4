/* The messages of Arrow IPC: read with their header, and record batches written. Source: Message.fbs and the section
 * "Serialization and Interprocess Communication (IPC)" of the Arrow columnar format.
 *
 *     FF FF FF FF (not in files before 0.15) | metadata bytes, i32 | metadata, a flatbuffer | body
 *
 * All bytes of the metadata are read once, into memory of the reader. */
#ifndef TD_PARSER_ROWS_ARROW_ARROW_MESSAGE_H
#define TD_PARSER_ROWS_ARROW_ARROW_MESSAGE_H

#include "core/budget.h"
#include "core/input.h"
#include "parser/rows/arrow/flatbuffer.h"

enum td_arrow_message_type {
    TD_ARROW_END = 0, /* the mark of the end, or the end of the input */
    TD_ARROW_SCHEMA = 1,
    TD_ARROW_DICTIONARY = 2,
    TD_ARROW_BATCH = 3,
};

/* Reads messages, one at a time. */
struct td_arrow_reader {
    const struct td_input *input; /* borrowed */
    struct td_budget *budget;     /* of the metadata; borrowed */
    uint64_t max_metadata_bytes;
    uint8_t *bytes; /* of the latest message; owned */
    size_t capacity;
};

struct td_arrow_message {
    enum td_arrow_message_type type;
    uint64_t offset;         /* of the message in the input */
    uint64_t metadata_bytes; /* up to the body, with the bytes before the flatbuffer */
    uint64_t body_bytes;
    int64_t version;               /* 3: V4; 4: V5 */
    struct td_flatbuffer metadata; /* borrowed from the reader, until the next message */
    struct td_flat_table header;
};

/* Reads the message at `offset` in an input; its first `end` bytes (at most all) belong to messages. The whole message
 * is before `end`. Errors: TD_INVALID_ARGUMENT with the position, TD_RESOURCE_EXHAUSTED, those of the input. */
bool td_arrow_message_read(struct td_arrow_reader *reader, uint64_t offset, uint64_t end, struct td_arrow_message *out,
                           struct td_error *err);

void td_arrow_reader_fini(struct td_arrow_reader *reader);

/* The header of a record batch. Nodes are pairs of i64 {length, null count}, buffers {offset in the body, bytes}. */
struct td_arrow_batch {
    uint64_t rows;
    size_t node_count, buffer_count;
    const uint8_t *nodes, *buffers; /* little-endian, borrowed from the reader */
    bool is_compressed;
    uint64_t body; /* where the body begins in the input */
    uint64_t body_bytes;
    int64_t version;
};

/* Reads the header of a TD_ARROW_BATCH. Checks only that the vectors are within the metadata, and that the number of
 * rows is not negative. Errors: TD_INVALID_ARGUMENT with the position. */
bool td_arrow_batch_read(const struct td_arrow_message *message, struct td_arrow_batch *out, struct td_error *err);

/* The header of a dictionary batch. */
struct td_arrow_dictionary {
    int64_t id;
    bool is_delta; /* its values follow those that the dictionary has */
};

/* Reads the header of a TD_ARROW_DICTIONARY. Errors: TD_INVALID_ARGUMENT with the position. */
bool td_arrow_dictionary_read(const struct td_arrow_message *message, struct td_arrow_dictionary *out,
                              struct td_error *err);

/* Bytes of the message of a record batch up to its body, of the mark of the end, and the alignment of buffers in
 * bodies: 8 bytes, as pyarrow writes them. */
enum { TD_ARROW_END_BYTES = 8, TD_ARROW_ALIGN_BYTES = 8, TD_ARROW_BATCH_FIXED_BYTES = 88, TD_ARROW_PAIR_BYTES = 16 };

/* Writes the metadata of a record batch to out, which has room for TD_ARROW_BATCH_FIXED_BYTES and TD_ARROW_PAIR_BYTES
 * for each node and buffer: that many bytes (below 2^31) are written. */
void td_arrow_batch_write(uint8_t *out, int64_t version, uint64_t rows, size_t node_count, size_t buffer_count);

/* Set the length of the body (0 before), node i or buffer i of the metadata that td_arrow_batch_write has written. */
void td_arrow_batch_set_body(uint8_t *out, uint64_t body_bytes);
void td_arrow_batch_set_node(uint8_t *out, size_t i, uint64_t length, uint64_t null_count);
void td_arrow_batch_set_buffer(uint8_t *out, size_t node_count, size_t i, uint64_t offset, uint64_t bytes);

/* The mark of the end. */
extern const uint8_t td_arrow_end_mark[TD_ARROW_END_BYTES];

#endif
