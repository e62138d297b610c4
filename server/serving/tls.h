/* TLS of the ports: its versions and ciphers, and the credentials of new connections, which are read again when their
 * files change. Open connections keep the credentials that they began with. */
#ifndef TD_SERVER_SERVING_TLS_H
#define TD_SERVER_SERVING_TLS_H

#include "core/buffer.h"
#include "core/error.h"

#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* The priorities of GnuTLS: TLS 1.3 and 1.2, ephemeral keys on elliptic curves and authenticated ciphers alone, the
 * server's order first. AES-128-GCM is first, since it is the fastest with AES in hardware. */
#define TD_TLS_PRIORITIES                                                                     \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:-CIPHER-ALL:" \
    "+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305:-MAC-ALL:+AEAD:-GROUP-ALL:+GROUP-X25519:"   \
    "+GROUP-SECP256R1:+GROUP-SECP384R1:%SERVER_PRECEDENCE"

enum {
    TD_TLS_CHAIN = 16,    /* most certificates of a chain */
    TD_TLS_WARN_DAYS = 14 /* the server warns of a certificate that expires within so many days */
};

/* Paths; client_ca is empty when clients need no certificate. */
struct td_tls_files {
    const char *cert, *key, *client_ca;
};

/* A certificate with its chain, its private key, and the authorities of clients' certificates: checked, and never
 * changed. Each connection has a reference, so that old ones last as long as the connections that began with them. */
struct td_tls_credentials;

struct td_tls;

/* Where the records of a connection go; used by the connection's thread alone. */
struct td_tls_stream {
    int fd;
    bool more_follows; /* more of the answer follows what is being sent */
};

/* Reads the files, whose paths are borrowed and must outlive *out. Warns of a certificate that has expired or ends
 * soon, and of a key that others may read. Errors name the file, and say what it must be: TD_IO for a file that cannot
 * be read, TD_FAILED_PRECONDITION for one that is no regular file, too long, not PEM, or encrypted, and for a key of
 * another certificate, TD_RESOURCE_EXHAUSTED. */
bool td_tls_create(const struct td_tls_files *files, struct td_tls **out, struct td_error *err);

/* Frees it. No session may begin any more. NULL is allowed. */
void td_tls_destroy(struct td_tls *tls);

/* Reads the files again if they have changed (server/host/option_file.h) or `always` is set, for new connections. A
 * file with a fault changes nothing, and is logged once for each change. For one thread. */
void td_tls_look(struct td_tls *tls, bool always);

/* Returns when the certificate of new connections expires, in seconds since 1970. For the thread of td_tls_look. */
int64_t td_tls_expiry_s(const struct td_tls *tls);

/* Sets the newest credentials, the protocol of the port (ALPN, such as "h2"; static) and the function to send by in the
 * GnuTLS session of a new connection. The stream is borrowed and must outlive the session. Returns a reference on the
 * credentials, which the caller drops when the connection has ended; NULL without memory: the handshake then fails. Any
 * thread. */
struct td_tls_credentials *td_tls_begin(struct td_tls *tls, gnutls_session_t session, const char *protocol,
                                        struct td_tls_stream *stream);

/* Drops a reference; the last one frees the credentials. NULL: does nothing. Any thread. */
void td_tls_credentials_unref(struct td_tls_credentials *credentials);

/* Reads a file of PEM, such as a certificate; `what` names it in messages, and *st describes it unless st is NULL. The
 * caller finishes *text, which holds *pem, in any case. Errors as td_whole_file_read. */
bool td_tls_read_pem(const char *path, const char *what, struct td_buffer *text, gnutls_datum_t *pem, struct stat *st,
                     struct td_error *err);

/* Returns how many bytes of an answer `bytes` bytes of TLS on the wire contain at least. */
uint64_t td_tls_plain_bytes(uint64_t bytes);

#endif
