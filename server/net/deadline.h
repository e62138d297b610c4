/* The phase of a connection, the deadline of each phase, and the minimum rate of an answer. The reaper of
 * server/net/connection judges every connection once in each of its rounds. */
#ifndef TD_SERVER_NET_DEADLINE_H
#define TD_SERVER_NET_DEADLINE_H

#include "http/metrics.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The phase of a connection. Every phase but HANDLING and STREAMS has its deadline. */
enum td_phase {
    TD_PHASE_FIRST,    /* accepted; no complete request line yet */
    TD_PHASE_HEADER,   /* the request line was read; header fields are arriving */
    TD_PHASE_BODY,     /* the request's body is arriving */
    TD_PHASE_UPLOAD,   /* the body of an upload is arriving */
    TD_PHASE_HANDLING, /* the answer is being made */
    TD_PHASE_SENDING,  /* the answer is being sent */
    TD_PHASE_STREAM,   /* the answer is a stream: bytes come now and then, and the client has to take them */
    TD_PHASE_IDLE,     /* between two requests */
    TD_PHASE_STREAMS,  /* HTTP/2: server/h2 has the deadlines of its streams and of the connection */
};

/* The bytes of an idle connection are counted in one of this many rounds. */
enum { TD_IDLE_ROUNDS = 10 };

struct td_deadline_limits {
    uint64_t header_timeout_ns, body_timeout_ns, idle_timeout_ns, send_timeout_ns;
    uint64_t min_rate; /* of an answer or an upload, bytes per second; 0: no limit */
};

/* The inputs of one round, the same for all connections. */
struct td_deadline_round {
    struct td_deadline_limits limits;
    uint64_t now_ns;
    unsigned number;  /* below TD_IDLE_ROUNDS */
    bool is_draining; /* idle connections are ended at once */
};

struct td_deadline {
    _Atomic int phase; /* enum td_phase */
    _Atomic uint64_t phase_since_ns;
    _Atomic bool is_taking; /* a sink is taking bytes: a client that sends none may be waiting for the server */
    /* The rest is for td_deadline_judge. Progress of an answer or an upload: */
    uint64_t watched_since_ns, watched_bytes, progress_ns, progress_bytes;
    /* bytes of the next request on an idle connection, or of the first one */
    uint64_t idle_since_ns, idle_bytes, dribble_ns;
};

/* Begins with TD_PHASE_FIRST. */
void td_deadline_init(struct td_deadline *deadline);

/* Enters a phase, whose deadline runs from now. Called by the connection's thread. */
void td_deadline_enter(struct td_deadline *deadline, enum td_phase phase);

/* Returns whether the connection is between two requests. Any thread. */
bool td_deadline_is_idle(const struct td_deadline *deadline);

/* Returns for how long the answer has been made, in ns; 0 in every other phase than HANDLING. Called by the
 * connection's thread. */
uint64_t td_deadline_handling_ns(const struct td_deadline *deadline);

/* Returns why the connection with this socket is to be cut; TD_CUT_NONE while it is good. is_shared: its thread serves
 * others too. One thread at a time. */
enum td_cut td_deadline_judge(struct td_deadline *deadline, int fd, const struct td_deadline_round *round,
                              bool is_shared);

#endif
