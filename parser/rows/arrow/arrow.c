/* A stream is walked message by message; the batches of a file are found by its footer. Of each message only what
 * stands before its body is read. */
#include "parser/rows/arrow/arrow.h"

#include "core/checked.h"
#include "parser/rows/arrow/arrow_message.h"
#include "parser/rows/arrow/arrow_schema.h"
#include "parser/rows/index/row_memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "ARROW1";

enum {
    MAGIC_BYTES = 6,
    FILE_HEAD_BYTES = 8,       /* the magic, padded */
    FILE_TAIL_BYTES = 10,      /* the footer's length, and the magic */
    FOOTER_BLOCK_BYTES = 24,   /* offset i64, metadata bytes i32, 4 unused, body bytes i64 */
    FOOTER_BLOCK_METADATA = 8, /* offset of the metadata's bytes in it */
    FOOTER_BLOCK_BODY = 16,    /* offset of the body's bytes in it */
};

struct dictionary {
    int64_t id;
    uint64_t number; /* of the dictionary batch, in order */
    bool is_delta;
    uint64_t words[TD_ARROW_WORDS];
};

struct builder {
    const struct td_row_build *build;
    struct td_row_index *out;
    struct td_error *err;
    struct td_budget budget;
    struct td_arrow_reader reader;
    struct td_arrow_schema schema;
    struct td_buffer columns;
    struct td_buffer traits; /* of the first message's schema, in a file */
    struct dictionary *dictionaries;
    size_t dictionary_count, dictionary_capacity;
    uint64_t *words; /* of the record batches */
    size_t word_count, word_capacity;
    uint64_t batch_count;
    uint64_t message_bytes; /* of all batches, to see whether they overlap */
    bool is_compressed;
    bool is_file;
};

/* Puts the place of the message in front of an error within it. */
static bool fail_in(struct builder *b, const char *what, uint64_t number, const struct td_error *inner)
{
    return inner->pos == TD_ERROR_POS_NONE
               ? td_error_set(b->err, inner->code, "%s %" PRIu64 ": %s", what, number, inner->message)
               : td_error_at(b->err, inner->code, inner->pos, "%s %" PRIu64 ": %s", what, number, inner->message);
}

/* Counts the message, which may be read once only: a footer may name it again and again. */
static bool count_message(struct builder *b, const struct td_arrow_message *message, struct td_error *err)
{
    b->message_bytes += message->metadata_bytes + message->body_bytes;
    if (b->message_bytes > b->build->files->data.size_bytes)
        return td_error_at(err, TD_INVALID_ARGUMENT, message->offset, "the footer's batches overlap");
    return td_row_build_goes_on(b->build, message->offset, err);
}

static bool add_batch(struct builder *b, const struct td_arrow_message *message, struct td_error *err)
{
    struct td_arrow_batch batch;
    if (!td_arrow_batch_read(message, &batch, err) || !count_message(b, message, err))
        return false;
    const uint64_t words[TD_ARROW_WORDS] = {message->offset, message->metadata_bytes + message->body_bytes, batch.rows,
                                            message->metadata_bytes, b->out->row_count};
    b->is_compressed = b->is_compressed || batch.is_compressed;
    if (!td_add_u64(b->out->row_count, batch.rows, &b->out->row_count) || b->out->row_count > INT64_MAX)
        return td_error_at(err, TD_INVALID_ARGUMENT, message->offset, "more than 2^63-1 rows");
    if (!td_row_memory_reserve(&b->words, &b->word_capacity, b->word_count + TD_ARROW_WORDS, sizeof *b->words,
                               &b->budget, err))
        return false;
    memcpy(b->words + b->word_count, words, sizeof words);
    b->word_count += TD_ARROW_WORDS;
    b->batch_count++;
    return true;
}

static bool add_dictionary(struct builder *b, const struct td_arrow_message *message, struct td_error *err)
{
    struct td_arrow_dictionary header;
    if (!td_arrow_dictionary_read(message, &header, err) || !count_message(b, message, err) ||
        !td_row_memory_reserve(&b->dictionaries, &b->dictionary_capacity, b->dictionary_count + 1,
                               sizeof *b->dictionaries, &b->budget, err))
        return false;
    b->dictionaries[b->dictionary_count] =
        (struct dictionary){.id = header.id,
                            .number = b->dictionary_count,
                            .is_delta = header.is_delta,
                            .words = {message->offset, message->metadata_bytes + message->body_bytes, 0,
                                      message->metadata_bytes, b->is_file ? 0 : b->batch_count, UINT64_MAX}};
    b->dictionary_count++;
    return true;
}

/* Reads the schema message at `offset`, and what people see of it. */
static bool add_schema(struct builder *b, uint64_t offset, uint64_t end, uint64_t *behind)
{
    struct td_arrow_message message;
    if (!td_arrow_message_read(&b->reader, offset, end, &message, b->err))
        return false;
    if (message.type != TD_ARROW_SCHEMA)
        return td_error_at(b->err, TD_INVALID_ARGUMENT, offset, "the first message is no schema");
    b->out->params[TD_ARROW_PARAM_SCHEMA] = offset;
    b->out->params[TD_ARROW_PARAM_SCHEMA_BYTES] = message.metadata_bytes + message.body_bytes;
    *behind = offset + message.metadata_bytes + message.body_bytes;
    const struct td_arrow_texts texts = {.columns = &b->columns, .traits = b->is_file ? &b->traits : NULL};
    return td_arrow_schema_read(&message.metadata, &message.header, &b->budget, &texts, &b->schema, b->err);
}

static bool add_message(struct builder *b, const struct td_arrow_message *message)
{
    struct td_error inner = TD_ERROR_INIT;
    switch (message->type) {
    case TD_ARROW_BATCH:
        return add_batch(b, message, &inner) || fail_in(b, "record batch", b->batch_count, &inner);
    case TD_ARROW_DICTIONARY:
        return add_dictionary(b, message, &inner) || fail_in(b, "dictionary batch", b->dictionary_count, &inner);
    default:
        return td_error_at(b->err, TD_INVALID_ARGUMENT, message->offset, "a second schema");
    }
}

static bool read_stream(struct builder *b)
{
    uint64_t end = b->build->files->data.size_bytes, at = 0;
    struct td_arrow_message message;
    if (!add_schema(b, 0, end, &at))
        return false;
    for (;;) {
        struct td_error inner = TD_ERROR_INIT;
        if (!td_arrow_message_read(&b->reader, at, end, &message, &inner))
            return fail_in(b, "message", 1 + b->batch_count + b->dictionary_count, &inner);
        if (message.type == TD_ARROW_END)
            return true;
        if (!add_message(b, &message))
            return false;
        at += message.metadata_bytes + message.body_bytes;
    }
}

/* Reads the batches that a vector of the footer names. */
static bool read_blocks(struct builder *b, const struct td_flatbuffer *footer, const struct td_flat_vector *blocks,
                        enum td_arrow_message_type type, const char *what)
{
    for (uint32_t i = 0; i < blocks->count; i++) {
        const uint8_t *block = footer->bytes + blocks->at + (size_t)i * FOOTER_BLOCK_BYTES;
        struct td_error inner = TD_ERROR_INIT;
        struct td_arrow_message message;
        if (!td_arrow_message_read(&b->reader, td_load_le64(block), footer->base, &message, &inner))
            return fail_in(b, what, i, &inner);
        if (message.type != type || message.body_bytes != td_load_le64(block + FOOTER_BLOCK_BODY) ||
            message.metadata_bytes != td_load_le32(block + FOOTER_BLOCK_METADATA))
            return td_error_at(b->err, TD_INVALID_ARGUMENT, message.offset,
                               "%s %" PRIu32 ": the footer says something else of it than its message", what, i);
        if (!add_message(b, &message))
            return false;
    }
    return true;
}

static bool is_equal(const struct td_buffer *a, const struct td_buffer *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

/* Refuses a file whose footer has another schema than its first message: readers of the file use the footer's, and
 * clients that get rows use the message's. */
static bool check_schema(struct builder *b, const struct td_flatbuffer *footer, const struct td_flat_table *table)
{
    enum { SCHEMA = 1 };
    struct td_flat_table schema_table;
    struct td_arrow_schema schema = {.budget = &b->budget};
    struct td_buffer columns;
    struct td_buffer traits;
    const struct td_arrow_texts texts = {.columns = &columns, .traits = &traits};
    td_buffer_init_budget(&columns, &b->budget);
    td_buffer_init_budget(&traits, &b->budget);
    bool ok = td_flat_child(footer, table, SCHEMA, &schema_table) &&
              td_arrow_schema_read(footer, &schema_table, &b->budget, &texts, &schema, b->err);
    if (ok && !(td_arrow_schema_equal(&b->schema, &schema) && is_equal(&b->columns, &columns) &&
                is_equal(&b->traits, &traits)))
        ok = td_error_at(b->err, TD_INVALID_ARGUMENT, footer->base,
                         "the footer has another schema than the first message of the file");
    td_arrow_schema_fini(&schema);
    td_buffer_fini(&traits);
    td_buffer_fini(&columns);
    return ok;
}

static bool read_footer(struct builder *b, const struct td_flatbuffer *footer)
{
    enum { DICTIONARIES = 2, BATCHES = 3 };
    struct td_flat_table table;
    struct td_flat_vector dictionaries, batches;
    return td_flat_root(footer, &table) && check_schema(b, footer, &table) &&
           td_flat_vector(footer, &table, DICTIONARIES, FOOTER_BLOCK_BYTES, &dictionaries) &&
           td_flat_vector(footer, &table, BATCHES, FOOTER_BLOCK_BYTES, &batches) &&
           read_blocks(b, footer, &dictionaries, TD_ARROW_DICTIONARY, "dictionary batch") &&
           read_blocks(b, footer, &batches, TD_ARROW_BATCH, "record batch");
}

static bool read_file(struct builder *b)
{
    const struct td_input *data = &b->build->files->data;
    uint8_t tail[FILE_TAIL_BYTES];
    uint64_t behind;
    b->is_file = true;
    if (data->size_bytes < FILE_HEAD_BYTES + FILE_TAIL_BYTES)
        return td_error_set(b->err, TD_INVALID_ARGUMENT, "%" PRIu64 " bytes, too few for an Arrow file",
                            data->size_bytes);
    if (!td_input_read(data, data->size_bytes - sizeof tail, tail, sizeof tail, b->err))
        return false;
    uint64_t len = td_load_le32(tail), room = data->size_bytes - FILE_HEAD_BYTES - FILE_TAIL_BYTES;
    if (memcmp(tail + 4, magic, MAGIC_BYTES) != 0 || len > room)
        return td_error_at(b->err, TD_INVALID_ARGUMENT, data->size_bytes - sizeof tail,
                           "the file begins like an Arrow file, but does not end like one; it may be cut off");
    uint64_t at = data->size_bytes - FILE_TAIL_BYTES - len;
    if (!add_schema(b, FILE_HEAD_BYTES, at, &behind))
        return false;
    if (len > b->reader.max_metadata_bytes || !td_budget_take(&b->budget, (size_t)len))
        return td_row_memory_refuse(&b->budget, b->err);
    uint8_t *bytes = td_input_load(data, at, len, len, b->err);
    struct td_flatbuffer footer = {.bytes = bytes, .len = (size_t)len, .base = at, .err = b->err};
    bool ok = bytes != NULL && read_footer(b, &footer);
    free(bytes);
    td_budget_give(&b->budget, (size_t)len);
    return ok;
}

/* ---- the end ---- */

static int compare_ids(const void *a, const void *b)
{
    const struct dictionary *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int compare_numbers(const void *a, const void *b)
{
    const struct dictionary *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Finds the batch before which each dictionary batch is replaced. */
static bool end_dictionaries(struct builder *b)
{
    struct dictionary *all = b->dictionaries;
    if (b->dictionary_count == 0)
        return true;
    qsort(all, b->dictionary_count, sizeof *all, compare_ids);
    for (size_t i = b->dictionary_count - 1; i-- > 0;) {
        const struct dictionary *next = &all[i + 1];
        if (next->id != all[i].id)
            continue;
        if (!next->is_delta && b->is_file)
            return td_error_at(b->err, TD_INVALID_ARGUMENT, next->words[TD_ARROW_OFFSET],
                               "an Arrow file has dictionary %" PRId64 " twice", next->id);
        all[i].words[TD_ARROW_BEHIND] = next->words[next->is_delta ? TD_ARROW_BEHIND : TD_ARROW_FIRST];
        if (all[i].words[TD_ARROW_BEHIND] != UINT64_MAX && all[i].words[TD_ARROW_BEHIND] > all[i].words[TD_ARROW_FIRST])
            b->out->params[TD_ARROW_PARAM_GATHER] = TD_ARROW_REPLACED;
    }
    qsort(all, b->dictionary_count, sizeof *all, compare_numbers);
    return true;
}

/* Hands the words over, those of the dictionaries first. */
static bool end_words(struct builder *b)
{
    size_t before = b->dictionary_count * TD_ARROW_WORDS;
    b->out->params[TD_ARROW_PARAM_DICTIONARIES] = b->dictionary_count;
    if (!td_row_memory_reserve(&b->words, &b->word_capacity, before + b->word_count, sizeof *b->words, &b->budget,
                               b->err))
        return false;
    if (before + b->word_count == 0)
        return true;
    memmove(b->words + before, b->words, b->word_count * sizeof *b->words);
    for (size_t i = 0; i < b->dictionary_count; i++)
        memcpy(b->words + i * TD_ARROW_WORDS, b->dictionaries[i].words, sizeof b->dictionaries[i].words);
    b->out->word_count = before + b->word_count;
    uint64_t *fitting = realloc(b->words, b->out->word_count * sizeof *b->words);
    b->out->words = fitting != NULL ? fitting : b->words;
    b->words = NULL;
    return true;
}

static bool end_texts(struct builder *b)
{
    struct td_row_index *out = b->out;
    enum td_arrow_obstacle obstacle = b->schema.obstacle;
    if (obstacle == TD_ARROW_NO_OBSTACLE && b->is_compressed)
        obstacle = TD_ARROW_COMPRESSED;
    out->params[TD_ARROW_PARAM_CUT] = obstacle;
    if (obstacle != TD_ARROW_NO_OBSTACLE) {
        out->params[TD_ARROW_PARAM_GATHER] = obstacle;
        if (!td_row_index_set_reason(out, td_arrow_obstacle_text(obstacle), b->err))
            return false;
    }
    size_t len;
    td_buffer_putc(&b->columns, '\0');
    if (b->columns.failed)
        return td_row_memory_check(&b->columns, b->err);
    out->columns = td_buffer_release(&b->columns, &len);
    return true;
}

static bool index_messages(struct builder *b)
{
    char first[MAGIC_BYTES];
    const struct td_input *data = &b->build->files->data;
    bool is_file = false;
    if (data->size_bytes >= sizeof first) {
        if (!td_input_read(data, 0, first, sizeof first, b->err))
            return false;
        is_file = memcmp(first, magic, sizeof first) == 0;
    }
    b->out->layout = TD_ROWS_BLOCKS;
    b->out->params[0] = TD_ARROW_WORDS;
    return (is_file ? read_file(b) : read_stream(b)) && end_dictionaries(b) && end_words(b) && end_texts(b);
}

static bool build_index(const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    struct builder b = {.build = build, .out = out, .err = err};
    size_t memory = build->limits->max_memory_bytes;
    td_budget_init(&b.budget, memory == 0 ? SIZE_MAX : memory, "the index of an Arrow file");
    b.reader = (struct td_arrow_reader){
        .input = &build->files->data, .budget = &b.budget, .max_metadata_bytes = build->limits->max_header_bytes};
    td_buffer_init_budget(&b.columns, &b.budget);
    td_buffer_init_budget(&b.traits, &b.budget);
    bool ok = index_messages(&b);
    td_arrow_schema_fini(&b.schema);
    td_arrow_reader_fini(&b.reader);
    td_buffer_fini(&b.columns);
    td_buffer_fini(&b.traits);
    free(b.dictionaries);
    free(b.words);
    return ok;
}

static const char *const extensions[] = {".arrow", ".arrows", ".feather", NULL};

const struct td_row_format td_row_format_arrow = {
    .name = "arrow", .extensions = extensions, .row_type = "application/vnd.apache.arrow.stream", .build = build_index};
