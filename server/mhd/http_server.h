/* The HTTP server: passes requests from libmicrohttpd to the api, and answers back. A connection has a thread of its
 * own that waits with poll, or shares one that waits with epoll and never waits for anything else: see
 * server/net/acceptor.h. docs/sending.md lists libmicrohttpd's traps and where each is handled. */
#ifndef TD_SERVER_MHD_HTTP_SERVER_H
#define TD_SERVER_MHD_HTTP_SERVER_H

#include "server/net/acceptor.h"
#include "server/serving/serving.h"

struct td_http_server;

/* Returns the version of libmicrohttpd, such as "0.9.75"; static. */
const char *td_http_server_library(void);

/* Starts libmicrohttpd without a listening socket; acceptors pass connections by td_http_server_taker. With
 * serving->tls there are connections in TD_LANE_TLS. `serving` is borrowed and must outlive the server. Fails with
 * TD_RESOURCE_EXHAUSTED. */
bool td_http_server_create(struct td_serving *serving, struct td_http_server **out, struct td_error *err);

/* Ends every connection, waits for its thread, and frees the server. td_serving_close comes first: libmicrohttpd must
 * not be stopped while a connection is suspended. NULL is allowed. */
void td_http_server_destroy(struct td_http_server *server);

/* Returns the taker to which acceptors pass connections. It gives each connection a thread of libmicrohttpd: in the
 * shared lane one of the workers, unless --workers is 0, else a thread of its own. Valid until
 * td_http_server_destroy. */
struct td_taker td_http_server_taker(struct td_http_server *server);

#endif
