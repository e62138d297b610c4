#include "core/socket_send.h"

ssize_t td_socket_send(int socket, const void *bytes, size_t len, int flags)
{
    return sendto(socket, bytes, len, flags, NULL, 0);
}

ssize_t td_socket_send_message(int socket, const struct msghdr *message, int flags)
{
    struct mmsghdr one = {.msg_hdr = *message};
    return sendmmsg(socket, &one, 1, flags) == 1 ? (ssize_t)one.msg_len : -1;
}
