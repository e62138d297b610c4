/* Determines whether the client of a TCP connection has read the bytes that were sent. An acknowledged byte was
 * received, but perhaps not read: where the client's socket is on this host, the kernel may have put pages of the file
 * itself into the socket's queue (sendfile), and a write to the file still shows in them. A FIN of the client proves
 * nothing either: a socket that sends no more may still be read from. Thread-safe, except init and fini. */
#ifndef TD_SERVER_NET_DELIVERY_H
#define TD_SERVER_NET_DELIVERY_H

#include "core/error.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The means to ask the kernel about sockets and routes. */
struct td_delivery {
    pthread_mutex_t lock;
    int sockets, routes; /* of netlink, under the lock; -1: the kernel or a sandbox allows none */
    bool can_look;       /* the kernel describes sockets */
};

/* The two ends of a connection. IPv4 addresses are IPv4-mapped; ports are in network byte order. */
struct td_ends {
    struct in6_addr own_address, peer_address;
    in_port_t own_port, peer_port;
    uint32_t device; /* the interface that this side is bound to, as in a VRF and by link-local addresses; 0: none */
    bool is_local;   /* the client's address is one of this host's, or its socket was found */
    bool is_found;   /* its socket was found in this network namespace, so that its queue can be seen */
};

/* How long an acknowledged answer counts as unread if the client's queue cannot be seen. */
#define TD_DELIVERY_GRACE_NS UINT64_C(2000000000)

enum td_delivery_state {
    TD_DELIVERY_PENDING, /* bytes are unacknowledged, or unread in a socket of this network namespace */
    TD_DELIVERY_UNKNOWN, /* all bytes are acknowledged by a socket of this host, but the kernel does not show the socket
                            or its queue, which may hold unread bytes */
    TD_DELIVERY_ARRIVED, /* all bytes are acknowledged, by a socket outside of this network namespace */
    TD_DELIVERY_READ, /* all bytes are read, or no process has the client's socket open any more, or the connection was
                         reset before all bytes arrived */
};

/* Opens the netlink sockets. Errors: TD_INTERNAL. */
bool td_delivery_init(struct td_delivery *delivery, struct td_error *err);

void td_delivery_fini(struct td_delivery *delivery);

/* Sets *ends from an open connection's descriptor. Returns false for a descriptor that is not a TCP connection, also
 * for one that was reset. Takes some 15 us. Does not find the socket of a client of this host that is bound to an
 * interface, or that is behind a DNAT or REDIRECT rule and so has another peer than this side. */
bool td_delivery_ends(struct td_delivery *delivery, int fd, struct td_ends *ends);

/* Queries the state of the connection between these ends. fd: this side's socket; -1: all bytes were acknowledged
 * before. Finds the client's socket, and so its unread bytes, only if delivery->can_look. Takes some 4 us. */
enum td_delivery_state td_delivery_look(struct td_delivery *delivery, int fd, const struct td_ends *ends);

/* Returns whether an answer counts as read: it is TD_DELIVERY_READ, or has been TD_DELIVERY_ARRIVED for
 * TD_DELIVERY_GRACE_NS, since the client may be in another network namespace of this host. *arrived_ns is when the
 * answer was first seen to have arrived; the caller sets it to 0 before the first call. Sets *state to what
 * td_delivery_look returns. */
bool td_delivery_is_proved(struct td_delivery *delivery, int fd, const struct td_ends *ends, uint64_t *arrived_ns,
                           enum td_delivery_state *state);

#endif
