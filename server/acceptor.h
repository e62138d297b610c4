/* Acceptors: our own listening sockets and accept loops, one for each port. libmicrohttpd's stops accepting silently at
 * its limit and cannot be told to stop cleanly; this one answers 503 and 429 at the limits, pauses when descriptors run
 * out, and stops when draining. */
#ifndef TD_SERVER_ACCEPTOR_H
#define TD_SERVER_ACCEPTOR_H

#include "server/connection.h"
#include "server/http_server.h"

struct td_acceptor;

/* True for ADDRESS:PORT, [ADDRESS]:PORT and :PORT; the address itself is not looked up. */
bool td_acceptor_is_listen(const char *listen);

/* Where to listen, for what. */
struct td_acceptor_config {
    const char *option; /* what errors call it: --listen */
    const char *listen; /* ADDRESS:PORT, [ADDRESS]:PORT, :PORT for all */
    enum td_facade facade;
};

/* Binds and starts accepting. `url` receives what to type: http://127.0.0.1:8080. Errors say which address and what to
 * do. */
bool td_acceptor_create(const struct td_acceptor_config *config, struct td_http_server *server,
                        struct td_registry *registry, struct td_metrics *metrics, char *url, size_t url_capacity,
                        struct td_acceptor **out, struct td_error *err);

/* Closes the listening socket: from now on connections are refused by the kernel. NULL is fine. */
void td_acceptor_stop(struct td_acceptor *acceptor);

/* Stops if need be, and frees. NULL is fine. */
void td_acceptor_destroy(struct td_acceptor *acceptor);

#endif
