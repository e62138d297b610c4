/* A connection of HTTP/2: a session over a socket. All functions are for the thread of the connection's loop. */
#ifndef TD_SERVER_H2_H2_CONNECTION_H
#define TD_SERVER_H2_H2_CONNECTION_H

#include "server/h2/h2_deadlines.h"
#include "server/h2/h2_mailbox.h"
#include "server/serving/serving.h"

#include <sys/epoll.h>

struct td_h2_connection;

/* The loop of a connection. */
struct td_h2_owner {
    struct td_serving *serving;
    struct td_h2_mailbox *mailbox;
    int epoll_fd;
    struct td_h2_connection *first; /* all connections of the loop */
};

/* Makes a connection of a registered descriptor, which it then owns together with the entry in the registry. Returns
 * NULL without memory. Any thread: the loop begins with it when it receives the mail. */
struct td_h2_connection *td_h2_connection_create(struct td_h2_owner *owner, struct td_connection *entry);

/* Returns the mail by which the connection is handed to its loop. */
struct td_h2_mail *td_h2_connection_mail(struct td_h2_connection *connection);

/* Handles `count` events of the loop's epoll instance. The data.ptr of an event is its connection, or NULL for the
 * mailbox, which this function reads last. The call may free connections. */
void td_h2_owner_handle(struct td_h2_owner *owner, const struct epoll_event *events, int count);

/* Checks the deadlines of the connection and of its streams, and continues its end when the server drains. The
 * connection may be gone after that. */
void td_h2_connection_check(struct td_h2_connection *connection, const struct td_h2_round *round);

/* Ends the connection, whatever is being sent. It is freed when no thread works for it any more. */
void td_h2_connection_end(struct td_h2_connection *connection);

/* Returns the next connection of the loop, or NULL after the last one. */
struct td_h2_connection *td_h2_connection_next(const struct td_h2_connection *connection);

#endif
