/* TLS of the ports: gives new connections their credentials, and reads the files again when they change. Open
 * connections keep the credentials that they began with. */
#ifndef TD_SERVER_MHD_TLS_H
#define TD_SERVER_MHD_TLS_H

#include "core/error.h"
#include "server/mhd/tls_credentials.h"

#include <stdbool.h>
#include <stdint.h>

/* The server warns of a certificate that expires within this many days. */
enum { TD_TLS_WARN_DAYS = 14 };

struct td_tls;

/* Where the records of a connection go; used by the connection's thread alone. */
struct td_tls_stream {
    int fd;
    bool more_follows; /* more of the answer follows what is being sent */
};

/* Reads the files, whose paths are borrowed and must outlive *out. Warns of a certificate that has expired or ends
 * soon. Errors: as td_tls_credentials_load. */
bool td_tls_create(const struct td_tls_files *files, struct td_tls **out, struct td_error *err);

/* Frees it. No session may begin any more. NULL is allowed. */
void td_tls_destroy(struct td_tls *tls);

/* Reads the files again, for new connections. If a file has a fault, logs it and keeps the old credentials. */
void td_tls_reload(struct td_tls *tls);

/* Reads the files again if they have changed (server/host/file_change.h). A fault is logged once for each change. For
 * one thread, the same as of td_tls_reload. */
void td_tls_watch(struct td_tls *tls);

/* Returns when the certificate of new connections expires, in seconds since 1970. For the thread of td_tls_reload. */
int64_t td_tls_expiry_s(const struct td_tls *tls);

/* Sets the newest credentials and the function to send by in the GnuTLS session of a new connection. The stream is
 * borrowed and must outlive the session. Returns a reference on the credentials, which the caller drops when the
 * connection has ended; NULL without memory: the handshake then fails. Any thread. */
struct td_tls_credentials *td_tls_begin(struct td_tls *tls, gnutls_session_t session, struct td_tls_stream *stream);

/* Returns how many bytes of an answer `bytes` bytes of TLS on the wire contain at least. */
uint64_t td_tls_plain_bytes(uint64_t bytes);

#endif
