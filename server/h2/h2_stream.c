#include "server/h2/h2_stream.h"

#include "core/clock.h"
#include "server/config/listen_address.h"

#include <stdlib.h>
#include <string.h>

/* A header of so many times the limit ends the connection: a compressed header (HPACK) can be very long. */
enum { ENDING_FACTOR = 16 };

/* Asks whether nobody waits for the answer. */
static bool is_gone(void *context)
{
    const struct td_h2_stream *stream = context;
    return atomic_load(&stream->is_gone) || td_connection_cut_reason(stream->entry) != TD_CUT_NONE;
}

struct td_h2_stream *td_h2_stream_create(struct td_serving *serving, struct td_connection *entry,
                                         struct td_h2_mailbox *mailbox, int32_t id)
{
    struct td_h2_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->header = calloc(1, sizeof *stream->header);
    if (stream->header == NULL) {
        free(stream);
        return NULL;
    }
    stream->serving = serving;
    stream->entry = entry;
    stream->mailbox = mailbox;
    stream->id = id;
    stream->cancel = (struct td_cancel){.is_asked = is_gone, .context = stream};
    stream->begun_ns = td_clock_ns();
    stream->is_open = true;
    td_upload_room_init(&stream->room, &serving->uploads, &entry->address, &stream->unpacked);
    td_buffer_init(&stream->header->text);
    td_buffer_init(&stream->upload);
    td_buffer_init(&stream->request_body);
    td_body_init(&stream->body);
    atomic_fetch_add(&serving->api->metrics.grpc_streams, 1);
    return stream;
}

static void free_header(struct td_h2_stream *stream)
{
    if (stream->header != NULL)
        td_buffer_fini(&stream->header->text);
    free(stream->header);
    stream->header = NULL;
}

void td_h2_stream_destroy(struct td_h2_stream *stream)
{
    struct td_metrics *metrics = &stream->serving->api->metrics;
    if (stream->waits)
        td_waiters_leave(stream->serving->waiters);
    else if (stream->is_counted)
        atomic_fetch_sub_explicit(&metrics->in_flight, 1, memory_order_relaxed);
    atomic_fetch_sub(&metrics->grpc_streams, 1);
    free_header(stream);
    td_h2_stream_drop_upload(stream);
    if (stream->response != NULL)
        td_response_fini(stream->response);
    free(stream->response);
    td_body_fini(&stream->body);
    td_stream_destroy(stream->events);
    td_trailers_fini(&stream->trailers);
    free(stream->piece);
    free(stream->headers);
    free(stream->text);
    free(stream);
}

bool td_h2_stream_add_field(struct td_h2_stream *stream, struct td_text name, struct td_text value)
{
    struct td_h2_header *header = stream->header;
    const uint64_t most = stream->serving->config->max_header_bytes;
    if (header == NULL) /* the trailers of a request: nobody reads them */
        return true;
    header->total_bytes += name.len + value.len;
    if (header->total_bytes > most) {
        header->is_too_large = true;
        return header->total_bytes <= most * ENDING_FACTOR;
    }
    if (header->count == sizeof header->fields / sizeof *header->fields) {
        header->has_too_many = true;
        return true;
    }
    struct td_h2_field *field = &header->fields[header->count++];
    *field = (struct td_h2_field){.name_at = (uint32_t)header->text.len,
                                  .name_len = (uint32_t)name.len,
                                  .value_at = (uint32_t)(header->text.len + name.len),
                                  .value_len = (uint32_t)value.len};
    td_buffer_append(&header->text, name.p, name.len);
    td_buffer_append(&header->text, value.p, value.len);
    return true;
}

/* Keeps a field as a header field, or as what a pseudo-header field stands for. */
static void keep_field(struct td_h2_stream *stream, struct td_text name, struct td_text value)
{
    if (td_text_equals(name, ":method"))
        stream->method = value;
    else if (td_text_equals(name, ":path"))
        stream->target = value;
    else if (td_text_equals(name, ":authority"))
        stream->headers[stream->header_count++] = (struct td_header){.name = TD_TEXT("host"), .value = value};
    else if (name.len > 0 && name.p[0] != ':')
        stream->headers[stream->header_count++] = (struct td_header){.name = name, .value = value};
}

bool td_h2_stream_end_header(struct td_h2_stream *stream)
{
    const struct td_h2_header *header = stream->header;
    bool ok = !header->text.failed;
    stream->method = stream->target = TD_TEXT("");
    if (ok) {
        stream->text = malloc(header->text.len + 1);
        stream->headers = calloc(header->count + 1, sizeof *stream->headers);
        ok = stream->text != NULL && stream->headers != NULL;
    }
    if (ok && header->text.len > 0)
        memcpy(stream->text, header->text.data, header->text.len);
    for (size_t i = 0; ok && i < header->count; i++) {
        const struct td_h2_field *field = &header->fields[i];
        struct td_text value = td_text_n(stream->text + field->value_at, field->value_len);
        keep_field(stream, td_text_n(stream->text + field->name_at, field->name_len), td_text_trim(value, " \t"));
    }
    return ok;
}

struct td_request td_h2_stream_request(const struct td_h2_stream *stream)
{
    return (struct td_request){
        .facade = stream->facade,
        .is_local = td_address_is_loopback(&stream->entry->address),
        .is_tls = stream->entry->is_tls,
        .client = stream->entry->client,
        .method = stream->method,
        .target = stream->target,
        .headers = stream->headers,
        .header_count = stream->header_count,
        .body = td_buffer_text(&stream->request_body),
        .body_bytes = stream->request_body.len,
        .room = &stream->room.room,
        .cancel = &stream->cancel,
        .ends_wait = &stream->cancel,
        .since_ns = stream->begun_ns,
    };
}

bool td_h2_stream_add_upload(struct td_h2_stream *stream, const void *bytes, size_t len)
{
    stream->upload_bytes += len;
    stream->no_room_for = td_uploads_add(&stream->serving->uploads, &stream->entry->address, &stream->counted, len);
    if (stream->no_room_for == TD_UPLOAD_FITS) {
        td_buffer_append(&stream->upload, bytes, len);
        if (stream->upload.failed)
            stream->no_room_for = TD_UPLOAD_NO_MEMORY;
    }
    if (stream->no_room_for == TD_UPLOAD_FITS)
        return true;
    td_buffer_fini(&stream->upload);
    return false;
}

/* Subtracts what a handler has unpacked of the request's body, and freed. */
static void drop_unpacked(struct td_h2_stream *stream)
{
    if (stream->unpacked.bytes > 0)
        td_uploads_remove(&stream->serving->uploads, &stream->entry->address, &stream->unpacked);
}

void td_h2_stream_drop_upload(struct td_h2_stream *stream)
{
    td_buffer_fini(&stream->upload);
    td_buffer_fini(&stream->request_body);
    drop_unpacked(stream);
    if (stream->counted.bytes > 0)
        td_uploads_remove(&stream->serving->uploads, &stream->entry->address, &stream->counted);
}

void td_h2_stream_drop_answered(struct td_h2_stream *stream)
{
    struct td_uploads *uploads = &stream->serving->uploads;
    td_buffer_fini(&stream->request_body);
    drop_unpacked(stream);
    if (stream->counted.bytes > 0)
        td_uploads_remove(uploads, &stream->entry->address, &stream->counted);
    if (stream->upload.len > 0)
        stream->no_room_for = td_uploads_add(uploads, &stream->entry->address, &stream->counted, stream->upload.len);
}

void td_h2_stream_report(struct td_h2_stream *stream, struct td_access_lines *lines)
{
    if (stream->status == 0) /* it ended before there was an answer */
        return;
    const struct td_request request = td_h2_stream_request(stream);
    const uint64_t now_ns = td_clock_ns();
    if (stream->waits)
        stream->wait_end_ns = now_ns; /* all time of an answer that is a stream is a wait */
    const uint64_t waited_ns = stream->wait_end_ns - stream->wait_since_ns;
    enum td_cut cut = TD_CUT_NONE;
    if (!stream->is_complete) {
        cut = td_connection_cut_reason(stream->entry);
        cut = stream->cut != TD_CUT_NONE ? stream->cut : cut != TD_CUT_NONE ? cut : TD_CUT_CLIENT;
    }
    const struct td_report report = {.status = stream->status,
                                     .route = stream->route,
                                     .cut = cut,
                                     .changed = stream->changed,
                                     .sent_bytes = stream->sent_bytes,
                                     .length_bytes = stream->length_bytes,
                                     .received_bytes = stream->upload_bytes,
                                     .took_ns = now_ns - stream->begun_ns - waited_ns,
                                     .waited_ns = waited_ns,
                                     .token = stream->token,
                                     .request_id = stream->request_id};
    td_serving_report(stream->serving, lines, &request, &report);
}
