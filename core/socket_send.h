/* Sends to sockets. The linker binds every call of send, sendmsg and shutdown in this program to the functions that
 * server/mhd/sender defines for libmicrohttpd; these two functions call the C library by other names instead.
 * Thread-safe. */
#ifndef TD_CORE_SOCKET_SEND_H
#define TD_CORE_SOCKET_SEND_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Returns what send(2) returns, and sets errno as it does. */
ssize_t td_socket_send(int socket, const void *bytes, size_t len, int flags);

/* Returns what sendmsg(2) returns, and sets errno as it does. The message may carry descriptors. */
ssize_t td_socket_send_message(int socket, const struct msghdr *message, int flags);

#endif
