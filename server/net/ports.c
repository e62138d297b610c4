#include "server/net/ports.h"

#include "api/api.h"
#include "server/config/listen_address.h"

#include <string.h>

/* Returns whether the port is used, and others than this machine can reach it. */
static bool is_exposed(const struct td_port *port)
{
    return port->acceptor != NULL && !td_acceptor_is_loopback(port->acceptor);
}

bool td_ports_bind(struct td_ports *ports, const struct td_config *config, const struct td_cors *cors,
                   struct td_error *err)
{
    bool has_tls = config->tls_cert[0] != '\0';
    const struct td_acceptor_config configs[TD_PORTS] = {
        [TD_PORT_MAIN] = {"--listen", config->listen, td_main_port, has_tls, cors},
        [TD_PORT_S3] = {"--s3-listen", config->s3_listen, td_s3_port, has_tls, NULL},
        [TD_PORT_GRPC] = {"--grpc-listen", config->grpc_listen, td_grpc_port, has_tls, NULL},
        [TD_PORT_PLAIN] = {"--plain-listen", config->plain_listen, td_main_port, false, cors},
    };
    for (size_t i = 0; i < TD_PORTS; i++) {
        struct td_port *port = &ports->all[i];
        if ((i == TD_PORT_MAIN || configs[i].listen[0] != '\0') &&
            !td_acceptor_create(&configs[i], port->url, sizeof port->url, &port->acceptor, err))
            return false;
    }
    return !is_exposed(&ports->all[TD_PORT_PLAIN]) ||
           td_error_set(err, TD_INVALID_ARGUMENT,
                        "--plain-listen takes an address of this machine alone, such as 127.0.0.1:8082, since it has "
                        "no TLS; others reach \"%s\"",
                        config->plain_listen);
}

const char *td_ports_address(const struct td_ports *ports, size_t i)
{
    static const char separator[] = "://";
    const char *address = strstr(ports->all[i].url, separator);
    return address == NULL ? "" : address + strlen(separator);
}

bool td_ports_judge(const struct td_ports *ports, const struct td_config *config, struct td_error *err)
{
    struct td_exposure exposure = {.has_tls = config->tls_cert[0] != '\0',
                                   .has_tokens = config->tokens[0] != '\0',
                                   .require_tls = config->require_tls,
                                   .require_auth = config->require_auth,
                                   .publish_any = strcmp(config->publish, "any") == 0};
    for (size_t i = 0; exposure.url == NULL && i < TD_PORTS; i++)
        if (is_exposed(&ports->all[i]))
            exposure.url = ports->all[i].url;
    return td_exposure_judge(&exposure, err);
}

bool td_ports_accept(struct td_ports *ports, struct td_taker taker, struct td_registry *registry,
                     struct td_metrics *metrics, struct td_error *err)
{
    for (size_t i = 0; i < TD_PORTS; i++)
        if (ports->all[i].acceptor != NULL && !td_acceptor_start(ports->all[i].acceptor, taker, registry, metrics, err))
            return false;
    return true;
}

void td_ports_stop(struct td_ports *ports)
{
    for (size_t i = 0; i < TD_PORTS; i++)
        td_acceptor_stop(ports->all[i].acceptor);
}

void td_ports_close(struct td_ports *ports)
{
    for (size_t i = 0; i < TD_PORTS; i++)
        td_acceptor_destroy(ports->all[i].acceptor);
}
