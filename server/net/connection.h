/* Connections: the registry of open connections, the limits on their number, and the reaper, a thread that enforces all
 * deadlines every 100 ms and notices the first byte of the next request within 1 s. libmicrohttpd's timeout is not
 * used, since it is the same for every phase of a connection and restarts with any byte in either direction.
 *
 * Threads: each port's acceptor thread judges and opens connections, and closes those that end before their first byte,
 * and those that libmicrohttpd did not take. A thread of libmicrohttpd finds the entry before the connection's thread
 * begins with it, and closes the entry at the end. In between, the connection belongs to its thread, which may serve
 * others too, or to the job that the thread waits for; others only read its atomic members and cut it. */
#ifndef TD_SERVER_NET_CONNECTION_H
#define TD_SERVER_NET_CONNECTION_H

#include "http/metrics.h"
#include "http/request.h"
#include "server/net/address_counts.h"
#include "server/net/deadline.h"
#include "server/net/read_proof.h"
#include "server/net/sent_body.h"
#include "storage/body.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* TCP does not distinguish a client that has closed its connection from one that has only shut down its sending side
 * and continues to read (half-closed, as by nc -N). Both count as gone once they have acknowledged nothing for this
 * long, and at once when they reset the connection, as a closed socket does when bytes reach it. */
#define TD_HALF_CLOSED_NS UINT64_C(10000000000)

/* Most different blobs from which one answer is sent in place. */
enum { TD_PINNED_BLOBS = 4 };

/* The limit that a connection exceeds: none, the total number, or the number from one address. */
enum td_over { TD_OVER_NONE, TD_OVER_TOTAL, TD_OVER_ADDRESS };

/* A connection. The state that other modules keep for it is in members with functions of their own; the other members
 * are the registry's. Facts are set before the first request and never change. */
struct td_connection {
    /* facts */
    int fd;
    struct in6_addr address; /* an IPv4 address is IPv4-mapped */
    uint64_t client;         /* td_address_hash of it, by the registry's key; of IPv6: of its /64 */
    enum td_over over;
    const struct td_facade *facade; /* of the port */
    bool is_tls;                    /* with TLS: only libmicrohttpd may send */
    _Atomic bool is_shared;         /* its thread serves other connections too; set after it is registered */
    /* each has its own functions */
    struct td_deadline deadline;
    bool has_short_queue;          /* for td_send_queue_shorten */
    struct td_sent_body sent_body; /* of the answer that is being sent; empty: it is sent in another way */
    struct td_read_proof proof;
    /* the blobs that it sends from in place or by reference, so that other threads find it by them; compared, never
     * read */
    _Atomic(const struct td_blob *) pins[TD_PINNED_BLOBS];
    struct td_cancel cancel;    /* asks for an end of work for an answer: see TD_HALF_CLOSED_NS */
    struct td_cancel ends_wait; /* asks for an end of waits for a change, also once the client has ended its side */
    _Atomic uint64_t ended_ns; /* for `cancel`: when the client, which has ended its side, was seen to have acknowledged
                                  more than before; 0: it was not seen to have ended its side */
    _Atomic uint64_t ended_acknowledged_bytes; /* how much it had acknowledged then */
    /* of the registry */
    struct td_registry *registry;
    _Atomic int cut; /* enum td_cut, for td_connection_cut_reason */
    struct td_connection *next, *previous;
};

struct td_registry_limits {
    struct td_deadline_limits deadlines;
    size_t max_connections, max_per_address;
    enum td_referring referring; /* never changes */
};

struct td_registry {
    pthread_mutex_t lock;
    pthread_mutex_t handing; /* for acceptors, taken before `lock`: held while one registers a descriptor, and while
                                one hands a descriptor over, since that may close it */
    struct td_read_proofs proofs; /* its list of closed connections is under the lock */
    /* the open connections, under the lock: as a list, by descriptor, and how many each address has */
    struct td_connection *first;
    size_t count;
    size_t most;                  /* open at once since memory was last returned to the kernel */
    struct td_connection **by_fd; /* NULL where the descriptor is not that of an open connection */
    size_t fd_capacity;           /* length of by_fd: at most half more than the largest descriptor was */
    struct td_address_counts addresses;
    struct td_registry_limits limits; /* under the lock */
    struct td_metrics *metrics;
    pthread_t reaper;
    _Atomic bool stop;
    _Atomic bool draining;             /* idle connections are ended at once */
    _Atomic uint64_t damage_logged_ns; /* when an answer that met damage was last logged */
};

/* Connections accepted beyond max_connections, so that probes such as /healthz are answered at the limit. */
enum { TD_RESERVED_CONNECTIONS = 16 };

/* Prepares an empty registry and starts the reaper. The limits are copied; metrics is borrowed and must outlive the
 * registry. Fails with TD_RESOURCE_EXHAUSTED when no thread can be started, or without random bytes. */
bool td_registry_init(struct td_registry *registry, const struct td_registry_limits *limits, struct td_metrics *metrics,
                      struct td_error *err);

/* Changes the limits. New deadlines also apply to the current phases of open connections. Open connections beyond a new
 * limit on their number stay open. Any thread. */
void td_registry_set_limits(struct td_registry *registry, const struct td_registry_limits *limits);

/* Returns the deadlines as they are now. Any thread. */
struct td_deadline_limits td_registry_deadlines(struct td_registry *registry);

/* Stops the reaper and frees the registry. All descriptors must be closed, and no other thread may use the registry any
 * more. */
void td_registry_fini(struct td_registry *registry);

/* Returns the number of open connections. Any thread. */
size_t td_registry_count(struct td_registry *registry);

/* Decides whether one more connection from this address is accepted, and returns the limit that it exceeds.
 *   TD_OVER_NONE     *admit is true
 *   TD_OVER_TOTAL    *admit is true within the reserved places: the connection is opened, and answered 503 except to a
 *                    probe
 *   TD_OVER_ADDRESS  *admit is false
 * Called by an acceptor's thread. Several acceptors that judge at once may admit one connection each beyond a limit. */
enum td_over td_registry_judge(struct td_registry *registry, const struct in6_addr *address, bool *admit);

/* Returns the open connection with this descriptor, or NULL, in constant time. The registry owns the connection until
 * td_connection_close. For the thread that will close the connection: see above. */
struct td_connection *td_registry_find(struct td_registry *registry, int fd);

/* Registers an accepted connection, and sets its `over`, in constant time. A connection that is still registered with
 * the same descriptor has no thread any more, and is closed first. Returns NULL, with nothing registered, when out of
 * memory. Called by an acceptor's thread. */
struct td_connection *td_connection_open(struct td_registry *registry, int fd, const struct in6_addr *address);

/* Removes the connection from the registry and frees it. Does not close the descriptor. Call it once, when the
 * connection has no thread: see above. */
void td_connection_close(struct td_connection *connection);

/* Returns why the connection was cut; TD_CUT_NONE while it is good. Any thread. */
enum td_cut td_connection_cut_reason(const struct td_connection *connection);

/* Records that the body will be sent in place from its pinned mappings. Returns false, with nothing recorded, when the
 * body has bytes of more than TD_PINNED_BLOBS mappings. Called by the connection's thread, as is td_connection_unpin.
 */
bool td_connection_pin(struct td_connection *connection, const struct td_body *body);

/* Removes what td_connection_pin recorded. */
void td_connection_unpin(struct td_connection *connection);

/* Begins an answer whose body server/mhd/sender sends, as *how says; its callbacks are set here. Takes *body over, and
 * a reference on how->reference. A body that is pinned goes through td_connection_pin first. Returns false, with
 * nothing begun, when that is not possible for this connection. */
bool td_connection_send(struct td_connection *connection, struct td_body *body, const struct td_sending *how);

/* Returns the reason to break an answer off after this error of its body. Logs damage. Any thread. */
enum td_cut td_registry_cut_of(struct td_registry *registry, const struct td_error *err);

/* Records why the answer is broken off, and logs damage. Called by the thread that makes the answer or sends it. */
void td_connection_break_off(struct td_connection *connection, const struct td_error *err);

/* Ends the answer. is_complete: all of it was handed to the kernel; the blob of one sent by reference is then kept
 * until td_read_proof_confirm, or until td_registry_settle finds that the client has read it. Otherwise the client
 * knows that it lacks bytes, and the blob is dropped. */
void td_connection_end_answer(struct td_connection *connection, bool is_complete);

/* Drops the references on the blob whose answers are now proved to be read: the client's socket is empty; it was reset;
 * or it is on another host or in another network namespace, and acknowledged all bytes 2 s ago. Returns the number of
 * references that remain. Any thread. */
size_t td_registry_settle(struct td_registry *registry, const struct td_blob *blob);

/* Drops the answers of closed connections that are proved to be read, and returns the number of the others. Any
 * thread. */
size_t td_registry_count_unread(struct td_registry *registry);

/* Cuts the connections, also closed ones, whose complete answer from this blob is not acknowledged, so that the client
 * does not get the end. Any thread. */
void td_registry_cut_unacknowledged(struct td_registry *registry, const struct td_blob *blob);

/* Returns whether any connection is sending from this blob in place or by reference. Any thread. */
bool td_registry_uses_blob(struct td_registry *registry, const struct td_blob *blob);

/* Cuts every connection: shuts its socket down and, except on an idle connection, discards what is still queued, so
 * that the client sees a reset. Any thread; the connections' own threads close them soon after. */
void td_registry_cut_all(struct td_registry *registry);

/* Cuts every connection that is sending from this blob in place or by reference. Any thread. */
void td_registry_cut_blob(struct td_registry *registry, const struct td_blob *blob);

#endif
