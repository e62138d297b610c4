/* The HTTP server: libmicrohttpd, one thread per connection with poll, which measured fastest; docs/architecture.md
 * names its traps and where each is handled. */
#ifndef TD_SERVER_HTTP_SERVER_H
#define TD_SERVER_HTTP_SERVER_H

#include "api/api.h"
#include "server/access_log.h"
#include "server/config.h"
#include "server/connection.h"

struct td_http_server;

/* Starts the machinery without a listening socket; connections come in by td_http_server_add. All arguments are
 * borrowed and must outlive the server. */
bool td_http_server_create(const struct td_config *config, struct td_api *api, struct td_registry *registry,
                           struct td_access_log *log, struct td_http_server **out, struct td_error *err);

/* Ends every connection and waits for its thread. */
void td_http_server_destroy(struct td_http_server *server);

struct sockaddr;

/* Takes over an accepted, registered connection; closes it on failure. */
bool td_http_server_add(struct td_http_server *server, int fd, const struct sockaddr *address,
                        unsigned int address_len);

#endif
