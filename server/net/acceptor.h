/* Acceptors: each has one listening socket and one thread that accepts its connections. libmicrohttpd's own listener is
 * not used, because it stops accepting silently at its limit and cannot be stopped cleanly. An acceptor answers 503 and
 * 429 at the limits, pauses 50 ms when descriptors run out, and stops when the server drains. */
#ifndef TD_SERVER_NET_ACCEPTOR_H
#define TD_SERVER_NET_ACCEPTOR_H

#include "core/text.h"
#include "server/net/connection.h"

struct td_acceptor;
struct sockaddr;

/* Whether a connection gets a thread of its own or shares one with others (server/mhd/http_server.h). Short answers are
 * cheaper in a shared thread, long ones in a thread of their own. libmicrohttpd cannot move a connection, so its first
 * request decides; later requests of another kind are answered correctly, too, but at a higher cost. */
enum td_lane {
    TD_LANE_OWN,    /* a thread of its own */
    TD_LANE_SHARED, /* a thread that serves many connections and never waits */
    TD_LANE_UPLOAD, /* a thread of its own, and room for large pieces of a body, where uploads are taken */
    TD_LANE_TLS,    /* a thread of its own, with TLS: all connections of a port with TLS */
    TD_LANE_HTTP2   /* a loop that serves many connections: all of a port for HTTP/2, with TLS or without */
};

/* Longest range, or sum of ranges, that counts as a short answer. */
enum { TD_LANE_SHORT_BYTES = 256 * 1024 };

/* The server that takes accepted connections over. */
struct td_taker {
    /* Takes over the descriptor of a registered connection, and gives it a thread. Returns false on failure, with the
     * descriptor closed; the acceptor then removes the connection from the registry. Any thread. */
    bool (*take)(void *context, struct td_connection *connection, enum td_lane lane, const struct sockaddr *address,
                 unsigned int address_len);
    void *context;
};

/* An address to listen on, and the facade that its connections belong to. */
struct td_acceptor_config {
    const char *option;             /* the option that set the address, for error messages: "--listen" */
    const char *listen;             /* ADDRESS:PORT, [ADDRESS]:PORT, or :PORT for all addresses */
    const struct td_facade *facade; /* that of a port (api/api.h) */
    bool has_tls;
    const struct td_cors *cors; /* the origins whose pages may read answers; NULL: none. Must outlive the acceptor */
};

/* Binds and listens, but accepts no connection yet: clients wait in the kernel's queue. Writes the URL of the port to
 * `url`, such as http://127.0.0.1:8080 or, with TLS, https://127.0.0.1:8443. The config is read during the call alone.
 * Errors: TD_INVALID_ARGUMENT for a malformed address, TD_IO when listening fails, with a hint, TD_RESOURCE_EXHAUSTED.
 */
bool td_acceptor_create(const struct td_acceptor_config *config, char *url, size_t url_capacity,
                        struct td_acceptor **out, struct td_error *err);

/* Returns whether only this machine can reach the address: it is in 127.0.0.0/8, or ::1. */
bool td_acceptor_is_loopback(const struct td_acceptor *acceptor);

/* Starts accepting connections. Each one that is within the limits is registered and passed to the taker. The taker's
 * context, registry and metrics are borrowed and must outlive the acceptor. Call once. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_acceptor_start(struct td_acceptor *acceptor, struct td_taker taker, struct td_registry *registry,
                       struct td_metrics *metrics, struct td_error *err);

/* Stops accepting and closes the listening socket, so that the kernel refuses further connections. Open connections
 * continue, also those that have sent nothing yet. NULL is allowed. */
void td_acceptor_stop(struct td_acceptor *acceptor);

/* Stops the acceptor, waits for its thread, closes the connections that have sent nothing yet, and frees it. The server
 * is destroyed later. NULL is allowed. */
void td_acceptor_destroy(struct td_acceptor *acceptor);

/* Returns the lane for a connection to a port (its facade) that begins with these bytes: shared for a GET or HEAD with
 * a complete header that asks for a short answer, as far as the header shows; for uploads for a PUT, PATCH or POST
 * whose body is chunked or long. */
enum td_lane td_lane_of(const struct td_facade *port, struct td_text bytes);

#endif
