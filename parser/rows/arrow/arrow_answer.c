#include "parser/rows/arrow/arrow_answer.h"

#include "core/checked.h"
#include "parser/rows/arrow/arrow.h"
#include "parser/rows/index/row_format.h"
#include "parser/rows/index/row_memory.h"

#include <inttypes.h>
#include <string.h>

/* ---- pieces ---- */

void td_arrow_answer_init(struct td_arrow_answer *answer, size_t limit_bytes)
{
    *answer = (struct td_arrow_answer){0};
    td_budget_init(&answer->budget, limit_bytes, "these rows of an Arrow file");
    td_buffer_init_budget(&answer->memory, &answer->budget);
}

void td_arrow_answer_fini(struct td_arrow_answer *answer)
{
    td_buffer_fini(&answer->memory);
    td_row_memory_free(answer->pieces, answer->piece_capacity, sizeof *answer->pieces, &answer->budget);
    answer->pieces = NULL;
    answer->piece_count = answer->piece_capacity = 0;
}

static bool add_piece(struct td_arrow_answer *answer, bool in_file, uint64_t offset, uint64_t bytes,
                      struct td_error *err)
{
    struct td_arrow_piece *last = answer->piece_count > 0 ? &answer->pieces[answer->piece_count - 1] : NULL;
    if (bytes == 0)
        return true;
    if (!td_add_u64(answer->bytes, bytes, &answer->bytes))
        return td_error_set(err, TD_INVALID_ARGUMENT, "an answer of 2^64 bytes");
    if (last != NULL && last->in_file == in_file && last->offset + last->bytes == offset) {
        last->bytes += bytes;
        return true;
    }
    if (!td_row_memory_reserve(&answer->pieces, &answer->piece_capacity, answer->piece_count + 1,
                               sizeof *answer->pieces, &answer->budget, err))
        return false;
    answer->pieces[answer->piece_count++] =
        (struct td_arrow_piece){.in_file = in_file, .offset = offset, .bytes = bytes};
    return true;
}

bool td_arrow_answer_add_memory(struct td_arrow_answer *answer, size_t begin, struct td_error *err)
{
    return td_row_memory_check(&answer->memory, err) &&
           add_piece(answer, false, begin, answer->memory.len - begin, err);
}

bool td_arrow_answer_add_file(struct td_arrow_answer *answer, const struct td_input *input, uint64_t offset,
                              uint64_t bytes, struct td_error *err)
{
    struct td_buffer *memory = &answer->memory;
    if (bytes >= TD_ARROW_COPY_BYTES)
        return add_piece(answer, true, offset, bytes, err);
    if (bytes == 0)
        return true;
    if (!td_buffer_reserve(memory, (size_t)bytes))
        return td_row_memory_check(memory, err);
    if (!td_input_read(input, offset, memory->data + memory->len, (size_t)bytes, err))
        return false;
    memory->len += (size_t)bytes;
    return td_arrow_answer_add_memory(answer, memory->len - (size_t)bytes, err);
}

uint64_t td_arrow_pad(struct td_buffer *memory, uint64_t bytes)
{
    static const char zeros[TD_ARROW_ALIGN_BYTES] = {0};
    size_t more = (size_t)(-bytes % TD_ARROW_ALIGN_BYTES);
    td_buffer_append(memory, zeros, more);
    return bytes + more;
}

bool td_arrow_answer_end(struct td_arrow_answer *answer, struct td_error *err)
{
    if (answer->without_end)
        return true;
    td_buffer_append(&answer->memory, td_arrow_end_mark, sizeof td_arrow_end_mark);
    return td_row_memory_check(&answer->memory, err) &&
           td_arrow_answer_add_memory(answer, answer->memory.len - sizeof td_arrow_end_mark, err);
}

/* ---- the file ---- */

static bool refuse_changed_file(struct td_error *err)
{
    return td_error_set(err, TD_UNAVAILABLE, "the file is not the one whose rows were found; try again");
}

bool td_arrow_source_open(const struct td_row_index *index, const struct td_row_files *files,
                          struct td_arrow_answer *answer, struct td_arrow_source *out, struct td_error *err)
{
    *out = (struct td_arrow_source){.index = index, .input = &files->data, .answer = answer};
    out->reader = (struct td_arrow_reader){
        .input = &files->data, .budget = &answer->budget, .max_metadata_bytes = answer->budget.max_bytes};
    const uint64_t *params = index->params;
    if (index->format != &td_row_format_arrow || index->layout != TD_ROWS_BLOCKS || params[0] != TD_ARROW_WORDS ||
        params[TD_ARROW_PARAM_DICTIONARIES] > index->word_count / TD_ARROW_WORDS ||
        !td_range_within(params[TD_ARROW_PARAM_SCHEMA], params[TD_ARROW_PARAM_SCHEMA_BYTES], index->data_bytes))
        return td_error_set(err, TD_INVALID_ARGUMENT, "not an index of an Arrow file");
    if (files->data.size_bytes != index->data_bytes)
        return refuse_changed_file(err);
    out->dictionary_count = params[TD_ARROW_PARAM_DICTIONARIES];
    out->batch_count = index->word_count / TD_ARROW_WORDS - out->dictionary_count;
    out->dictionaries = index->words;
    if (index->word_count > 0)
        out->batches = index->words + out->dictionary_count * TD_ARROW_WORDS;
    return answer->without_schema || td_arrow_answer_add_file(answer, &files->data, params[TD_ARROW_PARAM_SCHEMA],
                                                              params[TD_ARROW_PARAM_SCHEMA_BYTES], err);
}

void td_arrow_source_fini(struct td_arrow_source *source)
{
    td_arrow_schema_fini(&source->schema);
    td_arrow_reader_fini(&source->reader);
    td_row_memory_free(source->spans, source->span_capacity, sizeof *source->spans, &source->answer->budget);
    source->spans = NULL;
    source->span_capacity = 0;
}

bool td_arrow_source_read_schema(struct td_arrow_source *source, struct td_error *err)
{
    const uint64_t *params = source->index->params;
    struct td_arrow_message message;
    if (source->schema.budget != NULL)
        return true;
    if (params[TD_ARROW_PARAM_CUT] != TD_ARROW_NO_OBSTACLE)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s", td_arrow_obstacle_text(params[TD_ARROW_PARAM_CUT]));
    uint64_t begin = params[TD_ARROW_PARAM_SCHEMA];
    if (!td_arrow_message_read(&source->reader, begin, begin + params[TD_ARROW_PARAM_SCHEMA_BYTES], &message, err))
        return false;
    if (message.type != TD_ARROW_SCHEMA)
        return refuse_changed_file(err);
    if (!td_arrow_schema_read(&message.metadata, &message.header, &source->answer->budget, NULL, &source->schema, err))
        return false;
    if (source->schema.obstacle != TD_ARROW_NO_OBSTACLE)
        return refuse_changed_file(err);
    return td_row_memory_reserve(&source->spans, &source->span_capacity, source->schema.node_count,
                                 sizeof *source->spans, &source->answer->budget, err);
}

bool td_arrow_source_find(const struct td_arrow_source *source, uint64_t row, uint64_t *batch, struct td_error *err)
{
    uint64_t low = 0, high = source->batch_count; /* the batch is in [low, high) */
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (source->batches[middle * TD_ARROW_WORDS + TD_ARROW_FIRST] <= row)
            low = middle;
        else
            high = middle;
    }
    const uint64_t *block = low < high ? source->batches + low * TD_ARROW_WORDS : NULL;
    if (block == NULL || block[TD_ARROW_FIRST] > row || row - block[TD_ARROW_FIRST] >= block[TD_ARROW_ROWS])
        return td_error_set(err, TD_INVALID_ARGUMENT, "a damaged index of rows: no batch holds row %" PRIu64, row);
    *batch = low;
    return true;
}

bool td_arrow_source_load(struct td_arrow_source *source, uint64_t number, struct td_arrow_batch *out,
                          struct td_error *err)
{
    const uint64_t *block = source->batches + number * TD_ARROW_WORDS;
    struct td_arrow_message message;
    if (!td_arrow_message_read(&source->reader, block[TD_ARROW_OFFSET],
                               block[TD_ARROW_OFFSET] + block[TD_ARROW_BYTES_WORD], &message, err))
        return false;
    if (message.type != TD_ARROW_BATCH)
        return refuse_changed_file(err);
    if (!td_arrow_batch_read(&message, out, err))
        return false;
    if (out->rows != block[TD_ARROW_ROWS])
        return refuse_changed_file(err);
    return td_arrow_batch_check(&source->schema, out, err);
}

bool td_arrow_source_add_block(struct td_arrow_source *source, const uint64_t *block, struct td_error *err)
{
    return td_arrow_answer_add_file(source->answer, source->input, block[TD_ARROW_OFFSET], block[TD_ARROW_BYTES_WORD],
                                    err);
}

bool td_arrow_fail_in_batch(uint64_t number, const struct td_error *inner, struct td_error *err)
{
    if (inner->code == TD_UNAVAILABLE || inner->code == TD_RESOURCE_EXHAUSTED || inner->code == TD_FAILED_PRECONDITION)
        return td_error_copy(err, inner);
    return inner->pos == TD_ERROR_POS_NONE
               ? td_error_set(err, inner->code, "record batch %" PRIu64 ": %s", number, inner->message)
               : td_error_at(err, inner->code, inner->pos, "record batch %" PRIu64 ": %s", number, inner->message);
}
