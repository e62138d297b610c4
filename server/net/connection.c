/* The registry is a list under one lock, with a table by descriptor and counts by address, so that a connection is
 * accepted in constant time. Every 100 ms the reaper has each connection judged (server/net/deadline) and cuts those
 * past their deadline. What is hard:
 *   - The reaper may not close a descriptor, which belongs to libmicrohttpd: it shuts the socket down, and the
 *     connection's thread closes it. A cut answer is reset, so that no client takes it for complete.
 *   - libmicrohttpd does not report every connection that it drops. Such an entry is removed when its descriptor is
 *     registered again (td_connection_open). */
#include "server/net/connection.h"

#include "core/array.h"
#include "core/clock.h"
#include "core/log.h"
#include "server/net/tcp_socket.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* Records the reason, unless one is recorded already, and shuts the socket down. Under the lock. */
static void cut_connection(struct td_connection *connection, enum td_cut why)
{
    int none = TD_CUT_NONE;
    /* A busy connection is reset: the kernel then drops the queue instead of keeping it for a client that does not
     * read, and the client cannot mistake the end for a complete answer. An idle connection is not reset, because the
     * end of its last answer may still be on the way; neither is a silent one. */
    if (why != TD_CUT_IDLE && !td_deadline_is_idle(&connection->deadline))
        td_read_proof_reset(&connection->proof, connection->fd);
    (void)atomic_compare_exchange_strong(&connection->cut, &none, (int)why);
    (void)td_sent_shut_down(connection->fd, SHUT_RDWR); /* never close: the descriptor is libmicrohttpd's */
}

/* ---- answers -------------------------------------------------------------------------------------------- */

size_t td_registry_count_unread(struct td_registry *registry)
{
    pthread_mutex_lock(&registry->lock);
    struct td_departed *taken = td_read_proofs_take_read(&registry->proofs, NULL);
    size_t count = td_read_proofs_count(&registry->proofs, NULL);
    pthread_mutex_unlock(&registry->lock);
    td_departed_free(taken);
    return count;
}

bool td_connection_pin(struct td_connection *connection, const struct td_body *body)
{
    _Atomic(const struct td_blob *) *pins = connection->pins;
    size_t count = 0;
    for (size_t i = 0; i < body->extent_count; i++) {
        const struct td_blob *blob = body->extents[i].blob;
        size_t k = 0;
        if (blob->class->pinned == NULL) /* memory of the program: nobody writes to it */
            continue;
        while (k < count && atomic_load_explicit(&pins[k], memory_order_relaxed) != blob)
            k++;
        if (k == TD_PINNED_BLOBS) {
            td_connection_unpin(connection);
            return false;
        }
        if (k == count)
            atomic_store(&pins[count++], blob);
    }
    return true;
}

void td_connection_unpin(struct td_connection *connection)
{
    for (size_t i = 0; i < TD_PINNED_BLOBS; i++)
        if (atomic_load_explicit(&connection->pins[i], memory_order_relaxed) != NULL)
            atomic_store(&connection->pins[i], NULL);
}

/* Returns whether the blob is recorded. Any thread. */
static bool has_pinned(const struct td_connection *connection, const struct td_blob *blob)
{
    bool have = false;
    for (size_t i = 0; i < TD_PINNED_BLOBS; i++)
        have = have || atomic_load(&connection->pins[i]) == blob;
    return have;
}

/* Logs damage, at most once a second, since clients may ask for the same damaged file again and again. */
static void tell_damage(struct td_registry *registry, const struct td_error *err)
{
    enum { PAUSE_NS = TD_NS_PER_S };
    uint64_t now = td_clock_ns();
    uint64_t last = atomic_load(&registry->damage_logged_ns);
    if ((last == 0 || now - last >= PAUSE_NS) &&
        atomic_compare_exchange_strong(&registry->damage_logged_ns, &last, now))
        td_log(TD_LOG_ERROR, "an answer was broken off: %s", err->message);
}

enum td_cut td_registry_cut_of(struct td_registry *registry, const struct td_error *err)
{
    /* A changed file may look damaged, too; the reader has already distinguished the two (storage/decoded.c). */
    if (err->code == TD_FAILED_PRECONDITION)
        tell_damage(registry, err);
    return err->code == TD_FAILED_PRECONDITION  ? TD_CUT_DAMAGED
           : err->code == TD_RESOURCE_EXHAUSTED ? TD_CUT_BUSY
                                                : TD_CUT_CHANGED;
}

void td_connection_break_off(struct td_connection *connection, const struct td_error *err)
{
    int none = TD_CUT_NONE;
    enum td_cut cut = td_registry_cut_of(connection->registry, err);
    if (cut == TD_CUT_CHANGED && td_cancel_is_asked(&connection->cancel)) /* it was broken off for that */
        return;
    (void)atomic_compare_exchange_strong(&connection->cut, &none, (int)cut);
}

/* A function of td_sending's kind. */
static void look_before_end(void *context)
{
    struct td_connection *connection = context;
    td_read_proof_look(&connection->proof, connection->fd);
}

/* A function of td_sending's kind. */
static void break_off(void *context, const struct td_error *err)
{
    td_connection_break_off(context, err);
}

bool td_connection_send(struct td_connection *connection, struct td_body *body, const struct td_sending *how)
{
    if (!td_sent_begin(connection->fd, &connection->sent_body.sent))
        return false;
    struct td_sending called = *how;
    called.before_end = look_before_end;
    called.failed = break_off;
    called.context = connection;
    td_sent_body_init(&connection->sent_body, body, &called);
    if (how->reference != NULL)
        td_read_proof_begin(&connection->proof, connection->fd, how->reference, false);
    return true;
}

void td_connection_end_answer(struct td_connection *connection, bool is_complete)
{
    struct td_blob *dropped = NULL;
    bool is_sent = connection->sent_body.sent.len > 0;
    is_complete = is_complete || td_sent_body_is_over(&connection->sent_body);
    if (!td_read_proof_end(&connection->proof, connection->fd, is_complete, &dropped) && !is_sent)
        return;
    if (is_sent)
        td_sent_end(connection->fd);
    td_connection_unpin(connection); /* not before: td_registry_uses_blob or td_registry_settle has to find the blob */
    td_blob_unref(dropped);
    td_sent_body_fini(&connection->sent_body);
}

size_t td_registry_settle(struct td_registry *registry, const struct td_blob *blob)
{
    struct td_blob *held = (struct td_blob *)(uintptr_t)blob;
    size_t left = 0;
    size_t settled = 0;
    pthread_mutex_lock(&registry->lock);
    for (struct td_connection *c = registry->first; c != NULL; c = c->next) {
        if (!td_read_proof_has_unread(&c->proof, held))
            continue;
        bool is_settled = td_read_proof_settle(&c->proof, c->fd, held);
        settled += is_settled ? 1 : 0;
        left += is_settled ? 0 : 1;
    }
    struct td_departed *taken = td_read_proofs_take_read(&registry->proofs, blob);
    left += td_read_proofs_count(&registry->proofs, blob);
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
        if (!td_read_proof_has_unread(&c->proof, blob) || td_socket_unacknowledged_bytes(c->fd) == 0)
            continue;
        td_read_proof_reset(&c->proof, c->fd);
        cut_connection(c, TD_CUT_CHANGED);
    }
    struct td_departed *taken = td_read_proofs_take_unacknowledged(&registry->proofs, blob);
    pthread_mutex_unlock(&registry->lock);
    td_departed_free(taken);
}

/* ---- the reaper ---------------------------------------------------------------------------------------- */

/* Returns memory to the kernel after many connections have ended, since malloc keeps 20 KiB or more for each. */
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
    for (unsigned number = 0; !atomic_load(&registry->stop); number = (number + 1) % TD_IDLE_ROUNDS) {
        if (number == 0) {
            td_metrics_sample(registry->metrics);
            (void)td_registry_count_unread(registry); /* drops the blobs of answers that were read */
            trim_memory(registry);
        }
        struct td_deadline_round round = {.now_ns = td_clock_ns(), .number = number};
        pthread_mutex_lock(&registry->lock);
        round.limits = registry->limits.deadlines;
        round.is_draining = atomic_load(&registry->draining);
        for (struct td_connection *c = registry->first; c != NULL; c = c->next) {
            enum td_cut why = td_deadline_judge(&c->deadline, c->fd, &round, c->is_shared);
            if (why != TD_CUT_NONE)
                cut_connection(c, why);
        }
        pthread_mutex_unlock(&registry->lock);
        struct timespec pause = {.tv_nsec = 100000000};
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Makes the locks and starts the reaper. On failure, undoes what it has done. */
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
    atomic_store(&metrics->connections_limit, limits->max_connections);
    if (!td_address_counts_init(&registry->addresses, err))
        return false;
    if (td_read_proofs_init(&registry->proofs, limits->referring, err)) {
        if (start_reaper(registry, err))
            return true;
        td_read_proofs_fini(&registry->proofs);
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

struct td_deadline_limits td_registry_deadlines(struct td_registry *registry)
{
    pthread_mutex_lock(&registry->lock);
    struct td_deadline_limits deadlines = registry->limits.deadlines;
    pthread_mutex_unlock(&registry->lock);
    return deadlines;
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
    td_read_proofs_fini(&registry->proofs);
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

/* Returns whether the connection was cut or the client has ended its side, without waiting. */
static bool has_ended(void *context)
{
    const struct td_connection *connection = context;
    return td_connection_cut_reason(connection) != TD_CUT_NONE || td_socket_client_has_ended(connection->fd);
}

/* Returns whether the client has acknowledged nothing for TD_HALF_CLOSED_NS. The client has ended its side, and has
 * acknowledged so many bytes by now. The time counts from the first call. */
static bool is_silent(struct td_connection *connection, uint64_t acknowledged_bytes)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t since_ns = atomic_load(&connection->ended_ns);
    if (since_ns != 0 && atomic_load(&connection->ended_acknowledged_bytes) == acknowledged_bytes)
        return now_ns > since_ns && now_ns - since_ns >= TD_HALF_CLOSED_NS;
    atomic_store(&connection->ended_acknowledged_bytes, acknowledged_bytes);
    atomic_store(&connection->ended_ns, now_ns);
    return false;
}

/* Returns whether nobody waits for the answer, without waiting: the connection was cut or reset, or the client has
 * ended its side and counts as gone (TD_HALF_CLOSED_NS). */
static bool is_gone(void *context)
{
    struct td_connection *connection = context;
    if (!has_ended(connection))
        return false;
    struct td_socket_facts facts = td_socket_facts_of(connection->fd);
    bool is_half_closed = td_connection_cut_reason(connection) == TD_CUT_NONE && facts.client_has_ended;
    return !is_half_closed || is_silent(connection, facts.acknowledged_bytes);
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
    connection->ends_wait = (struct td_cancel){.is_asked = has_ended, .context = connection};
    connection->address = *address;
    connection->client = client_of(registry->addresses.key, address);
    td_deadline_init(&connection->deadline);
    td_read_proof_init(&connection->proof, &registry->proofs);
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
    td_read_proof_close(&connection->proof, connection->fd);
    pthread_mutex_lock(&registry->lock);
    struct td_blob *dropped = td_read_proof_depart(&connection->proof, connection->fd);
    delist(registry, connection);
    pthread_mutex_unlock(&registry->lock);
    td_blob_unref(dropped);
    atomic_fetch_sub(&registry->metrics->connections, 1);
    /* A cut answer is counted with its request. A deadline that is still recorded here ended the connection between
     * requests. */
    enum td_cut cut = td_connection_cut_reason(connection);
    if (cut == TD_CUT_DEADLINE)
        td_metrics_cut(registry->metrics, cut);
    td_read_proof_fini(&connection->proof);
    free(connection);
}

enum td_cut td_connection_cut_reason(const struct td_connection *connection)
{
    return (enum td_cut)atomic_load(&connection->cut);
}

bool td_registry_uses_blob(struct td_registry *registry, const struct td_blob *blob)
{
    bool used = false;
    pthread_mutex_lock(&registry->lock);
    for (struct td_connection *c = registry->first; c != NULL && !used; c = c->next)
        used = has_pinned(c, blob);
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
        if (has_pinned(c, blob))
            cut_connection(c, TD_CUT_CHANGED);
    pthread_mutex_unlock(&registry->lock);
}
