/* The registry is a list under one lock, with a table by descriptor and counts by address, so that a connection is
 * accepted in constant time. Every 100 ms the reaper compares each connection with its deadline and cuts those past it.
 * What is hard:
 *   - Progress of an answer is counted by the bytes that the client has acknowledged, since the kernel takes bytes for
 *     the send queue whether or not the client reads them. The phase HEADER begins with a complete request line, so a
 *     request line that dribbles in is noticed by the bytes received (judge_idle).
 *   - Bytes are counted by a system call for each connection, under the lock that accepting needs. An answer that is
 *     sent is looked at every 100 ms, an idle connection every 1 s, and a tenth of the idle ones in each round.
 *   - The reaper may not close a descriptor, which belongs to libmicrohttpd: it shuts the socket down, and the
 *     connection's thread closes it. A cut answer is reset, so that no client takes it for complete.
 *   - An answer that was sent by reference is pages of the file in the kernel's queues, also in that of a receiver on
 *     this host. Its blob, and so the file's lease, is kept until there is proof that the client has read it. The
 *     reference goes from thread to thread by exchanging one pointer: the connection's own thread drops it when the
 *     next request begins, the thread that breaks leases when it finds the client's queue empty.
 *   - After both sides of a connection have shut down, the kernel no longer shows what the client has read. So this
 *     side looks before it shuts down (look_before_shutdown), and waits until the answer is read (server/net/departed).
 *   - libmicrohttpd does not report every connection that it drops. Such an entry is removed when its descriptor is
 *     registered again (td_connection_open). */
#include "server/net/connection.h"

#include "core/array.h"
#include "core/clock.h"
#include "core/log.h"
#include "server/net/socket_facts.h"

#include <linux/sockios.h>
#include <malloc.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const uint64_t rate_window_ns = UINT64_C(30000000000);  /* over which min_rate is measured */
static const uint64_t drain_silence_ns = UINT64_C(1000000000); /* when draining, for a connection that says nothing */

/* An idle connection's bytes are counted in one of so many rounds of the reaper: every 1 s. */
enum { IDLE_ROUNDS = 10 };

void td_connection_shorten_queue(struct td_connection *connection)
{
    if (connection->near)
        return;
    struct td_socket_facts facts = td_socket_facts_of(connection->fd);
    if (facts.min_rtt_us == 0 || facts.min_rtt_us >= TD_NEAR_RTT_US)
        return;
    int bytes = TD_NEAR_QUEUE_BYTES;
    connection->near = true;
    (void)setsockopt(connection->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

/* Returns whether the client has shut down its sending side, or the connection has ended. Does not wait. */
static bool has_client_ended(const struct td_connection *connection)
{
    struct pollfd look = {.fd = connection->fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) != 0;
}

/* Makes the closing of the connection a reset for the client. Under the lock. */
static void reset_at_close(struct td_connection *connection)
{
    td_socket_reset_at_close(connection->fd);
    atomic_store(&connection->is_reset_at_close, true);
}

/* Records the reason, unless one is recorded already, and shuts the socket down. Under the lock. */
static void cut_connection(struct td_connection *connection, enum td_cut why)
{
    int none = TD_CUT_NONE;
    /* A busy connection is reset: the kernel then drops the queue instead of keeping it for a client that
     * does not read, and the client cannot mistake the end for a complete answer. An idle connection is not reset,
     * because the end of its last answer may still be on the way; neither is a silent one. */
    if (why != TD_CUT_IDLE && atomic_load(&connection->phase) != TD_PHASE_IDLE)
        reset_at_close(connection);
    (void)atomic_compare_exchange_strong(&connection->cut, &none, (int)why);
    (void)td_sent_shut_down(connection->fd, SHUT_RDWR); /* never close: the descriptor is libmicrohttpd's */
}

/* Judges an answer that is being sent: whether the client acknowledges bytes, and enough of them. */
static enum td_cut judge_sending(struct td_connection *connection, const struct td_registry_limits *limits,
                                 uint64_t since_ns, uint64_t now_ns)
{
    uint64_t bytes = td_socket_acknowledged_bytes(connection->fd); /* counts as progress */
    if (connection->watched_since_ns < since_ns) {                 /* a new answer */
        connection->watched_since_ns = now_ns;
        connection->watched_bytes = bytes;
        connection->progress_ns = now_ns;
        connection->progress_bytes = bytes;
    }
    if (bytes != connection->progress_bytes) {
        connection->progress_bytes = bytes;
        connection->progress_ns = now_ns;
    }
    if (now_ns - connection->progress_ns >= limits->send_timeout_ns)
        return TD_CUT_STALLED;
    uint64_t window_ns = now_ns - connection->watched_since_ns;
    if (window_ns < rate_window_ns)
        return TD_CUT_NONE;
    uint64_t wanted = limits->min_rate * (window_ns / 1000000) / 1000;
    bool slow = bytes - connection->watched_bytes < wanted;
    connection->watched_since_ns = now_ns;
    connection->watched_bytes = bytes;
    return slow ? TD_CUT_SLOW : TD_CUT_NONE;
}

/* Judges a connection before its first request line is complete. It may take as long as a header and, while it has
 * sent nothing, no longer than an idle connection may be silent. When draining, it is cut after 1 s. */
static enum td_cut judge_first(struct td_connection *connection, const struct td_registry *registry, uint64_t age_ns)
{
    const struct td_registry_limits *limits = &registry->limits;
    if (atomic_load(&registry->draining) && age_ns >= drain_silence_ns)
        return TD_CUT_SHUTDOWN;
    if (age_ns >= limits->header_timeout_ns)
        return TD_CUT_DEADLINE;
    if (age_ns < limits->idle_timeout_ns || connection->idle_bytes > 0)
        return TD_CUT_NONE;
    connection->idle_bytes = td_socket_facts_of(connection->fd).received_bytes;
    return connection->idle_bytes == 0 ? TD_CUT_IDLE : TD_CUT_NONE;
}

/* Judges a connection between requests: whether the client has ended it, how long it has been silent and, once bytes of
 * the next request have come, how long the request line takes. From its first byte on that may take as long as a
 * header. In a shared thread, libmicrohttpd misses the client's end when it came together with the last request.
 *
 * Asks the kernel when the connection has become idle, then in each IDLE_ROUNDS-th round (each descriptor in its own
 * one, so that the rounds are equally long), and before it cuts a connection as silent. The client's end, and the first
 * byte of a request line, are thus noticed up to 1 s late, and a line that never ends is cut up to 1 s late; silence is
 * cut in time. */
static enum td_cut judge_idle(struct td_connection *connection, const struct td_registry_limits *limits,
                              uint64_t since_ns, uint64_t now_ns, unsigned round)
{
    bool is_over = now_ns > since_ns && now_ns - since_ns >= limits->idle_timeout_ns;
    if (connection->idle_since_ns != since_ns) {
        connection->idle_since_ns = since_ns;
        connection->idle_bytes = td_socket_facts_of(connection->fd).received_bytes;
        connection->dribble_ns = 0;
    } else if (connection->dribble_ns == 0 && (is_over || (unsigned)connection->fd % IDLE_ROUNDS == round)) {
        struct td_socket_facts facts = td_socket_facts_of(connection->fd);
        if (connection->is_shared && facts.client_has_ended && td_socket_unread_bytes(connection->fd) == 0)
            return TD_CUT_IDLE;
        if (facts.received_bytes != connection->idle_bytes)
            connection->dribble_ns = now_ns;
    }
    if (connection->dribble_ns != 0)
        return now_ns - connection->dribble_ns >= limits->header_timeout_ns ? TD_CUT_DEADLINE : TD_CUT_NONE;
    return is_over ? TD_CUT_IDLE : TD_CUT_NONE;
}

/* Returns why the connection is to be cut, if it is. round: the number of the reaper's round, below IDLE_ROUNDS. */
static enum td_cut judge(struct td_connection *connection, const struct td_registry *registry, uint64_t now_ns,
                         unsigned round)
{
    const struct td_registry_limits *limits = &registry->limits;
    uint64_t since_ns = atomic_load(&connection->phase_since_ns);
    uint64_t age_ns = now_ns > since_ns ? now_ns - since_ns : 0;
    switch ((enum td_phase)atomic_load(&connection->phase)) {
    case TD_PHASE_FIRST:
        return judge_first(connection, registry, age_ns);
    case TD_PHASE_HEADER:
        return age_ns >= limits->header_timeout_ns ? TD_CUT_DEADLINE : TD_CUT_NONE;
    case TD_PHASE_BODY:
        return age_ns >= limits->body_timeout_ns ? TD_CUT_DEADLINE : TD_CUT_NONE;
    case TD_PHASE_IDLE:
        return atomic_load(&registry->draining) ? TD_CUT_SHUTDOWN
                                                : judge_idle(connection, limits, since_ns, now_ns, round);
    case TD_PHASE_SENDING:
        return judge_sending(connection, limits, since_ns, now_ns);
    case TD_PHASE_HANDLING:
        return TD_CUT_NONE;
    }
    return TD_CUT_NONE;
}

/* ---- answers that may not have been read --------------------------------------------------------------- */

/* Returns whether the client has reset the connection; false after this side has shut down, since the kernel then does
 * not show it. */
static bool was_reset(struct td_connection *connection)
{
    return !atomic_load(&connection->is_shut_down) && td_socket_facts_of(connection->fd).is_closed;
}

/* Returns whether there is proof that the client has read the connection's last answer by reference. */
static bool was_read(struct td_connection *connection)
{
    enum td_delivery_state state;
    uint64_t arrived_ns = atomic_load(&connection->arrived_ns);
    if (connection->departed == NULL) /* the ends are not known */
        return false;
    bool is_proved = was_reset(connection) || td_delivery_is_proved(&connection->registry->delivery, connection->fd,
                                                                    &connection->departed->ends, &arrived_ns, &state);
    atomic_store(&connection->arrived_ns, arrived_ns);
    return is_proved;
}

/* Looks for proof before this side shuts down. After that, the kernel does not distinguish a client that has closed its
 * socket from one that only sends no more and may have unread bytes. Returns whether this side may shut down: not while
 * the client may have unread bytes, so that the kernel goes on showing them (server/net/departed). */
static bool look_before_shutdown(void *context)
{
    struct td_connection *connection = context;
    struct td_blob *blob = atomic_load(&connection->unread);
    if (atomic_load(&connection->is_shut_down))
        return true;
    if (blob != NULL && was_read(connection)) {
        if (atomic_compare_exchange_strong(&connection->unread, &blob, NULL))
            td_blob_unref(blob);
    } else if (blob != NULL && connection->departed != NULL && connection->departed->ends.is_found &&
               !atomic_load(&connection->is_reset_at_close)) {
        return false;
    }
    atomic_store(&connection->is_shut_down, true);
    return true;
}

/* Keeps the blob, with the caller's reference, for the unread answer of a connection that ends. Returns the blob if
 * that is not necessary or not possible; the caller then drops it without the lock. Under the lock. */
static struct td_blob *depart(struct td_registry *registry, struct td_connection *connection, struct td_blob *blob)
{
    /* The reset discards the bytes that are not acknowledged when the descriptor is closed. */
    bool is_lost = atomic_load(&connection->is_reset_at_close) && td_socket_unacknowledged_bytes(connection->fd) > 0;
    if (is_lost || connection->departed == NULL)
        return blob;
    connection->departed->arrived_ns = atomic_load(&connection->arrived_ns);
    connection->departed->is_open = !atomic_load(&connection->is_shut_down);
    if (!td_departed_add(&registry->departed, connection->departed, blob, connection->fd)) {
        reset_at_close(connection);
        return blob;
    }
    connection->departed = NULL;
    return NULL;
}

size_t td_registry_count_unread(struct td_registry *registry)
{
    pthread_mutex_lock(&registry->lock);
    struct td_departed *taken = td_departed_take_read(&registry->departed, &registry->delivery, NULL);
    size_t count = atomic_load(&registry->departed.count);
    pthread_mutex_unlock(&registry->lock);
    td_departed_free(taken);
    return count;
}

/* Reads the two ends of the connection and registers look_before_shutdown, once. Returns whether the ends are known. */
static bool know_ends(struct td_connection *connection)
{
    if (connection->departed != NULL)
        return true;
    struct td_departed *departed = calloc(1, sizeof *departed);
    connection->end = (struct td_sent_shutdown){.before = look_before_shutdown, .context = connection};
    if (departed == NULL || !td_delivery_ends(&connection->registry->delivery, connection->fd, &departed->ends) ||
        !td_sent_watch(connection->fd, &connection->end)) {
        free(departed);
        return false;
    }
    connection->departed = departed; /* other threads use it only while `unread` is set */
    return true;
}

bool td_connection_may_refer(struct td_connection *connection, const struct td_blob *blob)
{
    const struct td_registry *registry = connection->registry;
    const struct td_blob *unread = atomic_load_explicit(&connection->unread, memory_order_relaxed);
    if (registry->referring == TD_REFERRING_NONE)
        return false;
    if (td_blob_is_fixed(blob))
        return true;
    if ((unread != NULL && unread != blob) || !registry->delivery.can_look ||
        atomic_load_explicit(&registry->departed.count, memory_order_relaxed) >= TD_DEPARTED || !know_ends(connection))
        return false;
    const struct td_ends *ends = &connection->departed->ends;
    bool is_allowed = !ends->is_local || (ends->is_found && registry->referring == TD_REFERRING_ALL);
    return is_allowed && !has_client_ended(connection);
}

/* Keeps the blob of an answer that begins, unless its file can never change. */
static void refer(struct td_connection *connection, struct td_blob *blob)
{
    if (!td_blob_is_fixed(blob))
        connection->referenced = td_blob_ref(blob);
}

/* Holds back the end of the answer, so that the client cannot send its next request before end_hold. */
static void begin_hold(struct td_connection *connection)
{
    int on = 1;
    connection->is_held = true;
    (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
}

/* Looks whether the next request has come already, before the client has the end of the answer. */
static void look_for_request(void *context)
{
    struct td_connection *connection = context;
    struct td_socket_facts facts = td_socket_facts_of(connection->fd);
    connection->proves_nothing = !facts.is_established || facts.received_bytes != connection->received_bytes;
}

/* Lets the end of the answer go. After one that is not complete, the next request proves as little as before. In the
 * first answers of a connection libmicrohttpd itself has let the end go before; the look may then take a prompt client
 * for one that pipelines. */
static void end_hold(struct td_connection *connection, bool is_complete)
{
    int off = 0;
    if (is_complete)
        look_for_request(connection);
    (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
}

void td_connection_refer(struct td_connection *connection, struct td_blob *blob)
{
    refer(connection, blob);
    begin_hold(connection);
}

/* Logs damage, at most once a second, since clients may ask for the same damaged file again and again. */
static void tell_damage(struct td_registry *registry, const struct td_error *err)
{
    enum { PAUSE_NS = 1000000000 };
    uint64_t now = td_clock_ns();
    uint64_t last = atomic_load(&registry->damage_told_ns);
    if ((last == 0 || now - last >= PAUSE_NS) && atomic_compare_exchange_strong(&registry->damage_told_ns, &last, now))
        td_log(TD_LOG_ERROR, "an answer was broken off: %s", err->message);
}

void td_connection_break_off(struct td_connection *connection, const struct td_error *err)
{
    int none = TD_CUT_NONE;
    /* A changed file may look damaged too; the reader has told the two apart already (storage/decoded.c). */
    enum td_cut cut = err->code == TD_FAILED_PRECONDITION  ? TD_CUT_DAMAGED
                      : err->code == TD_RESOURCE_EXHAUSTED ? TD_CUT_BUSY
                                                           : TD_CUT_CHANGED;
    if (cut == TD_CUT_CHANGED && td_cancel_is_asked(&connection->cancel)) /* it was broken off for that */
        return;
    if (cut == TD_CUT_DAMAGED)
        tell_damage(connection->registry, err);
    (void)atomic_compare_exchange_strong(&connection->cut, &none, (int)cut);
}

static void break_off(void *context, const struct td_error *err)
{
    td_connection_break_off(context, err);
}

bool td_connection_send(struct td_connection *connection, struct td_body *body, const struct td_sending *how)
{
    if (!td_sent_begin(connection->fd, &connection->sent_body.sent))
        return false;
    struct td_sending called = *how;
    called.before_end = look_for_request;
    called.failed = break_off;
    called.context = connection;
    td_sent_body_init(&connection->sent_body, body, &called);
    if (how->reference != NULL) {
        refer(connection, how->reference);
        connection->proves_nothing = true; /* until look_for_request finds that it does not */
    }
    return true;
}

void td_connection_hold(struct td_connection *connection)
{
    if (connection->proves_nothing && atomic_load_explicit(&connection->unread, memory_order_relaxed) != NULL)
        begin_hold(connection);
}

void td_connection_end_answer(struct td_connection *connection, bool is_complete)
{
    struct td_blob *blob = connection->referenced;
    bool is_sent = connection->sent_body.sent.len > 0;
    is_complete = is_complete || td_sent_body_is_over(&connection->sent_body);
    if (connection->is_held)
        end_hold(connection, is_complete);
    connection->is_held = false;
    if (blob == NULL && !is_sent)
        return;
    connection->referenced = NULL;
    if (is_sent)
        td_sent_end(connection->fd);
    if (is_complete && blob != NULL) { /* NULL also if the file can never change */
        atomic_store(&connection->arrived_ns, 0);
        blob = atomic_exchange(&connection->unread, blob); /* of the same file: td_connection_may_refer */
    }
    td_connection_unpin(connection);
    td_blob_unref(blob);
    td_sent_body_fini(&connection->sent_body);
}

void td_connection_prove(struct td_connection *connection)
{
    if (!connection->proves_nothing && atomic_load_explicit(&connection->unread, memory_order_relaxed) != NULL)
        td_blob_unref(atomic_exchange(&connection->unread, NULL));
}

/* Takes over the connection's reference on the blob if there is proof that its answer was read. Returns whether it
 * did. */
static bool settle_connection(struct td_connection *connection, struct td_blob *blob)
{
    struct td_blob *expected = blob;
    return was_read(connection) && atomic_compare_exchange_strong(&connection->unread, &expected, NULL);
}

size_t td_registry_settle(struct td_registry *registry, const struct td_blob *blob)
{
    struct td_blob *held = (struct td_blob *)(uintptr_t)blob;
    size_t left = 0;
    size_t settled = 0;
    pthread_mutex_lock(&registry->lock);
    for (struct td_connection *c = registry->first; c != NULL; c = c->next) {
        if (atomic_load(&c->unread) != held)
            continue;
        bool is_settled = settle_connection(c, held);
        settled += is_settled ? 1 : 0;
        left += is_settled ? 0 : 1;
    }
    struct td_departed *taken = td_departed_take_read(&registry->departed, &registry->delivery, blob);
    left += td_departed_count(&registry->departed, blob);
    pthread_mutex_unlock(&registry->lock);
    while (settled-- > 0)
        td_blob_unref(held);
    td_departed_free(taken);
    return left;
}

void td_registry_cut_unacknowledged(struct td_registry *registry, const struct td_blob *blob)
{
    pthread_mutex_lock(&registry->lock);
    for (struct td_connection *c = registry->first; c != NULL; c = c->next) {
        if (atomic_load(&c->unread) != blob || td_socket_unacknowledged_bytes(c->fd) == 0)
            continue;
        reset_at_close(c);
        cut_connection(c, TD_CUT_CHANGED);
    }
    struct td_departed *taken = td_departed_take_unacknowledged(&registry->departed, blob);
    pthread_mutex_unlock(&registry->lock);
    td_departed_free(taken);
}

/* ---- the reaper ---------------------------------------------------------------------------------------- */

/* Gives memory back to the kernel after many connections have ended: malloc keeps the 20 KiB and more of each. */
static void trim_memory(struct td_registry *registry)
{
    enum { MANY = 256 };
    pthread_mutex_lock(&registry->lock);
    bool many_ended = registry->most - registry->count >= MANY;
    if (many_ended)
        registry->most = registry->count;
    pthread_mutex_unlock(&registry->lock);
    if (many_ended)
        (void)malloc_trim(0);
}

static void *reaper_main(void *argument)
{
    struct td_registry *registry = argument;
    for (unsigned round = 0; !atomic_load(&registry->stop); round = (round + 1) % IDLE_ROUNDS) {
        if (round == 0) {
            (void)td_registry_count_unread(registry); /* drops the blobs of answers that were read */
            trim_memory(registry);
        }
        uint64_t now_ns = td_clock_ns();
        pthread_mutex_lock(&registry->lock);
        for (struct td_connection *c = registry->first; c != NULL; c = c->next) {
            enum td_cut why = judge(c, registry, now_ns, round);
            if (why != TD_CUT_NONE)
                cut_connection(c, why);
        }
        pthread_mutex_unlock(&registry->lock);
        struct timespec pause = {.tv_nsec = 100000000};
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Makes the locks and starts the reaper. Leaves nothing behind when it fails. */
static bool start_reaper(struct td_registry *registry, struct td_error *err)
{
    int first = pthread_mutex_init(&registry->lock, NULL);
    int second = first == 0 ? pthread_mutex_init(&registry->handing, NULL) : first;
    int sys = second == 0 ? pthread_create(&registry->reaper, NULL, reaper_main, registry) : second;
    if (second == 0 && sys != 0)
        (void)pthread_mutex_destroy(&registry->handing);
    if (first == 0 && sys != 0)
        (void)pthread_mutex_destroy(&registry->lock);
    return sys == 0 || td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start the thread that watches deadlines");
}

bool td_registry_init(struct td_registry *registry, const struct td_registry_limits *limits, struct td_metrics *metrics,
                      struct td_error *err)
{
    memset(registry, 0, sizeof *registry);
    registry->limits = *limits;
    registry->metrics = metrics;
    registry->referring = limits->referring;
    atomic_store(&metrics->connections_limit, limits->max_connections);
    if (!td_address_counts_init(&registry->addresses, err))
        return false;
    if (td_delivery_init(&registry->delivery, err)) {
        if (start_reaper(registry, err))
            return true;
        td_delivery_fini(&registry->delivery);
    }
    td_address_counts_fini(&registry->addresses);
    return false;
}

void td_registry_set_limits(struct td_registry *registry, const struct td_registry_limits *limits)
{
    pthread_mutex_lock(&registry->lock);
    registry->limits = *limits;
    pthread_mutex_unlock(&registry->lock);
}

void td_registry_fini(struct td_registry *registry)
{
    atomic_store(&registry->stop, true);
    (void)pthread_join(registry->reaper, NULL);
    /* libmicrohttpd does not report the end of connections that it has not begun with. */
    for (struct td_connection *c = registry->first, *next; c != NULL; c = next) {
        next = c->next;
        td_connection_close(c);
    }
    /* The leases end with the process, so clients must not get the ends of their answers afterwards. */
    td_departed_free(td_departed_take_unacknowledged(&registry->departed, NULL));
    td_departed_free(registry->departed.first);
    td_delivery_fini(&registry->delivery);
    free(registry->by_fd);
    td_address_counts_fini(&registry->addresses);
    (void)pthread_mutex_destroy(&registry->handing);
    (void)pthread_mutex_destroy(&registry->lock);
}

size_t td_registry_count(struct td_registry *registry)
{
    pthread_mutex_lock(&registry->lock);
    size_t count = registry->count;
    pthread_mutex_unlock(&registry->lock);
    return count;
}

/* Returns the limit that one more connection would exceed beside `others` open ones. Under the lock. */
static enum td_over over_limit(const struct td_registry *registry, const struct in6_addr *address, size_t others)
{
    if (td_address_counts_get(&registry->addresses, address) >= registry->limits.max_per_address)
        return TD_OVER_ADDRESS;
    return others >= registry->limits.max_connections ? TD_OVER_TOTAL : TD_OVER_NONE;
}

enum td_over td_registry_judge(struct td_registry *registry, const struct in6_addr *address, bool *admit)
{
    pthread_mutex_lock(&registry->lock);
    enum td_over over = over_limit(registry, address, registry->count);
    *admit = over == TD_OVER_NONE ||
             (over == TD_OVER_TOTAL && registry->count < registry->limits.max_connections + TD_RESERVED_CONNECTIONS);
    pthread_mutex_unlock(&registry->lock);
    return over;
}

struct td_connection *td_registry_find(struct td_registry *registry, int fd)
{
    pthread_mutex_lock(&registry->lock);
    struct td_connection *connection = (size_t)fd < registry->fd_capacity ? registry->by_fd[fd] : NULL;
    pthread_mutex_unlock(&registry->lock);
    return connection;
}

/* Returns whether the connection was cut or the client has closed it, without waiting. A client that shuts down only
 * its sending side counts as gone, because TCP does not tell the two apart. */
static bool is_gone(void *context)
{
    const struct td_connection *connection = context;
    return atomic_load(&connection->cut) != TD_CUT_NONE || has_client_ended(connection);
}

/* Adds the connection to the list, to the table and to the count of its address, and sets its `over`. Returns false,
 * with nothing added, when out of memory. Under the lock. */
static bool enlist(struct td_registry *registry, struct td_connection *connection)
{
    size_t fd = (size_t)connection->fd;
    size_t capacity = registry->fd_capacity;
    enum td_over over = over_limit(registry, &connection->address, registry->count);
    if (!td_array_reserve(&registry->by_fd, &registry->fd_capacity, fd + 1, sizeof(struct td_connection *), NULL, NULL))
        return false;
    for (size_t i = capacity; i < registry->fd_capacity; i++)
        registry->by_fd[i] = NULL;
    if (!td_address_counts_add(&registry->addresses, &connection->address))
        return false;
    registry->by_fd[fd] = connection;
    connection->over = over;
    connection->next = registry->first;
    if (registry->first != NULL)
        registry->first->previous = connection;
    registry->first = connection;
    registry->count++;
    if (registry->count > registry->most)
        registry->most = registry->count;
    return true;
}

/* Undoes enlist. Under the lock. */
static void delist(struct td_registry *registry, const struct td_connection *connection)
{
    registry->by_fd[connection->fd] = NULL;
    td_address_counts_remove(&registry->addresses, &connection->address);
    *(connection->previous != NULL ? &connection->previous->next : &registry->first) = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    registry->count--;
}

/* Returns a number for the client at an address. Of an IPv6 address its first 64 bits count alone: the others can be
 * chosen at will within a network (RFC 4291 2.5.4). */
static uint64_t client_of(const uint64_t key[2], const struct in6_addr *address)
{
    struct in6_addr network = *address;
    if (!IN6_IS_ADDR_V4MAPPED(address))
        memset(&network.s6_addr[8], 0, 8);
    return td_address_hash(key, &network);
}

struct td_connection *td_connection_open(struct td_registry *registry, int fd, const struct in6_addr *address)
{
    /* libmicrohttpd does not report a connection that it drops for lack of memory before it begins. The same descriptor
     * in a new connection shows that it is gone. */
    struct td_connection *stale = td_registry_find(registry, fd);
    if (stale != NULL)
        td_connection_close(stale);
    struct td_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return NULL;
    connection->registry = registry;
    connection->fd = fd;
    connection->cancel = (struct td_cancel){.is_asked = is_gone, .context = connection};
    connection->address = *address;
    connection->client = client_of(registry->addresses.key, address);
    atomic_init(&connection->phase, TD_PHASE_FIRST);
    atomic_init(&connection->phase_since_ns, td_clock_ns());
    pthread_mutex_lock(&registry->lock);
    bool is_enlisted = enlist(registry, connection);
    pthread_mutex_unlock(&registry->lock);
    if (!is_enlisted) {
        free(connection);
        return NULL;
    }
    atomic_fetch_add(&registry->metrics->connections, 1);
    return connection;
}

void td_connection_close(struct td_connection *connection)
{
    struct td_registry *registry = connection->registry;
    td_connection_end_answer(connection, false);
    td_sent_unwatch(connection->fd);
    (void)look_before_shutdown(connection); /* unless libmicrohttpd called it, by server/mhd/sender */
    pthread_mutex_lock(&registry->lock);
    struct td_blob *dropped = atomic_exchange(&connection->unread, NULL);
    if (dropped != NULL)
        dropped = depart(registry, connection, dropped);
    delist(registry, connection);
    pthread_mutex_unlock(&registry->lock);
    td_blob_unref(dropped);
    atomic_fetch_sub(&registry->metrics->connections, 1);
    /* A cut answer is counted with its request; a deadline that is left here ended the connection between requests. */
    enum td_cut cut = (enum td_cut)atomic_load(&connection->cut);
    if (cut == TD_CUT_DEADLINE)
        td_metrics_cut(registry->metrics, cut);
    free(connection->departed);
    free(connection);
}

void td_connection_set_phase(struct td_connection *connection, enum td_phase phase)
{
    atomic_store(&connection->phase_since_ns, td_clock_ns());
    atomic_store(&connection->phase, (int)phase);
}

bool td_connection_pin(struct td_connection *connection, const struct td_body *body)
{
    size_t count = 0;
    for (size_t i = 0; i < body->extent_count; i++) {
        const struct td_blob *blob = body->extents[i].blob;
        size_t k = 0;
        if (blob->class->pinned == NULL) /* memory of the program: nobody writes to it */
            continue;
        while (k < count && atomic_load_explicit(&connection->pinned[k], memory_order_relaxed) != blob)
            k++;
        if (k == TD_PINNED_BLOBS) {
            td_connection_unpin(connection);
            return false;
        }
        if (k == count)
            atomic_store(&connection->pinned[count++], blob);
    }
    return true;
}

void td_connection_unpin(struct td_connection *connection)
{
    for (size_t i = 0; i < TD_PINNED_BLOBS; i++)
        if (atomic_load_explicit(&connection->pinned[i], memory_order_relaxed) != NULL)
            atomic_store(&connection->pinned[i], NULL);
}

bool td_registry_uses_blob(struct td_registry *registry, const struct td_blob *blob)
{
    bool used = false;
    pthread_mutex_lock(&registry->lock);
    for (struct td_connection *c = registry->first; c != NULL && !used; c = c->next)
        for (size_t i = 0; i < TD_PINNED_BLOBS; i++)
            used = used || atomic_load(&c->pinned[i]) == blob;
    pthread_mutex_unlock(&registry->lock);
    return used;
}

void td_registry_cut_all(struct td_registry *registry)
{
    pthread_mutex_lock(&registry->lock);
    for (struct td_connection *c = registry->first; c != NULL; c = c->next)
        cut_connection(c, TD_CUT_SHUTDOWN);
    pthread_mutex_unlock(&registry->lock);
}

void td_registry_cut_blob(struct td_registry *registry, const struct td_blob *blob)
{
    pthread_mutex_lock(&registry->lock);
    for (struct td_connection *c = registry->first; c != NULL; c = c->next)
        for (size_t i = 0; i < TD_PINNED_BLOBS; i++)
            if (atomic_load(&c->pinned[i]) == blob)
                cut_connection(c, TD_CUT_CHANGED);
    pthread_mutex_unlock(&registry->lock);
}
