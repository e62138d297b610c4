/* The dynamic linker binds libmicrohttpd's calls of send and sendmsg to the program's, since the program comes first in
 * its search order. What is hard:
 *   - Nobody promises that libmicrohttpd calls these two. So nothing is sent this way before a header and a body of
 *     libmicrohttpd's have come here, and if one of its other calls read the memory, it would fail and end the
 *     connection, rather than send bytes of something else.
 *   - libmicrohttpd takes a short count for a full socket, and waits for the kernel to say that there is room. So
 *     sendfile is called until the socket is full or nothing is left. */
#include "server/sender.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Static, because send and sendmsg are given nothing but the descriptor. */
enum { SOCKETS = 65536 };
static _Atomic(const struct td_sent_run *) runs[SOCKETS];
static _Atomic bool is_bound; /* a call of libmicrohttpd has come here */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *memory; /* set once; NULL: there is none */

static void reserve_memory(void)
{
    void *reserved = mmap(NULL, TD_SENDER_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memory = reserved == MAP_FAILED ? NULL : reserved;
}

char *td_sender_memory(void)
{
    if (!atomic_load_explicit(&is_bound, memory_order_relaxed))
        return NULL;
    (void)pthread_once(&once, reserve_memory);
    return memory;
}

bool td_sender_begin(int socket, const struct td_sent_run *run)
{
    if (socket < 0 || socket >= SOCKETS)
        return false;
    atomic_store_explicit(&runs[socket], run, memory_order_relaxed);
    return true;
}

void td_sender_end(int socket)
{
    if (socket >= 0 && socket < SOCKETS)
        atomic_store_explicit(&runs[socket], NULL, memory_order_relaxed);
}

/* Returns the run registered for the socket, or NULL. */
static const struct td_sent_run *run_of(int socket)
{
    return socket < 0 || socket >= SOCKETS ? NULL : atomic_load_explicit(&runs[socket], memory_order_relaxed);
}

/* Returns whether these bytes stand for some of the run. */
static bool stands_for(const struct td_sent_run *run, const void *bytes, size_t len)
{
    uintptr_t at = (uintptr_t)bytes - (uintptr_t)memory;
    return at < run->len && len <= run->len - at;
}

/* The C library's functions, or those of a sanitizer that stands before it. */
static ssize_t (*next_send)(int socket, const void *bytes, size_t len, int flags);
static ssize_t (*next_sendmsg)(int socket, const struct msghdr *message, int flags);
static pthread_once_t once_next = PTHREAD_ONCE_INIT;

static void find_next(void)
{
    *(void **)&next_send = dlsym(RTLD_NEXT, "send");
    *(void **)&next_sendmsg = dlsym(RTLD_NEXT, "sendmsg");
}

static ssize_t send_plainly(int socket, const void *bytes, size_t len, int flags)
{
    (void)pthread_once(&once_next, find_next);
    return next_send != NULL ? next_send(socket, bytes, len, flags) : sendto(socket, bytes, len, flags, NULL, 0);
}

static ssize_t send_message_plainly(int socket, const struct msghdr *message, int flags)
{
    (void)pthread_once(&once_next, find_next);
    return next_sendmsg != NULL ? next_sendmsg(socket, message, flags) : syscall(SYS_sendmsg, socket, message, flags);
}

/* Sends len bytes of the run, from `at` on, and the run's last END_BYTES by themselves, so that the look before them
 * comes late. Returns what was sent before the socket was full; -1, with errno, when it was full at once, and for any
 * other error. */
static ssize_t send_part(int socket, const struct td_sent_run *run, size_t at, size_t len)
{
    enum { END_BYTES = 256 * 1024 };
    off_t off = (off_t)(run->off + at);
    bool has_end = at + len == run->len;
    size_t sent = 0;
    while (sent < len) {
        size_t part = len - sent;
        if (has_end && part > END_BYTES)
            part -= END_BYTES;
        else if (has_end)
            run->before_end(run->context);
        ssize_t n = sendfile(socket, run->file, &off, part);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN && sent > 0 ? (ssize_t)sent : -1;
        if (n == 0) { /* the file has become shorter */
            errno = EIO;
            return -1;
        }
        sent += (size_t)n;
    }
    return (ssize_t)sent;
}

/* Sends a header and the beginning of a run. Returns as sendmsg does. */
static ssize_t send_both(int socket, const struct td_sent_run *run, const struct iovec *parts, int flags)
{
    ssize_t header = send_plainly(socket, parts[0].iov_base, parts[0].iov_len, flags | MSG_MORE);
    if (header < 0 || (size_t)header < parts[0].iov_len)
        return header;
    ssize_t n = send_part(socket, run, 0, parts[1].iov_len);
    if (n < 0)
        return errno == EAGAIN ? header : -1;
    return header + n;
}

/* In place of the C library's. */
ssize_t send(int socket, const void *bytes, size_t len, int flags)
{
    const struct td_sent_run *run = run_of(socket);
    if (run == NULL || !stands_for(run, bytes, len))
        return send_plainly(socket, bytes, len, flags);
    return send_part(socket, run, (size_t)((const char *)bytes - memory), len);
}

/* In place of the C library's. libmicrohttpd sends a header and a body at once. */
ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
    const struct iovec *parts = message->msg_iov;
    bool is_both = message->msg_iovlen == 2;
    const struct td_sent_run *run = run_of(socket);
    if (is_both && !atomic_load_explicit(&is_bound, memory_order_relaxed))
        atomic_store_explicit(&is_bound, true, memory_order_relaxed);
    if (!is_both || run == NULL || parts[1].iov_base != memory || !stands_for(run, memory, parts[1].iov_len))
        return send_message_plainly(socket, message, flags);
    return send_both(socket, run, parts, flags);
}
