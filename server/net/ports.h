/* The ports of a server: the main port and, if they are given, those of --s3-listen, --grpc-listen and --plain-listen.
 * They are bound first, so that a port in use fails the start at once, and begin to accept last. Threads: one at a
 * time. */
#ifndef TD_SERVER_NET_PORTS_H
#define TD_SERVER_NET_PORTS_H

#include "server/config/config.h"
#include "server/net/acceptor.h"

#include <stdbool.h>

enum { TD_PORT_MAIN, TD_PORT_S3, TD_PORT_GRPC, TD_PORT_PLAIN, TD_PORTS };

struct td_ports {
    struct td_port {
        struct td_acceptor *acceptor; /* NULL: the port is not used */
        char url[128];
    } all[TD_PORTS];
};

/* Binds the ports. `ports` is zeros, and is closed also after a failure. cors: the origins whose pages may read answers
 * of the main port; NULL: none. It must outlive the ports. Errors as td_acceptor_create; TD_INVALID_ARGUMENT for a
 * --plain-listen that others than this machine can reach. */
bool td_ports_bind(struct td_ports *ports, const struct td_config *config, const struct td_cors *cors,
                   struct td_error *err);

/* Returns the address that a port is bound to, with the number that the system chose for port 0; empty: the port is not
 * used. Lives as long as `ports`. */
const char *td_ports_address(const struct td_ports *ports, size_t i);

/* Checks whether other machines can reach a port without TLS or without a token. Errors as td_exposure_judge. */
bool td_ports_judge(const struct td_ports *ports, const struct td_config *config, struct td_error *err);

/* Begins to accept connections on all ports. All arguments are borrowed. Errors as td_acceptor_start. */
bool td_ports_accept(struct td_ports *ports, struct td_taker taker, struct td_registry *registry,
                     struct td_metrics *metrics, struct td_error *err);

/* Closes the listening sockets. */
void td_ports_stop(struct td_ports *ports);

/* Frees the acceptors. Allowed for zeros. */
void td_ports_close(struct td_ports *ports);

#endif
