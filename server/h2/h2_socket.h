/* The socket of a connection of HTTP/2, plain or with TLS. Nothing here waits. One thread at a time. */
#ifndef TD_SERVER_H2_H2_SOCKET_H
#define TD_SERVER_H2_H2_SOCKET_H

#include "server/serving/tls.h"

#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct td_h2_socket {
    int fd;                                 /* borrowed */
    gnutls_session_t tls;                   /* NULL: plain */
    struct td_tls_credentials *credentials; /* a reference; NULL: plain */
    struct td_tls_stream stream;
    bool has_begun;   /* the handshake, if there is one, is complete */
    bool has_unsent;  /* GnuTLS has taken bytes that it could not send yet */
    bool wants_write; /* the last call that returned TD_H2_AGAIN waits until bytes can be sent */
};

/* Returned in place of a number of bytes. */
enum { TD_H2_ENDED = 0, TD_H2_AGAIN = -1 };

/* Begins with a socket that does not block, with the newest credentials; tls NULL: plain. Returns false when memory is
 * short. Call td_h2_socket_fini in any case. */
bool td_h2_socket_begin(struct td_h2_socket *socket, int fd, struct td_tls *tls);

/* Frees TLS; does not close the descriptor. */
void td_h2_socket_fini(struct td_h2_socket *socket);

/* Continues the handshake. Returns 1 when it is complete and the client speaks h2 (ALPN), TD_H2_AGAIN, or TD_H2_ENDED
 * for any failure. */
int td_h2_socket_shake_hands(struct td_h2_socket *socket);

/* Reads at most `len` bytes. Returns their number, TD_H2_AGAIN, or TD_H2_ENDED at the end and for any failure. */
ssize_t td_h2_socket_read(struct td_h2_socket *socket, void *out, size_t len);

/* Sends at most `len` bytes, at least one. Returns their number, TD_H2_AGAIN, or TD_H2_ENDED for any failure. After
 * TD_H2_AGAIN the next call has the same bytes at its beginning. */
ssize_t td_h2_socket_write(struct td_h2_socket *socket, const void *bytes, size_t len);

/* Sends TLS's notice that nothing follows, if that is possible at once. */
void td_h2_socket_say_end(struct td_h2_socket *socket);

#endif
