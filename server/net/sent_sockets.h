/* Registers for each socket the body that is being sent to it, and a callback before its shutdown. The table has one
 * entry for each descriptor below 65,536, since the descriptor is the only argument of send(2), sendmsg(2) and
 * shutdown(2), which server/mhd/sender replaces, that identifies a connection. */
#ifndef TD_SERVER_NET_SENT_SOCKETS_H
#define TD_SERVER_NET_SENT_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
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

/* A callback for the moment before this program or libmicrohttpd shuts a socket down, on the same thread. Only until
 * then does the state of the connection show what the client has done. */
struct td_sent_shutdown {
    bool (*before)(void *context); /* returns whether the sending side may be shut down now */
    void *context;
};

/* Registers the body that will be sent to this socket, which must not block; *body must stay until td_sent_end. Returns
 * false, with nothing registered, for a descriptor that is too large for the table. Called by the thread that sends to
 * the socket or, as td_sent_end, while that thread waits. */
bool td_sent_begin(int socket, const struct td_sent *body);

/* Ends the registration, before the socket is closed. Does nothing without one. */
void td_sent_end(int socket);

/* Returns the registered body, or NULL. On the thread that sends. */
const struct td_sent *td_sent_of(int socket);

/* Registers *shutdown for this socket; it must live until td_sent_unwatch. Returns false for a descriptor that is too
 * large for the table. */
bool td_sent_watch(int socket, const struct td_sent_shutdown *shutdown);

/* Ends the registration of td_sent_watch; call it before the socket is closed. Does nothing without one. */
void td_sent_unwatch(int socket);

/* Does what shutdown(2) does, but leaves the sending side open if the registered callback asks for it. */
int td_sent_shut_down(int socket, int how);

#endif
