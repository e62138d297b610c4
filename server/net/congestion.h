/* Sets the congestion control and the send queue of connections over a short path. BBR, the default of some hosts,
 * paces its packets; on the loopback device and over one switch that halves the rate and saves nothing. Connections
 * over such a short path use CUBIC; others keep the host's default. */
#ifndef TD_SERVER_NET_CONGESTION_H
#define TD_SERVER_NET_CONGESTION_H

#include <stdbool.h>

enum { TD_CONGESTION_BYTES = 16 }; /* the kernel's TCP_CA_NAME_MAX */

/* Over a short path the kernel lets a send queue grow to megabytes. These are written to memory, fall out of the CPU
 * caches, and are read again. A short queue is enough there and stays in the caches (docs/performance.md). */
enum {
    TD_NEAR_RTT_US = 40,               /* the path is short below this smallest round trip: same host, one switch */
    TD_NEAR_ANSWER_BYTES = 512 * 1024, /* shorter answers keep the kernel's queue */
    TD_NEAR_QUEUE_BYTES = 128 * 1024,  /* for SO_SNDBUF, which doubles it: enough for 5 GB/s over 40 us */
};

/* The send queue of a connection; used by the connection's thread alone. All zero at first. */
struct td_send_queue {
    bool is_short;
};

/* Sets CUBIC on a listening socket, whose connections inherit it: setting it on a connection is too late, since BBR has
 * enabled pacing by then. Writes the host's default to far_name, or "" when nothing has to be done: the default is
 * CUBIC already, or the kernel has none. */
void td_congestion_listen(int listen_fd, char far_name[TD_CONGESTION_BYTES]);

/* Resets an accepted connection to the host's default, if its path is not short (TD_NEAR_RTT_US, as measured by the
 * handshake). far_name: from td_congestion_listen. */
void td_congestion_accept(int fd, const char *far_name);

/* Shortens the send queue of the socket, once, if the path is short. Call it for answers of TD_NEAR_ANSWER_BYTES or
 * more that are copied; an answer by reference takes no memory of its own in the queue. */
void td_send_queue_shorten(struct td_send_queue *queue, int fd);

#endif
