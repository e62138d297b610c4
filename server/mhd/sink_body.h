/* The body of an upload on its way from libmicrohttpd to a sink (http/body_sink.h). The functions may wait for a disk,
 * but for td_sink_body_drop: they are called on the connection's own thread or, when it shares one, in a job. */
#ifndef TD_SERVER_MHD_SINK_BODY_H
#define TD_SERVER_MHD_SINK_BODY_H

#include "server/mhd/session.h"

/* Has the api make the sink of the exchange, if one more upload may begin. Returns false when there is no sink, with an
 * answer in *response, which the caller then finishes: no body is read. */
bool td_sink_body_open(struct td_session *session, struct td_response *response);

/* Gives bytes to the sink, unless it has failed. */
void td_sink_body_write(struct td_session *session, const char *bytes, size_t len);

/* Releases the sink, if there is one. */
void td_sink_body_close(struct td_session *session);

/* Does the same for a request that ended before it was handled. A thread that serves other connections leaves it to a
 * job. */
void td_sink_body_drop(struct td_session *session);

/* Reads on, after the answer to a request whose body was not read (server/net/linger.h); a thread that serves other
 * connections leaves it to a job. The connection is about to be closed. */
void td_sink_body_linger(struct td_session *session);

#endif
