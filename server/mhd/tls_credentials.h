/* The credentials of TLS: a certificate with its chain, its private key, and the authorities of clients' certificates.
 * They are read from files once, checked, and never change; a reload makes new ones. Each connection has a reference,
 * so that the old ones last as long as the connections that began with them. Also the properties of all TLS of this
 * server: versions and ciphers. */
#ifndef TD_SERVER_MHD_TLS_CREDENTIALS_H
#define TD_SERVER_MHD_TLS_CREDENTIALS_H

#include "core/error.h"

#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stdint.h>

/* The priorities of GnuTLS: TLS 1.3 and 1.2, ephemeral keys on elliptic curves and authenticated ciphers alone, the
 * server's order first. AES-128-GCM is first, since it is the fastest with AES in hardware. */
#define TD_TLS_PRIORITIES                                                                     \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:-CIPHER-ALL:" \
    "+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305:-MAC-ALL:+AEAD:-GROUP-ALL:+GROUP-X25519:"   \
    "+GROUP-SECP256R1:+GROUP-SECP384R1:%SERVER_PRECEDENCE"

enum {
    TD_TLS_FILE_BYTES = 1024 * 1024, /* longest file */
    TD_TLS_CHAIN = 16,               /* most certificates of a chain */
    TD_TLS_NAMES_BYTES = 256         /* of the names for people, with the NUL */
};

/* Paths; client_ca is empty when clients need no certificate. */
struct td_tls_files {
    const char *cert, *key, *client_ca;
};

struct td_tls_credentials;

/* Reads and checks the files. The caller gets one reference in *out. Logs a warning when others may read the key.
 * Errors name the file, and say what it must be: TD_IO for a file that cannot be read, TD_FAILED_PRECONDITION for one
 * that is no regular file, too long, not PEM, or encrypted, and for a key of another certificate,
 * TD_RESOURCE_EXHAUSTED. */
bool td_tls_credentials_load(const struct td_tls_files *files, struct td_tls_credentials **out, struct td_error *err);

/* Takes a reference for the caller. Returns `credentials`. Any thread. */
struct td_tls_credentials *td_tls_credentials_ref(struct td_tls_credentials *credentials);

/* Drops a reference; the last one frees the credentials. NULL: does nothing. Any thread. */
void td_tls_credentials_unref(struct td_tls_credentials *credentials);

/* Returns when the certificate expires, in seconds since 1970. */
int64_t td_tls_credentials_expiry_s(const struct td_tls_credentials *credentials);

/* Returns the names and addresses that the certificate is for, separated by ", ", for people: those that do not fit in
 * TD_TLS_NAMES_BYTES are left out. Borrowed from the credentials. */
const char *td_tls_credentials_names(const struct td_tls_credentials *credentials);

/* Gives the credentials to the session of a server before its handshake: certificate, client certificates if there are
 * authorities for them, and the protocol "http/1.1" (ALPN). A client certificate that does not verify ends the
 * handshake with an alert. The credentials must outlive the handshake and what follows on the session. Returns false
 * without memory. */
bool td_tls_credentials_give(struct td_tls_credentials *credentials, gnutls_session_t session);

#endif
