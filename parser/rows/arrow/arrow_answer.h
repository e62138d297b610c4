/* An IPC stream of Arrow that consists of pieces of a file and of memory, and that file. Cutting and gathering
 * (arrow_cut.h) share these types. */
#ifndef TD_PARSER_ROWS_ARROW_ARROW_ANSWER_H
#define TD_PARSER_ROWS_ARROW_ARROW_ANSWER_H

#include "core/budget.h"
#include "core/buffer.h"
#include "parser/rows/arrow/arrow_message.h"
#include "parser/rows/arrow/arrow_schema.h"
#include "parser/rows/arrow/arrow_span.h"
#include "parser/rows/index/row_index.h"

/* Runs of the file that are shorter are copied: a piece costs more than their bytes. */
enum { TD_ARROW_COPY_BYTES = 1024 };

struct td_arrow_piece {
    bool in_file;    /* bytes of the data file; else of `memory` */
    uint64_t offset; /* of the first byte there */
    uint64_t bytes;  /* not 0 */
};

/* It must stay where it is, since the memory refers to the budget. */
struct td_arrow_answer {
    struct td_budget budget; /* of all memory that making and keeping the answer takes */
    struct td_buffer memory;
    struct td_arrow_piece *pieces; /* in the order of the stream; owned */
    size_t piece_count, piece_capacity;
    uint64_t bytes;      /* of the stream */
    bool without_schema; /* the stream continues another answer with the same schema; set by the caller */
    bool without_end;    /* another answer with the same schema follows; set by the caller */
};

/* Begins an answer that may take limit_bytes of memory. Call td_arrow_answer_fini afterwards. */
void td_arrow_answer_init(struct td_arrow_answer *answer, size_t limit_bytes);

void td_arrow_answer_fini(struct td_arrow_answer *answer);

/* Appends bytes [offset, offset + bytes) of the file, which the caller has checked: copies them if they are few.
 * Errors: TD_RESOURCE_EXHAUSTED, and those of the input. */
bool td_arrow_answer_add_file(struct td_arrow_answer *answer, const struct td_input *input, uint64_t offset,
                              uint64_t bytes, struct td_error *err);

/* Adds the bytes that `memory` has from `begin` on as a piece of the stream. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_arrow_answer_add_memory(struct td_arrow_answer *answer, size_t begin, struct td_error *err);

/* Appends zeros to `memory` for a body of `bytes` bytes up to TD_ARROW_ALIGN_BYTES. Returns the bytes with them. */
uint64_t td_arrow_pad(struct td_buffer *memory, uint64_t bytes);

/* Appends the mark of the end, unless without_end is set. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_arrow_answer_end(struct td_arrow_answer *answer, struct td_error *err);

/* A file by its index. All memory is of the answer's budget. */
struct td_arrow_source {
    const struct td_row_index *index;
    const struct td_input *input;
    struct td_arrow_answer *answer;
    struct td_arrow_schema schema;
    struct td_arrow_reader reader;
    const uint64_t *dictionaries, *batches; /* blocks of the index (arrow.h) */
    uint64_t dictionary_count, batch_count;
    struct td_arrow_span *spans; /* of the schema's nodes */
    size_t span_capacity;
};

/* Checks the index, and appends the schema message, unless without_schema is set. The caller calls
 * td_arrow_source_fini, after an error too. Errors: as arrow_cut.h. */
bool td_arrow_source_open(const struct td_row_index *index, const struct td_row_files *files,
                          struct td_arrow_answer *answer, struct td_arrow_source *out, struct td_error *err);

void td_arrow_source_fini(struct td_arrow_source *source);

/* Reads the schema that rows are cut by. Does nothing when it was read. Errors: TD_FAILED_PRECONDITION with the
 * obstacle, and as arrow_cut.h. */
bool td_arrow_source_read_schema(struct td_arrow_source *source, struct td_error *err);

/* Finds the record batch that holds the row, which the index has. Errors: TD_INVALID_ARGUMENT when the index is
 * damaged. */
bool td_arrow_source_find(const struct td_arrow_source *source, uint64_t row, uint64_t *batch, struct td_error *err);

/* Reads and checks the header of a record batch; the schema was read. *out is borrowed until the next call. Errors: as
 * arrow_cut.h, without the batch's number. */
bool td_arrow_source_load(struct td_arrow_source *source, uint64_t number, struct td_arrow_batch *out,
                          struct td_error *err);

/* Appends the message of a block as it is in the file. Errors: TD_RESOURCE_EXHAUSTED, and those of the input. */
bool td_arrow_source_add_block(struct td_arrow_source *source, const uint64_t *block, struct td_error *err);

/* Records an error of a record batch, with its number. Returns false. */
bool td_arrow_fail_in_batch(uint64_t number, const struct td_error *inner, struct td_error *err);

#endif
