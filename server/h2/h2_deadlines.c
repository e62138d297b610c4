#include "server/h2/h2_deadlines.h"

#include "core/clock.h"
#include "server/h2/h2_answer.h"
#include "server/net/tcp_socket.h"

enum {
    NOTICE_NS = 200000000, /* between the two GOAWAY of a server that drains (RFC 9113 section 6.8) */
    RATE_WINDOW_S = 30,    /* over which --min-rate is measured */
    LINGER_NS = 1000000000,
};

void td_h2_deadlines_init(struct td_h2_deadlines *deadlines, uint64_t now_ns)
{
    *deadlines = (struct td_h2_deadlines){.acknowledged_ns = now_ns};
}

/* ---- streams ------------------------------------------------------------------------------------------- */

/* Returns why the answer of a stream is to be broken off: the client takes none of it, or too slowly. A stream whose
 * next bytes the server has to fetch first is not late. */
static enum td_cut judge_answer(struct td_h2_stream *stream, const struct td_h2_round *round)
{
    const uint64_t window_ns = round->now_ns - stream->window_ns;
    const bool waits_for_server = stream->is_at_work || td_h2_answer_is_exhausted(stream);
    if (waits_for_server || stream->sent_bytes != stream->progress_bytes) {
        stream->progress_bytes = stream->sent_bytes;
        stream->progress_ns = round->now_ns;
    }
    if (round->now_ns - stream->progress_ns >= round->limits.send_timeout_ns)
        return TD_CUT_STALLED;
    if (waits_for_server && stream->is_of_events) { /* few bytes come, so the rate says nothing */
        stream->window_ns = round->now_ns;
        stream->window_bytes = stream->sent_bytes;
    }
    if (window_ns < RATE_WINDOW_S * (uint64_t)TD_NS_PER_S)
        return TD_CUT_NONE;
    const uint64_t wanted = round->limits.min_rate * (window_ns / 1000000) / 1000;
    const bool is_slow = !waits_for_server && stream->sent_bytes - stream->window_bytes < wanted;
    stream->window_ns = round->now_ns;
    stream->window_bytes = stream->sent_bytes;
    return is_slow ? TD_CUT_SLOW : TD_CUT_NONE;
}

/* Checks one stream. */
static void check_stream(struct td_h2_stream *stream, const struct td_h2_round *round)
{
    struct td_metrics *metrics = &stream->serving->api->metrics;
    if (!stream->is_open || stream->cut != TD_CUT_NONE || stream->judged_ns == 0)
        return;
    if (stream->is_complete) {
        if (round->now_ns > stream->completed_ns && round->now_ns - stream->completed_ns >= LINGER_NS)
            td_h2_session_reset(stream, NGHTTP2_NO_ERROR);
        return;
    }
    const bool is_silent = stream->answers_each && stream->is_starved && !stream->is_at_work;
    if (is_silent) {
        if (round->is_draining || round->now_ns - stream->progress_ns >= round->limits.idle_timeout_ns)
            td_h2_answer_end_conversation(stream);
    } else if (stream->has_answer) {
        const enum td_cut cut = judge_answer(stream, round);
        if (cut != TD_CUT_NONE)
            td_h2_answer_break_off(stream, cut);
    } else if (!stream->has_input_ended && !stream->is_at_work && !stream->drops_input &&
               round->now_ns - stream->judged_ns >= round->limits.body_timeout_ns) {
        td_metrics_cut(metrics, TD_CUT_DEADLINE);
        stream->cut = TD_CUT_DEADLINE;
        td_h2_session_reset(stream, NGHTTP2_CANCEL);
    }
}

void td_h2_deadlines_check_streams(struct td_h2_session *session, const struct td_h2_round *round)
{
    for (struct td_h2_stream *stream = session->streams, *next; stream != NULL; stream = next) {
        next = stream->next;
        check_stream(stream, round);
    }
}

/* ---- the connection ------------------------------------------------------------------------------------ */

enum td_cut td_h2_deadlines_judge(struct td_h2_deadlines *deadlines, const struct td_h2_session *session,
                                  bool has_unsent, const struct td_h2_round *round)
{
    const int fd = session->entry->fd;
    const struct td_deadline_limits *limits = &round->limits;
    const uint64_t unfinished_ns = session->frames.unfinished_ns;
    const uint64_t unfinished_most_ns = session->frames.in_block ? limits->header_timeout_ns : limits->body_timeout_ns;
    const bool has_streams = session->stream_count > 0;
    const bool sends = has_unsent || (has_streams && td_socket_unacknowledged_bytes(fd) > 0);
    const uint64_t acknowledged = sends ? td_socket_facts_of(fd).acknowledged_bytes : 0;
    if (!sends || acknowledged != deadlines->acknowledged_bytes) {
        deadlines->acknowledged_bytes = acknowledged;
        deadlines->acknowledged_ns = round->now_ns;
    }
    if (round->now_ns - deadlines->acknowledged_ns >= limits->send_timeout_ns)
        return TD_CUT_STALLED;
    if (unfinished_ns != 0 && round->now_ns > unfinished_ns && round->now_ns - unfinished_ns >= unfinished_most_ns)
        return TD_CUT_DEADLINE;
    return TD_CUT_NONE;
}

/* Announces the end to the client: first that no further stream should be begun, and after the time in which such a
 * stream may still be on its way, which streams are answered. Returns whether the connection is to end. */
static bool drain(struct td_h2_deadlines *deadlines, struct td_h2_session *session, uint64_t now_ns)
{
    nghttp2_session *nghttp2 = session->nghttp2;
    if (deadlines->notice_ns == 0) {
        deadlines->notice_ns = now_ns;
        (void)nghttp2_submit_shutdown_notice(nghttp2);
    } else if (!deadlines->has_said_goaway && now_ns - deadlines->notice_ns >= NOTICE_NS) {
        deadlines->has_said_goaway = true;
        (void)nghttp2_submit_goaway(nghttp2, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(nghttp2),
                                    NGHTTP2_NO_ERROR, NULL, 0);
    }
    return deadlines->has_said_goaway && session->stream_count == 0;
}

bool td_h2_deadlines_end(struct td_h2_deadlines *deadlines, struct td_h2_session *session,
                         const struct td_h2_round *round)
{
    if (round->is_draining)
        return drain(deadlines, session, round->now_ns);
    if (session->stream_count > 0 || round->now_ns - session->active_ns < round->limits.idle_timeout_ns)
        return false;
    (void)nghttp2_session_terminate_session(session->nghttp2, NGHTTP2_NO_ERROR);
    return true;
}
