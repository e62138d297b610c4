/* GnuTLS can load both files itself (gnutls_certificate_set_x509_key_file), but its errors do not show which file has
 * which fault. So the parts are read one by one. Hard: neither GnuTLS nor libmicrohttpd sends an alert when a handshake
 * fails. Wrong client certificates are the most frequent cause, so for these the alert is sent here, before the failure
 * is reported. */
#include "server/mhd/tls_credentials.h"

#include "core/clock.h"
#include "core/log.h"
#include "server/host/whole_file.h"

#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most bytes of a path that a message shows. */
enum { PATH_SHOWN = 160 };

struct td_tls_credentials {
    _Atomic int refs;
    gnutls_certificate_credentials_t pair; /* with the authorities */
    bool asks_clients;                     /* clients need a certificate */
    int64_t expiry_s;
    char names[TD_TLS_NAMES_BYTES];
};

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

static gnutls_datum_t datum_of(const struct td_buffer *buffer)
{
    return (gnutls_datum_t){.data = (unsigned char *)buffer->data, .size = (unsigned int)buffer->len};
}

static bool read_chain(const char *path, struct chain *chain, struct td_error *err)
{
    static const char what[] = "certificate";
    struct td_buffer text;
    td_buffer_init(&text);
    bool ok = td_whole_file_read(path, what, TD_TLS_FILE_BYTES, &text, NULL, err);
    if (ok) {
        gnutls_datum_t pem = datum_of(&text);
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
    struct stat st;
    td_buffer_init(&text);
    bool ok = td_whole_file_read(path, what, TD_TLS_FILE_BYTES, &text, &st, err);
    if (ok) {
        gnutls_datum_t pem = datum_of(&text);
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
    if (path[0] == '\0')
        return true;
    td_buffer_init(&text);
    bool ok = td_whole_file_read(path, what, TD_TLS_FILE_BYTES, &text, NULL, err);
    if (ok) {
        gnutls_datum_t pem = datum_of(&text);
        int count = gnutls_certificate_set_x509_trust_mem(credentials->pair, &pem, GNUTLS_X509_FMT_PEM);
        ok = count > 0 || report_fault(err, count == 0 ? GNUTLS_E_NO_CERTIFICATE_FOUND : count, what, path,
                                       "; it must be PEM (-----BEGIN CERTIFICATE-----)");
    }
    td_buffer_fini(&text);
    credentials->asks_clients = true;
    return ok;
}

/* Appends a name, after a comma if it is not the first. A name that does not fit is left out. */
static void append_name(char names[TD_TLS_NAMES_BYTES], const char *name)
{
    size_t used = strlen(names);
    if (used + strlen(name) + sizeof ", " <= TD_TLS_NAMES_BYTES)
        (void)snprintf(names + used, TD_TLS_NAMES_BYTES - used, "%s%s", used > 0 ? ", " : "", name);
}

/* Writes the names and addresses that the certificate is for, "no name" if it has none of these. */
static void read_names(gnutls_x509_crt_t cert, char names[TD_TLS_NAMES_BYTES])
{
    names[0] = '\0';
    for (unsigned int i = 0;; i++) {
        char name[TD_TLS_NAMES_BYTES];
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

static bool load_files(struct td_tls_credentials *credentials, const struct td_tls_files *files, struct chain *chain,
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

bool td_tls_credentials_load(const struct td_tls_files *files, struct td_tls_credentials **out, struct td_error *err)
{
    struct chain chain = {.certs = NULL};
    gnutls_x509_privkey_t key = NULL;
    struct td_tls_credentials *credentials = calloc(1, sizeof *credentials);
    if (credentials == NULL)
        return td_error_no_memory(err);
    atomic_init(&credentials->refs, 1);
    bool ok = load_files(credentials, files, &chain, &key, err);
    free_chain(&chain);
    if (key != NULL)
        gnutls_x509_privkey_deinit(key);
    if (!ok) {
        td_tls_credentials_unref(credentials);
        return false;
    }
    *out = credentials;
    return true;
}

struct td_tls_credentials *td_tls_credentials_ref(struct td_tls_credentials *credentials)
{
    atomic_fetch_add(&credentials->refs, 1);
    return credentials;
}

void td_tls_credentials_unref(struct td_tls_credentials *credentials)
{
    if (credentials == NULL || atomic_fetch_sub(&credentials->refs, 1) != 1)
        return;
    if (credentials->pair != NULL)
        gnutls_certificate_free_credentials(credentials->pair);
    free(credentials);
}

int64_t td_tls_credentials_expiry_s(const struct td_tls_credentials *credentials)
{
    return credentials->expiry_s;
}

const char *td_tls_credentials_names(const struct td_tls_credentials *credentials)
{
    return credentials->names;
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

bool td_tls_credentials_give(struct td_tls_credentials *credentials, gnutls_session_t session)
{
    static const char protocol[] = "http/1.1";
    const gnutls_datum_t alpn = {.data = (unsigned char *)(uintptr_t)protocol, .size = sizeof protocol - 1};
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
