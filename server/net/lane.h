/* Lanes: whether a connection gets a thread of its own or shares one with others (server/mhd/http_server.h). Short
 * answers are cheaper in a shared thread, long ones in a thread of their own. libmicrohttpd cannot move a connection,
 * so its first request decides; later requests of another kind are answered correctly, too, but at a higher cost. */
#ifndef TD_SERVER_NET_LANE_H
#define TD_SERVER_NET_LANE_H

#include "core/text.h"

struct td_facade;

enum td_lane {
    TD_LANE_OWN,    /* a thread of its own */
    TD_LANE_SHARED, /* a thread that serves many connections and never waits */
    TD_LANE_TLS     /* a thread of its own, with TLS: all connections of a port with TLS */
};

/* Longest range, or sum of ranges, that counts as a short answer. */
enum { TD_LANE_SHORT_BYTES = 256 * 1024 };

/* Returns the lane for a connection to a port (its facade) that begins with these bytes: shared for a GET or HEAD with
 * a complete header that asks for a short answer, as far as the header shows. */
enum td_lane td_lane_of(const struct td_facade *port, struct td_text bytes);

#endif
