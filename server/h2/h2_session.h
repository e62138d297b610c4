/* The HTTP/2 session of a connection: that of libnghttp2, its streams, and what they share. All functions are for the
 * thread of the connection's loop.
 *
 * A stream that the client has reset may still be worked for. It is then only marked (`is_gone`), and is freed when it
 * comes back; the same holds for all streams of a session that has ended. */
#ifndef TD_SERVER_H2_H2_SESSION_H
#define TD_SERVER_H2_H2_SESSION_H

#include "server/h2/h2_frames.h"
#include "server/h2/h2_stream.h"
#include "server/h2/h2_work.h"

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_h2_session {
    struct td_serving *serving;
    struct td_connection *entry; /* of the connection, in the registry */
    struct td_h2_mailbox *mailbox;
    void (*receive)(struct td_h2_mail *mail); /* receives a stream that a thread has worked for */
    nghttp2_session *nghttp2;                 /* owned; NULL: the session has ended */
    struct td_h2_frames frames;
    struct td_h2_crew crew;
    struct td_access_lines access_lines;
    struct td_h2_stream *streams; /* also those that are gone and still worked for */
    size_t stream_count, large_pieces;
    bool has_settings;  /* the client's have come */
    bool is_flooded;    /* a header of the client is far too long: the connection is to be ended */
    uint64_t active_ns; /* when the last stream ended, or the last frame came */
};

/* Begins with the first four members set and all else zero; libnghttp2's session is made by h2_requests.h. `connection`
 * and `on_idle` are those of td_h2_crew_init. The session must not move. */
void td_h2_session_init(struct td_h2_session *session, void *connection, void (*on_idle)(void *connection));

/* Frees a session that has ended and is not in use. */
void td_h2_session_fini(struct td_h2_session *session);

/* Adds a stream that libnghttp2 has opened. Returns NULL without memory. */
struct td_h2_stream *td_h2_session_add(struct td_h2_session *session, int32_t id);

/* Resets a stream with an error code of RFC 9113 section 7, if libnghttp2 still has it. */
void td_h2_session_reset(struct td_h2_stream *stream, uint32_t code);

/* Marks a stream as gone that libnghttp2 no longer has, and frees it unless a thread works for it. */
void td_h2_session_leave(struct td_h2_stream *stream);

/* Reports the answer of a stream that no thread works for, and frees the stream. */
void td_h2_session_remove(struct td_h2_stream *stream);

/* Ends libnghttp2's session, and leaves all streams. */
void td_h2_session_end(struct td_h2_session *session);

/* Returns whether a stream is left, or a thread works for one: the session must not be freed yet. */
bool td_h2_session_is_in_use(const struct td_h2_session *session);

#endif
