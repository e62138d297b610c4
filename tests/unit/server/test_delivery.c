/* Tests of td_delivery_look over real TCP pairs, and of how long an answer that was sent by reference keeps its blob.
 */
#include "server/net/delivery.h"

#include "core/clock.h"
#include "server/net/connection.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 40000 }; /* fit a receive buffer, in whatever segments they come */

static char bytes[BYTES];

struct pair {
    int server, client;
};

/* The interface that the client is bound to; NULL: none. */
static const char *connect_by;

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
    if (connect_by != NULL)
        assert_int_equal(
            setsockopt(pair.client, SOL_SOCKET, SO_BINDTODEVICE, connect_by, (socklen_t)strlen(connect_by)), 0);
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

static struct td_delivery kernel;

static int open_kernel(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_delivery_init(&kernel, &err) && kernel.can_look);
    return 0;
}

static int close_kernel(void **state)
{
    (void)state;
    td_delivery_fini(&kernel);
    return 0;
}

static void settles_as(int fd, const struct td_ends *ends, enum td_delivery_state wanted)
{
    uint64_t until_ns = td_clock_ns() + UINT64_C(10000000000);
    while (td_delivery_look(&kernel, fd, ends) != wanted && td_clock_ns() < until_ns)
        (void)poll(NULL, 0, 1);
    assert_int_equal(td_delivery_look(&kernel, fd, ends), wanted);
}

/* Acknowledged is not read: only an empty queue at the other end is. */
static void a_reader_of_this_host_is_looked_at(void **state)
{
    (void)state;
    static const int families[] = {AF_INET, AF_INET6, 0};
    for (size_t i = 0; i < COUNT_OF(families); i++) {
        struct td_ends ends;
        struct pair pair = connect_pair(families[i]);
        assert_true(td_delivery_ends(&kernel, pair.server, &ends));
        assert_true(ends.is_local && ends.is_found);
        assert_int_equal(td_delivery_look(&kernel, pair.server, &ends), TD_DELIVERY_READ);
        send_some(&pair);
        assert_int_equal(td_delivery_look(&kernel, pair.server, &ends), TD_DELIVERY_PENDING);
        read_some(&pair, BYTES - 1);
        settles_as(pair.server, &ends, TD_DELIVERY_PENDING);
        assert_int_equal(td_delivery_look(&kernel, -1, &ends), TD_DELIVERY_PENDING);
        read_some(&pair, 1);
        settles_as(pair.server, &ends, TD_DELIVERY_READ);
        settles_as(-1, &ends, TD_DELIVERY_READ);
        (void)close(pair.server);
        (void)close(pair.client);
    }
}

/* The end of the sender's side is not taken for a byte that waits. */
static void a_closed_sender_is_looked_at(void **state)
{
    (void)state;
    char end;
    struct td_ends ends;
    struct pair pair = connect_pair(AF_INET);
    assert_true(td_delivery_ends(&kernel, pair.server, &ends));
    send_some(&pair);
    (void)close(pair.server);
    read_some(&pair, BYTES - 1);
    assert_int_equal(td_delivery_look(&kernel, -1, &ends), TD_DELIVERY_PENDING);
    read_some(&pair, 1);
    settles_as(-1, &ends, TD_DELIVERY_READ); /* its reader has not seen the end yet */
    assert_int_equal(recv(pair.client, &end, 1, 0), 0);
    settles_as(-1, &ends, TD_DELIVERY_READ);
    (void)close(pair.client);
    settles_as(-1, &ends, TD_DELIVERY_UNKNOWN); /* its reader may have shut it down and still read */
}

/* A client may still read from a socket that it has shut down for sending, but not from one that it has closed. Once
 * both sides have ended, the kernel does not show the difference. */
static void the_end_of_the_client_is_looked_at(void **state)
{
    (void)state;
    for (int is_closed = 0; is_closed <= 1; is_closed++) {
        struct td_ends ends;
        struct pair pair = connect_pair(AF_INET);
        assert_true(td_delivery_ends(&kernel, pair.server, &ends));
        send_some(&pair);
        if (is_closed) {
            read_some(&pair, BYTES);
            assert_int_equal(close(pair.client), 0);
            settles_as(pair.server, &ends, TD_DELIVERY_READ);
            (void)close(pair.server);
        } else {
            assert_int_equal(shutdown(pair.client, SHUT_WR), 0);
            settles_as(-1, &ends, TD_DELIVERY_PENDING);
            assert_int_equal(td_delivery_look(&kernel, pair.server, &ends), TD_DELIVERY_PENDING);
            (void)close(pair.server);
            settles_as(-1, &ends, TD_DELIVERY_UNKNOWN); /* TIME_WAIT */
            read_some(&pair, BYTES);
            (void)close(pair.client);
        }
    }
}

/* A reset is proof: the client never gets the bytes that it has not acknowledged, and loses those that it has not
 * read. */
static void a_reset_is_looked_at(void **state)
{
    (void)state;
    struct td_ends ends;
    struct pair pair = connect_pair(AF_INET);
    struct linger reset = {.l_onoff = 1};
    int least = 1;
    assert_int_equal(setsockopt(pair.client, SOL_SOCKET, SO_RCVBUF, &least, sizeof least), 0);
    assert_true(td_delivery_ends(&kernel, pair.server, &ends));
    for (ssize_t n = 0; n >= 0;)
        n = send(pair.server, bytes, BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
    assert_int_equal(td_delivery_look(&kernel, pair.server, &ends), TD_DELIVERY_PENDING);
    assert_int_equal(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    assert_int_equal(close(pair.client), 0);
    settles_as(pair.server, &ends, TD_DELIVERY_READ);
    (void)close(pair.server);
}

/* The kernel describes a socket that is bound to an interface only if the query names the interface, so its queue is
 * not known. */
static void a_client_that_is_bound_to_an_interface_is_not_found(void **state)
{
    (void)state;
    struct td_ends ends;
    connect_by = "lo";
    struct pair pair = connect_pair(AF_INET);
    connect_by = NULL;
    assert_true(td_delivery_ends(&kernel, pair.server, &ends));
    assert_true(ends.is_local && !ends.is_found);
    send_some(&pair);
    settles_as(pair.server, &ends, TD_DELIVERY_UNKNOWN);
    (void)close(pair.server);
    (void)close(pair.client);
}

static void what_is_not_of_this_host_has_arrived(void **state)
{
    (void)state;
    struct td_ends ends;
    struct pair pair = connect_pair(AF_INET);
    uint64_t arrived_ns = 0;
    enum td_delivery_state found;
    assert_true(td_delivery_ends(&kernel, pair.server, &ends));
    assert_false(td_delivery_ends(&kernel, STDIN_FILENO, &ends) || td_delivery_ends(&kernel, -1, &ends));
    ends.peer_port = 0; /* as if its socket were elsewhere */
    ends.is_local = false;
    send_some(&pair);
    settles_as(pair.server, &ends, TD_DELIVERY_ARRIVED);
    assert_false(td_delivery_is_proved(&kernel, pair.server, &ends, &arrived_ns, &found));
    assert_true(arrived_ns > 0);
    arrived_ns -= TD_DELIVERY_GRACE_NS;
    assert_true(td_delivery_is_proved(&kernel, pair.server, &ends, &arrived_ns, &found));
    ends.is_local = true;
    assert_false(td_delivery_is_proved(&kernel, pair.server, &ends, &arrived_ns, &found));
    assert_true(found == TD_DELIVERY_UNKNOWN && arrived_ns == 0);
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
    struct td_registry_limits limits = {.deadlines.header_timeout_ns = minute,
                                        .deadlines.idle_timeout_ns = minute,
                                        .deadlines.send_timeout_ns = minute,
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
    sent.connection->proof.received_bytes = sizeof request;
    assert_true(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, sent.blob));
    td_read_proof_begin(&sent.connection->proof, sent.connection->fd, sent.blob, true);
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

/* shows: security.md file-unread-answer */
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
    assert_false(sent.connection->proof.proves_nothing);
    td_read_proof_confirm(&sent.connection->proof);
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
        assert_true(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, other));
        td_connection_end_answer(sent.connection, true);
        td_read_proof_confirm(&sent.connection->proof);
        assert_true(sent.connection->proof.proves_nothing);
        assert_false(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, other));
        assert_true(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, sent.blob));
        sent.connection->proof.received_bytes++;
        if (how == 0)
            td_read_proof_begin(&sent.connection->proof, sent.connection->fd, sent.blob, true);
        else
            td_read_proof_hold(&sent.connection->proof, sent.connection->fd);
        td_connection_end_answer(sent.connection, true);
        assert_false(sent.connection->proof.proves_nothing);
        assert_true(td_blob_is_shared(sent.blob));
        td_read_proof_confirm(&sent.connection->proof);
        assert_false(td_blob_is_shared(sent.blob));
        assert_true(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, other));
        td_read_proof_hold(&sent.connection->proof, sent.connection->fd);
        assert_false(sent.connection->proof.is_held);
        end_sent(&sent);
        td_blob_unref(other);
        td_registry_fini(&registry);
    }
}

/* Neither the requests of a client that pipelines nor those of one that has closed its side prove anything; their
 * answers are kept beyond the connection's end. */
/* shows: security.md file-unread-answer */
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
        assert_true(sent.connection->proof.proves_nothing);
        td_read_proof_confirm(&sent.connection->proof);
        assert_true(td_blob_is_shared(sent.blob));
        td_connection_close(sent.connection);
        sent.connection = NULL;
        (void)close(sent.pair.server);
        sent.pair.server = -1;
        assert_true(td_blob_is_shared(sent.blob));
        assert_int_equal(td_registry_settle(&registry, sent.blob), 1);
        read_some(&sent.pair, BYTES);
        settles(sent.blob);
        td_registry_fini(&registry);
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

/* Neither the client's end nor the server's proves that all was read. An empty, closed or reset socket of the client
 * does; until then the server's side does not end. */
static void ends_alone_prove_nothing(void **state)
{
    (void)state;
    enum { READ_AND_SHUT_DOWN, READ_AND_CLOSED, SHUT_DOWN, SERVER_CLOSES, RESET_LATER, HOWS };
    for (int how = 0; how < HOWS; how++) {
        open_registry();
        struct sent sent = answer_by_reference();
        struct pollfd end = {.fd = sent.pair.server, .events = POLLRDHUP};
        char byte;
        td_connection_end_answer(sent.connection, true);
        if (how <= READ_AND_CLOSED)
            read_some(&sent.pair, BYTES);
        if (how <= SHUT_DOWN)
            assert_int_equal(shutdown(sent.pair.client, SHUT_WR), 0);
        if (how == READ_AND_CLOSED)
            assert_int_equal(close(sent.pair.client), 0);
        if (how <= SHUT_DOWN)
            assert_int_equal(poll(&end, 1, 10000), 1);
        assert_int_equal(shutdown(sent.pair.server, SHUT_WR), 0); /* as libmicrohttpd does before it reports the end */
        td_connection_close(sent.connection);
        sent.connection = NULL;
        assert_int_equal(close(sent.pair.server), 0);
        sent.pair.server = -1;
        assert_int_equal(td_blob_is_shared(sent.blob), how >= SHUT_DOWN);
        assert_int_equal(td_registry_settle(&registry, sent.blob), how >= SHUT_DOWN ? 1 : 0);
        if (how == SHUT_DOWN || how == SERVER_CLOSES)
            read_some(&sent.pair, BYTES);
        if (how == RESET_LATER || how == READ_AND_CLOSED) {
            (void)close(sent.pair.client); /* with unread bytes: a reset */
            sent.pair.client = -1;
        }
        settles(sent.blob);
        assert_false(td_blob_is_shared(sent.blob));
        if (sent.pair.client >= 0)
            assert_int_equal(recv(sent.pair.client, &byte, 1, 0), 0); /* now this side has ended */
        td_registry_fini(&registry);
        end_sent(&sent);
    }
}

/* A client that has shut down its socket for sending and has acknowledged little gets a reset when a writer's patience
 * ends, even if the server has closed the connection. */
/* shows: security.md file-odd-clients */
static void what_a_closed_connection_still_sends_is_cut(void **state)
{
    (void)state;
    open_registry();
    static char rest[BYTES];
    struct sent sent = answer_by_reference();
    int least = 1;
    ssize_t got;
    assert_int_equal(setsockopt(sent.pair.client, SOL_SOCKET, SO_RCVBUF, &least, sizeof least), 0);
    for (ssize_t n = 0; n >= 0;)
        n = send(sent.pair.server, bytes, BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
    td_connection_end_answer(sent.connection, true);
    assert_int_equal(shutdown(sent.pair.client, SHUT_WR), 0);
    assert_int_equal(shutdown(sent.pair.server, SHUT_WR), 0);
    td_connection_close(sent.connection);
    sent.connection = NULL;
    (void)close(sent.pair.server);
    assert_int_equal(td_registry_settle(&registry, sent.blob), 1);
    td_registry_cut_unacknowledged(&registry, sent.blob);
    assert_int_equal(td_registry_settle(&registry, sent.blob), 0);
    assert_false(td_blob_is_shared(sent.blob));
    do
        got = recv(sent.pair.client, rest, sizeof rest, 0);
    while (got > 0);
    assert_true(got < 0 && errno == ECONNRESET);
    sent.pair.server = -1;
    end_sent(&sent);
    td_registry_fini(&registry);
}

static void a_client_that_has_ended_its_side_gets_copies(void **state)
{
    (void)state;
    open_registry();
    struct sent sent = answer_by_reference();
    struct pollfd end = {.fd = sent.pair.server, .events = POLLRDHUP};
    td_connection_end_answer(sent.connection, true);
    td_read_proof_confirm(&sent.connection->proof);
    assert_true(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, sent.blob));
    assert_int_equal(shutdown(sent.pair.client, SHUT_WR), 0);
    assert_int_equal(poll(&end, 1, 10000), 1);
    assert_false(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, sent.blob));
    end_sent(&sent);
    td_registry_fini(&registry);
}

static void whom_sendfile_is_for(void **state)
{
    (void)state;
    for (enum td_referring referring = TD_REFERRING_ALL; referring <= TD_REFERRING_NONE; referring++) {
        open_registry();
        registry.proofs.referring = TD_REFERRING_ALL;
        struct sent sent = answer_by_reference();
        td_connection_end_answer(sent.connection, true);
        td_read_proof_confirm(&sent.connection->proof);
        registry.proofs.referring = referring;
        assert_int_equal(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, sent.blob),
                         referring == TD_REFERRING_ALL);
        sent.connection->proof.departed->ends.is_local = false;
        assert_int_equal(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, sent.blob),
                         referring != TD_REFERRING_NONE);
        sent.connection->proof.departed->ends.is_local = true;
        sent.connection->proof.departed->ends.is_found =
            false; /* bound to an interface, or behind a rule of this host */
        assert_false(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, sent.blob));
        sent.connection->proof.departed->ends.is_found = true;
        registry.proofs.delivery.can_look = false; /* the kernel gives no information */
        assert_false(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, sent.blob));
        end_sent(&sent);
        td_registry_fini(&registry);
    }
}

/* The registry forgets no answer without proof: with too many answers of closed connections, further ones are
 * copied. */
static void departed_answers_are_bounded(void **state)
{
    (void)state;
    open_registry();
    struct sent sent = answer_by_reference();
    atomic_store(&registry.proofs.departed_count, TD_DEPARTED - 1);
    assert_true(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, sent.blob));
    atomic_store(&registry.proofs.departed_count, TD_DEPARTED);
    assert_false(td_read_proof_may_refer(&sent.connection->proof, sent.connection->fd, sent.blob));
    atomic_store(&registry.proofs.departed_count, 0);
    end_sent(&sent);
    td_registry_fini(&registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_of_this_host_is_looked_at),
        cmocka_unit_test(a_closed_sender_is_looked_at),
        cmocka_unit_test(the_end_of_the_client_is_looked_at),
        cmocka_unit_test(a_reset_is_looked_at),
        cmocka_unit_test(a_client_that_is_bound_to_an_interface_is_not_found),
        cmocka_unit_test(what_is_not_of_this_host_has_arrived),
        cmocka_unit_test(an_unread_answer_keeps_its_blob),
        cmocka_unit_test(the_next_request_proves_that_the_answer_was_read),
        cmocka_unit_test(a_later_request_may_be_the_proof),
        cmocka_unit_test(pipelined_requests_prove_nothing),
        cmocka_unit_test(an_incomplete_answer_keeps_nothing),
        cmocka_unit_test(ends_alone_prove_nothing),
        cmocka_unit_test(what_a_closed_connection_still_sends_is_cut),
        cmocka_unit_test(a_client_that_has_ended_its_side_gets_copies),
        cmocka_unit_test(whom_sendfile_is_for),
        cmocka_unit_test(departed_answers_are_bounded),
    };
    return cmocka_run_group_tests(tests, open_kernel, close_kernel);
}
