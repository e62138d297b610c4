#include "api/rpc/rpc_bytes.h"

#include "api/rpc/rpc_messages.h"
#include "core/digits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Common clients take messages of 4 MiB at most. A message of a stream ends when the next row would make it longer than
 * STREAM_BYTES. */
enum {
    CHUNK_LEAST_BYTES = 4 * 1024,
    CHUNK_MOST_BYTES = 2 * 1024 * 1024,
    CHUNK_BYTES = 1024 * 1024,
    STREAM_BYTES = 1024 * 1024,
    BATCH_MOST_BYTES = 3 * 1024 * 1024
};

static struct td_budget *budget_of(const struct td_call *call)
{
    return td_shared_budget_of(&call->api->lists, call->request->client);
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

/* Adds the messages of one tensor: the first one describes it, and a tensor without bytes has this one alone. */
static void add_tensor(struct td_messages *messages, uint64_t index, const struct td_tensor_facts *facts,
                       uint64_t chunk_bytes)
{
    uint64_t left = facts->nbytes;
    bool is_first = true;
    while ((is_first || left > 0) && messages->err.code == TD_OK && !messages->heads.failed) {
        const uint64_t len = left < chunk_bytes ? left : chunk_bytes;
        struct td_document *document = td_messages_begin(messages);
        td_document_add_u64(document, "index", index);
        if (is_first) {
            td_document_begin_object(document, "tensor");
            td_tensor_add_facts(document, facts);
            td_document_end(document);
        }
        td_messages_add_bytes(messages, "data", len);
        td_messages_end(messages);
        left -= len;
        is_first = false;
    }
}

bool td_rpc_lay_out_tensors(const struct td_call *call, const struct td_method *method,
                            const struct td_read_results *results, uint64_t chunk_bytes, struct td_error *err)
{
    const struct td_body_cursor start = {0};
    struct td_messages messages;
    if (chunk_bytes == 0)
        chunk_bytes = CHUNK_BYTES;
    if (chunk_bytes < CHUNK_LEAST_BYTES)
        chunk_bytes = CHUNK_LEAST_BYTES;
    if (chunk_bytes > CHUNK_MOST_BYTES)
        chunk_bytes = CHUNK_MOST_BYTES;
    td_messages_init(&messages, call->response->form, true, method->output, budget_of(call));
    for (size_t i = 0; i < results->count; i++)
        add_tensor(&messages, i, &results->facts[i], chunk_bytes);
    bool ok = td_messages_finish(&messages, &start, call->response, err);
    td_messages_fini(&messages);
    return ok;
}

/* ---- rows ----------------------------------------------------------------------------------------------- */

/* The table at the beginning of a body in the form "frame" (rank/row_answer.h): the places of the rows. */
struct table {
    uint64_t count;
    uint8_t *offsets; /* count + 1 numbers of 8 bytes; owned */
    size_t taken_bytes;
    struct td_body_cursor rows; /* where the first row begins */
};

/* Reads the table. Call free_table in every case. Errors: as td_body_read; TD_RESOURCE_EXHAUSTED. */
static bool read_table(const struct td_call *call, struct table *table, struct td_error *err)
{
    const struct td_body *body = &call->response->body;
    uint8_t count[8];
    *table = (struct table){0};
    if (!td_body_read(body, &table->rows, count, sizeof count, err))
        return false;
    table->count = td_load_le64(count);
    if (table->count > body->total_bytes / 8)
        return td_error_set(err, TD_INTERNAL, "a table of rows is longer than its answer");
    const size_t bytes = ((size_t)table->count + 1) * 8;
    if (!td_budget_take(budget_of(call), bytes))
        return td_budget_refuse(budget_of(call), bytes, err);
    table->taken_bytes = bytes;
    table->offsets = malloc(bytes);
    return table->offsets != NULL ? td_body_read(body, &table->rows, table->offsets, bytes, err)
                                  : td_error_no_memory(err);
}

static void free_table(const struct td_call *call, struct table *table)
{
    free(table->offsets);
    td_budget_give(budget_of(call), table->taken_bytes);
}

/* Returns the bytes of the rows before this one. */
static uint64_t offset_of(const struct table *table, uint64_t row)
{
    return td_load_le64(table->offsets + 8 * row);
}

/* Adds rows to the innermost list. */
static void add_rows(struct td_messages *messages, const struct table *table, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++)
        td_messages_add_bytes(messages, NULL, offset_of(table, i + 1) - offset_of(table, i));
}

/* Returns the end of the rows that are in one message with the first one. */
static uint64_t end_of_message(const struct table *table, uint64_t first)
{
    uint64_t end = first + 1;
    while (end < table->count && offset_of(table, end + 1) - offset_of(table, first) <= STREAM_BYTES)
        end++;
    return end;
}

/* Returns the number in a field that the native interface has added to the answer. */
static uint64_t field_of(const struct td_response *response, const char *name)
{
    uint64_t value = 0;
    for (size_t i = 0; i < response->header_count; i++)
        if (strcmp(response->headers[i].name, name) == 0)
            (void)td_number_read(td_text_of(response->headers[i].value), UINT64_MAX, &value);
    return value;
}

bool td_rpc_has_more_rows(const struct td_response *response, uint64_t wanted, struct td_rpc_row_page *page)
{
    const uint64_t start = field_of(response, "X-Row-Start");
    const uint64_t total = field_of(response, "X-Row-Total");
    const uint64_t most = total > start ? total - start : 0;
    *page = (struct td_rpc_row_page){.next = start, .left = wanted < most ? wanted : most};
    return page->left > field_of(response, "X-Row-Count");
}

/* Adds all messages of StreamRows; one, without rows, when there are none. */
static void add_stream(struct td_messages *messages, const struct table *table, uint64_t start, uint64_t total)
{
    uint64_t row = 0;
    do {
        const uint64_t end = table->count == 0 ? 0 : end_of_message(table, row);
        struct td_document *document = td_messages_begin(messages);
        td_document_add_u64(document, "start", start + row);
        td_document_add_u64(document, "total", total);
        td_document_begin_array(document, "rows");
        add_rows(messages, table, row, end);
        td_document_end(document);
        td_messages_end(messages);
        row = end;
    } while (row < table->count && messages->err.code == TD_OK && !messages->heads.failed);
}

/* Adds the message of BatchGetRows. Returns false after it answered 400 for rows that are too long together. */
static bool add_batch(struct td_messages *messages, const struct table *table, struct td_response *response,
                      uint64_t total)
{
    const uint64_t bytes = offset_of(table, table->count);
    if (table->count > 1 && bytes > BATCH_MOST_BYTES) {
        td_response_fail_as(response, 400, "OUT_OF_RANGE",
                            "these rows have %" PRIu64 " bytes, and an answer has at most %d; ask for fewer rows, or "
                            "call StreamRows",
                            bytes, BATCH_MOST_BYTES);
        return false;
    }
    struct td_document *document = td_messages_begin(messages);
    td_document_begin_array(document, "rows");
    add_rows(messages, table, 0, table->count);
    td_document_end(document);
    td_document_add_u64(document, "total", total);
    td_messages_end(messages);
    return true;
}

bool td_rpc_lay_out_rows(const struct td_call *call, const struct td_method *method, uint64_t wanted,
                         struct td_rpc_row_page *page)
{
    struct td_response *response = call->response;
    const uint64_t total = field_of(response, "X-Row-Total");
    struct td_error err = TD_ERROR_INIT;
    struct td_messages messages;
    struct table table;
    td_messages_init(&messages, response->form, method->is_stream, method->output, budget_of(call));
    bool is_refused = false;
    bool ok = read_table(call, &table, &err);
    if (ok && method->is_stream) {
        messages.is_open = td_rpc_has_more_rows(response, wanted, page);
        add_stream(&messages, &table, page->next, total);
        page->next += table.count;
        page->left -= table.count;
    } else if (ok)
        is_refused = !add_batch(&messages, &table, response, total);
    ok = ok && !is_refused && td_messages_finish(&messages, &table.rows, response, &err);
    if (!ok && !is_refused)
        td_response_fail_error(response, &err);
    free_table(call, &table);
    td_messages_fini(&messages);
    return ok;
}
