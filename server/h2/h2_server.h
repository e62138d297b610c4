/* The server of HTTP/2 for calls of gRPC, on the port of --grpc-listen: without TLS by prior knowledge, with TLS by
 * ALPN "h2". Loops, each a thread that waits with epoll, serve all connections, and wait for nothing else: requests are
 * handled by jobs (h2_work.h). libnghttp2 is used in this folder alone. */
#ifndef TD_SERVER_H2_H2_SERVER_H
#define TD_SERVER_H2_H2_SERVER_H

#include "server/net/acceptor.h"
#include "server/serving/serving.h"

struct td_h2_server;

/* Returns the version of libnghttp2, such as "1.52.0"; static. */
const char *td_h2_server_library(void);

/* Starts the loops. `serving`, which has jobs, is borrowed and must outlive the server. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_h2_server_create(struct td_serving *serving, struct td_h2_server **out, struct td_error *err);

/* Ends every connection, waits for all work for them, and frees the server. Sets api->draining. td_serving_close comes
 * later. NULL is allowed. */
void td_h2_server_destroy(struct td_h2_server *server);

/* Takes over a connection, as td_taker says. Any thread. */
bool td_h2_server_take(struct td_h2_server *server, struct td_connection *connection);

#endif
