/* Answers whose body is a stream (http/stream.h). libmicrohttpd asks for the next bytes; while the stream has none, the
 * connection waits like a request that waits for a change (server/serving/waiters.h): in a shared thread it is
 * suspended and takes no thread. A stream counts as such a request from its beginning to its end. */
#ifndef TD_SERVER_MHD_STREAM_BODY_H
#define TD_SERVER_MHD_STREAM_BODY_H

#include "server/mhd/session.h"

#include <stdbool.h>

/* Makes libmicrohttpd's response for an answer with a stream, which moves into the exchange and counts as a request
 * that waits. `head`: the response has the header of a stream and sends no body. Fills in the exchange's transfer.
 * Returns NULL when memory is short. */
struct MHD_Response *td_stream_body_create(struct td_session *session, struct td_response *response, bool head);

/* Returns whether the connection sends a stream. */
bool td_stream_body_is_on(const struct td_session *session);

/* Frees the stream, if there is one, after the end of the answer was reported (td_session_end_request). */
void td_stream_body_end(struct td_session *session);

#endif
