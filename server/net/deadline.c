/* Progress of an upload is counted by the bytes received, and progress of an answer by the bytes that the client has
 * acknowledged, since the kernel takes bytes for the send queue whether or not the client reads them. The phase HEADER
 * begins with a complete request line, so a request line that dribbles in is noticed by the bytes received
 * (judge_idle).
 *
 * Bytes are counted by a system call for each connection, under the lock that accepting needs. An answer that is being
 * sent is checked in every round, an idle connection every TD_IDLE_ROUNDS, so that each round checks a tenth of the
 * idle ones. */
#include "server/net/deadline.h"

#include "core/clock.h"
#include "server/net/tcp_socket.h"

static const uint64_t rate_window_ns = UINT64_C(30000000000); /* over which min_rate is measured */
static const uint64_t drain_silence_ns = TD_NS_PER_S;         /* when draining, for a connection that sends nothing */

void td_deadline_init(struct td_deadline *deadline)
{
    *deadline = (struct td_deadline){.phase = TD_PHASE_FIRST};
    atomic_init(&deadline->phase_since_ns, td_clock_ns());
}

void td_deadline_enter(struct td_deadline *deadline, enum td_phase phase)
{
    atomic_store(&deadline->phase_since_ns, td_clock_ns());
    atomic_store(&deadline->phase, (int)phase);
}

bool td_deadline_is_idle(const struct td_deadline *deadline)
{
    return atomic_load(&deadline->phase) == TD_PHASE_IDLE;
}

uint64_t td_deadline_handling_ns(const struct td_deadline *deadline)
{
    uint64_t since_ns = atomic_load(&deadline->phase_since_ns);
    uint64_t now_ns = td_clock_ns();
    return atomic_load(&deadline->phase) == TD_PHASE_HANDLING && now_ns > since_ns ? now_ns - since_ns : 0;
}

/* Judges a transfer by the bytes of the connection that count as its progress: whether there is any, and at a good
 * rate. */
static enum td_cut judge_progress(struct td_deadline *deadline, uint64_t bytes, const struct td_deadline_limits *limits,
                                  uint64_t since_ns, uint64_t now_ns)
{
    if (deadline->watched_since_ns < since_ns) { /* a new transfer */
        deadline->watched_since_ns = now_ns;
        deadline->watched_bytes = bytes;
        deadline->progress_ns = now_ns;
        deadline->progress_bytes = bytes;
    }
    if (bytes != deadline->progress_bytes) {
        deadline->progress_bytes = bytes;
        deadline->progress_ns = now_ns;
    }
    if (now_ns - deadline->progress_ns >= limits->send_timeout_ns)
        return TD_CUT_STALLED;
    uint64_t window_ns = now_ns - deadline->watched_since_ns;
    if (window_ns < rate_window_ns)
        return TD_CUT_NONE;
    uint64_t wanted = limits->min_rate * (window_ns / 1000000) / 1000;
    bool slow = bytes - deadline->watched_bytes < wanted;
    deadline->watched_since_ns = now_ns;
    deadline->watched_bytes = bytes;
    return slow ? TD_CUT_SLOW : TD_CUT_NONE;
}

/* Judges the body of an upload that is arriving. A client that waits for the server, whose disk may be slow, is not to
 * blame. */
static enum td_cut judge_upload(struct td_deadline *deadline, int fd, const struct td_deadline_limits *limits,
                                uint64_t since_ns, uint64_t now_ns)
{
    uint64_t bytes = td_socket_facts_of(fd).received_bytes;
    bool is_late = deadline->watched_since_ns >= since_ns && bytes == deadline->progress_bytes;
    bool window_ends = deadline->watched_since_ns >= since_ns && now_ns - deadline->watched_since_ns >= rate_window_ns;
    if ((is_late || window_ends) && (atomic_load(&deadline->is_taking) || td_socket_unread_bytes(fd) > 0))
        deadline->watched_since_ns = 0; /* begins again */
    return judge_progress(deadline, bytes, limits, since_ns, now_ns);
}

/* Judges a stream: a client that has acknowledged all is not late, however long there was nothing to send. Its rate is
 * not judged, since few bytes come. Asks the kernel in each TD_IDLE_ROUNDS-th round. */
static enum td_cut judge_stream(struct td_deadline *deadline, int fd, const struct td_deadline_round *round,
                                uint64_t since_ns)
{
    struct td_deadline_limits limits = round->limits;
    limits.min_rate = 0;
    if ((unsigned)fd % TD_IDLE_ROUNDS != round->number)
        return TD_CUT_NONE;
    if (td_socket_unacknowledged_bytes(fd) == 0)
        deadline->watched_since_ns = 0; /* begins again */
    return judge_progress(deadline, td_socket_facts_of(fd).acknowledged_bytes, &limits, since_ns, round->now_ns);
}

/* Judges a connection before its first request line is complete. It may take as long as a header and, while it has
 * sent nothing, no longer than an idle connection may be silent. When draining, it is cut after 1 s. */
static enum td_cut judge_first(struct td_deadline *deadline, int fd, const struct td_deadline_round *round,
                               uint64_t age_ns)
{
    const struct td_deadline_limits *limits = &round->limits;
    if (round->is_draining && age_ns >= drain_silence_ns)
        return TD_CUT_SHUTDOWN;
    if (age_ns >= limits->header_timeout_ns)
        return TD_CUT_DEADLINE;
    if (age_ns < limits->idle_timeout_ns || deadline->idle_bytes > 0)
        return TD_CUT_NONE;
    deadline->idle_bytes = td_socket_facts_of(fd).received_bytes;
    return deadline->idle_bytes == 0 ? TD_CUT_IDLE : TD_CUT_NONE;
}

/* Judges a connection between requests: whether the client has ended it, how long it has been silent and, once bytes of
 * the next request have come, how long the request line takes. From its first byte on that may take as long as a
 * header. In a shared thread, libmicrohttpd misses the client's end when it came together with the last request.
 *
 * Asks the kernel when the connection has become idle, then in each TD_IDLE_ROUNDS-th round (each descriptor in its own
 * one, so that the rounds are equally long), and before it cuts a connection as silent. The client's end, and the first
 * byte of a request line, are thus noticed up to 1 s late, and a line that never ends is cut up to 1 s late; silence is
 * cut in time. */
static enum td_cut judge_idle(struct td_deadline *deadline, int fd, const struct td_deadline_round *round,
                              uint64_t since_ns, bool is_shared)
{
    uint64_t now_ns = round->now_ns;
    bool is_over = now_ns > since_ns && now_ns - since_ns >= round->limits.idle_timeout_ns;
    if (deadline->idle_since_ns != since_ns) {
        deadline->idle_since_ns = since_ns;
        deadline->idle_bytes = td_socket_facts_of(fd).received_bytes;
        deadline->dribble_ns = 0;
    } else if (deadline->dribble_ns == 0 && (is_over || (unsigned)fd % TD_IDLE_ROUNDS == round->number)) {
        struct td_socket_facts facts = td_socket_facts_of(fd);
        if (is_shared && facts.client_has_ended && td_socket_unread_bytes(fd) == 0)
            return TD_CUT_IDLE;
        if (facts.received_bytes != deadline->idle_bytes)
            deadline->dribble_ns = now_ns;
    }
    if (deadline->dribble_ns != 0)
        return now_ns - deadline->dribble_ns >= round->limits.header_timeout_ns ? TD_CUT_DEADLINE : TD_CUT_NONE;
    return is_over ? TD_CUT_IDLE : TD_CUT_NONE;
}

enum td_cut td_deadline_judge(struct td_deadline *deadline, int fd, const struct td_deadline_round *round,
                              bool is_shared)
{
    const struct td_deadline_limits *limits = &round->limits;
    uint64_t since_ns = atomic_load(&deadline->phase_since_ns);
    uint64_t age_ns = round->now_ns > since_ns ? round->now_ns - since_ns : 0;
    switch ((enum td_phase)atomic_load(&deadline->phase)) {
    case TD_PHASE_FIRST:
        return judge_first(deadline, fd, round, age_ns);
    case TD_PHASE_HEADER:
        return age_ns >= limits->header_timeout_ns ? TD_CUT_DEADLINE : TD_CUT_NONE;
    case TD_PHASE_BODY:
        return age_ns >= limits->body_timeout_ns ? TD_CUT_DEADLINE : TD_CUT_NONE;
    case TD_PHASE_IDLE:
        return round->is_draining ? TD_CUT_SHUTDOWN : judge_idle(deadline, fd, round, since_ns, is_shared);
    case TD_PHASE_SENDING:
        return judge_progress(deadline, td_socket_facts_of(fd).acknowledged_bytes, limits, since_ns, round->now_ns);
    case TD_PHASE_STREAM:
        return judge_stream(deadline, fd, round, since_ns);
    case TD_PHASE_UPLOAD:
        return judge_upload(deadline, fd, limits, since_ns, round->now_ns);
    case TD_PHASE_HANDLING:
    case TD_PHASE_STREAMS:
        return TD_CUT_NONE;
    }
    return TD_CUT_NONE;
}
