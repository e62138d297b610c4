/* Tells whether the client of a TCP connection has read what was sent. An acknowledged byte was received, not read:
 * where the client's socket is on this host, the kernel may have put pages of the file itself into the socket's queue
 * (sendfile), and a write to the file still shows in them. */
#ifndef TD_SERVER_DELIVERY_H
#define TD_SERVER_DELIVERY_H

#include "core/error.h"

#include <netinet/in.h>

/* The two ends of a connection. IPv4 addresses are IPv4-mapped; ports are in network byte order. */
struct td_ends {
    struct in6_addr own_address, peer_address;
    in_port_t own_port, peer_port;
};

enum td_delivery {
    TD_DELIVERY_PENDING, /* bytes are unacknowledged, or lie unread in a socket of this network namespace */
    TD_DELIVERY_ARRIVED, /* all bytes are acknowledged, by a socket outside of this network namespace */
    TD_DELIVERY_READ,    /* all bytes are read, or their reader's socket is closed */
};

/* Opens the netlink socket for td_delivery_look. Returns the descriptor, for the caller to close; -1 when the kernel
 * or a sandbox does not allow one. */
int td_delivery_open(void);

/* Sets *ends from an open connection's descriptor. Returns false for a descriptor that is not a TCP connection. */
bool td_delivery_ends(int fd, struct td_ends *ends);

/* Looks at the connection between these ends, which may be closed on this side. netlink: from td_delivery_open, used by
 * one thread at a time; with -1 the answer is never TD_DELIVERY_READ, and TD_DELIVERY_PENDING only if fd, the
 * connection itself or -1, has unacknowledged bytes. Takes some 4 us. */
enum td_delivery td_delivery_look(int netlink, int fd, const struct td_ends *ends);

#endif
