#include "server/h2/h2_socket.h"

#include "core/socket_send.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { RECORD_BYTES = 16384 }; /* most bytes of a record of TLS (RFC 8446 section 5.1) */

bool td_h2_socket_begin(struct td_h2_socket *socket, int fd, struct td_tls *tls)
{
    *socket = (struct td_h2_socket){.fd = fd, .stream.fd = fd, .has_begun = tls == NULL};
    if (tls == NULL)
        return true;
    if (gnutls_init(&socket->tls, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        socket->tls = NULL;
        return false;
    }
    if (gnutls_priority_set_direct(socket->tls, TD_TLS_PRIORITIES, NULL) < 0)
        return false;
    gnutls_handshake_set_timeout(socket->tls, 0); /* the reaper has the deadline */
    socket->credentials = td_tls_begin(tls, socket->tls, "h2", &socket->stream);
    return socket->credentials != NULL;
}

void td_h2_socket_fini(struct td_h2_socket *socket)
{
    if (socket->tls != NULL)
        gnutls_deinit(socket->tls);
    td_tls_credentials_unref(socket->credentials);
    socket->tls = NULL;
    socket->credentials = NULL;
}

/* Returns the result for an error of GnuTLS. */
static int result_of(struct td_h2_socket *socket, ssize_t code)
{
    if (code != GNUTLS_E_AGAIN && code != GNUTLS_E_INTERRUPTED)
        return TD_H2_ENDED;
    socket->wants_write = gnutls_record_get_direction(socket->tls) == 1;
    return TD_H2_AGAIN;
}

int td_h2_socket_shake_hands(struct td_h2_socket *socket)
{
    gnutls_datum_t protocol;
    int code = gnutls_handshake(socket->tls);
    while (code < 0 && gnutls_error_is_fatal(code) == 0 && code != GNUTLS_E_AGAIN && code != GNUTLS_E_INTERRUPTED)
        code = gnutls_handshake(socket->tls); /* a warning */
    if (code < 0)
        return result_of(socket, code);
    if (gnutls_alpn_get_selected_protocol(socket->tls, &protocol) < 0) {
        (void)gnutls_alert_send(socket->tls, GNUTLS_AL_FATAL, GNUTLS_A_NO_APPLICATION_PROTOCOL);
        return TD_H2_ENDED;
    }
    socket->has_begun = true;
    return 1;
}

ssize_t td_h2_socket_read(struct td_h2_socket *socket, void *out, size_t len)
{
    socket->wants_write = false;
    if (socket->tls != NULL) {
        ssize_t n = gnutls_record_recv(socket->tls, out, len);
        return n >= 0 ? n : result_of(socket, n);
    }
    ssize_t n = recv(socket->fd, out, len, MSG_DONTWAIT);
    return n >= 0 ? n : errno == EAGAIN || errno == EINTR ? TD_H2_AGAIN : TD_H2_ENDED;
}

ssize_t td_h2_socket_write(struct td_h2_socket *socket, const void *bytes, size_t len)
{
    if (socket->tls != NULL) {
        const size_t part = len < RECORD_BYTES ? len : RECORD_BYTES;
        socket->stream.more_follows = len > part;
        ssize_t n = socket->has_unsent ? gnutls_record_send(socket->tls, NULL, 0)
                                       : gnutls_record_send(socket->tls, bytes, part);
        socket->has_unsent = n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED;
        return n > 0 ? n : socket->has_unsent ? TD_H2_AGAIN : TD_H2_ENDED;
    }
    ssize_t n = td_socket_send(socket->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n > 0 ? n : errno == EAGAIN || errno == EINTR ? TD_H2_AGAIN : TD_H2_ENDED;
}

void td_h2_socket_say_end(struct td_h2_socket *socket)
{
    if (socket->tls != NULL && socket->has_begun && !socket->has_unsent)
        (void)gnutls_bye(socket->tls, GNUTLS_SHUT_WR);
}
