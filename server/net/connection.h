/* Connections: the registry of open connections, the limits on their number, and the reaper, a thread that enforces all
 * deadlines every 100 ms; it notices the first byte of the next request within 1 s. libmicrohttpd's timeout is not
 * used: it is a single one, runs in every phase of a connection, and restarts with any byte in either direction.
 *
 * Threads: each port's acceptor thread judges and opens connections, and closes those that end before their first
 * byte, and those that libmicrohttpd did not take. A thread of libmicrohttpd finds the entry before the connection's
 * thread begins with it, and closes the entry at the end. In between, the connection belongs to its thread, which may
 * serve others too, or to the job that the thread waits for; others only read its atomic members and cut it. */
#ifndef TD_SERVER_NET_CONNECTION_H
#define TD_SERVER_NET_CONNECTION_H

#include "http/metrics.h"
#include "http/request.h"
#include "server/net/address_counts.h"
#include "server/net/delivery.h"
#include "server/net/departed.h"
#include "server/net/sent_body.h"
#include "storage/body.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Most different blobs from which one answer is sent in place. */
enum { TD_PINNED_BLOBS = 4 };

/* Over a short path the kernel lets a send queue grow to megabytes. These are written to memory, fall out of the CPU
 * caches, and are read again. A short queue is enough there and stays in the caches (docs/performance.md). */
enum {
    TD_NEAR_RTT_US = 40,               /* the path is short below this smallest round trip: same host, one switch */
    TD_NEAR_ANSWER_BYTES = 512 * 1024, /* shorter answers keep the kernel's queue */
    TD_NEAR_QUEUE_BYTES = 128 * 1024,  /* for SO_SNDBUF, which doubles it: enough for 5 GB/s over 40 us */
};

/* The phase of a connection. Every phase but HANDLING has its deadline. */
enum td_phase {
    TD_PHASE_FIRST,    /* accepted; no complete request line yet */
    TD_PHASE_HEADER,   /* the request line was read; header fields are arriving */
    TD_PHASE_BODY,     /* the request's body is arriving */
    TD_PHASE_HANDLING, /* the answer is being made */
    TD_PHASE_SENDING,  /* the answer is being sent */
    TD_PHASE_IDLE,     /* between two requests */
};

/* The limit that a connection exceeds: none, the total number, or the number from one address. */
enum td_over { TD_OVER_NONE, TD_OVER_TOTAL, TD_OVER_ADDRESS };

struct td_connection {
    struct td_registry *registry;
    int fd;
    bool is_shared;          /* its thread serves other connections too; set before its thread begins with it */
    struct in6_addr address; /* an IPv4 address is IPv4-mapped */
    uint64_t client;         /* td_address_hash of it, by the registry's key; of IPv6: of its /64 */
    enum td_over over;
    const struct td_facade *facade; /* of the port; set before the first request */
    _Atomic int phase;              /* enum td_phase */
    _Atomic uint64_t phase_since_ns;
    _Atomic int cut;               /* enum td_cut: the reason why it was cut; TD_CUT_NONE while it is good */
    struct td_cancel cancel;       /* asks for an end when the connection was cut or the client closed its side */
    bool near;                     /* its send queue is short; used by its own thread alone */
    bool is_tls;                   /* with TLS: only libmicrohttpd may send; set before the first request */
    bool more_follows;             /* more of the answer follows what is being sent; used by its own thread alone */
    struct td_sent_body sent_body; /* of the answer that is being sent; empty: it goes another way */
    /* an answer that is being sent by reference; used by its own thread alone */
    struct td_blob *referenced; /* one reference; NULL: none */
    bool is_held;               /* the end of the answer is held back */
    uint64_t received_bytes;    /* of all requests up to this one */
    bool proves_nothing;        /* the next request does not prove that this answer was read */
    /* a complete answer that was sent by reference and may not have been read */
    _Atomic(struct td_blob *) unread; /* one reference, which is for whoever exchanges the pointer; NULL: none */
    _Atomic uint64_t arrived_ns;      /* when all of it was first seen to be acknowledged; 0: not yet */
    struct td_departed *departed; /* owned; allocated before the first answer by reference, with the ends; NULL: none */
    struct td_sent_shutdown end;  /* registered with td_sent_watch from then on */
    _Atomic bool is_shut_down;    /* by this side */
    _Atomic bool is_reset_at_close; /* the kernel then discards what is not acknowledged */
    /* progress of an answer; used by the reaper alone */
    uint64_t watched_since_ns, watched_bytes, progress_ns, progress_bytes;
    /* bytes of the next request on an idle connection, or of the first one; used by the reaper alone */
    uint64_t idle_since_ns, idle_bytes, dribble_ns;
    _Atomic(const struct td_blob *) pinned[TD_PINNED_BLOBS]; /* blobs it sends from in place or by reference; compared,
                                                                never read */
    struct td_connection *next, *previous;
};

/* Which clients get answers by reference (--sendfile): all; those on other hosts, and those on this host only from
 * files that can never change; none. */
enum td_referring { TD_REFERRING_ALL, TD_REFERRING_REMOTE, TD_REFERRING_NONE };

struct td_registry_limits {
    uint64_t header_timeout_ns, body_timeout_ns, idle_timeout_ns, send_timeout_ns;
    uint64_t min_rate; /* bytes per second */
    size_t max_connections, max_per_address;
    enum td_referring referring; /* never changes */
};

struct td_registry {
    pthread_mutex_t lock;
    pthread_mutex_t handing; /* for acceptors, taken before `lock`: held while one registers a descriptor, and while
                                one hands a descriptor over, since that may close it */
    struct td_departed_list departed; /* under the lock */
    struct td_delivery delivery;
    enum td_referring referring;
    /* the open connections, under the lock: as a list, by descriptor, and how many each address has */
    struct td_connection *first;
    size_t count;
    size_t most;                  /* open at once since memory was last given back */
    struct td_connection **by_fd; /* NULL where the descriptor is not that of an open connection */
    size_t fd_capacity;           /* length of by_fd: at most half more than the largest descriptor was */
    struct td_address_counts addresses;
    struct td_registry_limits limits; /* under the lock */
    struct td_metrics *metrics;
    pthread_t reaper;
    _Atomic bool stop;
    _Atomic bool draining;           /* idle connections are ended at once */
    _Atomic uint64_t damage_told_ns; /* when the log last told of an answer that met damage */
};

/* Connections accepted beyond max_connections, so that probes such as /healthz are answered at the limit. */
enum { TD_RESERVED_CONNECTIONS = 16 };

/* Prepares an empty registry and starts the reaper. The limits are copied; metrics is borrowed and must outlive the
 * registry. Fails with TD_RESOURCE_EXHAUSTED when no thread can be started, or without random bytes. */
bool td_registry_init(struct td_registry *registry, const struct td_registry_limits *limits, struct td_metrics *metrics,
                      struct td_error *err);

/* Changes the limits: deadlines of the phases that connections are in as well. Open connections beyond a new limit on
 * their number stay open. Any thread. */
void td_registry_set_limits(struct td_registry *registry, const struct td_registry_limits *limits);

/* Stops the reaper and frees what is left. All descriptors must be closed, and no other thread may use the registry any
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

/* Removes the connection from the registry and frees it. Does not close the descriptor. Call it once, when
 * the connection has no thread: see above. */
void td_connection_close(struct td_connection *connection);

/* Enters a phase, whose deadline runs from now. Called by the connection's thread. */
void td_connection_set_phase(struct td_connection *connection, enum td_phase phase);

/* Records that the body will be sent in place from its pinned mappings, so that td_registry_cut_blob finds the
 * connection. Returns false, with nothing recorded, when the body lies in more than TD_PINNED_BLOBS of them. Called by
 * the connection's thread, as is td_connection_unpin. */
bool td_connection_pin(struct td_connection *connection, const struct td_body *body);

/* Removes what td_connection_pin recorded. */
void td_connection_unpin(struct td_connection *connection);

/* Returns whether an answer may be sent by reference from the blob: --sendfile allows it, and either the file can never
 * change, or there will be proof of when the client has read the answer. There will be no proof:
 * - if the client is on this host and its socket is not found;
 * - while an earlier answer of another blob is unproved, since a connection keeps only one;
 * - after the client has shut down its sending side;
 * - while too many closed connections have unproved answers (TD_DEPARTED).
 *
 * Called by the connection's thread. */
bool td_connection_may_refer(struct td_connection *connection, const struct td_blob *blob);

/* Begins an answer that libmicrohttpd sends by reference (td_transfer_create): takes a reference on the blob, and holds
 * back its header until bytes of its body follow. td_connection_pin and td_connection_may_refer come first. */
void td_connection_refer(struct td_connection *connection, struct td_blob *blob);

/* Begins an answer whose body server/mhd/sender sends, as *how says; its callbacks are set here. Takes *body over, and
 * a reference on how->reference. A body that is pinned goes through td_connection_pin first. Returns false, with
 * nothing begun, when that is not possible for this connection. */
bool td_connection_send(struct td_connection *connection, struct td_body *body, const struct td_sending *how);

/* Records why the answer is broken off, and logs damage. Called by the thread that makes the answer or sends it. */
void td_connection_break_off(struct td_connection *connection, const struct td_error *err);

/* Begins an answer that is not sent by reference. While an earlier one is without proof, this answer is watched as if
 * sent by reference, so that the next request can be the proof. */
void td_connection_hold(struct td_connection *connection);

/* Ends the answer. is_complete: all of it was handed to the kernel; the blob of one sent by reference is then kept
 * until td_connection_prove, or until td_registry_settle finds that the client has read it. Otherwise the client knows
 * that it lacks bytes, and the blob is dropped. */
void td_connection_end_answer(struct td_connection *connection, bool is_complete);

/* Called when a request begins: a client that sends one has read all answers before, unless the request came before the
 * end of the last answer was let go (the client pipelines), or the client has closed its sending side. */
void td_connection_prove(struct td_connection *connection);

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

/* Shortens the send queue, once per connection, if the path is short. For answers of TD_NEAR_ANSWER_BYTES or more that
 * are copied: one sent by reference is not in the send queue as memory of its own. */
void td_connection_shorten_queue(struct td_connection *connection);

#endif
