/* Asks the kernel about a TCP connection, and sets the congestion control and the send queue of one over a short path.
 * BBR, the default of some hosts, paces its packets; on the loopback device and over one switch that halves the rate
 * and saves nothing. Connections over such a short path use CUBIC; others keep the host's default. Thread-safe. */
#ifndef TD_SERVER_NET_TCP_SOCKET_H
#define TD_SERVER_NET_TCP_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

struct td_socket_facts {
    uint64_t acknowledged_bytes, received_bytes; /* since the connection began */
    uint32_t min_rtt_us;                         /* the smallest round trip; 0: not known yet */
    bool is_established;                         /* neither side has ended it */
    bool client_has_ended;                       /* its side alone: CLOSE_WAIT */
    bool is_closed;                              /* reset, or ended by both sides */
};

/* Returns the facts of the socket with this descriptor; all zero when it is not a TCP socket. */
struct td_socket_facts td_socket_facts_of(int fd);

/* Returns how many bytes were given to the socket since the connection began, or some more; 0 for a socket that is not
 * TCP. */
uint64_t td_socket_given_bytes(int fd);

/* Returns how many bytes the client has not acknowledged, including this side's FIN; after a reset, how many it will
 * never acknowledge; 0 for a socket that is not TCP. */
int td_socket_unacknowledged_bytes(int fd);

/* Makes the kernel drop the send queue when the last descriptor of the socket is closed: the client then sees a
 * reset. */
void td_socket_reset_at_close(int fd);

/* Returns whether the client has shut down its sending side, or the connection has ended. Does not wait. */
bool td_socket_client_has_ended(int fd);

/* Returns the number of bytes that were received and not yet read. */
int td_socket_unread_bytes(int fd);

/* ---- short paths --------------------------------------------------------------------------------------- */

enum { TD_CONGESTION_BYTES = 16 }; /* the kernel's TCP_CA_NAME_MAX */

/* Over a short path the kernel lets a send queue grow to megabytes. These are written to memory, fall out of the CPU
 * caches, and are read again. A short queue is enough there and stays in the caches (docs/performance.md). */
enum {
    TD_NEAR_RTT_US = 40,               /* the path is short below this smallest round trip: same host, one switch */
    TD_NEAR_ANSWER_BYTES = 512 * 1024, /* shorter answers keep the kernel's queue */
    TD_NEAR_QUEUE_BYTES = 128 * 1024,  /* for SO_SNDBUF, which doubles it: enough for 5 GB/s over 40 us */
};

/* Sets CUBIC on a listening socket, whose connections inherit it: setting it on a connection is too late, since BBR has
 * enabled pacing by then. Writes the host's default to far_name, or "" when nothing has to be done: the default is
 * CUBIC already, or the kernel has none. */
void td_congestion_listen(int listen_fd, char far_name[TD_CONGESTION_BYTES]);

/* Resets an accepted connection to the host's default, if its path is not short (TD_NEAR_RTT_US, as measured by the
 * handshake). far_name: from td_congestion_listen. */
void td_congestion_accept(int fd, const char *far_name);

/* Shortens the send queue of the socket if the path is short, unless *is_short says that it was done before. Call it
 * for answers of TD_NEAR_ANSWER_BYTES or more that are copied; an answer by reference takes no memory of its own in the
 * queue. Called by the connection's thread. */
void td_send_queue_shorten(int fd, bool *is_short);

#endif
