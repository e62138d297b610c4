/* The dynamic linker binds libmicrohttpd's calls of send, sendmsg and shutdown to this program's functions, since the
 * program comes first in its search order. libmicrohttpd does not promise to call these three. So no body is sent this
 * way until libmicrohttpd has once sent a header and a body through these functions. If libmicrohttpd read the memory
 * by another call, that call would fail and end the connection, rather than send other bytes. If libmicrohttpd does not
 * call shutdown, the server knows less about what a client has read. */
#include "server/mhd/sender.h"

#include "core/socket_send.h"
#include "server/net/sent_body.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>

static _Atomic bool is_bound; /* libmicrohttpd has called these functions */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *memory; /* set once; NULL: not reserved */
static size_t memory_len;

/* Reserves address space for the longest body, or as much as the system allows. No code reads it, so it takes no
 * memory. */
static void reserve_memory(void)
{
    static const size_t most = (size_t)1 << 40;
    static const size_t least = (size_t)1 << 24;
    for (memory_len = most; memory == NULL && memory_len >= least; memory_len /= 2) {
        void *reserved = mmap(NULL, memory_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved != MAP_FAILED) {
            memory = reserved;
            return;
        }
    }
}

char *td_sender_memory(size_t len)
{
    if (!atomic_load_explicit(&is_bound, memory_order_relaxed))
        return NULL;
    (void)pthread_once(&once, reserve_memory);
    return len <= memory_len ? memory : NULL;
}

/* Returns whether these bytes are in td_sender_memory, so that they mean a part of the body. */
static bool stands_for(const struct td_sent *body, const void *bytes, size_t len)
{
    uintptr_t at = (uintptr_t)bytes - (uintptr_t)memory;
    return at < body->len && len <= body->len - at;
}

/* Sends a header and the beginning of a body. Returns as sendmsg does. */
static ssize_t send_both(int socket, const struct td_sent *body, const struct iovec *parts, int flags)
{
    ssize_t header = td_socket_send(socket, parts[0].iov_base, parts[0].iov_len, flags | MSG_MORE);
    if (header < 0 || (size_t)header < parts[0].iov_len)
        return header;
    ssize_t n = body->send(body->context, socket, 0, parts[1].iov_len);
    if (n < 0)
        return errno == EAGAIN ? header : -1;
    return header + n;
}

/* In place of the C library's. */
ssize_t send(int socket, const void *bytes, size_t len, int flags)
{
    const struct td_sent *body = td_sent_of(socket);
    if (body == NULL || !stands_for(body, bytes, len))
        return td_socket_send(socket, bytes, len, flags);
    return body->send(body->context, socket, (size_t)((const char *)bytes - memory), len);
}

/* In place of the C library's. libmicrohttpd sends a header and a body at once. */
ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
    const struct iovec *parts = message->msg_iov;
    bool is_both = message->msg_iovlen == 2;
    const struct td_sent *body = td_sent_of(socket);
    if (is_both && !atomic_load_explicit(&is_bound, memory_order_relaxed))
        atomic_store_explicit(&is_bound, true, memory_order_relaxed);
    if (!is_both || body == NULL || parts[1].iov_base != memory || !stands_for(body, memory, parts[1].iov_len))
        return td_socket_send_message(socket, message, flags);
    return send_both(socket, body, parts, flags);
}

/* In place of the C library's. */
int shutdown(int socket, int how)
{
    return td_sent_shut_down(socket, how);
}
