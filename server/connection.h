/* Connections: the registry of open ones, the limits on them, and the reaper that enforces all deadlines.
 * libmicrohttpd has only one, which any byte in either direction resets and which runs in every phase; it is not used.
 */
#ifndef TD_SERVER_CONNECTION_H
#define TD_SERVER_CONNECTION_H

#include "api/metrics.h"
#include "api/request.h"
#include "storage/body.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Different files that one answer may be sent straight from. */
enum { TD_PINNED_BLOBS = 4 };

/* Over a short path the kernel lets an answer's queue grow to megabytes that are written to memory, fall out of the
 * caches, and are read again; a short queue is enough there and stays in the caches (docs/performance.md). */
enum {
    TD_NEAR_RTT_US = 40, /* shortest round trip seen, below which the path is short: one host, one switch */
    TD_NEAR_ANSWER_BYTES = 512 * 1024,
    TD_NEAR_QUEUE_BYTES = 128 * 1024, /* to SO_SNDBUF, which doubles it: over 40 us enough for 5 GB/s */
};

/* What a connection is waiting for; each state has its deadline. */
enum td_phase {
    TD_PHASE_FIRST,  /* accepted, nothing complete yet */
    TD_PHASE_HEADER, /* a request line was read, the header fields are coming */
    TD_PHASE_BODY,   /* the request's body is coming */
    TD_PHASE_HANDLING,
    TD_PHASE_SENDING, /* an answer is on its way */
    TD_PHASE_IDLE,    /* between requests */
};

/* Over which limit the connection is; it is answered once and closed. */
enum td_over { TD_OVER_NONE, TD_OVER_TOTAL, TD_OVER_ADDRESS };

struct td_connection {
    struct td_registry *registry;
    int fd;
    struct in6_addr address; /* IPv4 as mapped */
    enum td_over over;
    enum td_facade facade; /* of the port by which it came in; set before its first request */
    _Atomic int phase;
    _Atomic uint64_t phase_since_ns;
    _Atomic int cut;         /* enum td_cut: why the reaper ended it */
    struct td_cancel cancel; /* asks when the connection was cut, or the client ended its side */
    bool near;               /* its send queue is short; for its own thread alone */
    /* progress of an answer, for the reaper alone */
    uint64_t watched_since_ns, watched_bytes, progress_ns, progress_bytes;
    /* bytes of a next request on an idle connection, for the reaper alone */
    uint64_t idle_since_ns, idle_bytes, dribble_ns;
    _Atomic(const struct td_blob *) pinned[TD_PINNED_BLOBS]; /* being sent straight from; only ever compared */
    struct td_connection *next, *previous;
};

struct td_registry_limits {
    uint64_t header_timeout_ns, body_timeout_ns, idle_timeout_ns, send_timeout_ns;
    uint64_t min_rate; /* bytes per second */
    size_t max_connections, max_per_address;
};

struct td_registry {
    pthread_mutex_t lock;
    struct td_connection *first;
    size_t count;
    struct td_registry_limits limits;
    struct td_metrics *metrics;
    pthread_t reaper;
    _Atomic bool stop;
    _Atomic bool draining;           /* idle connections are ended at once */
    _Atomic uint64_t damage_told_ns; /* when the log last told of an answer that met damage */
};

/* Places kept beyond max_connections, so that probes are answered at the limit. */
enum { TD_RESERVED_CONNECTIONS = 16 };

/* Starts the reaper. */
bool td_registry_init(struct td_registry *registry, const struct td_registry_limits *limits, struct td_metrics *metrics,
                      struct td_error *err);
void td_registry_fini(struct td_registry *registry);

size_t td_registry_count(struct td_registry *registry);

/* Whether one more connection from this address may be taken in at all; past the limits but within the reserved
 * places it is, and marked. TD_OVER_NONE with *admit true is the good case. */
enum td_over td_registry_judge(struct td_registry *registry, const struct in6_addr *address, bool *admit);

/* The open connection with this descriptor, or NULL. */
struct td_connection *td_registry_find(struct td_registry *registry, int fd);

/* Registers an open connection. NULL when out of memory. */
struct td_connection *td_connection_open(struct td_registry *registry, int fd, const struct in6_addr *address);
void td_connection_close(struct td_connection *connection);

void td_connection_set_phase(struct td_connection *connection, enum td_phase phase);

/* Says that body is about to be sent straight from its pinned mappings, so that td_registry_cut_blob finds the
 * connection. False when it is spread over too many. */
bool td_connection_pin(struct td_connection *connection, const struct td_body *body);
void td_connection_unpin(struct td_connection *connection);

/* Whether a transfer is sending from this blob. */
bool td_registry_uses_blob(struct td_registry *registry, const struct td_blob *blob);

/* Ends every connection at once, what is still queued for it included. */
void td_registry_cut_all(struct td_registry *registry);

/* Ends every transfer that sends from this blob. */
void td_registry_cut_blob(struct td_registry *registry, const struct td_blob *blob);

/* Before an answer that takes long enough to be watched: shortens the send queue of a long one over a short path.
 * Returns the bytes handed to the kernel for sending since the connection began, acknowledged or not. */
uint64_t td_connection_begin_long(struct td_connection *connection, uint64_t body_bytes);

/* Bytes that the other side has acknowledged since the connection began. */
uint64_t td_socket_acknowledged_bytes(int fd);

#endif
