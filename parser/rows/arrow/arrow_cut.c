#include "parser/rows/arrow/arrow_cut.h"

#include "parser/rows/arrow/arrow.h"
#include "parser/rows/index/row_memory.h"

#include <inttypes.h>
#include <string.h>

/* Appends the dictionary batches that the record batch needs, from number *next on, and moves *next past them. */
static bool add_dictionaries(struct td_arrow_source *source, uint64_t batch, uint64_t *next, struct td_error *err)
{
    for (; *next < source->dictionary_count; (*next)++) {
        const uint64_t *block = source->dictionaries + *next * TD_ARROW_WORDS;
        if (block[TD_ARROW_FIRST] > batch)
            break;
        if (block[TD_ARROW_BEHIND] > batch && !td_arrow_source_add_block(source, block, err))
            return false;
    }
    return true;
}

/* The body of a record batch that is being cut. */
struct cut {
    struct td_arrow_source *source;
    const struct td_arrow_batch *batch;
    struct td_buffer *memory;
    size_t head; /* where the metadata begins in the memory */
    uint64_t body_bytes;
    size_t node, buffer; /* to write next */
    struct td_error *err;
};

static uint8_t *head_of(const struct cut *cut)
{
    return (uint8_t *)cut->memory->data + cut->head;
}

/* Ends a buffer of the body, and pads it. */
static bool end_buffer(struct cut *cut, uint64_t bytes)
{
    size_t begin = cut->memory->len;
    td_arrow_batch_set_buffer(head_of(cut), cut->source->schema.node_count, cut->buffer, cut->body_bytes, bytes);
    cut->body_bytes += td_arrow_pad(cut->memory, bytes);
    cut->buffer++;
    return td_arrow_answer_add_memory(cut->source->answer, begin, cut->err);
}

/* Ends a buffer that was appended to the memory from `begin` on. */
static bool end_memory(struct cut *cut, size_t begin)
{
    return td_arrow_answer_add_memory(cut->source->answer, begin, cut->err) &&
           end_buffer(cut, cut->memory->len - begin);
}

/* Writes a buffer that is a part of the one in the file. */
static bool cut_bytes(struct cut *cut, uint64_t start, uint64_t bytes)
{
    return td_arrow_answer_add_file(cut->source->answer, cut->source->input,
                                    td_arrow_buffer_at(cut->batch, cut->buffer) + start, bytes, cut->err) &&
           end_buffer(cut, bytes);
}

/* Writes a bitmap of the span, and sets *zeros to the number of zeros in it. A bitmap that is to say which items are
 * null is left out when none are. */
static bool cut_bits(struct cut *cut, const struct td_arrow_span *span, bool is_of_nulls, uint64_t *zeros)
{
    size_t begin = cut->memory->len;
    *zeros = 0;
    if (!td_arrow_copy_bits(cut->source->input, td_arrow_buffer_at(cut->batch, cut->buffer), span->start, span->length,
                            cut->memory, begin, 0, zeros, cut->err))
        return false;
    if (is_of_nulls && *zeros == 0)
        cut->memory->len = begin;
    return end_memory(cut, begin);
}

static bool cut_offsets(struct cut *cut, const struct td_arrow_span *span, uint64_t width)
{
    static const char zeros[8] = {0};
    size_t begin = cut->memory->len;
    td_buffer_append(cut->memory, zeros, (size_t)width);
    return td_arrow_copy_offsets(cut->source->input, td_arrow_buffer_at(cut->batch, cut->buffer), span, width, 0,
                                 cut->memory, cut->err) &&
           end_memory(cut, begin);
}

/* Writes the buffers that follow the bitmap of nulls. */
static bool cut_values(struct cut *cut, const struct td_arrow_node *node, const struct td_arrow_span *span)
{
    uint64_t zeros;
    switch (node->layout) {
    case TD_ARROW_FIXED:
        return node->width == 1 ? cut_bits(cut, span, false, &zeros)
                                : cut_bytes(cut, span->start * (node->width / 8), span->length * (node->width / 8));
    case TD_ARROW_BYTES:
        return cut_offsets(cut, span, node->width) && cut_bytes(cut, span->inner_start, span->inner_length);
    case TD_ARROW_LIST:
        return cut_offsets(cut, span, node->width);
    default:
        return true;
    }
}

static bool cut_node(struct cut *cut, const struct td_arrow_node *node, const struct td_arrow_span *span)
{
    uint64_t nulls = node->layout == TD_ARROW_NULL ? span->length : 0;
    bool ok = true;
    if (node->layout != TD_ARROW_NULL)
        ok = (span->has_bitmap ? cut_bits(cut, span, true, &nulls) : end_buffer(cut, 0)) && cut_values(cut, node, span);
    if (ok)
        td_arrow_batch_set_node(head_of(cut), cut->node++, span->length, nulls);
    return ok;
}

/* Appends rows [first, first + count) of a record batch as one of their own. */
static bool cut_batch(struct td_arrow_source *source, uint64_t number, uint64_t first, uint64_t count,
                      struct td_error *err)
{
    struct td_arrow_batch batch;
    const struct td_arrow_schema *schema = &source->schema;
    if (!td_arrow_source_read_schema(source, err) || !td_arrow_source_load(source, number, &batch, err) ||
        !td_arrow_spans(schema, &batch, source->input, first, count, source->spans, err))
        return false;
    struct cut cut = {.source = source, .batch = &batch, .memory = &source->answer->memory, .err = err};
    size_t head_bytes = TD_ARROW_BATCH_FIXED_BYTES + TD_ARROW_PAIR_BYTES * (schema->node_count + schema->buffer_count);
    cut.head = cut.memory->len;
    if (!td_buffer_reserve(cut.memory, head_bytes))
        return td_row_memory_check(cut.memory, err);
    cut.memory->len += head_bytes;
    td_arrow_batch_write(head_of(&cut), batch.version, count, schema->node_count, schema->buffer_count);
    if (!td_arrow_answer_add_memory(source->answer, cut.head, err))
        return false;
    for (size_t i = 0; i < schema->node_count; i++)
        if (!cut_node(&cut, &schema->nodes[i], &source->spans[i]))
            return false;
    td_arrow_batch_set_body(head_of(&cut), cut.body_bytes);
    return true;
}

/* Appends `count` rows from row `first` of a record batch on, without a copy if these are all. */
static bool add_rows(struct td_arrow_source *source, uint64_t number, uint64_t first, uint64_t count, bool whole,
                     struct td_error *err)
{
    const uint64_t *block = source->batches + number * TD_ARROW_WORDS;
    if (whole || count == block[TD_ARROW_ROWS])
        return td_arrow_source_add_block(source, block, err);
    struct td_error inner = TD_ERROR_INIT;
    return cut_batch(source, number, first, count, &inner) || td_arrow_fail_in_batch(number, &inner, err);
}

static bool add_batches(struct td_arrow_source *source, uint64_t first, uint64_t count, bool whole, uint64_t *skip,
                        struct td_error *err)
{
    uint64_t number = 0, next_dictionary = 0;
    if (count > 0 && !td_arrow_source_find(source, first, &number, err))
        return false;
    if (count > 0)
        *skip = first - source->batches[number * TD_ARROW_WORDS + TD_ARROW_FIRST];
    for (uint64_t before = *skip; count > 0; number++) {
        uint64_t rows = number < source->batch_count ? source->batches[number * TD_ARROW_WORDS + TD_ARROW_ROWS] : 0;
        if (number >= source->batch_count)
            return td_error_set(err, TD_INVALID_ARGUMENT, "a damaged index of rows: record batches are missing");
        if (rows == 0)
            continue;
        uint64_t now = rows - before < count ? rows - before : count;
        if (!add_dictionaries(source, number, &next_dictionary, err) ||
            !add_rows(source, number, before, now, whole, err))
            return false;
        count -= now;
        before = 0;
    }
    return true;
}

static bool cut_rows(const struct td_row_index *index, const struct td_row_files *files, uint64_t first, uint64_t count,
                     bool whole, uint64_t *skip, struct td_arrow_answer *out, struct td_error *err)
{
    struct td_arrow_source source;
    *skip = 0;
    if (count > index->row_count || first > index->row_count - count)
        return td_error_set(err, TD_INVALID_ARGUMENT, "there are %" PRIu64 " rows", index->row_count);
    bool ok = td_arrow_source_open(index, files, out, &source, err) &&
              add_batches(&source, first, count, whole, skip, err) && td_arrow_answer_end(out, err);
    td_arrow_source_fini(&source);
    return ok;
}

bool td_arrow_cut(const struct td_row_index *index, const struct td_row_files *files, uint64_t first, uint64_t count,
                  struct td_arrow_answer *out, struct td_error *err)
{
    uint64_t skip;
    return cut_rows(index, files, first, count, false, &skip, out, err);
}

bool td_arrow_cut_whole(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                        uint64_t count, uint64_t *skip, struct td_arrow_answer *out, struct td_error *err)
{
    return cut_rows(index, files, first, count, true, skip, out, err);
}
