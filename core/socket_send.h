/* Sends to sockets. The linker binds every call of send, sendmsg and shutdown in this program to the functions that
 * server/mhd/sender defines for libmicrohttpd; these two functions call the C library by other names instead.
 * Thread-safe. */
#ifndef TD_CORE_SOCKET_SEND_H
#define TD_CORE_SOCKET_SEND_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Returns what send(2) returns, and sets errno as it does. */
static inline ssize_t td_socket_send(int socket, const void *bytes, size_t len, int flags)
{
    return sendto(socket, bytes, len, flags, NULL, 0);
}

/* Returns what sendmsg(2) returns, and sets errno as it does. The message may carry descriptors. */
static inline ssize_t td_socket_send_message(int socket, const struct msghdr *message, int flags)
{
    struct mmsghdr one = {.msg_hdr = *message};
    return sendmmsg(socket, &one, 1, flags) == 1 ? (ssize_t)one.msg_len : -1;
}

#endif
