/* The HTTP server: passes requests from libmicrohttpd to the api, and answers back. A connection has a thread of its
 * own that waits with poll, or shares one that waits with epoll and never waits for anything else: see
 * server/net/acceptor.h. docs/sending.md lists libmicrohttpd's traps and where each is handled. */
#ifndef TD_SERVER_MHD_HTTP_SERVER_H
#define TD_SERVER_MHD_HTTP_SERVER_H

#include "api/api.h"
#include "server/config/config.h"
#include "server/log/access_log.h"
#include "server/mhd/tls.h"
#include "server/net/acceptor.h"
#include "server/net/connection.h"

struct td_http_server;

/* Returns the version of libmicrohttpd, such as "0.9.75"; static. */
const char *td_http_server_library(void);

/* Starts libmicrohttpd without a listening socket; acceptors pass connections by td_http_server_taker. tls: the
 * credentials for connections in TD_LANE_TLS; NULL: no port has TLS. All arguments are borrowed and must outlive the
 * server. Fails with TD_RESOURCE_EXHAUSTED. */
bool td_http_server_create(const struct td_config *config, struct td_api *api, struct td_registry *registry,
                           struct td_access_log *log, struct td_tls *tls, struct td_http_server **out,
                           struct td_error *err);

/* Ends every connection, waits for its thread, and frees the server. NULL is allowed. */
void td_http_server_destroy(struct td_http_server *server);

/* Has all requests that wait for a change, and all streams, tried again: to end them after api->draining was set, or
 * because the tokens have changed. Returns at once. Any thread. */
void td_http_server_retry_waits(struct td_http_server *server);

/* Returns the taker to which acceptors pass connections. It gives each connection a thread of libmicrohttpd: in the
 * shared lane one of the workers, unless --workers is 0, else a thread of its own. Valid until
 * td_http_server_destroy. */
struct td_taker td_http_server_taker(struct td_http_server *server);

#endif
