#include "server/net/ports.h"

#include "api/api.h"
#include "server/config/exposure.h"

enum { PORTS = 3 };

/* Writes the acceptors of all ports to `all`; NULL for a port that is not used. */
static void list_acceptors(const struct td_ports *ports, struct td_acceptor *all[PORTS])
{
    all[0] = ports->main;
    all[1] = ports->s3;
    all[2] = ports->plain;
}

/* Binds the port of --plain-listen, if it is given. */
static bool bind_plain(struct td_ports *ports, const struct td_config *config, struct td_error *err)
{
    struct td_acceptor_config port = {
        .option = "--plain-listen", .listen = config->plain_listen, .facade = td_main_port};
    if (config->plain_listen[0] == '\0')
        return true;
    return td_acceptor_create(&port, ports->plain_url, sizeof ports->plain_url, &ports->plain, err) &&
           (td_acceptor_is_loopback(ports->plain) ||
            td_error_set(err, TD_INVALID_ARGUMENT,
                         "--plain-listen takes an address of this machine alone, such as 127.0.0.1:8082, since it has "
                         "no TLS; others reach \"%s\"",
                         config->plain_listen));
}

bool td_ports_bind(struct td_ports *ports, const struct td_config *config, struct td_error *err)
{
    bool has_tls = config->tls_cert[0] != '\0';
    struct td_acceptor_config main_port = {
        .option = "--listen", .listen = config->listen, .facade = td_main_port, .has_tls = has_tls};
    struct td_acceptor_config s3_port = {
        .option = "--s3-listen", .listen = config->s3_listen, .facade = td_s3_port, .has_tls = has_tls};
    return td_acceptor_create(&main_port, ports->url, sizeof ports->url, &ports->main, err) &&
           (config->s3_listen[0] == '\0' ||
            td_acceptor_create(&s3_port, ports->s3_url, sizeof ports->s3_url, &ports->s3, err)) &&
           bind_plain(ports, config, err);
}

bool td_ports_judge(const struct td_ports *ports, const struct td_config *config, struct td_error *err)
{
    struct td_exposure exposure = {.has_tls = config->tls_cert[0] != '\0',
                                   .has_tokens = config->tokens[0] != '\0',
                                   .require_tls = config->require_tls,
                                   .require_auth = config->require_auth};
    if (ports->s3 != NULL && !td_acceptor_is_loopback(ports->s3))
        exposure.url = ports->s3_url;
    if (!td_acceptor_is_loopback(ports->main))
        exposure.url = ports->url;
    return td_exposure_judge(&exposure, err);
}

bool td_ports_accept(struct td_ports *ports, struct td_taker taker, struct td_registry *registry,
                     struct td_metrics *metrics, struct td_error *err)
{
    struct td_acceptor *all[PORTS];
    list_acceptors(ports, all);
    for (size_t i = 0; i < PORTS; i++)
        if (all[i] != NULL && !td_acceptor_start(all[i], taker, registry, metrics, err))
            return false;
    return true;
}

void td_ports_stop(struct td_ports *ports)
{
    struct td_acceptor *all[PORTS];
    list_acceptors(ports, all);
    for (size_t i = 0; i < PORTS; i++)
        td_acceptor_stop(all[i]);
}

void td_ports_close(struct td_ports *ports)
{
    struct td_acceptor *all[PORTS];
    list_acceptors(ports, all);
    for (size_t i = 0; i < PORTS; i++)
        td_acceptor_destroy(all[i]);
}
