/* A stream of HTTP/2: one request, from its header to the last byte of its answer.
 *
 * Threads: a stream belongs to its connection's loop. While `is_at_work`, the members below "of the work" belong to the
 * thread that does the work: a job or, while the request waits for a change, the waiters. The loop then uses the others
 * alone. */
#ifndef TD_SERVER_H2_H2_STREAM_H
#define TD_SERVER_H2_H2_STREAM_H

#include "core/buffer.h"
#include "server/h2/h2_mailbox.h"
#include "server/net/request_guard.h"
#include "server/serving/serving.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_h2_session; /* h2_session.h */

enum {
    TD_H2_SMALL_BYTES =
        16 * 1024, /* a piece of a body for which the client has little room, and a body that is copied */
    TD_H2_LARGE_BYTES = 64 * 1024, /* a piece for which the client has room */
};

/* The work for a stream that a thread does which may wait. */
enum td_h2_task {
    TD_H2_TASK_ANSWER, /* the request is to be handled */
    TD_H2_TASK_PIECE,  /* the next bytes of the body are to be read */
    TD_H2_TASK_EVENTS, /* the answer is a stream, which is to be read */
};

/* The header of a request. */
struct td_h2_header {
    struct td_buffer text; /* all names and values, back to back */
    struct td_h2_field {
        uint32_t name_at, name_len, value_at, value_len;
    } fields[TD_MAX_HEADER_FIELDS + 4]; /* with the pseudo-header fields */
    size_t count;
    uint64_t total_bytes; /* also of those that were dropped */
    bool is_too_large, has_too_many;
};

struct td_h2_stream {
    struct td_h2_mail mail; /* first: on the way back mail is a stream */
    struct td_waiter waiter;
    struct td_h2_session *session;
    struct td_serving *serving;
    struct td_h2_mailbox *mailbox;        /* of the connection's loop */
    struct td_connection *entry;          /* of the connection, in the registry */
    struct td_h2_stream *next, *previous; /* of the session */
    struct td_h2_stream *next_queued;     /* of those that wait for a runner (h2_work.h) */
    int32_t id;
    _Atomic bool is_gone;    /* the client has reset the stream, or the connection has ended */
    struct td_cancel cancel; /* asks whether it is gone */
    enum td_h2_task task;

    /* of the loop */
    bool is_open; /* libnghttp2 has the stream */
    bool is_at_work;
    bool is_counted;              /* as a request that is being answered */
    bool has_input_ended;         /* the client has sent all of the request */
    bool drops_input;             /* the rest of the request's body counts for nothing */
    bool has_answer;              /* the answer's header was given to libnghttp2 */
    bool is_complete;             /* all of the answer was given to the socket */
    bool answers_each;            /* each message of the request is answered by itself */
    bool is_of_events;            /* the answer is a stream: bytes come now and then */
    bool is_starved;              /* libnghttp2 waits for bytes of the body */
    bool is_large;                /* it has, or waits for, a large piece of the body */
    struct td_h2_header *header;  /* while it arrives; owned */
    uint64_t completed_ns;        /* when all of the answer was given to the socket */
    uint64_t dropped_bytes;       /* of the request's body, after `drops_input` was set */
    uint64_t begun_ns, judged_ns; /* when the header began, and was complete */
    uint64_t sent_bytes;          /* of the body */
    enum td_cut cut;              /* why the server ends it early */
    struct td_buffer upload;      /* of the request's body, what was not handed to the work yet */
    uint64_t upload_bytes;        /* of the request's body, all that has arrived */
    struct td_upload counted;     /* the bytes of `upload` and `body` in the server's uploads */
    enum td_upload_verdict no_room_for;
    /* progress, for deadlines */
    uint64_t progress_ns, progress_bytes; /* when more of the body was last sent, or was not there to be sent */
    uint64_t window_ns, window_bytes;     /* the beginning of the current window for the least rate */

    /* of the work */
    char *text;                /* of the request's header; owned */
    struct td_header *headers; /* owned */
    size_t header_count;
    struct td_text method, target;
    const struct td_facade *facade;
    struct td_buffer request_body;
    struct td_upload unpacked; /* what handlers unpack of it, in the server's uploads */
    struct td_upload_room room;
    enum td_upload_verdict refused_for; /* as `no_room_for`, when the work began */
    uint64_t handling_ns;               /* when the request was complete, or a retry began */
    bool waits; /* it counts as one that waits for a change; so does an answer that is a stream */
    uint64_t wait_since_ns, wait_end_ns;
    /* the answer */
    struct td_response *response; /* until its header is given to libnghttp2; owned */
    int status;
    enum td_route route;
    bool changed;
    char request_id[TD_REQUEST_ID_BYTES];
    char token[TD_RESPONSE_TOKEN_BYTES];
    struct td_body body;
    struct td_body_cursor cursor;
    uint64_t body_done;                       /* bytes that were taken out of the body */
    uint64_t length_bytes;                    /* of all bodies */
    bool is_in_memory;                        /* the body's bytes can be copied by the loop */
    char *piece;                              /* bytes to be sent; owned; NULL: none */
    size_t piece_len, piece_at, wanted_bytes; /* of the next piece */
    struct td_stream *events;                 /* the answer is a stream; owned; NULL: it is not, or has ended */
    bool is_stopped;                          /* `events` was asked to end */
    struct td_trailers trailers;
    bool has_failed; /* the answer is to be broken off, for this reason: */
    enum td_cut failed_cut;
};

/* Makes a stream that has no header yet. Returns NULL without memory. */
struct td_h2_stream *td_h2_stream_create(struct td_serving *serving, struct td_connection *entry,
                                         struct td_h2_mailbox *mailbox, int32_t id);

/* Frees the stream, which no thread works for. Counts its request as answered. */
void td_h2_stream_destroy(struct td_h2_stream *stream);

/* Adds a field of the header. Beyond the limits the field is dropped, and this is noted. Returns false when so many
 * bytes came that the connection is to be ended. */
bool td_h2_stream_add_field(struct td_h2_stream *stream, struct td_text name, struct td_text value);

/* Makes method, target and headers of the fields that have come, and drops them. Returns false without memory. */
bool td_h2_stream_end_header(struct td_h2_stream *stream);

/* Returns the request; it borrows from the stream. */
struct td_request td_h2_stream_request(const struct td_h2_stream *stream);

/* Adds bytes of the request's body. Returns false when they exceed a limit (`no_room_for`): the body is dropped then.
 */
bool td_h2_stream_add_upload(struct td_h2_stream *stream, const void *bytes, size_t len);

/* Frees what was answered of the request's body. */
void td_h2_stream_drop_answered(struct td_h2_stream *stream);

/* Frees the request's body. */
void td_h2_stream_drop_upload(struct td_h2_stream *stream);

/* Counts the answer that has ended, and writes its line of the access log. */
void td_h2_stream_report(struct td_h2_stream *stream, struct td_access_lines *lines);

#endif
