#include "api/rpc/rpc_messages.h"

#include "api/rpc/rpc_form.h"
#include "core/array.h"
#include "core/base64.h"
#include "core/checked.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A text of `heads`, and bytes of the source after it, perhaps none. */
struct td_messages_piece {
    size_t head, head_bytes;
    uint64_t data_bytes;
    struct td_body_cursor at; /* of the bytes in the source; set by td_messages_finish, as `end` */
    uint64_t end;             /* of both in the answer of JSON */
};

void td_messages_init(struct td_messages *messages, unsigned form, bool is_stream, const struct td_message *message,
                      struct td_budget *budget)
{
    *messages = (struct td_messages){.form = form, .is_stream = is_stream, .budget = budget};
    messages->kind = (struct td_document_kind){
        .form = (form & TD_RPC_JSON) != 0 ? TD_DOCUMENT_PROTO_JSON : TD_DOCUMENT_PROTOBUF, .message = message};
    td_buffer_init_budget(&messages->heads, budget);
}

/* Frees the list of pieces, and returns its memory to the budget. */
static void free_pieces(struct td_messages *messages)
{
    free(messages->pieces);
    td_budget_give(messages->budget, messages->capacity * sizeof *messages->pieces);
    messages->pieces = NULL;
    messages->count = messages->capacity = 0;
}

void td_messages_fini(struct td_messages *messages)
{
    free_pieces(messages);
    td_buffer_fini(&messages->heads);
}

struct td_document *td_messages_begin(struct td_messages *messages)
{
    if (messages->is_stream)
        messages->frame = td_rpc_begin_frame(&messages->heads, 0);
    messages->of_frame = 0;
    td_document_init_kind(&messages->document, &messages->heads, &messages->kind);
    td_document_begin_object(&messages->document, NULL);
    return &messages->document;
}

/* Returns the length that bytes have in the answer. */
static uint64_t sent_bytes(const struct td_messages *messages, uint64_t len)
{
    return (messages->form & TD_RPC_JSON) != 0 ? TD_BASE64_LEN(len) : len;
}

/* Ends the text before the next bytes. */
static void add_piece(struct td_messages *messages, uint64_t data_bytes)
{
    if (messages->err.code != TD_OK || messages->heads.failed ||
        !td_array_reserve(&messages->pieces, &messages->capacity, messages->count + 1, sizeof *messages->pieces,
                          messages->budget, &messages->err))
        return;
    messages->pieces[messages->count++] = (struct td_messages_piece){
        .head = messages->head, .head_bytes = messages->heads.len - messages->head, .data_bytes = data_bytes};
    messages->head = messages->heads.len;
}

void td_messages_add_bytes(struct td_messages *messages, const char *key, uint64_t len)
{
    if (!td_document_begin_bytes(&messages->document, key, len))
        return;
    if (len > INT64_MAX / 2)
        (void)td_error_set(&messages->err, TD_INTERNAL, "bytes of more than 2^62");
    else if (len > 0)
        add_piece(messages, len);
    messages->of_frame += sent_bytes(messages, len);
    td_document_end_bytes(&messages->document);
}

void td_messages_end(struct td_messages *messages)
{
    td_document_end(&messages->document);
    if (!messages->is_stream || messages->heads.failed || messages->err.code != TD_OK)
        return;
    const uint64_t len = messages->heads.len - messages->frame + messages->of_frame;
    if (len > INT32_MAX)
        (void)td_error_set(&messages->err, TD_FAILED_PRECONDITION,
                           "a message would have %" PRIu64 " bytes, and none may have more than 2 GiB", len);
    else
        td_rpc_write_length((uint8_t *)messages->heads.data + messages->frame - TD_RPC_FRAME_BYTES, (size_t)len);
}

/* ---- bodies --------------------------------------------------------------------------------------------- */

/* The memory of an answer: the texts, and in JSON what the base64 is made of. */
struct laid_out {
    struct td_blob blob;
    char *heads;
    struct td_messages_piece *pieces; /* in JSON alone, as `source` */
    size_t count;
    struct td_body source;
    struct td_budget *budget;
    size_t taken_bytes; /* from the budget, for all that the answer takes */
};

static struct laid_out *laid_out_of(struct td_blob *blob)
{
    return (struct laid_out *)(void *)blob;
}

static void laid_out_destroy(struct td_blob *blob)
{
    struct laid_out *own = laid_out_of(blob);
    td_body_fini(&own->source);
    free(own->pieces);
    free(own->heads);
    td_budget_give(own->budget, own->taken_bytes);
    free(own);
}

static bool heads_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    (void)err;
    memcpy(out, blob->bytes + off, len);
    return true;
}

static const struct td_blob_class heads_class = {.destroy = laid_out_destroy, .read = heads_read};

/* Writes `len` characters of the base64 of a piece's bytes, from character `at` on. */
static bool read_base64(const struct laid_out *own, const struct td_messages_piece *piece, uint64_t at, char *out,
                        size_t len, struct td_error *err)
{
    enum { GROUPS = 1024 }; /* of three bytes, which become four characters */
    uint8_t bytes[3 * GROUPS];
    char text[4 * GROUPS + 1];
    while (len > 0) {
        const uint64_t group = at / 4;
        const size_t skipped = (size_t)(at % 4);
        const size_t wanted = len / 4 + 2 < GROUPS ? len / 4 + 2 : GROUPS;
        const uint64_t left = piece->data_bytes - 3 * group;
        const size_t count = left < 3 * wanted ? (size_t)left : 3 * wanted;
        struct td_body_cursor cursor = piece->at;
        td_body_skip(&own->source, &cursor, 3 * group);
        if (!td_body_read(&own->source, &cursor, bytes, count, err))
            return false;
        td_base64_write(bytes, count, text);
        size_t n = TD_BASE64_LEN(count) - skipped;
        n = n < len ? n : len;
        memcpy(out, text + skipped, n);
        out += n;
        len -= n;
        at += n;
    }
    return true;
}

/* Returns the number of the piece with this byte of the answer. */
static size_t find_piece(const struct laid_out *own, uint64_t off)
{
    size_t low = 0;
    size_t high = own->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (own->pieces[middle].end <= off)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool json_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct laid_out *own = laid_out_of(blob);
    char *to = out;
    for (size_t i = find_piece(own, off); len > 0; i++) {
        const struct td_messages_piece *piece = &own->pieces[i];
        const uint64_t bytes = piece->head_bytes + TD_BASE64_LEN(piece->data_bytes);
        uint64_t at = bytes - (piece->end - off);
        if (at < piece->head_bytes) {
            size_t n = piece->head_bytes - (size_t)at;
            n = n < len ? n : len;
            memcpy(to, own->heads + piece->head + at, n);
            to += n;
            off += n;
            at += n;
            len -= n;
        }
        const size_t n = bytes - at < len ? (size_t)(bytes - at) : len;
        if (!read_base64(own, piece, at - piece->head_bytes, to, n, err))
            return false;
        to += n;
        off += n;
        len -= n;
    }
    return true;
}

static bool json_unchanged(struct td_blob *blob)
{
    return td_body_unchanged(&laid_out_of(blob)->source);
}

static bool json_resident(struct td_blob *blob, uint64_t off, uint64_t len)
{
    (void)off;
    (void)len;
    return td_body_is_cached(&laid_out_of(blob)->source);
}

static const struct td_blob_class json_class = {
    .destroy = laid_out_destroy, .read = json_read, .unchanged = json_unchanged, .resident = json_resident};

/* Moves the texts into a blob, which takes `more_bytes` from the budget beside them. Returns NULL on an error: as
 * td_messages_finish. */
static struct laid_out *make_blob(struct td_messages *messages, const struct td_blob_class *class, uint64_t len_bytes,
                                  size_t more_bytes, struct td_error *err)
{
    const size_t own_bytes = sizeof(struct laid_out) + more_bytes;
    if (!td_budget_take(messages->budget, own_bytes)) {
        (void)td_budget_refuse(messages->budget, own_bytes, err);
        return NULL;
    }
    struct laid_out *own = calloc(1, sizeof *own);
    size_t len = 0;
    char *heads = own == NULL ? NULL : td_buffer_release(&messages->heads, &len);
    if (heads == NULL) {
        free(own);
        td_budget_give(messages->budget, own_bytes);
        (void)td_error_no_memory(err);
        return NULL;
    }
    td_blob_init(&own->blob, class, len_bytes);
    own->heads = heads;
    own->budget = messages->budget;
    own->taken_bytes = own_bytes + len;
    return own;
}

/* Sets the places of all pieces, and the sum of their lengths in the answer. */
static bool place_pieces(struct td_messages *messages, const struct td_body *source, const struct td_body_cursor *at,
                         uint64_t *total, struct td_error *err)
{
    struct td_body_cursor cursor = *at;
    *total = 0;
    for (size_t i = 0; i < messages->count; i++) {
        struct td_messages_piece *piece = &messages->pieces[i];
        piece->at = cursor;
        td_body_skip(source, &cursor, piece->data_bytes);
        if (!td_add_u64(*total, piece->head_bytes + sent_bytes(messages, piece->data_bytes), total) ||
            *total > INT64_MAX)
            return td_error_set(err, TD_FAILED_PRECONDITION, "the answer would have more than 2^63-1 bytes");
        piece->end = *total;
    }
    return true;
}

/* Makes the body of an answer in protobuf's binary form. */
static bool make_extents(struct td_messages *messages, const struct td_body *source, struct td_body *body,
                         struct td_error *err)
{
    const size_t extents = 2 * messages->count + source->extent_count; /* arrays grow by halves */
    struct laid_out *own =
        make_blob(messages, &heads_class, messages->heads.len, extents * sizeof *body->extents * 3 / 2, err);
    if (own == NULL)
        return false;
    own->blob.bytes = (const uint8_t *)own->heads;
    bool ok = true;
    for (size_t i = 0; ok && i < messages->count; i++) {
        const struct td_messages_piece *piece = &messages->pieces[i];
        struct td_body_cursor cursor = piece->at;
        ok = td_body_append(body, &own->blob, piece->head, piece->head_bytes, err) &&
             td_body_take(source, &cursor, piece->data_bytes, body, err);
    }
    td_blob_unref(&own->blob);
    return ok;
}

/* Makes the body of an answer in JSON, which takes the source over. */
static bool make_json(struct td_messages *messages, struct td_body *source, uint64_t total, struct td_body *body,
                      struct td_error *err)
{
    struct laid_out *own = make_blob(messages, &json_class, total, 0, err);
    if (own == NULL)
        return false;
    own->pieces = messages->pieces;
    own->count = messages->count;
    own->taken_bytes += messages->capacity * sizeof *messages->pieces;
    own->source = *source;
    td_body_init(source);
    messages->pieces = NULL;
    messages->count = messages->capacity = 0;
    bool ok = td_body_append(body, &own->blob, 0, total, err);
    td_blob_unref(&own->blob);
    return ok;
}

bool td_messages_finish(struct td_messages *messages, const struct td_body_cursor *at, struct td_response *response,
                        struct td_error *err)
{
    struct td_body body;
    uint64_t total;
    bool ok = !messages->is_stream || messages->is_open ||
              td_rpc_write_end(messages->form, &messages->heads, &response->trailers);
    add_piece(messages, 0);
    if (messages->err.code != TD_OK)
        return td_error_set(err, messages->err.code, "%s", messages->err.message);
    if (messages->heads.failed)
        return td_buffer_refuse(&messages->heads, err);
    if (!ok)
        return td_error_no_memory(err);
    td_body_init(&body);
    ok = place_pieces(messages, &response->body, at, &total, err) &&
         ((messages->form & TD_RPC_JSON) != 0 ? make_json(messages, &response->body, total, &body, err)
                                              : make_extents(messages, &response->body, &body, err));
    if (!ok) {
        td_body_fini(&body);
        return false;
    }
    td_body_fini(&response->body);
    response->body = body;
    return true;
}
