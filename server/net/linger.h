/* Connections whose answer came before the request's body was read. If they were closed at once, the kernel would reset
 * them because of the unread bytes, and the client could lose the answer. So the server ends its side alone, and reads
 * on for a while (RFC 9112 section 9.6). */
#ifndef TD_SERVER_NET_LINGER_H
#define TD_SERVER_NET_LINGER_H

#include <stdint.h>

/* The server reads on for so long, or until it has read so many bytes. */
#define TD_LINGER_NS UINT64_C(2000000000)
#define TD_LINGER_BYTES (UINT64_C(64) << 20)

/* Shuts down the sending side of the socket, then reads and drops what arrives until the client ends its side or a
 * limit is reached. Does not close the socket. */
void td_linger(int fd);

#endif
