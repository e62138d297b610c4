/* libnghttp2 is given the bytes that arrive, calls back for each event (h2_requests.h), and gives the bytes to be sent,
 * a frame at a time. What is hard:
 *   - A connection that has ended may still be worked for. It is freed when all streams have come back.
 *   - Nothing is read while anything waits to be sent. A client that does not read its answers can therefore not make
 *     the server queue more of them. */
#include "server/h2/h2_connection.h"

#include "core/clock.h"
#include "server/h2/h2_answer.h"
#include "server/h2/h2_requests.h"
#include "server/h2/h2_session.h"
#include "server/h2/h2_socket.h"
#include "server/net/tcp_socket.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    OUT_BYTES = 64 * 1024,  /* waiting to be sent: more is not taken from libnghttp2, but for one frame */
    READ_BYTES = 16 * 1024, /* read at a time */
    READS = 8,              /* of a connection, before the others have their turn */
};

struct td_h2_connection {
    struct td_h2_mail mail; /* first: on the way back mail is a connection */
    struct td_h2_owner *owner;
    struct td_h2_socket socket;
    struct td_h2_session session;
    struct td_h2_deadlines deadlines;
    struct td_buffer out;
    size_t out_at;
    uint32_t interest; /* the events that epoll reports */
    bool is_closing;   /* it ends when all is sent */
    bool has_ended;
    struct td_h2_connection *next, *previous; /* of the loop */
};

static struct td_h2_connection *connection_of(struct td_h2_session *session)
{
    return (struct td_h2_connection *)(void *)((char *)session - offsetof(struct td_h2_connection, session));
}

/* ---- the end ------------------------------------------------------------------------------------------- */

/* Frees the connection if it has ended and no thread works for it. */
static void free_if_over(struct td_h2_connection *connection)
{
    struct td_connection *entry = connection->session.entry;
    if (!connection->has_ended || td_h2_session_is_in_use(&connection->session))
        return;
    const int fd = entry->fd;
    *(connection->previous != NULL ? &connection->previous->next : &connection->owner->first) = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    td_h2_socket_fini(&connection->socket);
    td_h2_session_fini(&connection->session);
    td_buffer_fini(&connection->out);
    td_connection_close(entry);
    (void)close(fd);
    free(connection);
}

static void on_idle(void *context)
{
    free_if_over(context);
}

/* Reads some of what has arrived, and drops it: close() resets a connection with unread bytes, and the client may then
 * lose the end of what was sent. */
static void discard_received(int fd)
{
    char bytes[4096];
    for (int i = 0; i < READS; i++)
        if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0)
            return;
}

void td_h2_connection_end(struct td_h2_connection *connection)
{
    if (connection->has_ended)
        return;
    connection->has_ended = true;
    const int fd = connection->session.entry->fd;
    (void)epoll_ctl(connection->owner->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    td_h2_socket_say_end(&connection->socket);
    discard_received(fd);
    (void)td_sent_shut_down(fd, SHUT_RDWR);
    td_h2_session_end(&connection->session);
    free_if_over(connection);
}

/* ---- reading and sending ------------------------------------------------------------------------------- */

static size_t unsent_bytes(const struct td_h2_connection *connection)
{
    return connection->out.len - connection->out_at;
}

/* Takes bytes to be sent from libnghttp2. Returns false when memory is short or the session is broken. */
static bool fill_out(struct td_h2_connection *connection)
{
    if (connection->out_at == connection->out.len) {
        connection->out_at = 0;
        td_buffer_clear(&connection->out);
    }
    while (connection->out.len < OUT_BYTES) {
        const uint8_t *bytes = NULL;
        const ssize_t n = nghttp2_session_mem_send(connection->session.nghttp2, &bytes);
        if (n < 0)
            return false;
        if (n == 0)
            return true;
        td_buffer_append(&connection->out, bytes, (size_t)n);
        if (connection->out.failed)
            return false;
    }
    return true;
}

/* Sends what waits to be sent, as far as the socket takes it. Returns false when the connection has failed. */
static bool send_out(struct td_h2_connection *connection)
{
    for (;;) {
        if (unsent_bytes(connection) == 0 && !fill_out(connection))
            return false;
        if (unsent_bytes(connection) == 0)
            break;
        const ssize_t n = td_h2_socket_write(&connection->socket, connection->out.data + connection->out_at,
                                             unsent_bytes(connection));
        if (n == TD_H2_AGAIN)
            return true;
        if (n <= 0)
            return false;
        connection->out_at += (size_t)n;
    }
    if (connection->session.stream_count == 0) /* an idle connection takes no memory for it */
        td_buffer_fini(&connection->out);
    connection->out_at = connection->out.len;
    return true;
}

/* Has epoll report what the connection waits for. */
static void set_interest(struct td_h2_connection *connection)
{
    uint32_t wanted = EPOLLIN;
    const bool sends = unsent_bytes(connection) > 0;
    if (sends || (!connection->socket.has_begun && connection->socket.wants_write))
        wanted = sends ? EPOLLOUT : EPOLLOUT | EPOLLIN;
    if (wanted == connection->interest)
        return;
    struct epoll_event event = {.events = wanted, .data.ptr = connection};
    if (epoll_ctl(connection->owner->epoll_fd, EPOLL_CTL_MOD, connection->session.entry->fd, &event) == 0)
        connection->interest = wanted;
}

/* Sends GOAWAY for a client that exceeds a bound. The connection ends when that is sent. */
static void end_flood(struct td_h2_connection *connection)
{
    atomic_fetch_add(&connection->session.serving->api->metrics.grpc_floods, 1);
    (void)nghttp2_session_terminate_session(connection->session.nghttp2, NGHTTP2_ENHANCE_YOUR_CALM);
    connection->is_closing = true;
}

/* Passes bytes to libnghttp2. Returns false when the connection is to end at once. */
static bool take_bytes(struct td_h2_connection *connection, const uint8_t *bytes, size_t len)
{
    if (!td_h2_frames_take(&connection->session.frames, bytes, len, td_clock_ns())) {
        end_flood(connection);
        return true;
    }
    const ssize_t n = nghttp2_session_mem_recv(connection->session.nghttp2, bytes, len);
    if (n == NGHTTP2_ERR_FLOODED || connection->session.is_flooded) {
        end_flood(connection);
        return true;
    }
    return n >= 0;
}

/* Returns whether GnuTLS has bytes that epoll does not report. */
static bool has_unread_record(const struct td_h2_connection *connection)
{
    return connection->socket.tls != NULL && gnutls_record_check_pending(connection->socket.tls) > 0;
}

/* Reads and handles what has arrived. Returns false when the connection has ended. */
static bool read_in(struct td_h2_connection *connection)
{
    uint8_t bytes[READ_BYTES];
    for (int i = 0; i < READS || has_unread_record(connection); i++) {
        if (unsent_bytes(connection) > 0 || connection->is_closing)
            return true;
        const ssize_t n = td_h2_socket_read(&connection->socket, bytes, sizeof bytes);
        if (n == TD_H2_AGAIN)
            return true;
        if (n <= 0 || !take_bytes(connection, bytes, (size_t)n) || !send_out(connection))
            return false;
    }
    return true;
}

/* Sends what there is to be sent; ends the connection when it is over. The connection may be gone after that. */
static void flush(struct td_h2_connection *connection)
{
    if (connection->has_ended)
        return;
    const bool is_sent = send_out(connection) && (!has_unread_record(connection) || read_in(connection));
    const bool is_over = connection->is_closing || (nghttp2_session_want_read(connection->session.nghttp2) == 0 &&
                                                    nghttp2_session_want_write(connection->session.nghttp2) == 0);
    if (!is_sent || (is_over && unsent_bytes(connection) == 0))
        td_h2_connection_end(connection);
    else
        set_interest(connection);
}

/* Continues what the socket may take or give now. The connection may be gone after that. */
static void handle_socket(struct td_h2_connection *connection)
{
    if (connection->has_ended)
        return;
    if (!connection->socket.has_begun) {
        const int result = td_h2_socket_shake_hands(&connection->socket);
        if (result == TD_H2_ENDED) {
            atomic_fetch_add(&connection->session.serving->api->metrics.malformed, 1);
            td_h2_connection_end(connection);
            return;
        }
        if (result == TD_H2_AGAIN) {
            set_interest(connection);
            return;
        }
    }
    if (!send_out(connection) || !read_in(connection)) {
        td_h2_connection_end(connection);
        return;
    }
    flush(connection);
}

void td_h2_connection_check(struct td_h2_connection *connection, const struct td_h2_round *round)
{
    int none = TD_CUT_NONE;
    struct td_h2_session *session = &connection->session;
    if (connection->has_ended || !session->has_settings) /* before that the reaper has the deadline */
        return;
    const enum td_cut cut = td_h2_deadlines_judge(&connection->deadlines, session, unsent_bytes(connection) > 0, round);
    if (cut != TD_CUT_NONE) {
        td_socket_reset_at_close(session->entry->fd);
        (void)atomic_compare_exchange_strong(&session->entry->cut, &none, (int)cut);
        td_h2_connection_end(connection);
        return;
    }
    td_h2_deadlines_check_streams(session, round);
    if (td_h2_deadlines_end(&connection->deadlines, session, round))
        connection->is_closing = true;
    flush(connection);
}

/* Receives a stream that a thread has worked for. */
static void receive_stream(struct td_h2_mail *mail)
{
    struct td_h2_stream *stream = (struct td_h2_stream *)(void *)mail;
    struct td_h2_connection *connection = connection_of(stream->session);
    stream->is_at_work = false;
    if (!stream->is_open) {
        td_h2_session_remove(stream);
        free_if_over(connection);
        return;
    }
    td_h2_answer_continue(stream);
    flush(connection);
}

/* ---- the beginning ------------------------------------------------------------------------------------- */

/* Receives a connection that was accepted. */
static void begin(struct td_h2_mail *mail)
{
    struct td_h2_connection *connection = (struct td_h2_connection *)(void *)mail;
    struct td_h2_owner *owner = connection->owner;
    connection->next = owner->first;
    if (connection->next != NULL)
        connection->next->previous = connection;
    owner->first = connection;
    connection->interest = EPOLLIN;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(owner->epoll_fd, EPOLL_CTL_ADD, connection->session.entry->fd, &event) != 0)
        td_h2_connection_end(connection);
    else
        handle_socket(connection);
}

void td_h2_owner_handle(struct td_h2_owner *owner, const struct epoll_event *events, int count)
{
    bool has_mail = false;
    for (int i = 0; i < count; i++) {
        has_mail = has_mail || events[i].data.ptr == NULL;
        if (events[i].data.ptr != NULL)
            handle_socket(events[i].data.ptr);
    }
    if (has_mail) /* last, since it may free a connection that has an event */
        td_h2_mailbox_receive(owner->mailbox);
}

struct td_h2_connection *td_h2_connection_create(struct td_h2_owner *owner, struct td_connection *entry)
{
    struct td_h2_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return NULL;
    struct td_serving *serving = owner->serving;
    connection->mail.receive = begin;
    connection->owner = owner;
    connection->session = (struct td_h2_session){
        .serving = serving, .entry = entry, .mailbox = owner->mailbox, .receive = receive_stream};
    td_buffer_init(&connection->out);
    td_h2_session_init(&connection->session, connection, on_idle);
    td_h2_deadlines_init(&connection->deadlines, connection->session.active_ns);
    if (!td_h2_socket_begin(&connection->socket, entry->fd, entry->is_tls ? serving->tls : NULL) ||
        !td_h2_requests_open(&connection->session)) {
        td_h2_session_end(&connection->session);
        td_h2_session_fini(&connection->session);
        td_h2_socket_fini(&connection->socket);
        free(connection);
        return NULL;
    }
    return connection;
}

struct td_h2_mail *td_h2_connection_mail(struct td_h2_connection *connection)
{
    return &connection->mail;
}

struct td_h2_connection *td_h2_connection_next(const struct td_h2_connection *connection)
{
    return connection->next;
}
