/* The deadlines of a connection of HTTP/2 and of its streams, and the end of a connection that is idle or whose server
 * drains. The deadlines are those of HTTP/1.1, but are judged here for each stream: one connection carries many. All
 * functions are for the thread of the connection's loop, which calls them in rounds. */
#ifndef TD_SERVER_H2_H2_DEADLINES_H
#define TD_SERVER_H2_H2_DEADLINES_H

#include "server/h2/h2_session.h"

#include <stdbool.h>
#include <stdint.h>

/* The inputs of one round of checks, the same for all connections. */
struct td_h2_round {
    struct td_deadline_limits limits;
    uint64_t now_ns;
    bool is_draining;
};

/* State of a connection that is kept from round to round. */
struct td_h2_deadlines {
    uint64_t acknowledged_bytes, acknowledged_ns; /* progress of what is being sent */
    uint64_t notice_ns; /* when GOAWAY was first sent by a server that drains; 0: it was not */
    bool has_said_goaway;
};

void td_h2_deadlines_init(struct td_h2_deadlines *deadlines, uint64_t now_ns);

/* Returns why the connection is to be cut as a whole: the client acknowledges nothing of what is sent, or does not
 * complete a frame or a header. TD_CUT_NONE while it is good. has_unsent: bytes wait until the socket takes them. */
enum td_cut td_h2_deadlines_judge(struct td_h2_deadlines *deadlines, const struct td_h2_session *session,
                                  bool has_unsent, const struct td_h2_round *round);

/* Ends the streams that are past a deadline, and those that were answered early: the rest of their requests is read for
 * 1 s more, since some clients, such as curl 7.88, lose an answer that a reset follows. */
void td_h2_deadlines_check_streams(struct td_h2_session *session, const struct td_h2_round *round);

/* Sends GOAWAY to the client of a connection that has been idle for too long, or whose server drains: to the latter
 * twice, in two rounds. Returns whether the connection is to be closed once all is sent. */
bool td_h2_deadlines_end(struct td_h2_deadlines *deadlines, struct td_h2_session *session,
                         const struct td_h2_round *round);

#endif
