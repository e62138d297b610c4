/* Asks the kernel about a TCP connection. Thread-safe. */
#ifndef TD_SERVER_NET_SOCKET_FACTS_H
#define TD_SERVER_NET_SOCKET_FACTS_H

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

/* Returns how many bytes the client has acknowledged since the connection began; 0 for a socket that is not TCP. */
uint64_t td_socket_acknowledged_bytes(int fd);

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

#endif
