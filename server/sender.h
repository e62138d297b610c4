/* Sends bodies of answers in libmicrohttpd's place. libmicrohttpd has no way to send vectors or, beside other bytes,
 * runs of files by reference (sendfile), and it cannot be told to withhold the last bytes of a body.
 *
 * sender.c defines send, sendmsg and shutdown in place of the C library's. libmicrohttpd is given td_sender_memory as
 * the body, which nobody can read. A call for bytes there calls the body that is registered for the socket; any other
 * call goes to the kernel as it is. */
#ifndef TD_SERVER_SENDER_H
#define TD_SERVER_SENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

/* A body. */
struct td_sent {
    size_t len;
    /* Sends bytes from `at` on, up to `len` of them, as send(2) does to a socket that does not block: returns fewer
     * only when the socket is full; -1, with errno, when it was full at once, and for any other error, which ends the
     * connection. On the thread that sends. */
    ssize_t (*send)(void *context, int socket, size_t at, size_t len);
    void *context;
};

/* Returns the memory that stands for a body of len bytes, the same for all; NULL while libmicrohttpd's calls have not
 * been seen to come here, or without so much address space. Any thread. */
char *td_sender_memory(size_t len);

/* Registers the body that will be sent to this socket, which must not block; *body must stay until td_sender_end.
 * Returns false, with nothing registered, for a descriptor that is too large for the table. Called by the thread that
 * sends to the socket or, as td_sender_end, while that thread waits. */
bool td_sender_begin(int socket, const struct td_sent *body);

/* Sends a message as sendmsg(2) does, and never a registered body: for all who send to a socket beside libmicrohttpd.
 */
ssize_t td_sender_pass(int socket, const struct msghdr *message, int flags);

/* Ends the registration, before the socket is closed. Does nothing without one. */
void td_sender_end(int socket);

/* A callback for the moment before this program or libmicrohttpd shuts a socket down (shutdown(2)), on the same thread.
 * Only until then does the state of the connection show what the client has done. */
struct td_sender_end {
    bool (*before)(void *context); /* returns whether the sending side may be shut down now */
    void *context;
};

/* Registers *end for this socket; *end must live until td_sender_unwatch. Returns false for a descriptor that is too
 * large for the table. */
bool td_sender_watch(int socket, const struct td_sender_end *end);

/* Ends the registration of td_sender_watch; call it before the socket is closed. Does nothing without one. */
void td_sender_unwatch(int socket);

#endif
