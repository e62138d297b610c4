/* Events as clients see them: which of the catalog's events a request sees, their ids and their JSON, and the stream of
 * server-sent events (WHATWG HTML, section 9.2) that GET /events answers. */
#ifndef TD_API_NATIVE_EVENT_STREAM_H
#define TD_API_NATIVE_EVENT_STREAM_H

#include "api/call/call.h"
#include "catalog/events/event_ring.h"
#include "core/message/document.h"
#include "http/stream.h"

#include <stdbool.h>

/* The id of an event, "BOOT-NUMBER": the name of its ring and its number. */
enum { TD_EVENT_ID_BYTES = TD_EVENT_BOOT_BYTES + 21 };

/* Why the events after a client's position cannot be listed. */
enum td_event_gap {
    TD_EVENT_GAP_NONE,
    TD_EVENT_GAP_UNKNOWN, /* the position is not an id that this server has given since its start */
    TD_EVENT_GAP_LOST,    /* events after it are kept no more */
};

/* Returns "unknown" or "lost". Static. */
const char *td_event_gap_name(enum td_event_gap gap);

/* Writes the id of the event with this number. */
void td_event_id_write(const struct td_event_ring *ring, uint64_t number, char out[TD_EVENT_ID_BYTES]);

/* Reads an id, and sets *position to its number. On a gap *position is the newest number. */
enum td_event_gap td_event_id_read(struct td_event_ring *ring, struct td_text id, uint64_t *position);

/* The events that a request asks for, and those that its sender may see. All is borrowed. */
struct td_event_filter {
    struct td_text match;         /* a glob that the id matches; p NULL: any */
    struct td_text kind;          /* "model" or "dataset"; p NULL: both */
    const struct td_token *token; /* that may see the id; NULL: all ids may be seen */
};

/* Returns whether the filter shows the event. */
bool td_event_is_shown(const struct td_event *event, const struct td_event_filter *filter);

/* Adds the members of an event to an object. */
void td_event_add_members(struct td_document *json, const struct td_event *event);

/* Makes the response a stream of the events after `position` that the filter shows; gap: the stream begins with a
 * `reset`. The stream copies the filter, and looks at the server's tokens again whenever it reads. Answers 503 when the
 * client has its share of streams already, or memory is short. */
void td_event_stream_begin(const struct td_call *call, const struct td_event_filter *filter, uint64_t position,
                           enum td_event_gap gap);

#endif
