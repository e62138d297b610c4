/* The registry of connections: limits, deadlines and cuts, over real TCP pairs. */
#include "server/net/connection.h"

#include "core/clock.h"
#include "server/net/tcp_socket.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"
#include "tests/unit/work.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MILLION = 1000000 };

static _Atomic size_t looks; /* how often TCP_INFO was asked for */

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    if (level == IPPROTO_TCP && name == TCP_INFO)
        looks++;
    return __real_getsockopt(fd, level, name, value, len);
}

static bool lacks_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    return lacks_threads ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

struct place {
    struct td_registry registry;
    struct td_metrics metrics;
    struct td_registry_limits limits;
};

static void open_place(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    memset(&place->metrics, 0, sizeof place->metrics);
    assert_true(td_registry_init(&place->registry, &place->limits, &place->metrics, &err));
}

static struct td_registry_limits long_limits(void)
{
    static const uint64_t minute = UINT64_C(60000000000);
    return (struct td_registry_limits){.deadlines.header_timeout_ns = minute,
                                       .deadlines.idle_timeout_ns = minute,
                                       .deadlines.send_timeout_ns = minute,
                                       .max_connections = 4,
                                       .max_per_address = 4};
}

/* The server's and the client's end of a connection. */
struct pair {
    int server, client;
};

static struct pair connect_pair(void)
{
    struct pair pair;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
    pair.client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(pair.client, (struct sockaddr *)&address, sizeof address), 0);
    pair.server = accept(listener, NULL, NULL);
    assert_true(pair.server >= 0);
    assert_int_equal(close(listener), 0);
    return pair;
}

static void close_pair(const struct pair *pair)
{
    assert_int_equal(close(pair->server), 0);
    assert_int_equal(close(pair->client), 0);
}

static struct in6_addr address_number(uint8_t number)
{
    struct in6_addr address = IN6ADDR_LOOPBACK_INIT;
    address.s6_addr[15] = number;
    return address;
}

static struct td_connection *open_connection(struct place *place, const struct pair *pair)
{
    struct in6_addr address = address_number(1);
    struct td_connection *connection = td_connection_open(&place->registry, pair->server, &address);
    assert_non_null(connection);
    return connection;
}

/* Returns whether the client sees the end of the connection within `ms` milliseconds. */
static bool ends_within(const struct pair *pair, int ms)
{
    struct pollfd wait = {.fd = pair->client, .events = POLLRDHUP};
    return poll(&wait, 1, ms) == 1;
}

static void connections_are_counted(void **state)
{
    (void)state;
    struct place place = {.limits = long_limits()};
    open_place(&place);
    struct pair pairs[3];
    struct td_connection *connections[3];
    for (size_t i = 0; i < 3; i++) {
        pairs[i] = connect_pair();
        connections[i] = open_connection(&place, &pairs[i]);
        assert_ptr_equal(td_registry_find(&place.registry, pairs[i].server), connections[i]);
    }
    assert_int_equal(td_registry_count(&place.registry), 3);
    assert_true(place.metrics.connections == 3);
    td_connection_close(connections[1]); /* from the middle */
    assert_null(td_registry_find(&place.registry, pairs[1].server));
    assert_ptr_equal(td_registry_find(&place.registry, pairs[0].server), connections[0]);
    td_connection_close(connections[2]);
    td_connection_close(connections[0]);
    assert_int_equal(td_registry_count(&place.registry), 0);
    assert_true(place.metrics.connections == 0);
    for (size_t i = 0; i < 3; i++)
        close_pair(&pairs[i]);
    td_registry_fini(&place.registry);
}

/* RFC 4291 2.5.4: what follows the first 64 bits is the host's own choice; IPv4 addresses stand in the last 32 bits. */
static void addresses_of_one_ipv6_network_are_one_client(void **state)
{
    static const char *const texts[] = {"2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1", "::ffff:203.0.113.1",
                                        "::ffff:203.0.113.2"};
    enum { COUNT = COUNT_OF(texts) };
    struct place place = {.limits = long_limits()};
    struct pair pairs[COUNT];
    struct td_connection *connections[COUNT];
    (void)state;
    open_place(&place);
    for (size_t i = 0; i < COUNT; i++) {
        struct in6_addr address;
        assert_int_equal(inet_pton(AF_INET6, texts[i], &address), 1);
        pairs[i] = connect_pair();
        connections[i] = td_connection_open(&place.registry, pairs[i].server, &address);
        assert_non_null(connections[i]);
    }
    assert_true(connections[0]->client == connections[1]->client);
    assert_true(connections[0]->client != connections[2]->client);
    assert_true(connections[3]->client != connections[4]->client);
    for (size_t i = 0; i < COUNT; i++) {
        td_connection_close(connections[i]);
        close_pair(&pairs[i]);
    }
    td_registry_fini(&place.registry);
}

/* Past the total limit, TD_RESERVED_CONNECTIONS are admitted to get an error answer; past an address's limit, none. */
static void limits_decide_who_is_taken_in(void **state)
{
    (void)state;
    enum { TOTAL = 5, SHARE = 3, ALL = TOTAL + TD_RESERVED_CONNECTIONS };
    struct place place = {.limits = long_limits()};
    struct td_connection *open[ALL];
    struct in6_addr one = address_number(1);
    bool admit;
    place.limits.max_connections = TOTAL;
    place.limits.max_per_address = SHARE;
    open_place(&place);
    for (int i = 0; i < SHARE; i++) { /* descriptors that are not open: nothing is sent on them */
        assert_int_equal(td_registry_judge(&place.registry, &one, &admit), TD_OVER_NONE);
        assert_true(admit);
        open[i] = td_connection_open(&place.registry, 100000 + i, &one);
        assert_int_equal(open[i]->over, TD_OVER_NONE);
    }
    assert_int_equal(td_registry_judge(&place.registry, &one, &admit), TD_OVER_ADDRESS);
    assert_false(admit);
    for (int i = SHARE; i < ALL; i++) {
        struct in6_addr other = address_number((uint8_t)(i + 10));
        enum td_over over = td_registry_judge(&place.registry, &other, &admit);
        assert_true(admit);
        assert_int_equal(over, i < TOTAL ? TD_OVER_NONE : TD_OVER_TOTAL);
        open[i] = td_connection_open(&place.registry, 100000 + i, &other);
        assert_int_equal(open[i]->over, over);
    }
    struct in6_addr last = address_number(200);
    assert_int_equal(td_registry_judge(&place.registry, &last, &admit), TD_OVER_TOTAL);
    assert_false(admit);
    td_connection_close(open[0]);
    assert_int_equal(td_registry_judge(&place.registry, &last, &admit), TD_OVER_TOTAL);
    assert_true(admit);
    for (int i = 1; i < ALL; i++)
        td_connection_close(open[i]);
    assert_int_equal(td_registry_judge(&place.registry, &one, &admit), TD_OVER_NONE);
    td_registry_fini(&place.registry);
}

/* Without memory a connection is not opened, and neither it nor its address is counted. */
static void without_memory_nothing_is_opened(void **state)
{
    (void)state;
    struct place place = {.limits = long_limits()};
    struct in6_addr one = address_number(1);
    struct td_connection *connection = NULL;
    bool admit;
    size_t k = 0;
    place.limits.max_per_address = 1;
    open_place(&place);
    while (connection == NULL) {
        alloc_fail_at(++k);
        connection = td_connection_open(&place.registry, 100000, &one);
        alloc_fail_at(0);
        if (connection != NULL)
            break;
        assert_int_equal(td_registry_count(&place.registry), 0);
        assert_null(td_registry_find(&place.registry, 100000));
        assert_int_equal(td_registry_judge(&place.registry, &one, &admit), TD_OVER_NONE);
        assert_true(place.metrics.connections == 0);
    }
    assert_int_equal(k, 4); /* the connection, the table by descriptor, the counts by address; then all is there */
    assert_ptr_equal(td_registry_find(&place.registry, 100000), connection);
    assert_int_equal(td_registry_judge(&place.registry, &one, &admit), TD_OVER_ADDRESS);
    td_connection_close(connection);
    assert_int_equal(td_registry_judge(&place.registry, &one, &admit), TD_OVER_NONE);
    td_registry_fini(&place.registry);
}

/* Accepting a connection takes as long whether a few are open or many, from one address or from many. */
static void accepting_many_is_linear(void **state)
{
    (void)state;
    enum { HALF = 1000 };
    for (int is_one_address = 0; is_one_address <= 1; is_one_address++) {
        struct place place = {.limits = long_limits()};
        struct td_connection *open[2 * HALF];
        uint64_t work[3] = {0};
        place.limits.max_connections = place.limits.max_per_address = 2 * HALF;
        open_place(&place);
        work[0] = work_now();
        for (int i = 0; i < 2 * HALF; i++) {
            struct in6_addr address = address_number(1);
            bool admit;
            address.s6_addr[0] = (uint8_t)(is_one_address ? 0 : i);
            address.s6_addr[1] = (uint8_t)(is_one_address ? 0 : i >> 8);
            assert_int_equal(td_registry_judge(&place.registry, &address, &admit), TD_OVER_NONE);
            open[i] = td_connection_open(&place.registry, 100000 + i, &address);
            assert_ptr_equal(td_registry_find(&place.registry, 100000 + i), open[i]);
            if (i + 1 == HALF)
                work[1] = work_now();
        }
        work[2] = work_now();
        check_linear(work[1] - work[0], work[2] - work[0], is_one_address ? "one address" : "many addresses");
        for (int i = 0; i < 2 * HALF; i++)
            td_connection_close(open[i]);
        td_registry_fini(&place.registry);
    }
}

static void headers_have_a_deadline(void **state)
{
    (void)state;
    static const enum td_phase phases[] = {TD_PHASE_FIRST, TD_PHASE_HEADER};
    for (size_t i = 0; i < COUNT_OF(phases); i++) {
        struct place place = {.limits = long_limits()};
        place.limits.deadlines.header_timeout_ns = (uint64_t)400 * MILLION;
        open_place(&place);
        struct pair pair = connect_pair();
        uint64_t began_ns = td_clock_ns();
        struct td_connection *connection = open_connection(&place, &pair);
        if (phases[i] != TD_PHASE_FIRST)
            td_deadline_enter(&connection->deadline, phases[i]);
        assert_int_equal(send(pair.client, "GET", 3, MSG_NOSIGNAL), 3); /* bytes do not extend the deadline */
        assert_true(ends_within(&pair, 10000));
        uint64_t took_ns = td_clock_ns() - began_ns;
        assert_true(took_ns >= (uint64_t)390 * MILLION && took_ns < (uint64_t)5000 * MILLION);
        assert_int_equal(td_connection_cut_reason(connection), TD_CUT_DEADLINE);
        td_connection_close(connection);
        assert_true(place.metrics.cuts[TD_CUT_DEADLINE] == 1);
        close_pair(&pair);
        td_registry_fini(&place.registry);
    }
}

/* New limits also hold for a connection that is open, and for the next one that is judged. */
static void limits_change_while_it_runs(void **state)
{
    (void)state;
    struct place place = {.limits = long_limits()};
    struct in6_addr address = address_number(1);
    bool admit;
    open_place(&place);
    struct pair pair = connect_pair();
    struct td_connection *connection = open_connection(&place, &pair);
    td_deadline_enter(&connection->deadline, TD_PHASE_HEADER);
    assert_int_equal(td_registry_judge(&place.registry, &address, &admit), TD_OVER_NONE);
    assert_false(ends_within(&pair, 300));
    place.limits.max_per_address = 1;
    td_registry_set_limits(&place.registry, &place.limits);
    assert_int_equal(td_registry_judge(&place.registry, &address, &admit), TD_OVER_ADDRESS);
    place.limits.deadlines.header_timeout_ns = (uint64_t)100 * MILLION;
    td_registry_set_limits(&place.registry, &place.limits);
    assert_true(ends_within(&pair, 10000));
    assert_int_equal(td_connection_cut_reason(connection), TD_CUT_DEADLINE);
    td_connection_close(connection);
    close_pair(&pair);
    td_registry_fini(&place.registry);
}

/* The header's deadline starts again with each request, and does not run while a request is answered. */
static void phases_begin_anew(void **state)
{
    (void)state;
    struct place place = {.limits = long_limits()};
    place.limits.deadlines.header_timeout_ns = (uint64_t)1200 * MILLION;
    open_place(&place);
    struct pair pair = connect_pair();
    struct td_connection *connection = open_connection(&place, &pair);
    for (int i = 0; i < 6; i++) {
        td_deadline_enter(&connection->deadline, i % 2 == 0 ? TD_PHASE_HEADER : TD_PHASE_FIRST);
        assert_false(ends_within(&pair, 300));
    }
    td_deadline_enter(&connection->deadline, TD_PHASE_HANDLING);
    assert_false(ends_within(&pair, 1500));
    td_deadline_enter(&connection->deadline, TD_PHASE_IDLE);
    assert_false(ends_within(&pair, 1500)); /* silence has its own deadline */
    assert_int_equal(send(pair.client, "G", 1, MSG_NOSIGNAL), 1);
    assert_true(ends_within(&pair, 10000)); /* the next request has begun, so the header's deadline runs */
    assert_int_equal(td_connection_cut_reason(connection), TD_CUT_DEADLINE);
    td_connection_close(connection);
    close_pair(&pair);
    td_registry_fini(&place.registry);
}

/* A silent connection is cut, before the first request and between two. One that has sent a byte is not. */
static void silence_has_a_deadline(void **state)
{
    (void)state;
    static const enum td_phase phases[] = {TD_PHASE_FIRST, TD_PHASE_IDLE};
    for (size_t i = 0; i < COUNT_OF(phases); i++) {
        struct place place = {.limits = long_limits()};
        place.limits.deadlines.idle_timeout_ns = (uint64_t)600 * MILLION;
        open_place(&place);
        struct pair silent = connect_pair();
        struct pair other = connect_pair();
        struct td_connection *connections[] = {open_connection(&place, &silent), open_connection(&place, &other)};
        uint64_t began_ns = td_clock_ns();
        for (size_t k = 0; k < COUNT_OF(connections); k++)
            if (phases[i] != TD_PHASE_FIRST)
                td_deadline_enter(&connections[k]->deadline, phases[i]);
        assert_false(ends_within(&other, 250)); /* the reaper has run */
        assert_int_equal(send(other.client, "G", 1, MSG_NOSIGNAL), 1);
        assert_true(ends_within(&silent, 10000));
        assert_true(td_clock_ns() - began_ns >= (uint64_t)590 * MILLION);
        assert_int_equal(atomic_load(&connections[0]->cut), TD_CUT_IDLE);
        assert_false(ends_within(&other, 1000)); /* its header's deadline is a minute */
        for (size_t k = 0; k < COUNT_OF(connections); k++)
            td_connection_close(connections[k]);
        assert_true(place.metrics.cuts[TD_CUT_IDLE] == 0);
        close_pair(&silent);
        close_pair(&other);
        td_registry_fini(&place.registry);
    }
}

/* The kernel is asked for the bytes of an idle connection about once a second, and for those of a connection that is
 * silent from the beginning not before it would be cut. The connections take turns. */
static void idle_connections_cost_little(void **state)
{
    (void)state;
    enum { PAIRS = 20, SECONDS = 3 };
    static const enum td_phase phases[] = {TD_PHASE_FIRST, TD_PHASE_IDLE};
    for (size_t i = 0; i < COUNT_OF(phases); i++) {
        struct place place = {.limits = long_limits()};
        struct pair pairs[PAIRS];
        struct td_connection *connections[PAIRS];
        place.limits.max_connections = place.limits.max_per_address = PAIRS;
        open_place(&place);
        for (size_t k = 0; k < PAIRS; k++) {
            pairs[k] = connect_pair();
            connections[k] = open_connection(&place, &pairs[k]);
            if (phases[i] != TD_PHASE_FIRST)
                td_deadline_enter(&connections[k]->deadline, phases[i]);
        }
        assert_false(ends_within(&pairs[0], 500)); /* the first looks are over */
        looks = 0;
        size_t most = 0;
        for (int step = 0; step < SECONDS * 10; step++) {
            size_t before = looks;
            assert_false(ends_within(&pairs[0], 100));
            size_t here = looks - before;
            most = here > most ? here : most;
        }
        size_t all = looks;
        CHECK(all <= PAIRS * (SECONDS + 2), "%zu looks in phase %d", all, (int)phases[i]);
        CHECK(most < PAIRS, "%zu looks at once in phase %d", most, (int)phases[i]);
        assert_true((all > 0) == (phases[i] == TD_PHASE_IDLE));
        for (size_t k = 0; k < PAIRS; k++) {
            td_connection_close(connections[k]);
            close_pair(&pairs[k]);
        }
        td_registry_fini(&place.registry);
    }
}

/* A request line that begins on an idle connection, at any time between two checks, has the header's deadline, which
 * ends it at most 1 s late; silence does not end it, also if it begins just before. */
static void a_request_line_that_dribbles_is_noticed(void **state)
{
    (void)state;
    enum { PAIRS = 10 };
    struct place place = {.limits = long_limits()};
    struct pair pairs[PAIRS];
    struct td_connection *connections[PAIRS];
    uint64_t began_ns[PAIRS];
    place.limits.max_connections = place.limits.max_per_address = PAIRS;
    place.limits.deadlines.header_timeout_ns = (uint64_t)1000 * MILLION;
    place.limits.deadlines.idle_timeout_ns = (uint64_t)2500 * MILLION;
    open_place(&place);
    for (size_t i = 0; i < PAIRS; i++) {
        pairs[i] = connect_pair();
        connections[i] = open_connection(&place, &pairs[i]);
        td_deadline_enter(&connections[i]->deadline, TD_PHASE_IDLE);
    }
    assert_false(ends_within(&pairs[0], 700));
    for (size_t i = 0; i < PAIRS; i++) { /* the last one at 1700 ms: silence would end it at 2500 ms */
        assert_false(ends_within(&pairs[i], 100));
        began_ns[i] = td_clock_ns();
        assert_int_equal(send(pairs[i].client, "G", 1, MSG_NOSIGNAL), 1);
    }
    for (size_t i = 0; i < PAIRS; i++) {
        assert_true(ends_within(&pairs[i], 10000));
        uint64_t took_ns = td_clock_ns() - began_ns[i];
        CHECK(atomic_load(&connections[i]->cut) == TD_CUT_DEADLINE, "%zu", i);
        CHECK(took_ns >= (uint64_t)990 * MILLION && took_ns < (uint64_t)5000 * MILLION, "%zu: %d ms", i,
              (int)(took_ns / MILLION));
        td_connection_close(connections[i]);
        close_pair(&pairs[i]);
    }
    td_registry_fini(&place.registry);
}

static void draining_ends_the_idle(void **state)
{
    (void)state;
    static const struct {
        enum td_phase phase;
        bool ends;
    } cases[] = {{TD_PHASE_IDLE, true},
                 {TD_PHASE_FIRST, true},
                 {TD_PHASE_HEADER, false},
                 {TD_PHASE_HANDLING, false},
                 {TD_PHASE_SENDING, false}};
    struct place place = {.limits = long_limits()};
    struct pair pairs[COUNT_OF(cases)];
    struct td_connection *connections[COUNT_OF(cases)];
    place.limits.max_connections = place.limits.max_per_address = 10;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pairs[i] = connect_pair();
        connections[i] = open_connection(&place, &pairs[i]);
        if (cases[i].phase != TD_PHASE_FIRST)
            td_deadline_enter(&connections[i]->deadline, cases[i].phase);
    }
    assert_false(ends_within(&pairs[0], 300));
    atomic_store(&place.registry.draining, true);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        CHECK(ends_within(&pairs[i], cases[i].ends ? 10000 : 300) == cases[i].ends, "%zu", i);
        CHECK(atomic_load(&connections[i]->cut) == (cases[i].ends ? TD_CUT_SHUTDOWN : TD_CUT_NONE), "%zu", i);
    }
    td_registry_cut_all(&place.registry);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        assert_true(ends_within(&pairs[i], 10000));
        assert_int_equal(atomic_load(&connections[i]->cut), TD_CUT_SHUTDOWN);
        td_connection_close(connections[i]);
        close_pair(&pairs[i]);
    }
    td_registry_fini(&place.registry);
}

/* Fills the socket until the kernel takes no more. Returns the number of bytes. */
static size_t fill(int fd)
{
    static char bytes[65536];
    size_t total = 0;
    ssize_t n;
    while ((n = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT)) > 0)
        total += (size_t)n;
    return total;
}

/* An answer that makes no progress is cut. A slow one is not. */
static void stalled_answers_are_cut(void **state)
{
    (void)state;
    struct place place = {.limits = long_limits()};
    static char sink[65536];
    place.limits.deadlines.send_timeout_ns = (uint64_t)1500 * MILLION;
    open_place(&place);
    struct pair still = connect_pair();
    struct pair moving = connect_pair();
    struct td_connection *connections[] = {open_connection(&place, &still), open_connection(&place, &moving)};
    assert_true(fill(still.server) > 0 && fill(moving.server) > 0);
    td_deadline_enter(&connections[0]->deadline, TD_PHASE_SENDING);
    td_deadline_enter(&connections[1]->deadline, TD_PHASE_SENDING);
    uint64_t until_ns = td_clock_ns() + (uint64_t)4000 * MILLION;
    while (td_clock_ns() < until_ns) {
        assert_true(recv(moving.client, sink, sizeof sink, MSG_DONTWAIT) != 0);
        (void)fill(moving.server);
        (void)poll(NULL, 0, 50);
    }
    assert_int_equal(atomic_load(&connections[0]->cut), TD_CUT_STALLED);
    assert_int_equal(atomic_load(&connections[1]->cut), TD_CUT_NONE);
    td_connection_close(connections[0]);
    td_connection_close(connections[1]);
    close_pair(&still);
    close_pair(&moving);
    td_registry_fini(&place.registry);
}

/* An upload that stands still is cut, also when its last bytes came before. One that moves, one whose bytes wait for
 * the server, and one whose sink is taking bytes are not. */
static void stalled_uploads_are_cut(void **state)
{
    (void)state;
    enum { STILL, MOVING, UNREAD, TAKING, COUNT };
    struct place place = {.limits = long_limits()};
    struct td_connection *connections[COUNT];
    struct pair pairs[COUNT];
    char byte = 'x';
    place.limits.deadlines.send_timeout_ns = (uint64_t)1500 * MILLION;
    open_place(&place);
    for (int i = 0; i < COUNT; i++) {
        pairs[i] = connect_pair();
        connections[i] = open_connection(&place, &pairs[i]);
        td_deadline_enter(&connections[i]->deadline, TD_PHASE_UPLOAD);
    }
    atomic_store(&connections[TAKING]->deadline.is_taking, true);
    assert_int_equal(send(pairs[UNREAD].client, &byte, 1, 0), 1);
    uint64_t until_ns = td_clock_ns() + (uint64_t)4000 * MILLION;
    while (td_clock_ns() < until_ns) {
        assert_int_equal(send(pairs[MOVING].client, &byte, 1, 0), 1);
        (void)recv(pairs[MOVING].server, &byte, 1, 0);
        (void)poll(NULL, 0, 50);
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK((enum td_cut)atomic_load(&connections[i]->cut) == (i == STILL ? TD_CUT_STALLED : TD_CUT_NONE), "%d", i);
        td_connection_close(connections[i]);
        close_pair(&pairs[i]);
    }
    td_registry_fini(&place.registry);
}

/* --min-rate holds for uploads: one that moves too slowly is cut after the time over which a rate is taken. */
static void slow_uploads_are_cut(void **state)
{
    (void)state;
    struct td_deadline deadline = {0};
    struct pair pair = connect_pair();
    struct td_deadline_round round = {.limits = long_limits().deadlines, .now_ns = td_clock_ns()};
    char bytes[1000] = "";
    round.limits.min_rate = 100;
    td_deadline_enter(&deadline, TD_PHASE_UPLOAD);
    for (int second = 0, n = 1000;; second++, n = 90) {
        assert_true(second < 40);
        assert_int_equal(send(pair.client, bytes, (size_t)n, 0), n);
        assert_int_equal(recv(pair.server, bytes, (size_t)n, MSG_WAITALL), n);
        round.now_ns += (uint64_t)1000 * MILLION;
        enum td_cut cut = td_deadline_judge(&deadline, pair.server, &round, false);
        if (cut == TD_CUT_NONE)
            continue;
        assert_int_equal(cut, TD_CUT_SLOW);
        assert_true(second > 2);
        break;
    }
    close_pair(&pair);
}

/* A cut answer is reset: the kernel keeps no bytes of it, and the client sees an error instead of a normal end. */
static void cut_answers_are_reset(void **state)
{
    (void)state;
    struct place place = {.limits = long_limits()};
    static char sink[1 << 20];
    open_place(&place);
    struct pair pair = connect_pair();
    struct td_connection *connection = open_connection(&place, &pair);
    td_deadline_enter(&connection->deadline, TD_PHASE_SENDING);
    size_t sent = fill(pair.server);
    td_registry_cut_all(&place.registry);
    td_connection_close(connection);
    assert_int_equal(close(pair.server), 0);
    size_t got = 0;
    ssize_t n;
    while ((n = recv(pair.client, sink, sizeof sink, 0)) > 0)
        got += (size_t)n;
    assert_true(n < 0 && errno == ECONNRESET);
    assert_true(got < sent);
    assert_int_equal(close(pair.client), 0);
    td_registry_fini(&place.registry);
}

/* ---- transfers from mappings --------------------------------------------------------------------------- */

static bool never(struct td_blob *blob)
{
    (void)blob;
    return false;
}

static void nothing(struct td_blob *blob)
{
    (void)blob;
}

static void only_who_sends_a_blob_is_cut(void **state)
{
    (void)state;
    enum { BLOBS = TD_PINNED_BLOBS + 1 };
    static const struct td_blob_class mapped = {.destroy = nothing, .pinned = never};
    static const struct td_blob_class heap = {.destroy = nothing};
    struct td_blob blobs[BLOBS];
    struct td_blob ours = {.class = &heap, .refs = 1, .len_bytes = 10};
    struct place place = {.limits = long_limits()};
    struct pair pairs[3];
    struct td_connection *connections[3];
    struct td_body body;
    struct td_error err = TD_ERROR_INIT;
    open_place(&place);
    for (size_t i = 0; i < BLOBS; i++)
        blobs[i] = (struct td_blob){.class = &mapped, .refs = 1, .len_bytes = 10};
    for (size_t i = 0; i < 3; i++) {
        pairs[i] = connect_pair();
        connections[i] = open_connection(&place, &pairs[i]);
        td_deadline_enter(&connections[i]->deadline, TD_PHASE_SENDING);
    }
    td_body_init(&body); /* the most files allowed, each often, with blobs on the heap between */
    for (size_t i = 0; i < 100; i++) {
        assert_true(td_body_append(&body, &ours, 0, 1, &err));
        assert_true(td_body_append(&body, &blobs[i % TD_PINNED_BLOBS], 0, 1, &err));
    }
    assert_true(td_connection_pin(connections[0], &body));
    for (size_t i = 0; i < TD_PINNED_BLOBS; i++)
        assert_true(td_registry_uses_blob(&place.registry, &blobs[i]));
    assert_false(td_registry_uses_blob(&place.registry, &ours));
    assert_true(td_body_append(&body, &blobs[BLOBS - 1], 0, 1, &err)); /* one too many */
    assert_false(td_connection_pin(connections[1], &body));
    assert_false(td_registry_uses_blob(&place.registry, &blobs[BLOBS - 1]));
    td_body_fini(&body);
    assert_true(td_body_append(&body, &blobs[BLOBS - 1], 0, 1, &err));
    assert_true(td_connection_pin(connections[1], &body));
    td_registry_cut_blob(&place.registry, &blobs[TD_PINNED_BLOBS - 1]);
    assert_true(ends_within(&pairs[0], 10000));
    assert_int_equal(atomic_load(&connections[0]->cut), TD_CUT_CHANGED);
    assert_false(ends_within(&pairs[1], 200));
    assert_false(ends_within(&pairs[2], 0));
    td_connection_unpin(connections[1]);
    td_registry_cut_blob(&place.registry, &blobs[BLOBS - 1]);
    assert_false(ends_within(&pairs[1], 200));
    td_body_fini(&body);
    for (size_t i = 0; i < 3; i++) {
        td_connection_close(connections[i]);
        close_pair(&pairs[i]);
    }
    td_registry_fini(&place.registry);
}

static void acknowledged_bytes_are_counted(void **state)
{
    (void)state;
    static char bytes[10000];
    struct pair pair = connect_pair();
    for (int i = 1; i <= 5; i++) {
        uint64_t until_ns = td_clock_ns() + (uint64_t)10000 * MILLION;
        assert_int_equal(send(pair.server, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
        for (size_t got = 0; got < sizeof bytes;) {
            ssize_t n = recv(pair.client, bytes, sizeof bytes - got, 0);
            assert_true(n > 0);
            got += (size_t)n;
        }
        while (td_socket_facts_of(pair.server).acknowledged_bytes < (uint64_t)i * sizeof bytes &&
               td_clock_ns() < until_ns)
            (void)poll(NULL, 0, 1);
        assert_true(td_socket_facts_of(pair.server).acknowledged_bytes == (uint64_t)i * sizeof bytes);
    }
    close_pair(&pair);
    assert_true(td_socket_facts_of(-1).acknowledged_bytes == 0);
}

static int send_queue_bytes(int fd)
{
    int bytes = 0;
    socklen_t len = sizeof bytes;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len), 0);
    return bytes;
}

/* Loopback is a short path once the kernel has measured a round trip without a stall. */
static void long_answers_over_short_paths_queue_little(void **state)
{
    (void)state;
    char byte = 'x';
    struct pair pair = connect_pair();
    bool is_short = false;
    int before = send_queue_bytes(pair.server);
    assert_true(before > 0);
    for (int i = 0; i < 10000 && !is_short; i++) {
        assert_int_equal(send(pair.server, &byte, 1, MSG_NOSIGNAL), 1);
        assert_int_equal(recv(pair.client, &byte, 1, 0), 1);
        td_send_queue_shorten(pair.server, &is_short);
    }
    assert_true(is_short);
    int bounded = send_queue_bytes(pair.server);
    assert_true(bounded > 64 * 1024 && bounded <= 2 * TD_NEAR_QUEUE_BYTES);
    close_pair(&pair);
}

/* A descriptor that is opened again shows that its former connection has ended. */
static void a_reused_descriptor_replaces_its_connection(void **state)
{
    (void)state;
    struct place place = {.limits = long_limits()};
    open_place(&place);
    struct in6_addr address = address_number(1);
    (void)td_connection_open(&place.registry, 100000, &address);
    struct td_connection *again = td_connection_open(&place.registry, 100000, &address);
    assert_int_equal(td_registry_count(&place.registry), 1);
    assert_ptr_equal(td_registry_find(&place.registry, 100000), again);
    assert_true(place.metrics.connections == 1);
    td_connection_close(again);
    td_registry_fini(&place.registry);
}

/* Lets the client that has ended its side look as if it had acknowledged nothing for TD_HALF_CLOSED_NS. */
static void let_time_pass(struct td_connection *connection)
{
    uint64_t since_ns = atomic_load(&connection->ended_ns);
    assert_true(since_ns > TD_HALF_CLOSED_NS);
    atomic_store(&connection->ended_ns, since_ns - TD_HALF_CLOSED_NS);
}

/* Work for an answer is cancelled when the connection is cut or reset, and when a client that has ended its side has
 * acknowledged nothing for TD_HALF_CLOSED_NS. Waits end as soon as it has ended its side. */
static void work_is_cancelled_when_nobody_waits(void **state)
{
    (void)state;
    enum { CUT, RESET, HALF_CLOSED, WAYS };
    for (int way = 0; way < WAYS; way++) {
        struct place place = {.limits = long_limits()};
        open_place(&place);
        struct pair pair = connect_pair();
        struct td_connection *connection = open_connection(&place, &pair);
        td_deadline_enter(&connection->deadline, TD_PHASE_HANDLING);
        assert_int_equal(send(pair.client, "GET", 3, 0), 3); /* a further request does not cancel */
        assert_false(td_cancel_is_asked(&connection->cancel));
        assert_false(td_cancel_is_asked(&connection->ends_wait));
        if (way == CUT)
            td_registry_cut_all(&place.registry);
        else
            assert_int_equal(shutdown(pair.client, SHUT_WR), 0);
        assert_true(td_cancel_is_asked(&connection->ends_wait));
        if (way == RESET) {
            assert_false(td_cancel_is_asked(&connection->cancel));
            td_socket_reset_at_close(pair.client);
            assert_int_equal(close(pair.client), 0);
            pair.client = dup(pair.server); /* for close_pair */
        } else if (way == HALF_CLOSED) {
            assert_false(td_cancel_is_asked(&connection->cancel));
            let_time_pass(connection);
            assert_int_equal(send(pair.server, "x", 1, 0), 1); /* what it acknowledges counts */
            while (td_socket_unacknowledged_bytes(pair.server) > 0)
                (void)usleep(1000);
            assert_false(td_cancel_is_asked(&connection->cancel));
            let_time_pass(connection);
        }
        assert_true(td_cancel_is_asked(&connection->cancel));
        td_connection_close(connection);
        close_pair(&pair);
        td_registry_fini(&place.registry);
    }
}

/* Returns the lowest free descriptor. */
static int free_descriptor(void)
{
    int fd = dup(STDERR_FILENO);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    return fd;
}

static void without_a_thread_nothing_is_left_open(void **state)
{
    struct td_registry registry;
    struct td_metrics metrics = {0};
    struct td_registry_limits limits = long_limits();
    struct td_error err = TD_ERROR_INIT;
    int before = free_descriptor();
    (void)state;
    lacks_threads = true;
    assert_false(td_registry_init(&registry, &limits, &metrics, &err));
    lacks_threads = false;
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_int_equal(free_descriptor(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_thread_nothing_is_left_open),
        cmocka_unit_test(connections_are_counted),
        cmocka_unit_test(addresses_of_one_ipv6_network_are_one_client),
        cmocka_unit_test(limits_decide_who_is_taken_in),
        cmocka_unit_test(without_memory_nothing_is_opened),
        cmocka_unit_test(accepting_many_is_linear),
        cmocka_unit_test(headers_have_a_deadline),
        cmocka_unit_test(limits_change_while_it_runs),
        cmocka_unit_test(phases_begin_anew),
        cmocka_unit_test(silence_has_a_deadline),
        cmocka_unit_test(idle_connections_cost_little),
        cmocka_unit_test(a_request_line_that_dribbles_is_noticed),
        cmocka_unit_test(draining_ends_the_idle),
        cmocka_unit_test(stalled_answers_are_cut),
        cmocka_unit_test(stalled_uploads_are_cut),
        cmocka_unit_test(slow_uploads_are_cut),
        cmocka_unit_test(cut_answers_are_reset),
        cmocka_unit_test(only_who_sends_a_blob_is_cut),
        cmocka_unit_test(acknowledged_bytes_are_counted),
        cmocka_unit_test(long_answers_over_short_paths_queue_little),
        cmocka_unit_test(a_reused_descriptor_replaces_its_connection),
        cmocka_unit_test(work_is_cancelled_when_nobody_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
