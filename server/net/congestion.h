/* Congestion control. BBR, the default of some hosts, paces what it sends; on the loopback device and over one switch
 * that halves the rate and saves nothing. Connections over so short a path use CUBIC; others keep the host's default.
 */
#ifndef TD_SERVER_NET_CONGESTION_H
#define TD_SERVER_NET_CONGESTION_H

enum { TD_CONGESTION_BYTES = 16 }; /* the kernel's TCP_CA_NAME_MAX */

/* Sets CUBIC on a listening socket, whose connections inherit it: set on a connection it comes too late, since BBR has
 * switched pacing on by then. Writes the host's default to far_name, or "" when nothing has to be done: the default is
 * CUBIC already, or the kernel has none. */
void td_congestion_listen(int listen_fd, char far_name[TD_CONGESTION_BYTES]);

/* Gives an accepted connection the host's default back, if its path is not short (TD_NEAR_RTT_US of connection.h, as
 * measured by the handshake). far_name: from td_congestion_listen. */
void td_congestion_accept(int fd, const char *far_name);

#endif
