/* Requests of HTTP/2, made of the frames of a client: the callbacks by which libnghttp2 reports these. A request is
 * judged when its header is complete, and handled when its body is, or with each whole message of it. All functions are
 * for the thread of the connection's loop. */
#ifndef TD_SERVER_H2_H2_REQUESTS_H
#define TD_SERVER_H2_H2_REQUESTS_H

#include "server/h2/h2_session.h"

#include <stdbool.h>

enum { TD_H2_STREAMS = 100 }; /* most streams of a connection at once (SETTINGS_MAX_CONCURRENT_STREAMS) */

/* Makes libnghttp2's session, which reports the frames of the client here, and submits the server's SETTINGS. Returns
 * false without memory; td_h2_session_end is allowed then too. */
bool td_h2_requests_open(struct td_h2_session *session);

#endif
