/* Pages are short, since a stream has the places of all rows of a page in memory until these are sent. They are bound
 * together by the entity tags of their split, which change with any row: a row's number must not stand for another row
 * in the middle of a stream. */
#include "api/rpc/rpc_rows.h"

#include "api/rpc/rpc_stream.h"
#include "catalog/catalog.h"
#include "catalog/dataset/dataset.h"
#include "core/waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE_ROWS = 4096,
    PIECE_BYTES = 128 * 1024 /* that one read gives */
};

/* The tags of a split, as the entity tags of its rows begin with them. */
struct tags {
    char now[TD_ETAG_BYTES], former[TD_ETAG_BYTES];
};

struct row_stream {
    struct td_rpc_stream base;   /* first: a row stream is a stream */
    struct td_rpc_native native; /* `target` ends before the rows' numbers */
    struct tags tags;
    struct td_rpc_row_page page;
    struct td_body body; /* the messages of the page */
    struct td_body_cursor cursor;
    uint64_t sent_bytes; /* of the body */
};

static struct row_stream *row_stream_of(struct td_stream *stream)
{
    return (struct row_stream *)(void *)stream;
}

static void destroy_row_stream(struct td_stream *base)
{
    struct row_stream *stream = row_stream_of(base);
    td_rpc_stream_fini(&stream->base);
    td_rpc_native_fini(&stream->native);
    td_body_fini(&stream->body);
    free(stream);
}

/* Copies the tag of the split out of an entity tag, which has quotes. */
static void copy_tag(const char *etag, char tag[TD_ETAG_BYTES])
{
    (void)snprintf(tag, TD_ETAG_BYTES, "%s", etag[0] == '"' ? etag + 1 : etag);
    tag[strcspn(tag, "-")] = '\0';
}

/* Copies the tags of the split out of those of the response. */
static struct tags tags_of(const struct td_response *response)
{
    struct tags tags;
    copy_tag(response->etag, tags.now);
    copy_tag(response->former_etag, tags.former);
    return tags;
}

/* Moves the messages of a page from the response into the stream. */
static void take_page(struct row_stream *stream, const struct td_rpc_row_page *page, struct td_response *response)
{
    td_body_fini(&stream->body);
    stream->body = response->body;
    td_body_init(&response->body);
    stream->cursor = (struct td_body_cursor){0};
    stream->sent_bytes = 0;
    stream->page = *page;
    stream->base.trailers = response->trailers; /* of the last page, in gRPC */
    response->trailers = (struct td_trailers){.count = 0};
}

/* Returns whether a split with these tags has the stream's rows. One equal tag is enough, since the other one changes
 * when all files are hashed. */
static bool has_rows_of(const struct row_stream *stream, const char *now, const char *former)
{
    return strcmp(now, stream->tags.now) == 0 || strcmp(former, stream->tags.former) == 0;
}

/* Returns whether the rows are others than those that the stream began with. The call has asked for the next page. A
 * dataset that was removed counts as unchanged, because the response says that. */
static bool have_changed(const struct row_stream *stream, const struct td_call *call)
{
    const struct td_response *response = call->response;
    const struct td_dataset *dataset = call->dataset;
    if (response->status == 200) {
        const struct tags tags = tags_of(response);
        return !has_rows_of(stream, tags.now, tags.former);
    }
    if (response->changed || dataset == NULL)
        return response->changed;
    for (size_t i = 0; i < dataset->split_count; i++)
        if (has_rows_of(stream, dataset->splits[i].tag, dataset->splits[i].former_tag))
            return false;
    return true;
}

/* Asks for the next page. The response is an error if it is not to be had. */
static void ask_page(const struct row_stream *stream, struct td_call *call, struct td_rpc_row_page *page)
{
    const struct td_document_kind kind = {.form = TD_DOCUMENT_PROTOBUF, .message = stream->base.method->output};
    const struct td_text path = td_buffer_text(&stream->native.target);
    const uint64_t left = stream->page.left;
    struct td_response *response = call->response;
    struct td_request request = *call->request;
    struct td_buffer target;
    td_buffer_init(&target);
    td_buffer_append(&target, path.p, path.len);
    td_buffer_printf(&target, "&start=%" PRIu64 "&count=%" PRIu64, stream->page.next,
                     left < PAGE_ROWS ? left : (uint64_t)PAGE_ROWS);
    request.method = TD_TEXT("GET");
    request.target = td_buffer_text(&target);
    request.body = TD_TEXT("");
    request.header_count = 0;
    if (target.failed)
        (void)td_call_no_memory(call);
    else
        td_rpc_ask(call, &request, &stream->native, &kind, NULL);
    td_buffer_fini(&target);
    if (td_waiting_was_refused())
        return;
    if (response->changed)
        td_catalog_request_scan(call->api->catalog);
    if (have_changed(stream, call))
        td_response_fail(response, 412, NULL,
                         "the rows have changed while they were sent; read GetDataset again, and call with \"start\" "
                         "%" PRIu64 " if they are still those that are wanted",
                         stream->page.next);
    else if (response->status == 200)
        (void)td_rpc_lay_out_rows(call, stream->base.method, left, page);
}

/* Takes the next page. Returns false when a thread that may wait has to do so. An error ends the stream, and its bytes
 * are in *out. */
static bool next_page(struct row_stream *stream, struct td_buffer *out)
{
    struct td_rpc_again again;
    struct td_rpc_row_page page = {.left = 0};
    if (td_rpc_again_begin(&again, &stream->base) && !td_rpc_stream_is_over(&stream->base, &again.response))
        ask_page(stream, &again.call, &page);
    bool was_refused = td_waiting_was_refused();
    if (!was_refused && again.response.status == 200)
        take_page(stream, &page, &again.response);
    else if (!was_refused)
        (void)td_rpc_stream_end_by(&stream->base, &again.response, out);
    td_rpc_again_end(&again);
    return !was_refused;
}

/* Appends the next bytes of the page. Returns false when a thread that may wait has to do so. A file that has changed
 * makes the buffer fail, so that the answer is broken off. */
static bool add_bytes(struct row_stream *stream, struct td_buffer *out)
{
    const uint64_t left = stream->body.total_bytes - stream->sent_bytes;
    const size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    struct td_body_cursor cursor = stream->cursor;
    struct td_error err = TD_ERROR_INIT;
    if (!td_buffer_reserve(out, n))
        return true;
    bool ok = td_body_read(&stream->body, &cursor, out->data + out->len, n, &err);
    if (td_waiting_was_refused())
        return false;
    out->failed = !ok || (n == left && !td_body_unchanged(&stream->body));
    if (out->failed)
        td_catalog_request_scan(stream->base.api->catalog);
    out->len += n;
    stream->cursor = cursor;
    stream->sent_bytes += n;
    return true;
}

static enum td_stream_state read_rows(struct td_stream *base, struct td_buffer *out, uint64_t *until_ns)
{
    struct row_stream *stream = row_stream_of(base);
    (void)until_ns;
    if (!stream->base.has_ended && stream->sent_bytes == stream->body.total_bytes) {
        if (stream->page.left == 0)
            stream->base.has_ended = true;
        else if (!next_page(stream, out))
            return TD_STREAM_WAITS;
    }
    if (stream->base.has_ended)
        return out->len > 0 || out->failed ? TD_STREAM_HAS_BYTES : TD_STREAM_ENDS;
    return add_bytes(stream, out) ? TD_STREAM_HAS_BYTES : TD_STREAM_WAITS;
}

static const struct td_stream_class row_stream_class = {.read = read_rows,
                                                        .stop = td_rpc_stream_stop,
                                                        .add_trailers = td_rpc_stream_add_trailers,
                                                        .destroy = destroy_row_stream};

/* Copies the target of a request for rows without its parameters `start` and `count`. */
static void copy_target(struct td_text target, struct td_buffer *out)
{
    while (target.len > 0) {
        struct td_text part = td_text_take_until(&target, '&');
        if (td_text_begins(part, TD_TEXT("start=")) || td_text_begins(part, TD_TEXT("count=")))
            continue;
        if (out->len > 0)
            td_buffer_putc(out, '&');
        td_buffer_append(out, part.p, part.len);
    }
}

void td_rpc_rows_begin(const struct td_call *call, const struct td_method *method, const struct td_rpc_native *native,
                       const struct td_rpc_row_page *page, uint64_t deadline_ns)
{
    struct td_response *response = call->response;
    struct row_stream *stream = malloc(sizeof *stream);
    if (stream == NULL) {
        (void)td_call_no_memory(call);
        return;
    }
    *stream =
        (struct row_stream){.native = {.route = native->route, .answer = native->answer}, .tags = tags_of(response)};
    td_body_init(&stream->body);
    td_buffer_init(&stream->native.target);
    td_buffer_init(&stream->native.body);
    copy_target(td_buffer_text(&native->target), &stream->native.target);
    if (!td_rpc_stream_init(&stream->base, &row_stream_class, call, method, deadline_ns) ||
        stream->native.target.failed) {
        destroy_row_stream(&stream->base.stream);
        (void)td_call_no_memory(call);
        return;
    }
    stream->page = *page;
    td_body_fini(&response->body);
    td_body_init(&response->body);
    td_rpc_stream_begin(call, &stream->base);
}
