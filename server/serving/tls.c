/* Plan: a struct td_tls has the newest credentials. td_tls_look reads the files again when they change and replaces the
 * credentials under the lock; each connection keeps a reference on those that it began with. GnuTLS can load
 * certificate and key itself (gnutls_certificate_set_x509_key_file), but its errors do not show which file has which
 * fault. So the parts are read one by one.
 * What is hard: neither GnuTLS nor libmicrohttpd sends an alert when a handshake fails. Wrong client certificates are
 * the most frequent cause, so for these the alert is sent here, before the failure is reported. */
#include "server/serving/tls.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/socket_send.h"
#include "server/host/option_file.h"

#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Most bytes of a path that a message shows, and of the names of a certificate for people, with the NUL. */
enum { PATH_SHOWN = 160, NAMES_BYTES = 256 };

enum { FILE_BYTES = 1024 * 1024 }; /* longest file */

struct td_tls_credentials {
    _Atomic int refs;
    gnutls_certificate_credentials_t pair; /* with the authorities */
    bool asks_clients;                     /* clients need a certificate */
    int64_t expiry_s;
    char names[NAMES_BYTES]; /* and addresses that the certificate is for; those that do not fit are left out */
};

void td_tls_credentials_unref(struct td_tls_credentials *credentials)
{
    if (credentials == NULL || atomic_fetch_sub(&credentials->refs, 1) != 1)
        return;
    if (credentials->pair != NULL)
        gnutls_certificate_free_credentials(credentials->pair);
    free(credentials);
}

/* ---- loading ------------------------------------------------------------------------------------------- */

/* Certificates of a file, in the order of the chain. */
struct chain {
    gnutls_x509_crt_t *certs; /* owned; NULL: none */
    unsigned int count;
};

static void free_chain(struct chain *chain)
{
    for (unsigned int i = 0; i < chain->count; i++)
        gnutls_x509_crt_deinit(chain->certs[i]);
    gnutls_free(chain->certs);
}

/* Returns GnuTLS's words for an error without the full stop at their end. */
static struct td_text words_of(int code)
{
    struct td_text words = td_text_of(gnutls_strerror(code));
    while (words.len > 0 && words.p[words.len - 1] == '.')
        words.len--;
    return words;
}

static bool report_fault(struct td_error *err, int code, const char *what, const char *path, const char *advice)
{
    if (code == GNUTLS_E_MEMORY_ERROR)
        return td_error_no_memory(err);
    struct td_text words = words_of(code);
    return td_error_set(err, TD_FAILED_PRECONDITION, "the %s \"%.*s\" cannot be used: %.*s%s", what,
                        TD_SHOW(td_text_of(path), PATH_SHOWN), (int)words.len, words.p, advice);
}

bool td_tls_read_pem(const char *path, const char *what, struct td_buffer *text, gnutls_datum_t *pem, struct stat *st,
                     struct td_error *err)
{
    td_buffer_init(text);
    bool ok = td_whole_file_read(path, what, FILE_BYTES, text, st, err);
    *pem = (gnutls_datum_t){.data = (unsigned char *)text->data, .size = (unsigned int)text->len};
    return ok;
}

static bool read_chain(const char *path, struct chain *chain, struct td_error *err)
{
    static const char what[] = "certificate";
    struct td_buffer text;
    gnutls_datum_t pem;
    bool ok = td_tls_read_pem(path, what, &text, &pem, NULL, err);
    if (ok) {
        int code = gnutls_x509_crt_list_import2(&chain->certs, &chain->count, &pem, GNUTLS_X509_FMT_PEM,
                                                GNUTLS_X509_CRT_LIST_SORT);
        ok = code >= 0 ||
             report_fault(err, code, what, path, "; it must be PEM (-----BEGIN CERTIFICATE-----), with its chain");
    }
    td_buffer_fini(&text);
    if (ok && chain->count > TD_TLS_CHAIN)
        return td_error_set(err, TD_FAILED_PRECONDITION, "the %s \"%.*s\" has a chain of %u certificates, more than %d",
                            what, TD_SHOW(td_text_of(path), PATH_SHOWN), chain->count, TD_TLS_CHAIN);
    return ok;
}

static void warn_of_readers(const char *path, const struct stat *st)
{
    if ((st->st_mode & S_IRWXO) != 0)
        td_log(TD_LOG_WARN, "the key \"%.*s\" can be read by every user of this machine (mode %03o): chmod o= it",
               TD_SHOW(td_text_of(path), PATH_SHOWN), (unsigned)st->st_mode & 0777);
}

/* Returns whether a text begins like a certificate in PEM. */
static bool is_certificate(const struct td_buffer *text)
{
    return td_text_begins(td_buffer_text(text), TD_TEXT("-----BEGIN CERTIFICATE-----"));
}

static bool read_key(const char *path, gnutls_x509_privkey_t *key, struct td_error *err)
{
    static const char what[] = "key";
    struct td_buffer text;
    gnutls_datum_t pem;
    struct stat st;
    bool ok = td_tls_read_pem(path, what, &text, &pem, &st, err);
    if (ok) {
        int code = gnutls_x509_privkey_init(key);
        if (code >= 0)
            code = gnutls_x509_privkey_import2(*key, &pem, GNUTLS_X509_FMT_PEM, NULL, 0);
        ok = code >= 0 ||
             report_fault(err, code, what, path,
                          is_certificate(&text)
                              ? "; it is a certificate, which --tls-cert takes: --tls-key takes its private key"
                              : "; it must be PEM (-----BEGIN PRIVATE KEY-----), without a passphrase");
        warn_of_readers(path, &st);
    }
    if (text.data != NULL)
        explicit_bzero(text.data, text.capacity);
    td_buffer_fini(&text);
    return ok;
}

static bool read_authorities(struct td_tls_credentials *credentials, const char *path, struct td_error *err)
{
    static const char what[] = "file of authorities";
    struct td_buffer text;
    gnutls_datum_t pem;
    if (path[0] == '\0')
        return true;
    bool ok = td_tls_read_pem(path, what, &text, &pem, NULL, err);
    if (ok) {
        int count = gnutls_certificate_set_x509_trust_mem(credentials->pair, &pem, GNUTLS_X509_FMT_PEM);
        ok = count > 0 || report_fault(err, count == 0 ? GNUTLS_E_NO_CERTIFICATE_FOUND : count, what, path,
                                       "; it must be PEM (-----BEGIN CERTIFICATE-----)");
    }
    td_buffer_fini(&text);
    credentials->asks_clients = true;
    return ok;
}

/* Appends a name, after a comma if it is not the first. A name that does not fit is left out. */
static void append_name(char names[NAMES_BYTES], const char *name)
{
    size_t used = strlen(names);
    if (used + strlen(name) + sizeof ", " <= NAMES_BYTES)
        (void)snprintf(names + used, NAMES_BYTES - used, "%s%s", used > 0 ? ", " : "", name);
}

/* Writes the names and addresses that the certificate is for, "no name" if it has none of these. */
static void read_names(gnutls_x509_crt_t cert, char names[NAMES_BYTES])
{
    names[0] = '\0';
    for (unsigned int i = 0;; i++) {
        char name[NAMES_BYTES];
        char address[INET6_ADDRSTRLEN];
        size_t len = sizeof name - 1;
        int kind = gnutls_x509_crt_get_subject_alt_name(cert, i, name, &len, NULL);
        if (kind < 0 && kind != GNUTLS_E_SHORT_MEMORY_BUFFER) /* no further name */
            break;
        if (kind == GNUTLS_SAN_DNSNAME) {
            name[len] = '\0';
            append_name(names, name);
        } else if (kind == GNUTLS_SAN_IPADDRESS && (len == 4 || len == 16) &&
                   inet_ntop(len == 4 ? AF_INET : AF_INET6, name, address, sizeof address) != NULL) {
            append_name(names, address);
        }
    }
    if (names[0] == '\0')
        append_name(names, "no name");
}

static bool read_files(struct td_tls_credentials *credentials, const struct td_tls_files *files, struct chain *chain,
                       gnutls_x509_privkey_t *key, struct td_error *err)
{
    if (gnutls_certificate_allocate_credentials(&credentials->pair) < 0)
        return td_error_no_memory(err);
    if (!read_chain(files->cert, chain, err) || !read_key(files->key, key, err))
        return false;
    int code = gnutls_certificate_set_x509_key(credentials->pair, chain->certs, (int)chain->count, *key);
    if (code == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return td_error_set(err, TD_FAILED_PRECONDITION, "the key \"%.*s\" is not that of the certificate \"%.*s\"",
                            TD_SHOW(td_text_of(files->key), PATH_SHOWN), TD_SHOW(td_text_of(files->cert), PATH_SHOWN));
    if (code < 0)
        return report_fault(err, code, "certificate", files->cert, "");
    credentials->expiry_s = gnutls_x509_crt_get_expiration_time(chain->certs[0]);
    read_names(chain->certs[0], credentials->names);
    return read_authorities(credentials, files->client_ca, err);
}

/* Reads and checks the files. Returns one reference, or NULL after an error. */
static struct td_tls_credentials *load_files(const struct td_tls_files *files, struct td_error *err)
{
    struct chain chain = {.certs = NULL};
    gnutls_x509_privkey_t key = NULL;
    struct td_tls_credentials *credentials = calloc(1, sizeof *credentials);
    if (credentials == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    atomic_init(&credentials->refs, 1);
    bool ok = read_files(credentials, files, &chain, &key, err);
    free_chain(&chain);
    if (key != NULL)
        gnutls_x509_privkey_deinit(key);
    if (ok)
        return credentials;
    td_tls_credentials_unref(credentials);
    return NULL;
}

/* ---- clients' certificates ----------------------------------------------------------------------------- */

/* Sends the alert with the reason why the client's certificate is refused. */
static void send_alert(gnutls_session_t session, unsigned int status)
{
    gnutls_alert_description_t alert = (status & GNUTLS_CERT_EXPIRED) != 0            ? GNUTLS_A_CERTIFICATE_EXPIRED
                                       : (status & GNUTLS_CERT_SIGNER_NOT_FOUND) != 0 ? GNUTLS_A_UNKNOWN_CA
                                                                                      : GNUTLS_A_BAD_CERTIFICATE;
    (void)gnutls_alert_send(session, GNUTLS_AL_FATAL, alert);
}

/* Verifies a client's certificate: an authority of ours has signed it, it is valid today, and it is for clients. GnuTLS
 * calls it; 0 continues the handshake. */
static int verify_client(gnutls_session_t session)
{
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT};
    unsigned int status = 0;
    int code = gnutls_certificate_verify_peers(session, &purpose, 1, &status);
    if (code >= 0 && status == 0)
        return 0;
    send_alert(session, status);
    gnutls_datum_t text = {.data = NULL};
    if (code >= 0 && gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0) >= 0)
        td_log(TD_LOG_DEBUG, "a client's certificate was refused: %s", (const char *)text.data);
    gnutls_free(text.data);
    return -1;
}

/* Sends an alert to a client that sends no certificate. GnuTLS calls it with each certificate message of a handshake,
 * and refuses the empty list after it. */
static int look_at_list(gnutls_session_t session, unsigned int kind, unsigned int when, unsigned int is_incoming,
                        const gnutls_datum_t *message)
{
    enum { EMPTY_BYTES_1_2 = 3, EMPTY_BYTES_1_3 = 4 };
    (void)kind;
    (void)when;
    bool is_1_3 = gnutls_protocol_get_version(session) == GNUTLS_TLS1_3;
    if (is_incoming != 0 && message->size <= (is_1_3 ? EMPTY_BYTES_1_3 : EMPTY_BYTES_1_2))
        (void)gnutls_alert_send(session, GNUTLS_AL_FATAL,
                                is_1_3 ? GNUTLS_A_CERTIFICATE_REQUIRED : GNUTLS_A_HANDSHAKE_FAILURE);
    return 0;
}

/* Gives the credentials to the session of a server before its handshake: certificate, client certificates if there are
 * authorities for them, and the protocol (ALPN). A client certificate that does not verify ends the
 * handshake with an alert. Returns false without memory. */
static bool give_credentials(struct td_tls_credentials *credentials, gnutls_session_t session, const char *protocol)
{
    const gnutls_datum_t alpn = {.data = (unsigned char *)(uintptr_t)protocol, .size = (unsigned int)strlen(protocol)};
    if (gnutls_alpn_set_protocols(session, &alpn, 1, 0) < 0)
        return false;
    if (credentials->asks_clients) {
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_function(session, verify_client);
        gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_CERTIFICATE_PKT, GNUTLS_HOOK_PRE, look_at_list);
    }
    /* Last: a session that has a certificate also asks for that of the client. */
    return gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials->pair) >= 0;
}

/* ---- the newest credentials ---------------------------------------------------------------------------- */

struct td_tls {
    struct td_tls_files files;
    pthread_mutex_t lock; /* of `newest` */
    struct td_tls_credentials *newest;
    struct td_file_change change; /* used by one thread */
};

static void warn_of_expiry(const struct td_tls *tls, int64_t expiry_s)
{
    enum { DAY_S = 86400 };
    char when[40];
    int64_t left_s = expiry_s - td_wall_now().seconds;
    if (left_s > (int64_t)TD_TLS_WARN_DAYS * DAY_S)
        return;
    (void)td_wall_rfc3339((struct td_wall){.seconds = expiry_s}, when, sizeof when);
    if (left_s <= 0)
        td_log(TD_LOG_ERROR,
               "the certificate \"%s\" has expired at %s, clients refuse it from now on: replace it, tensord reads it "
               "again by itself",
               tls->files.cert, when);
    else
        td_log(TD_LOG_WARN, "the certificate \"%s\" expires at %s: replace it, tensord reads it again by itself",
               tls->files.cert, when);
}

/* Logs the names and the expiry of the new connections' certificate. after: the text after the file's path. */
static void log_certificate(const struct td_tls *tls, const char *after)
{
    char when[40];
    (void)td_wall_rfc3339((struct td_wall){.seconds = td_tls_expiry_s(tls)}, when, sizeof when);
    td_log(TD_LOG_INFO, "read the certificate \"%s\"%s: it is for %s, until %s", tls->files.cert, after,
           tls->newest->names, when);
}

/* Reads the files. On success new connections get their content. */
static bool load_credentials(struct td_tls *tls, struct td_error *err)
{
    struct td_tls_credentials *fresh = load_files(&tls->files, err);
    if (fresh == NULL)
        return false;
    warn_of_expiry(tls, fresh->expiry_s);
    pthread_mutex_lock(&tls->lock);
    struct td_tls_credentials *old = tls->newest;
    tls->newest = fresh;
    pthread_mutex_unlock(&tls->lock);
    td_tls_credentials_unref(old);
    return true;
}

bool td_tls_create(const struct td_tls_files *files, struct td_tls **out, struct td_error *err)
{
    struct td_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL)
        return td_error_no_memory(err);
    tls->files = *files;
    tls->change = (struct td_file_change){.paths = {files->cert, files->key, files->client_ca}};
    td_file_change_note(&tls->change);
    (void)pthread_mutex_init(&tls->lock, NULL);
    if (!load_credentials(tls, err)) {
        td_tls_destroy(tls);
        return false;
    }
    log_certificate(tls, "");
    *out = tls;
    return true;
}

void td_tls_destroy(struct td_tls *tls)
{
    if (tls == NULL)
        return;
    td_tls_credentials_unref(tls->newest);
    (void)pthread_mutex_destroy(&tls->lock);
    free(tls);
}

void td_tls_look(struct td_tls *tls, bool always)
{
    struct td_error err = TD_ERROR_INIT;
    if (!td_file_change_look(&tls->change, always))
        return;
    if (load_credentials(tls, &err))
        log_certificate(tls, " again");
    if (td_file_change_end(&tls->change, &err))
        td_log(TD_LOG_ERROR, "new connections get the old certificate, since the new one has a fault: %s", err.message);
}

int64_t td_tls_expiry_s(const struct td_tls *tls)
{
    return tls->newest->expiry_s;
}

/* Sends records for GnuTLS. While more of the answer follows, the kernel may join them into full packets. GnuTLS calls
 * it on the connection's thread. */
static ssize_t send_records(gnutls_transport_ptr_t transport, const giovec_t *parts, int count)
{
    const struct td_tls_stream *stream = transport;
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
    return td_socket_send_message(stream->fd, &message, MSG_NOSIGNAL | (stream->more_follows ? MSG_MORE : 0));
}

struct td_tls_credentials *td_tls_begin(struct td_tls *tls, gnutls_session_t session, const char *protocol,
                                        struct td_tls_stream *stream)
{
    pthread_mutex_lock(&tls->lock);
    struct td_tls_credentials *credentials = tls->newest;
    atomic_fetch_add(&credentials->refs, 1);
    pthread_mutex_unlock(&tls->lock);
    if (!give_credentials(credentials, session, protocol)) {
        td_tls_credentials_unref(credentials);
        return NULL;
    }
    gnutls_transport_set_ptr2(session, (gnutls_transport_ptr_t)(intptr_t)stream->fd, stream);
    gnutls_transport_set_vec_push_function(session, send_records);
    return credentials;
}

uint64_t td_tls_plain_bytes(uint64_t bytes)
{
    /* Of a record: the header of 5 bytes, and at most 24 more (TLS 1.2 with GCM; RFC 5288 section 3). The first and the
     * last record may be short. */
    enum { RECORD_BYTES = 16384, EXTRA_BYTES = 29, SHORT_RECORDS = 3 };
    uint64_t extra_bytes = (bytes / RECORD_BYTES + SHORT_RECORDS) * EXTRA_BYTES;
    return bytes > extra_bytes ? bytes - extra_bytes : 0;
}
