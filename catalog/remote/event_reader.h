/* Reads a stream of server-sent events as it arrives, by the HTML standard, section 9.2.6. The bytes are a stranger's:
 * lines and events are bounded. One thread at a time. */
#ifndef TD_CATALOG_REMOTE_EVENT_READER_H
#define TD_CATALOG_REMOTE_EVENT_READER_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TD_EVENT_LINE_BYTES = 16 * 1024, /* of the longest line, without its end */
    TD_EVENT_DATA_BYTES = 64 * 1024, /* of the longest data of one event */
};

/* An event with data, borrowed until the function that gets it returns. */
struct td_read_event {
    struct td_text type; /* "message" without a field `event` */
    struct td_text data; /* its lines, joined by line feeds */
};

struct td_event_reader {
    struct td_buffer line, type, data, id; /* of what has arrived */
    struct td_buffer last_id;              /* the last event ID of the stream */
    bool has_data;                         /* of the event that is arriving; its data may be empty */
    bool is_after_cr;                      /* a line feed at the beginning ends no further line */
    bool has_begun;                        /* a byte order mark at the beginning of the stream counts no more */
};

void td_event_reader_init(struct td_event_reader *reader);
void td_event_reader_fini(struct td_event_reader *reader);

/* Forgets the event that is arriving, since the connection has ended; keeps the last event ID. */
void td_event_reader_begin_again(struct td_event_reader *reader);

/* Takes the next bytes of the stream, and passes each event that they complete to on_event. Errors:
 * TD_FAILED_PRECONDITION for a line or an event that is too long; TD_RESOURCE_EXHAUSTED. */
bool td_event_reader_take(struct td_event_reader *reader, struct td_text bytes,
                          void (*on_event)(void *context, const struct td_read_event *event), void *context,
                          struct td_error *err);

#endif
