/* A stream lives long, so the models that its sender may see can change while it runs. Before each read it finds its
 * token by name and digest in the newest set of tokens, and ends when the token is gone or has expired; a token that
 * may see other ids now sees those from then on. */
#include "api/native/event_stream.h"

#include "api/call/access.h"
#include "api/call/stream_share.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/glob.h"
#include "http/uri.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a stream is silent at most: the HTML standard advises a comment every 15 seconds or so (9.2.7). */
static const uint64_t heartbeat_ns = 15 * TD_NS_PER_S;

/* After how many milliseconds a client whose stream has ended connects again. */
enum { RETRY_MS = 2000 };

/* A stream gives out about so many bytes at a time. */
enum { PIECE_BYTES = 8 * 1024 };

struct td_event_stream {
    struct td_stream stream; /* first: a stream is one of these */
    struct td_stream_share share;
    struct td_api *api;
    struct td_event_ring *ring; /* the catalog's */
    struct td_event_filter filter;
    struct td_token_set *tokens; /* one reference; NULL: the server has no tokens */
    bool has_begun;
    enum td_event_gap gap;            /* to report */
    uint64_t position, sent_position; /* the last event that was looked at, and the last id that was sent */
    uint64_t sent_ns;                 /* when bytes were last sent */
    char texts[];                     /* of the filter */
};

const char *td_event_gap_name(enum td_event_gap gap)
{
    return gap == TD_EVENT_GAP_LOST ? "lost" : "unknown";
}

void td_event_id_write(const struct td_event_ring *ring, uint64_t number, char out[TD_EVENT_ID_BYTES])
{
    (void)snprintf(out, TD_EVENT_ID_BYTES, "%s-%" PRIu64, td_event_ring_boot(ring), number);
}

enum td_event_gap td_event_id_read(struct td_event_ring *ring, struct td_text id, uint64_t *position)
{
    uint64_t newest = td_event_ring_newest(ring);
    struct td_text number = id;
    struct td_text boot = td_text_take_until(&number, '-');
    bool is_known = td_text_equals(boot, td_event_ring_boot(ring)) && td_number_read_strict(number, newest, position);
    struct td_event *event = NULL;
    enum td_event_look look = is_known ? td_event_ring_next(ring, *position, &event) : TD_EVENT_LOST;
    td_event_unref(event);
    if (look != TD_EVENT_LOST)
        return TD_EVENT_GAP_NONE;
    *position = newest;
    return is_known ? TD_EVENT_GAP_LOST : TD_EVENT_GAP_UNKNOWN;
}

/* ---- one event ------------------------------------------------------------------------------------------ */

/* Returns whether the token may see what the event is about. */
static bool may_see(const struct td_token *token, const struct td_event *event)
{
    if (token == NULL || token->models == NULL)
        return true;
    if (!event->is_dataset)
        return td_token_may_see(token, td_text_of(event->id));
    struct td_buffer id;
    td_buffer_init(&id);
    td_buffer_puts(&id, "datasets/");
    td_buffer_puts(&id, event->id);
    bool may = !id.failed && td_token_may_see(token, td_buffer_text(&id));
    td_buffer_fini(&id);
    return may;
}

static const char *kind_of(const struct td_event *event)
{
    return event->is_dataset ? "dataset" : "model";
}

bool td_event_is_shown(const struct td_event *event, const struct td_event_filter *filter)
{
    return (filter->kind.p == NULL || td_text_equals(filter->kind, kind_of(event))) &&
           (filter->match.p == NULL || td_glob_match(filter->match, td_text_of(event->id))) &&
           may_see(filter->token, event);
}

void td_event_add_members(struct td_document *json, const struct td_event *event)
{
    char time[40];
    struct td_buffer href;
    td_buffer_init(&href);
    td_buffer_puts(&href, event->is_dataset ? "/datasets/" : "/models/");
    td_uri_encode(&href, td_text_of(event->id), true);
    (void)td_wall_rfc3339(event->time, time, sizeof time);
    td_document_add_string(json, "event", td_event_type_name(event->type));
    td_document_add_string(json, "kind", kind_of(event));
    td_document_add_string(json, "id", event->id);
    if (event->revision[0] != '\0') {
        td_document_add_string(json, "revision", event->revision);
        td_document_add_string(json, "commit", event->commit);
    }
    td_document_add_string(json, "time", time);
    td_document_add_text(json, "href", td_buffer_text(&href));
    json->out->failed = json->out->failed || href.failed;
    td_buffer_fini(&href);
}

/* ---- the stream ----------------------------------------------------------------------------------------- */

static struct td_event_stream *stream_of(struct td_stream *stream)
{
    return (struct td_event_stream *)(void *)stream;
}

static void destroy_stream(struct td_stream *base)
{
    struct td_event_stream *stream = stream_of(base);
    td_stream_share_give(&stream->share);
    atomic_fetch_sub(&stream->api->events.open, 1);
    td_token_set_unref(stream->tokens);
    free(stream);
}

/* Finds the stream's token in the server's tokens, when these have changed. Returns false when the sender may read no
 * more. */
static bool renew_access(struct td_event_stream *stream)
{
    const struct td_token *token = stream->filter.token;
    struct td_token_set *tokens = td_api_tokens(stream->api);
    if (tokens == stream->tokens) {
        td_token_set_unref(tokens);
        return token == NULL || !td_token_has_expired(token, td_wall_now().seconds);
    }
    const struct td_token *now = NULL;
    if (tokens != NULL && token != NULL)
        now = td_token_set_find_name(tokens, td_text_of(token->name));
    bool is_good = now != NULL && memcmp(now->sha256, token->sha256, sizeof now->sha256) == 0 &&
                   (now->rights & TD_RIGHT_READ) != 0 && !td_token_has_expired(now, td_wall_now().seconds);
    td_token_set_unref(stream->tokens);
    stream->tokens = tokens;
    stream->filter.token = is_good ? now : NULL;
    return is_good;
}

/* Appends a line "id: ..." for this position. */
static void add_id(struct td_event_stream *stream, uint64_t position, struct td_buffer *out)
{
    char id[TD_EVENT_ID_BYTES];
    td_event_id_write(stream->ring, position, id);
    td_buffer_printf(out, "id: %s\n", id);
    stream->sent_position = position;
}

/* Appends the event on which a client lists everything again. */
static void add_reset(struct td_event_stream *stream, struct td_buffer *out)
{
    add_id(stream, stream->position, out);
    td_buffer_printf(out, "event: reset\ndata: {\"event\":\"reset\",\"reason\":\"%s\"}\n\n",
                     td_event_gap_name(stream->gap));
    stream->gap = TD_EVENT_GAP_NONE;
    atomic_fetch_add(&stream->api->events.resets, 1);
}

static void add_event(struct td_event_stream *stream, const struct td_event *event, struct td_buffer *out)
{
    struct td_document json;
    add_id(stream, event->number, out);
    td_buffer_printf(out, "event: %s\ndata: ", td_event_type_name(event->type));
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    td_event_add_members(&json, event);
    td_document_end(&json);
    td_buffer_puts(out, "\n\n");
    atomic_fetch_add(&stream->api->events.sent, 1);
}

/* Appends events until a piece is full or no event is left. */
static void add_events(struct td_event_stream *stream, struct td_buffer *out)
{
    struct td_event *event;
    enum td_event_look look = TD_EVENT_FOUND;
    while (look == TD_EVENT_FOUND && out->len < PIECE_BYTES && !out->failed) {
        look = td_event_ring_next(stream->ring, stream->position, &event);
        if (look != TD_EVENT_FOUND)
            break;
        stream->position = event->number;
        if (td_event_is_shown(event, &stream->filter))
            add_event(stream, event, out);
        td_event_unref(event);
    }
    if (look == TD_EVENT_LOST) {
        stream->gap = TD_EVENT_GAP_LOST;
        stream->position = td_event_ring_newest(stream->ring);
    }
    if (stream->gap != TD_EVENT_GAP_NONE)
        add_reset(stream, out);
}

/* Returns when the stream has to be read again: for a comment, or because its token expires. */
static uint64_t due_ns(const struct td_event_stream *stream)
{
    const uint64_t due = stream->sent_ns + heartbeat_ns;
    const uint64_t expiry_ns = td_access_expiry_ns(stream->filter.token);
    return expiry_ns < due ? expiry_ns : due;
}

static enum td_stream_state read_stream(struct td_stream *base, struct td_buffer *out, uint64_t *until_ns)
{
    struct td_event_stream *stream = stream_of(base);
    if (atomic_load(&stream->api->draining) || !renew_access(stream))
        return TD_STREAM_ENDS;
    if (!stream->has_begun) {
        td_buffer_printf(out, "retry: %d\n", RETRY_MS);
        if (stream->gap == TD_EVENT_GAP_NONE)
            add_id(stream, stream->position, out);
        td_buffer_puts(out, "\n");
        stream->has_begun = true;
    }
    add_events(stream, out);
    uint64_t now_ns = td_clock_ns();
    if (out->len == 0 && now_ns - stream->sent_ns >= heartbeat_ns) {
        td_buffer_puts(out, ":\n");
        if (stream->sent_position != stream->position) /* after events that are not shown */
            add_id(stream, stream->position, out);
        td_buffer_puts(out, "\n");
    }
    if (out->len > 0) {
        stream->sent_ns = now_ns;
        return TD_STREAM_HAS_BYTES;
    }
    *until_ns = due_ns(stream);
    return TD_STREAM_WAITS;
}

static const struct td_stream_class event_stream_class = {.read = read_stream, .destroy = destroy_stream};

/* Copies a text to *at, which moves behind it. */
static struct td_text copy_text(struct td_text text, char **at)
{
    if (text.p == NULL)
        return text;
    struct td_text copy = td_text_n(*at, text.len);
    memcpy(*at, text.p, text.len);
    *at += text.len;
    return copy;
}

void td_event_stream_begin(const struct td_call *call, const struct td_event_filter *filter, uint64_t position,
                           enum td_event_gap gap)
{
    struct td_event_stream *stream = malloc(sizeof *stream + filter->match.len + filter->kind.len);
    if (stream == NULL) {
        (void)td_call_no_memory(call);
        return;
    }
    char *at = stream->texts;
    *stream = (struct td_event_stream){.stream = {.class = &event_stream_class},
                                       .api = call->api,
                                       .ring = td_catalog_events(call->api->catalog),
                                       .gap = gap,
                                       .position = position};
    stream->filter = (struct td_event_filter){
        .match = copy_text(filter->match, &at), .kind = copy_text(filter->kind, &at), .token = filter->token};
    if (!td_stream_share_take(&stream->share, call)) {
        free(stream);
        td_response_fail(call->response, 503, NULL,
                         "this client has as many streams of events as one may have, a quarter of --max-waiters; end "
                         "one, or try again");
        return;
    }
    if (call->caller.tokens != NULL)
        stream->tokens = td_token_set_ref(call->caller.tokens);
    atomic_fetch_add(&call->api->events.begun, 1);
    atomic_fetch_add(&call->api->events.open, 1);
    call->response->content_type = "text/event-stream";
    call->response->cache_control = "no-store";
    td_response_add_header(call->response, "X-Accel-Buffering", "no"); /* proxies of nginx's kind pass bytes on */
    call->response->stream = &stream->stream;
}
