/* Tests of td_delivery_look over real TCP pairs, and of how long an answer that was sent by reference keeps its blob.
 */
#include "server/delivery.h"

#include "core/clock.h"
#include "server/connection.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 40000 }; /* fit a receive buffer, in whatever segments they come */

static char bytes[BYTES];

struct pair {
    int server, client;
};

/* Connects over loopback. family: AF_INET, AF_INET6, or 0 for an IPv4 client of an IPv6 socket. */
static struct pair connect_pair(int family)
{
    struct pair pair;
    struct sockaddr_storage name = {0};
    socklen_t len = sizeof name;
    int off = 0;
    int listener = socket(family == AF_INET ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    if (family != AF_INET)
        assert_int_equal(setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off), 0);
    name.ss_family = family == AF_INET ? AF_INET : AF_INET6;
    assert_int_equal(bind(listener, (struct sockaddr *)&name,
                          family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)),
                     0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&name, &len), 0);
    in_port_t port =
        family == AF_INET ? ((struct sockaddr_in *)&name)->sin_port : ((struct sockaddr_in6 *)&name)->sin6_port;
    struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    pair.client = socket(family == AF_INET6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (family == AF_INET6)
        assert_int_equal(connect(pair.client, (struct sockaddr *)&to6, sizeof to6), 0);
    else
        assert_int_equal(connect(pair.client, (struct sockaddr *)&to4, sizeof to4), 0);
    pair.server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(pair.server >= 0);
    assert_int_equal(close(listener), 0);
    return pair;
}

static void send_some(const struct pair *pair)
{
    assert_int_equal(send(pair->server, bytes, BYTES, MSG_NOSIGNAL), BYTES);
}

static void read_some(const struct pair *pair, size_t count)
{
    static char into[BYTES];
    while (count > 0) {
        ssize_t n = recv(pair->client, into, count, 0);
        assert_true(n > 0);
        count -= (size_t)n;
    }
}

static void settles_as(int netlink, int fd, const struct td_ends *ends, enum td_delivery wanted)
{
    uint64_t until_ns = td_clock_ns() + UINT64_C(10000000000);
    while (td_delivery_look(netlink, fd, ends) != wanted && td_clock_ns() < until_ns)
        (void)poll(NULL, 0, 1);
    assert_int_equal(td_delivery_look(netlink, fd, ends), wanted);
}

/* Acknowledged is not read: only an empty queue at the other end is. */
static void a_reader_of_this_host_is_looked_at(void **state)
{
    (void)state;
    static const int families[] = {AF_INET, AF_INET6, 0};
    int netlink = td_delivery_open();
    assert_true(netlink >= 0);
    for (size_t i = 0; i < COUNT_OF(families); i++) {
        struct td_ends ends;
        struct pair pair = connect_pair(families[i]);
        assert_true(td_delivery_ends(pair.server, &ends));
        assert_int_equal(td_delivery_look(netlink, pair.server, &ends), TD_DELIVERY_READ);
        send_some(&pair);
        assert_int_equal(td_delivery_look(netlink, pair.server, &ends), TD_DELIVERY_PENDING);
        read_some(&pair, BYTES - 1);
        settles_as(netlink, pair.server, &ends, TD_DELIVERY_PENDING);
        assert_int_equal(td_delivery_look(netlink, -1, &ends), TD_DELIVERY_PENDING);
        read_some(&pair, 1);
        settles_as(netlink, pair.server, &ends, TD_DELIVERY_READ);
        settles_as(netlink, -1, &ends, TD_DELIVERY_READ);
        (void)close(pair.server);
        (void)close(pair.client);
    }
    (void)close(netlink);
}

/* The end of the sender's side is not taken for a byte that waits. */
static void a_closed_sender_is_looked_at(void **state)
{
    (void)state;
    char end;
    struct td_ends ends;
    int netlink = td_delivery_open();
    struct pair pair = connect_pair(AF_INET);
    assert_true(td_delivery_ends(pair.server, &ends));
    send_some(&pair);
    (void)close(pair.server);
    read_some(&pair, BYTES - 1);
    assert_int_equal(td_delivery_look(netlink, -1, &ends), TD_DELIVERY_PENDING);
    read_some(&pair, 1);
    settles_as(netlink, -1, &ends, TD_DELIVERY_READ); /* its reader has not seen the end yet */
    assert_int_equal(recv(pair.client, &end, 1, 0), 0);
    settles_as(netlink, -1, &ends, TD_DELIVERY_READ);
    (void)close(pair.client);
    settles_as(netlink, -1, &ends, TD_DELIVERY_ARRIVED); /* the socket is gone */
    (void)close(netlink);
}

static void without_netlink_arrival_is_all_that_is_known(void **state)
{
    (void)state;
    struct td_ends ends;
    struct pair pair = connect_pair(AF_INET);
    assert_true(td_delivery_ends(pair.server, &ends));
    assert_false(td_delivery_ends(STDIN_FILENO, &ends) || td_delivery_ends(-1, &ends));
    send_some(&pair);
    settles_as(-1, pair.server, &ends, TD_DELIVERY_ARRIVED);
    (void)close(pair.server);
    (void)close(pair.client);
}

/* ---- how long a blob is kept --------------------------------------------------------------------------- */

static struct td_registry registry;
static struct td_metrics metrics;

static void open_registry(void)
{
    struct td_error err = TD_ERROR_INIT;
    uint64_t minute = UINT64_C(60000000000);
    struct td_registry_limits limits = {.header_timeout_ns = minute,
                                        .idle_timeout_ns = minute,
                                        .send_timeout_ns = minute,
                                        .max_connections = 4,
                                        .max_per_address = 4};
    assert_true(td_registry_init(&registry, &limits, &metrics, &err));
}

static struct td_blob *make_blob(void)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_blob *blob = NULL;
    assert_true(td_blob_from_heap(NULL, 0, &blob, &err));
    return blob;
}

struct sent {
    struct pair pair;
    struct td_connection *connection;
    struct td_blob *blob;
};

/* A request came, and an answer from the blob was sent to its end. */
static struct sent answer_by_reference(void)
{
    static const char request[] = "GET";
    char got[sizeof request];
    struct in6_addr address = IN6ADDR_LOOPBACK_INIT;
    struct sent sent = {.pair = connect_pair(AF_INET), .blob = make_blob()};
    sent.connection = td_connection_open(&registry, sent.pair.server, &address);
    assert_int_equal(send(sent.pair.client, request, sizeof request, 0), sizeof request);
    assert_int_equal(recv(sent.pair.server, got, sizeof got, MSG_WAITALL), sizeof got);
    sent.connection->received_bytes = sizeof request;
    td_connection_refer(sent.connection, sent.blob);
    assert_true(td_blob_is_shared(sent.blob));
    send_some(&sent.pair);
    return sent;
}

static void end_sent(struct sent *sent)
{
    if (sent->connection != NULL)
        td_connection_close(sent->connection);
    (void)close(sent->pair.server);
    (void)close(sent->pair.client);
    assert_false(td_blob_is_shared(sent->blob));
    td_blob_unref(sent->blob);
}

static void settles(const struct td_blob *blob)
{
    uint64_t until_ns = td_clock_ns() + UINT64_C(10000000000);
    while (td_registry_settle(&registry, blob) > 0 && td_clock_ns() < until_ns)
        (void)poll(NULL, 0, 1);
    assert_int_equal(td_registry_settle(&registry, blob), 0);
}

static void an_unread_answer_keeps_its_blob(void **state)
{
    (void)state;
    open_registry();
    struct td_blob *other = make_blob();
    struct sent sent = answer_by_reference();
    td_connection_end_answer(sent.connection, true);
    assert_true(td_blob_is_shared(sent.blob));
    assert_int_equal(td_registry_settle(&registry, sent.blob), 1);
    assert_int_equal(td_registry_settle(&registry, other), 0);
    read_some(&sent.pair, BYTES - 1);
    assert_int_equal(td_registry_settle(&registry, sent.blob), 1);
    read_some(&sent.pair, 1);
    settles(sent.blob);
    assert_false(td_blob_is_shared(sent.blob));
    end_sent(&sent);
    td_blob_unref(other);
    td_registry_fini(&registry);
}

static void the_next_request_proves_that_the_answer_was_read(void **state)
{
    (void)state;
    open_registry();
    struct sent sent = answer_by_reference();
    td_connection_end_answer(sent.connection, true);
    assert_false(sent.connection->proves_nothing);
    td_connection_prove(sent.connection);
    assert_false(td_blob_is_shared(sent.blob));
    end_sent(&sent);
    td_registry_fini(&registry);
}

/* A prompt client's next request may look as if it pipelined. Until a later one proves that everything was read, only
 * the same blob is sent by reference, and other answers are watched. */
static void a_later_request_may_be_the_proof(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        open_registry();
        struct td_blob *other = make_blob();
        struct sent sent = answer_by_reference();
        assert_int_equal(send(sent.pair.client, "G", 1, 0), 1);
        assert_true(td_connection_may_refer(sent.connection, other));
        td_connection_end_answer(sent.connection, true);
        td_connection_prove(sent.connection);
        assert_true(sent.connection->proves_nothing);
        assert_false(td_connection_may_refer(sent.connection, other));
        assert_true(td_connection_may_refer(sent.connection, sent.blob));
        sent.connection->received_bytes++;
        if (how == 0)
            td_connection_refer(sent.connection, sent.blob);
        else
            td_connection_hold(sent.connection);
        td_connection_end_answer(sent.connection, true);
        assert_false(sent.connection->proves_nothing);
        assert_true(td_blob_is_shared(sent.blob));
        td_connection_prove(sent.connection);
        assert_false(td_blob_is_shared(sent.blob));
        assert_true(td_connection_may_refer(sent.connection, other));
        td_connection_hold(sent.connection);
        assert_false(sent.connection->is_held);
        end_sent(&sent);
        td_blob_unref(other);
        td_registry_fini(&registry);
    }
}

/* Neither the requests of a client that pipelines nor those of one that has closed its side prove anything; their
 * answers are kept beyond the connection's end. */
static void pipelined_requests_prove_nothing(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        open_registry();
        struct sent sent = answer_by_reference();
        if (how == 0)
            assert_int_equal(send(sent.pair.client, "G", 1, 0), 1);
        else
            assert_int_equal(shutdown(sent.pair.client, SHUT_WR), 0);
        td_connection_end_answer(sent.connection, true);
        assert_true(sent.connection->proves_nothing);
        td_connection_prove(sent.connection);
        assert_true(td_blob_is_shared(sent.blob));
        td_connection_close(sent.connection);
        sent.connection = NULL;
        (void)shutdown(sent.pair.server, SHUT_WR);
        assert_true(td_blob_is_shared(sent.blob));
        assert_int_equal(td_registry_settle(&registry, sent.blob), 1);
        read_some(&sent.pair, BYTES);
        if (how == 0)
            settles(sent.blob);
        td_registry_fini(&registry); /* a client that has closed its side is in TIME_WAIT for a minute */
        end_sent(&sent);
    }
}

static void an_incomplete_answer_keeps_nothing(void **state)
{
    (void)state;
    open_registry();
    struct sent sent = answer_by_reference();
    td_connection_end_answer(sent.connection, false);
    assert_false(td_blob_is_shared(sent.blob));
    end_sent(&sent);
    td_registry_fini(&registry);
}

/* The client's own end proves that it has read, the server's does not. */
static void the_end_that_the_client_makes_is_proof(void **state)
{
    (void)state;
    for (int by_client = 0; by_client <= 1; by_client++) {
        open_registry();
        struct sent sent = answer_by_reference();
        td_connection_end_answer(sent.connection, true);
        if (by_client) {
            read_some(&sent.pair, BYTES);
            struct pollfd end = {.fd = sent.pair.server, .events = POLLRDHUP};
            assert_int_equal(shutdown(sent.pair.client, SHUT_WR), 0);
            assert_int_equal(poll(&end, 1, 10000), 1);
        }
        td_connection_close(sent.connection);
        sent.connection = NULL;
        assert_int_equal(td_blob_is_shared(sent.blob), !by_client);
        if (!by_client)
            read_some(&sent.pair, BYTES);
        settles(sent.blob);
        end_sent(&sent);
        td_registry_fini(&registry);
    }
}

/* The registry forgets the oldest answer of a closed connection when there are too many. */
static void departed_answers_are_bounded(void **state)
{
    (void)state;
    open_registry();
    struct td_blob *blob = make_blob();
    for (int i = 0; i < TD_DEPARTED + 5; i++) {
        struct in6_addr address = IN6ADDR_LOOPBACK_INIT;
        struct pair pair = connect_pair(AF_INET);
        struct td_connection *connection = td_connection_open(&registry, pair.server, &address);
        td_connection_refer(connection, blob);
        assert_int_equal(send(pair.server, bytes, 10, MSG_NOSIGNAL), 10);
        td_connection_end_answer(connection, true);
        td_connection_close(connection);
        (void)close(pair.client); /* the look at its queue finds no socket: it may have read 2 s later */
        (void)close(pair.server);
    }
    assert_in_range(registry.departed_count, TD_DEPARTED / 2, TD_DEPARTED);
    td_registry_fini(&registry);
    assert_false(td_blob_is_shared(blob));
    td_blob_unref(blob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_of_this_host_is_looked_at),
        cmocka_unit_test(a_closed_sender_is_looked_at),
        cmocka_unit_test(without_netlink_arrival_is_all_that_is_known),
        cmocka_unit_test(an_unread_answer_keeps_its_blob),
        cmocka_unit_test(the_next_request_proves_that_the_answer_was_read),
        cmocka_unit_test(a_later_request_may_be_the_proof),
        cmocka_unit_test(pipelined_requests_prove_nothing),
        cmocka_unit_test(an_incomplete_answer_keeps_nothing),
        cmocka_unit_test(the_end_that_the_client_makes_is_proof),
        cmocka_unit_test(departed_answers_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
