#include "parser/rows/arrow/arrow_cut.h"

#include "core/checked.h"
#include "parser/rows/arrow/arrow.h"
#include "parser/rows/index/row_memory.h"

#include <inttypes.h>
#include <string.h>

static const char zero_offset[8] = {0};

/* Appends the metadata of a record batch to the memory; its nodes, buffers and body are set later. */
static bool add_head(struct td_arrow_source *source, int64_t version, uint64_t rows, struct td_error *err)
{
    const struct td_arrow_schema *schema = &source->schema;
    struct td_buffer *memory = &source->answer->memory;
    size_t bytes = TD_ARROW_BATCH_FIXED_BYTES + TD_ARROW_PAIR_BYTES * (schema->node_count + schema->buffer_count);
    if (!td_buffer_reserve(memory, bytes))
        return td_row_memory_check(memory, err);
    td_arrow_batch_write((uint8_t *)memory->data + memory->len, version, rows, schema->node_count,
                         schema->buffer_count);
    memory->len += bytes;
    return true;
}

/* ---- cut rows ---- */

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
    size_t begin = cut->memory->len;
    td_buffer_append(cut->memory, zero_offset, (size_t)width);
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
    cut.head = cut.memory->len;
    if (!add_head(source, batch.version, count, err) || !td_arrow_answer_add_memory(source->answer, cut.head, err))
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

/* ---- gathered rows ----
 * One row after the other is appended to the buffers of a record batch that is being made. */

/* The counts of one node of the record batch so far. */
struct node {
    uint64_t items, nulls;
    uint64_t inner; /* items of the child, or bytes */
    bool has_bitmap;
};

struct gather {
    struct td_arrow_source source;
    struct node *nodes;
    struct td_buffer *buffers;
    size_t node_capacity, buffer_capacity;
    struct td_arrow_batch batch; /* that the latest row was in */
    uint64_t number;             /* of that batch; UINT64_MAX: none */
    uint64_t rows, bytes;        /* in the batch that is being made */
    int64_t version;             /* of the metadata of the batches */
    struct td_error *err;
};

static bool begin_gather(struct gather *g)
{
    const struct td_arrow_schema *schema = &g->source.schema;
    struct td_budget *budget = &g->source.answer->budget;
    g->number = UINT64_MAX;
    if (!td_row_memory_reserve(&g->nodes, &g->node_capacity, schema->node_count, sizeof *g->nodes, budget, g->err) ||
        !td_row_memory_reserve(&g->buffers, &g->buffer_capacity, schema->buffer_count, sizeof *g->buffers, budget,
                               g->err))
        return false;
    for (size_t i = 0; i < schema->node_count; i++)
        g->nodes[i] = (struct node){0};
    for (size_t i = 0; i < g->buffer_capacity; i++)
        td_buffer_init_budget(&g->buffers[i], budget);
    return true;
}

static void end_gather(struct gather *g)
{
    struct td_budget *budget = &g->source.answer->budget;
    for (size_t i = 0; i < g->buffer_capacity; i++)
        td_buffer_fini(&g->buffers[i]);
    td_row_memory_free(g->buffers, g->buffer_capacity, sizeof *g->buffers, budget);
    td_row_memory_free(g->nodes, g->node_capacity, sizeof *g->nodes, budget);
    td_arrow_source_fini(&g->source);
}

/* ---- writing a batch ---- */

/* Appends buffer i to the body of *body_bytes bytes. */
static void write_buffer(struct gather *g, size_t head, size_t i, uint64_t *body_bytes)
{
    struct td_buffer *memory = &g->source.answer->memory, *buffer = &g->buffers[i];
    if (memory->failed)
        return;
    td_arrow_batch_set_buffer((uint8_t *)memory->data + head, g->source.schema.node_count, i, *body_bytes, buffer->len);
    td_buffer_append(memory, buffer->data, buffer->len);
    *body_bytes += td_arrow_pad(memory, buffer->len);
    if (buffer->capacity > TD_ARROW_GATHER_BYTES) { /* of one long row */
        td_buffer_fini(buffer);
        td_buffer_init_budget(buffer, &g->source.answer->budget);
    }
    td_buffer_clear(buffer);
}

/* Appends the record batch that was made, and begins the next one. */
static bool flush(struct gather *g)
{
    const struct td_arrow_schema *schema = &g->source.schema;
    struct td_buffer *memory = &g->source.answer->memory;
    size_t head = memory->len, first = 0;
    uint64_t body_bytes = 0;
    if (g->rows == 0)
        return true;
    if (!add_head(&g->source, g->version, g->rows, g->err))
        return false;
    for (size_t i = 0; i < schema->node_count; i++) {
        size_t count = td_arrow_buffers_of(schema->nodes[i].layout);
        if (g->nodes[i].has_bitmap && g->nodes[i].nulls == 0)
            td_buffer_clear(&g->buffers[first]);
        for (size_t j = 0; j < count; j++)
            write_buffer(g, head, first + j, &body_bytes);
        first += count;
        if (memory->failed)
            return td_row_memory_check(memory, g->err);
        td_arrow_batch_set_node((uint8_t *)memory->data + head, i, g->nodes[i].items, g->nodes[i].nulls);
        g->nodes[i] = (struct node){0};
    }
    td_arrow_batch_set_body((uint8_t *)memory->data + head, body_bytes);
    g->rows = g->bytes = 0;
    return td_arrow_answer_add_memory(g->source.answer, head, g->err);
}

/* ---- appending a row ---- */

/* Appends the bits that show which items are null. The bitmap begins with the first item that may be null. */
static bool append_nulls(struct gather *g, struct node *node, const struct td_arrow_span *span, size_t buffer,
                         struct td_error *err)
{
    struct td_buffer *out = &g->buffers[buffer];
    if (!span->has_bitmap)
        return !node->has_bitmap || td_arrow_add_ones(out, 0, node->items, span->length, err);
    if (!node->has_bitmap && !td_arrow_add_ones(out, 0, 0, node->items, err))
        return false;
    node->has_bitmap = true;
    return td_arrow_copy_bits(g->source.input, td_arrow_buffer_at(&g->batch, buffer), span->start, span->length, out, 0,
                              node->items, &node->nulls, err);
}

static bool append_bytes(struct gather *g, size_t buffer, uint64_t start, uint64_t bytes, struct td_error *err)
{
    struct td_buffer *out = &g->buffers[buffer];
    if (bytes == 0)
        return true;
    if (bytes > SIZE_MAX)
        return td_error_no_memory(err);
    if (!td_buffer_reserve(out, (size_t)bytes))
        return td_row_memory_check(out, err);
    if (!td_input_read(g->source.input, td_arrow_buffer_at(&g->batch, buffer) + start, out->data + out->len,
                       (size_t)bytes, err))
        return false;
    out->len += (size_t)bytes;
    return true;
}

static bool append_offsets(struct gather *g, struct node *node, const struct td_arrow_span *span, size_t buffer,
                           uint64_t width, struct td_error *err)
{
    struct td_buffer *out = &g->buffers[buffer];
    if (out->len == 0)
        td_buffer_append(out, zero_offset, (size_t)width);
    if (!td_row_memory_check(out, err) || !td_arrow_copy_offsets(g->source.input, td_arrow_buffer_at(&g->batch, buffer),
                                                                 span, width, node->inner, out, err))
        return false;
    node->inner += span->inner_length;
    return true;
}

/* Appends the buffers after the bitmap of nulls, which is buffer number `buffer`. */
static bool append_values(struct gather *g, size_t i, size_t buffer, struct td_error *err)
{
    const struct td_arrow_node *type = &g->source.schema.nodes[i];
    const struct td_arrow_span *span = &g->source.spans[i];
    struct node *node = &g->nodes[i];
    uint64_t zeros = 0;
    switch (type->layout) {
    case TD_ARROW_FIXED:
        if (type->width == 1)
            return td_arrow_copy_bits(g->source.input, td_arrow_buffer_at(&g->batch, buffer + 1), span->start,
                                      span->length, &g->buffers[buffer + 1], 0, node->items, &zeros, err);
        return append_bytes(g, buffer + 1, span->start * (type->width / 8), span->length * (type->width / 8), err);
    case TD_ARROW_BYTES:
        return append_offsets(g, node, span, buffer + 1, type->width, err) &&
               append_bytes(g, buffer + 2, span->inner_start, span->inner_length, err);
    case TD_ARROW_LIST:
        return append_offsets(g, node, span, buffer + 1, type->width, err);
    default:
        return true;
    }
}

static bool append_row(struct gather *g, struct td_error *err)
{
    size_t buffer = 0;
    for (size_t i = 0; i < g->source.schema.node_count; i++) {
        enum td_arrow_layout layout = g->source.schema.nodes[i].layout;
        const struct td_arrow_span *span = &g->source.spans[i];
        struct node *node = &g->nodes[i];
        if (layout == TD_ARROW_NULL)
            node->nulls += span->length;
        else if (!append_nulls(g, node, span, buffer, err) || !append_values(g, i, buffer, err))
            return false;
        if (!td_add_u64(node->items, span->length, &node->items) || node->items > INT64_MAX)
            return td_error_set(err, TD_INVALID_ARGUMENT, "the rows have 2^63 items or more");
        buffer += td_arrow_buffers_of(layout);
    }
    g->rows++;
    return true;
}

/* Returns about how many bytes the row of the spans takes in a batch. */
static uint64_t row_bytes(const struct gather *g)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < g->source.schema.node_count; i++) {
        const struct td_arrow_node *node = &g->source.schema.nodes[i];
        const struct td_arrow_span *span = &g->source.spans[i];
        if (node->layout == TD_ARROW_FIXED)
            bytes += span->length * node->width / 8;
        else if (node->layout == TD_ARROW_BYTES)
            bytes += span->length * node->width + span->inner_length;
        else if (node->layout == TD_ARROW_LIST)
            bytes += span->length * node->width;
    }
    return bytes;
}

/* Finds the row `row` of the batch `number`, ends the batch that is being made when the row would make it too long, and
 * appends the row. */
static bool add_row(struct gather *g, uint64_t number, uint64_t row, struct td_error *err)
{
    struct td_arrow_source *source = &g->source;
    if (number != g->number && !td_arrow_source_load(source, number, &g->batch, err))
        return false;
    g->number = number;
    uint64_t first = source->batches[number * TD_ARROW_WORDS + TD_ARROW_FIRST];
    if (!td_arrow_spans(&source->schema, &g->batch, source->input, row - first, 1, source->spans, err))
        return false;
    uint64_t bytes = row_bytes(g);
    if (g->bytes > 0 && (bytes > TD_ARROW_GATHER_BYTES || g->bytes > TD_ARROW_GATHER_BYTES - bytes) && !flush(g))
        return false;
    g->bytes += bytes;
    g->version = g->batch.version;
    return append_row(g, err);
}

static bool append_rows(struct gather *g, const uint64_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct td_error inner = TD_ERROR_INIT;
        uint64_t number;
        if (rows[i] >= g->source.index->row_count)
            return td_error_set(g->err, TD_INVALID_ARGUMENT, "row %" PRIu64 " is asked for; there are %" PRIu64 " rows",
                                rows[i], g->source.index->row_count);
        if (!td_arrow_source_find(&g->source, rows[i], &number, g->err))
            return false;
        if (!add_row(g, number, rows[i], &inner))
            return td_arrow_fail_in_batch(number, &inner, g->err);
    }
    return flush(g);
}

/* Appends the dictionary batches that are not replaced. */
static bool add_last_dictionaries(struct gather *g)
{
    for (uint64_t i = 0; i < g->source.dictionary_count; i++) {
        const uint64_t *block = g->source.dictionaries + i * TD_ARROW_WORDS;
        if (block[TD_ARROW_BEHIND] == UINT64_MAX && !td_arrow_source_add_block(&g->source, block, g->err))
            return false;
    }
    return true;
}

static bool gather_rows(struct gather *g, const uint64_t *rows, size_t count)
{
    uint64_t obstacle = g->source.index->params[TD_ARROW_PARAM_GATHER];
    if (obstacle != TD_ARROW_NO_OBSTACLE)
        return td_error_set(g->err, TD_FAILED_PRECONDITION, "%s", td_arrow_obstacle_text(obstacle));
    if (count == 0)
        return true;
    if (!td_arrow_source_read_schema(&g->source, g->err))
        return false;
    if (count > TD_ARROW_GATHER_NODES / (g->source.schema.node_count + 1))
        return td_error_set(
            g->err, TD_INVALID_ARGUMENT,
            "%zu rows of %zu columns and their parts are too many to gather at once: ask for fewer rows", count,
            g->source.schema.node_count);
    return begin_gather(g) && add_last_dictionaries(g) && append_rows(g, rows, count);
}

bool td_arrow_gather(const struct td_row_index *index, const struct td_row_files *files, const uint64_t *rows,
                     size_t count, struct td_arrow_answer *out, struct td_error *err)
{
    struct gather g = {.err = err};
    bool ok = td_arrow_source_open(index, files, out, &g.source, err) && gather_rows(&g, rows, count) &&
              td_arrow_answer_end(out, err);
    end_gather(&g);
    return ok;
}
