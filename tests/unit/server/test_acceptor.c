/* Connections that the acceptor turns away, and those that the server does not take. */
#include "server/net/acceptor.h"

#include "api/api.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Two acceptors that share a registry, as the main port and that of S3 do. */
static struct {
    struct td_registry registry;
    struct td_metrics metrics;
    struct td_acceptor *acceptors[2];
    char urls[2][64];
    int clients[2];
    _Atomic int handed[2]; /* the descriptors that the acceptors handed over, in this order */
    _Atomic int handed_count;
} ports;

/* While it is set, each read from a socket returns bytes: the client sends as fast as the acceptor reads. */
static _Atomic bool sends_without_end;
static _Atomic size_t taken_bytes; /* of what such a client sends */

ssize_t __real_recv(int fd, void *bytes, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t len, int flags);

/* Ends at 16 MiB, for an acceptor that takes all it gets. */
ssize_t __wrap_recv(int fd, void *bytes, size_t len, int flags)
{
    if (!atomic_load(&sends_without_end) || (flags & (MSG_PEEK | MSG_WAITALL)) != 0)
        return __real_recv(fd, bytes, len, flags);
    memset(bytes, 'x', len);
    return atomic_fetch_add(&taken_bytes, len) < 16 << 20 ? (ssize_t)len : 0;
}

static struct sockaddr_in address_of(const char *url)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)strtoul(strrchr(url, ':') + 1, NULL, 10))};
}

/* Sends a byte to a port. The socket of the client exists already, so that its number is not one that becomes free. */
static void speak_to(size_t i)
{
    struct sockaddr_in address = address_of(ports.urls[i]);
    assert_int_equal(connect(ports.clients[i], (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(send(ports.clients[i], "G", 1, MSG_NOSIGNAL), 1);
}

/* Takes the place of the server. Like libmicrohttpd without memory for a connection, it closes the descriptor and
 * returns false. Then a client of the other port connects, and its connection gets the descriptor's number. */
static bool take_second(void *context, struct td_connection *connection, enum td_lane lane,
                        const struct sockaddr *address, unsigned int address_len)
{
    (void)context;
    (void)lane;
    (void)address;
    (void)address_len;
    int number = atomic_fetch_add(&ports.handed_count, 1);
    atomic_store(&ports.handed[number], connection->fd);
    if (number > 0)
        return true;
    assert_int_equal(close(connection->fd), 0);
    speak_to(1);
    for (int i = 0; i < 200 && atomic_load(&ports.handed_count) == 1; i++)
        nap_ms(1); /* for the other acceptor to go wrong, if it can */
    return false;
}

/* An acceptor whose connection is not taken does not touch the connection that has the descriptor's number by then. */
static void a_connection_that_is_not_taken_leaves_the_next_one_alone(void **state)
{
    (void)state;
    struct td_acceptor_config config = {.option = "--listen", .listen = "127.0.0.1:0", .facade = td_main_port};
    struct td_registry_limits limits = {.deadlines.header_timeout_ns = UINT64_C(60000000000),
                                        .deadlines.idle_timeout_ns = UINT64_C(60000000000),
                                        .max_connections = 4,
                                        .max_per_address = 4};
    struct td_error err = TD_ERROR_INIT;
    memset(&ports, 0, sizeof ports);
    assert_true(td_registry_init(&ports.registry, &limits, &ports.metrics, &err));
    for (size_t i = 0; i < 2; i++) {
        ports.clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(ports.clients[i] >= 0);
        assert_true(td_acceptor_create(&config, ports.urls[i], sizeof ports.urls[i], &ports.acceptors[i], &err));
        assert_true(td_acceptor_start(ports.acceptors[i], (struct td_taker){.take = take_second}, &ports.registry,
                                      &ports.metrics, &err));
    }
    speak_to(0);
    while (atomic_load(&ports.handed_count) < 2)
        nap_ms(1);
    for (size_t i = 0; i < 2; i++)
        td_acceptor_stop(ports.acceptors[i]);
    assert_int_equal(atomic_load(&ports.handed[0]), atomic_load(&ports.handed[1]));
    assert_int_equal(td_registry_count(&ports.registry), 1);
    struct td_connection *left = td_registry_find(&ports.registry, atomic_load(&ports.handed[1]));
    assert_non_null(left);
    assert_int_equal(ports.metrics.refused_total, 1);
    for (size_t i = 0; i < 2; i++) {
        td_acceptor_destroy(ports.acceptors[i]);
        assert_int_equal(close(ports.clients[i]), 0);
    }
    int fd = left->fd;
    td_connection_close(left);
    assert_int_equal(close(fd), 0);
    td_registry_fini(&ports.registry);
}

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
    assert_true(td_acceptor_start(acceptor, (struct td_taker){0}, &registry, &metrics,
                                  &err)); /* no connection reaches the server */
    struct sockaddr_in address = address_of(url);
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

/* A client that is refused and sends as fast as it can does not keep the thread from the others. */
/* shows: security.md client-floods */
static void a_refused_client_is_not_read_to_its_end(void **state)
{
    (void)state;
    struct td_acceptor_config config = {
        .option = "--listen", .listen = "127.0.0.1:0", .facade = td_main_port, .has_tls = true};
    struct td_registry_limits limits = {
        .deadlines.header_timeout_ns = UINT64_C(60000000000), .max_connections = 4, .max_per_address = 4};
    struct td_registry registry;
    struct td_metrics metrics;
    struct td_acceptor *acceptor = NULL;
    struct td_error err = TD_ERROR_INIT;
    char url[64];
    char answer[1024] = "";
    memset(&metrics, 0, sizeof metrics);
    assert_true(td_registry_init(&registry, &limits, &metrics, &err));
    assert_true(td_acceptor_create(&config, url, sizeof url, &acceptor, &err));
    assert_true(td_acceptor_start(acceptor, (struct td_taker){0}, &registry, &metrics, &err));
    struct sockaddr_in address = address_of(url);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    atomic_store(&taken_bytes, 0);
    atomic_store(&sends_without_end, true);
    assert_true(client >= 0 && connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    assert_int_equal(send(client, "GET / ", 6, MSG_NOSIGNAL), 6); /* no TLS */
    (void)recv(client, answer, sizeof answer - 1, MSG_WAITALL);   /* ends with the connection */
    td_acceptor_destroy(acceptor);
    atomic_store(&sends_without_end, false);
    assert_non_null(strstr(answer, "HTTP/1.1 400 "));
    assert_in_range(atomic_load(&taken_bytes), 1, 64 << 10);
    assert_int_equal(close(client), 0);
    assert_int_equal(td_registry_count(&registry), 0);
    td_registry_fini(&registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_a_connection_is_refused),
        cmocka_unit_test(a_refused_client_is_not_read_to_its_end),
        cmocka_unit_test(a_connection_that_is_not_taken_leaves_the_next_one_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
