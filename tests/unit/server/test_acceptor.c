/* Connections that the acceptor turns away. */
#include "server/acceptor.h"

#include "api/api.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Without memory for a connection, the client gets 503, the connection is counted as refused, and the log says why. */
static void without_memory_a_connection_is_refused(void **state)
{
    (void)state;
    static const struct td_acceptor_config config = {.option = "--listen", .listen = "127.0.0.1:0"};
    struct td_acceptor_config listen_config = config;
    struct td_registry_limits limits = {.max_connections = 4, .max_per_address = 4};
    struct td_registry registry;
    struct td_metrics metrics;
    struct td_acceptor *acceptor = NULL;
    struct td_error err = TD_ERROR_INIT;
    char url[64];
    char answer[1024] = "";
    char log[512] = "";
    memset(&metrics, 0, sizeof metrics);
    listen_config.facade = td_main_port;
    assert_true(td_registry_init(&registry, &limits, &metrics, &err));
    assert_true(td_acceptor_create(&listen_config, url, sizeof url, &acceptor, &err));
    assert_true(td_acceptor_start(acceptor, NULL, &registry, &metrics, &err)); /* no connection reaches the server */
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)strtoul(strrchr(url, ':') + 1, NULL, 10))};
    int told = memfd_create("log", MFD_CLOEXEC);
    int standard_error = dup(STDERR_FILENO);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(told >= 0 && standard_error >= 0 && client >= 0 && dup2(told, STDERR_FILENO) >= 0);
    alloc_fail_at(1);
    bool is_connected = connect(client, (struct sockaddr *)&address, sizeof address) == 0;
    ssize_t n = is_connected ? recv(client, answer, sizeof answer - 1, MSG_WAITALL) : -1;
    alloc_fail_at(0);
    assert_true(dup2(standard_error, STDERR_FILENO) >= 0);
    assert_true(n > 0 && pread(told, log, sizeof log - 1, 0) > 0);
    assert_non_null(strstr(answer, "HTTP/1.1 503 "));
    assert_non_null(strstr(log, "cannot accept connections: Cannot allocate memory"));
    assert_int_equal(metrics.refused_total, 1);
    assert_int_equal(metrics.accepted, 0);
    assert_int_equal(td_registry_count(&registry), 0);
    assert_true(close(client) == 0 && close(told) == 0 && close(standard_error) == 0);
    td_acceptor_destroy(acceptor);
    td_registry_fini(&registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_a_connection_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
