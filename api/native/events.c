/* GET /events: what changed, as a stream of server-sent events, or as a page of JSON. */
#include "api/native/event_stream.h"
#include "api/native/parameters.h"
#include "api/native/routes.h"
#include "core/message/document.h"

enum { PAGE_EVENTS = 1000 }; /* of a page of JSON */

static const char event_stream_type[] = "text/event-stream";

/* The parameters of a request. */
struct wish {
    struct td_event_filter filter;
    bool has_position; /* the client has named the last event that it has */
    uint64_t position;
    enum td_event_gap gap;
};

/* Reads the filters and the position. Returns false after it answered 400. */
static bool read_wish(const struct td_call *call, struct wish *wish)
{
    struct td_event_ring *ring = td_catalog_events(call->api->catalog);
    const struct td_text *match = td_uri_parameter(call->uri, "match");
    const struct td_text *kind = td_uri_parameter(call->uri, "kind");
    const struct td_text *after = td_uri_parameter(call->uri, "after");
    const struct td_header *last = td_request_single_header(call->request, "Last-Event-ID");
    struct td_text id = last != NULL && last->value.len > 0 ? last->value : after != NULL ? *after : TD_TEXT("");
    *wish = (struct wish){.filter = {.token = call->caller.token}, .has_position = id.len > 0};
    if (kind != NULL && !td_text_equals(*kind, "model") && !td_text_equals(*kind, "dataset")) {
        td_response_fail(call->response, 400, NULL, "kind must be model or dataset");
        return false;
    }
    if (match != NULL)
        wish->filter.match = *match;
    if (kind != NULL)
        wish->filter.kind = *kind;
    if (wish->has_position)
        wish->gap = td_event_id_read(ring, id, &wish->position);
    else
        wish->position = td_event_ring_newest(ring);
    return true;
}

/* Adds the events after the wish's position to the list, and moves the position behind the last one that was looked at.
 * Returns their number. */
static size_t add_events(const struct td_call *call, struct wish *wish, struct td_document *json)
{
    struct td_event_ring *ring = td_catalog_events(call->api->catalog);
    struct td_event *event;
    enum td_event_look look = TD_EVENT_FOUND;
    size_t count = 0;
    while (wish->gap == TD_EVENT_GAP_NONE && count < PAGE_EVENTS) {
        look = td_event_ring_next(ring, wish->position, &event);
        if (look != TD_EVENT_FOUND)
            break;
        wish->position = event->number;
        if (td_event_is_shown(event, &wish->filter)) {
            char id[TD_EVENT_ID_BYTES];
            td_event_id_write(ring, event->number, id);
            td_document_begin_object(json, NULL);
            td_document_add_string(json, "event_id", id);
            td_event_add_members(json, event);
            td_document_end(json);
            count++;
        }
        td_event_unref(event);
    }
    if (look == TD_EVENT_LOST)
        wish->gap = TD_EVENT_GAP_LOST;
    return count;
}

/* Answers {"events": [...], "reset": false, "next": ID}, or waits until there is an event. */
static void answer_page(const struct td_call *call, struct wish *wish)
{
    struct td_event_ring *ring = td_catalog_events(call->api->catalog);
    struct td_buffer text;
    struct td_document json;
    char next[TD_EVENT_ID_BYTES];
    td_buffer_init(&text);
    td_document_init(&json, &text);
    td_document_begin_object(&json, NULL);
    td_document_begin_array(&json, "events");
    size_t count = add_events(call, wish, &json);
    td_document_end(&json);
    bool is_reset = wish->gap != TD_EVENT_GAP_NONE;
    td_document_add_bool(&json, "reset", is_reset);
    if (is_reset) {
        td_document_add_string(&json, "reason", td_event_gap_name(wish->gap));
        wish->position = td_event_ring_newest(ring);
        atomic_fetch_add(&call->api->events.resets, 1);
    }
    td_event_id_write(ring, wish->position, next);
    td_document_add_string(&json, "next", next);
    td_document_end(&json);
    td_buffer_putc(&text, '\n');
    if (count == 0 && !is_reset && td_wait_for_more(call)) {
        td_buffer_fini(&text);
        return;
    }
    atomic_fetch_add(&call->api->events.sent, count);
    td_response_set_text(call->response, "application/json", "no-store", &text);
    td_buffer_fini(&text);
}

void td_handle_events(const struct td_call *call)
{
    static const char *const known[] = {"after", "match", "kind", "wait", "timeout", NULL};
    struct wish wish;
    uint64_t timeout_s = TD_WAIT_DEFAULT_S;
    const struct td_text *wait = td_uri_parameter(call->uri, "wait");
    bool is_stream = td_request_accepts(call->request, event_stream_type);
    if (!td_call_check_parameters(call, known) || !td_call_read_number(call, "timeout", TD_WAIT_MAX_S, &timeout_s) ||
        !read_wish(call, &wish))
        return;
    if (wait != NULL && (wait->len > 0 || is_stream || !wish.has_position)) {
        td_response_fail(call->response, 400, NULL, "%s",
                         is_stream       ? "wait is for answers in JSON; a stream of events always waits"
                         : wait->len > 0 ? "wait takes no value here: send wait= and after=ID"
                                         : "wait= needs after=ID, the last event that the client has (\"next\" of an "
                                           "answer without it)");
        return;
    }
    td_response_add_header(call->response, "Vary", "Accept");
    if (is_stream)
        td_event_stream_begin(call, &wish.filter, wish.position, wish.gap);
    else
        answer_page(call, &wish);
}
