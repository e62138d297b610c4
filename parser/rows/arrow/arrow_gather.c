/* One row after the other is appended to the buffers of a record batch that is being made. */
#include "parser/rows/arrow/arrow_gather.h"

#include "core/checked.h"
#include "parser/rows/arrow/arrow.h"
#include "parser/rows/index/row_memory.h"

#include <inttypes.h>
#include <string.h>

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
    size_t head_bytes = TD_ARROW_BATCH_FIXED_BYTES + TD_ARROW_PAIR_BYTES * (schema->node_count + schema->buffer_count);
    uint64_t body_bytes = 0;
    if (g->rows == 0)
        return true;
    if (!td_buffer_reserve(memory, head_bytes))
        return td_row_memory_check(memory, g->err);
    memory->len += head_bytes;
    td_arrow_batch_write((uint8_t *)memory->data + head, g->version, g->rows, schema->node_count, schema->buffer_count);
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
    static const char zeros[8] = {0};
    struct td_buffer *out = &g->buffers[buffer];
    if (out->len == 0)
        td_buffer_append(out, zeros, (size_t)width);
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

static bool add_rows(struct gather *g, const uint64_t *rows, size_t count)
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
static bool add_dictionaries(struct gather *g)
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
    return begin_gather(g) && add_dictionaries(g) && add_rows(g, rows, count);
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
