#include "server/h2/h2_session.h"

#include "core/clock.h"

void td_h2_session_init(struct td_h2_session *session, void *connection, void (*on_idle)(void *connection))
{
    struct td_serving *serving = session->serving;
    session->active_ns = td_clock_ns();
    td_h2_frames_init(&session->frames, session->active_ns);
    td_h2_crew_init(&session->crew, serving, session->mailbox, connection, on_idle);
    if (td_access_log_is_on(serving->log))
        td_access_lines_init(&session->access_lines, &session->entry->address, td_log_get_form());
}

void td_h2_session_fini(struct td_h2_session *session)
{
    td_access_lines_fini(&session->access_lines);
    td_h2_crew_fini(&session->crew);
}

struct td_h2_stream *td_h2_session_add(struct td_h2_session *session, int32_t id)
{
    struct td_h2_stream *stream = td_h2_stream_create(session->serving, session->entry, session->mailbox, id);
    if (stream == NULL)
        return NULL;
    stream->mail.receive = session->receive;
    stream->session = session;
    stream->next = session->streams;
    if (stream->next != NULL)
        stream->next->previous = stream;
    session->streams = stream;
    session->stream_count++;
    return stream;
}

void td_h2_session_reset(struct td_h2_stream *stream, uint32_t code)
{
    if (stream->is_open)
        (void)nghttp2_submit_rst_stream(stream->session->nghttp2, NGHTTP2_FLAG_NONE, stream->id, code);
}

void td_h2_session_remove(struct td_h2_stream *stream)
{
    struct td_h2_session *session = stream->session;
    session->large_pieces -= stream->is_large ? 1 : 0;
    td_h2_stream_report(stream, &session->access_lines);
    *(stream->previous != NULL ? &stream->previous->next : &session->streams) = stream->next;
    if (stream->next != NULL)
        stream->next->previous = stream->previous;
    session->stream_count--;
    session->active_ns = td_clock_ns();
    td_h2_stream_destroy(stream);
}

void td_h2_session_leave(struct td_h2_stream *stream)
{
    stream->is_open = false;
    atomic_store(&stream->is_gone, true);
    if (!stream->is_at_work || td_h2_crew_withdraw(&stream->session->crew, stream))
        td_h2_session_remove(stream);
}

void td_h2_session_end(struct td_h2_session *session)
{
    nghttp2_session_del(session->nghttp2);
    session->nghttp2 = NULL;
    for (struct td_h2_stream *stream = session->streams, *next; stream != NULL; stream = next) {
        next = stream->next;
        td_h2_session_leave(stream);
    }
}

bool td_h2_session_is_in_use(const struct td_h2_session *session)
{
    return session->streams != NULL || td_h2_crew_is_busy(&session->crew);
}
