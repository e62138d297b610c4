#include "server/cmd/https_client.h"

#include "server/host/whole_file.h"
#include "server/mhd/tls_credentials.h"

#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

struct td_https {
    gnutls_session_t session;
    gnutls_certificate_credentials_t authorities;
    bool has_alert; /* the server has sent one that ends the connection */
};

/* Reads a file of PEM for messages that call it `what`. The caller finishes *text. */
static bool read_pem(const char *path, const char *what, struct td_buffer *text, gnutls_datum_t *pem,
                     struct td_error *err)
{
    td_buffer_init(text);
    if (!td_whole_file_read(path, what, TD_TLS_FILE_BYTES, text, NULL, err))
        return false;
    *pem = (gnutls_datum_t){.data = (unsigned char *)text->data, .size = (unsigned int)text->len};
    return true;
}

static bool not_pem(const char *path, struct td_error *err)
{
    return td_error_set(err, TD_FAILED_PRECONDITION, "\"%.200s\" has no certificate in PEM", path);
}

static bool trust_authorities(struct td_https *https, const char *ca, struct td_error *err)
{
    struct td_buffer text;
    gnutls_datum_t pem;
    if (ca == NULL) {
        int count = gnutls_certificate_set_x509_system_trust(https->authorities);
        return count > 0 || td_error_set(err, TD_FAILED_PRECONDITION,
                                         "this system has no list of authorities; name the server's with --ca FILE");
    }
    bool ok =
        read_pem(ca, "file of authorities", &text, &pem, err) &&
        (gnutls_certificate_set_x509_trust_mem(https->authorities, &pem, GNUTLS_X509_FMT_PEM) > 0 || not_pem(ca, err));
    td_buffer_fini(&text);
    return ok;
}

/* Returns whether the server's certificate is the first one of the file. */
static bool is_pinned(struct td_https *https, const char *path, struct td_error *err)
{
    struct td_buffer text;
    gnutls_datum_t pem;
    gnutls_datum_t der = {.data = NULL};
    gnutls_x509_crt_t wanted = NULL;
    unsigned int count = 0;
    const gnutls_datum_t *has = gnutls_certificate_get_peers(https->session, &count);
    bool ok = read_pem(path, "certificate", &text, &pem, err);
    if (ok)
        ok = (gnutls_x509_crt_init(&wanted) >= 0 && gnutls_x509_crt_import(wanted, &pem, GNUTLS_X509_FMT_PEM) >= 0 &&
              gnutls_x509_crt_export2(wanted, GNUTLS_X509_FMT_DER, &der) >= 0) ||
             not_pem(path, err);
    bool is_same = has != NULL && count > 0 && der.data != NULL && has->size == der.size &&
                   memcmp(has->data, der.data, der.size) == 0;
    if (ok && !is_same)
        ok = td_error_set(err, TD_PERMISSION_DENIED, "the server has another certificate than \"%.200s\"", path);
    if (wanted != NULL)
        gnutls_x509_crt_deinit(wanted);
    gnutls_free(der.data);
    td_buffer_fini(&text);
    return ok;
}

/* Sets the error to the reason why the server's certificate is not trusted. Returns false. */
static bool not_trusted(const struct td_https *https, const char *host, bool has_ca, struct td_error *err)
{
    unsigned int status = gnutls_session_get_verify_cert_status(https->session);
    if ((status & GNUTLS_CERT_SIGNER_NOT_FOUND) != 0)
        return td_error_set(err, TD_PERMISSION_DENIED, "its certificate is of an authority that is not %s",
                            has_ca ? "in the file of --ca" : "trusted here; name the authority with --ca FILE");
    if ((status & GNUTLS_CERT_EXPIRED) != 0)
        return td_error_set(err, TD_PERMISSION_DENIED, "its certificate has expired");
    if ((status & GNUTLS_CERT_NOT_ACTIVATED) != 0)
        return td_error_set(err, TD_PERMISSION_DENIED, "its certificate is not valid yet");
    if ((status & GNUTLS_CERT_UNEXPECTED_OWNER) != 0)
        return td_error_set(err, TD_PERMISSION_DENIED, "its certificate is for other names than \"%.200s\"", host);
    return td_error_set(err, TD_PERMISSION_DENIED, "its certificate is not valid (0x%x)", status);
}

static bool is_address(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/* Sets the error to the alert that the server has sent. A server that refuses the client's certificate sends the alert
 * during the handshake of TLS 1.2, or after the handshake of TLS 1.3. Returns false. */
static bool report_alert(const struct td_https *https, struct td_error *err)
{
    gnutls_alert_description_t alert = gnutls_alert_get(https->session);
    bool wants_certificate =
        alert == GNUTLS_A_CERTIFICATE_REQUIRED || gnutls_certificate_client_get_request_status(https->session) != 0;
    return td_error_set(err, TD_UNAVAILABLE, "it ended the TLS connection: %s%s", gnutls_alert_get_name(alert),
                        wants_certificate ? "; it asks for a certificate, and health has none: ask the port of its "
                                            "--plain-listen"
                                          : "");
}

bool td_https_was_refused(const struct td_https *https, struct td_error *err)
{
    return https->has_alert && !report_alert(https, err);
}

static bool handshake(struct td_https *https, const char *host, const struct td_https_trust *trust,
                      struct td_error *err)
{
    int code = GNUTLS_E_INTERRUPTED;
    while (code == GNUTLS_E_INTERRUPTED || code == GNUTLS_E_WARNING_ALERT_RECEIVED)
        code = gnutls_handshake(https->session);
    if (code == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
        return not_trusted(https, host, trust->ca != NULL, err);
    if (code == GNUTLS_E_AGAIN)
        return td_error_set(err, TD_UNAVAILABLE, "it does not answer");
    if (code == GNUTLS_E_FATAL_ALERT_RECEIVED)
        return report_alert(https, err);
    if (code < 0) /* a port without TLS answers something else, or nothing and closes */
        return td_error_set(err, TD_UNAVAILABLE, "the TLS handshake failed (%s); is this a port for http://?",
                            gnutls_strerror_name(code));
    return trust->pinned == NULL || is_pinned(https, trust->pinned, err);
}

/* Prepares the session. */
static bool prepare(struct td_https *https, int fd, const char *host, const struct td_https_trust *trust,
                    struct td_error *err)
{
    if (gnutls_certificate_allocate_credentials(&https->authorities) < 0 ||
        gnutls_init(&https->session, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL) < 0 ||
        gnutls_priority_set_direct(https->session, TD_TLS_PRIORITIES, NULL) < 0 ||
        gnutls_credentials_set(https->session, GNUTLS_CRD_CERTIFICATE, https->authorities) < 0 ||
        (!is_address(host) && gnutls_server_name_set(https->session, GNUTLS_NAME_DNS, host, strlen(host)) < 0))
        return td_error_no_memory(err);
    gnutls_transport_set_int(https->session, fd);
    if (trust->pinned != NULL)
        return true;
    gnutls_session_set_verify_cert(https->session, host, 0);
    return trust_authorities(https, trust->ca, err);
}

bool td_https_begin(int fd, const char *host, const struct td_https_trust *trust, struct td_https **out,
                    struct td_error *err)
{
    struct td_https *https = calloc(1, sizeof *https);
    if (https == NULL)
        return td_error_no_memory(err);
    if (!prepare(https, fd, host, trust, err) || !handshake(https, host, trust, err)) {
        td_https_end(https);
        return false;
    }
    *out = https;
    return true;
}

bool td_https_send(struct td_https *https, const char *bytes, size_t len)
{
    size_t sent = 0;
    while (sent < len) {
        ssize_t n = gnutls_record_send(https->session, bytes + sent, len - sent);
        if (n < 0 && n != GNUTLS_E_INTERRUPTED)
            return false;
        sent += n < 0 ? 0 : (size_t)n;
    }
    return true;
}

ssize_t td_https_receive(struct td_https *https, char *bytes, size_t capacity)
{
    ssize_t n = GNUTLS_E_INTERRUPTED;
    while (n == GNUTLS_E_INTERRUPTED || n == GNUTLS_E_WARNING_ALERT_RECEIVED)
        n = gnutls_record_recv(https->session, bytes, capacity);
    https->has_alert = n == GNUTLS_E_FATAL_ALERT_RECEIVED;
    return n == GNUTLS_E_PREMATURE_TERMINATION ? 0 : n < 0 ? -1 : n;
}

void td_https_end(struct td_https *https)
{
    if (https == NULL)
        return;
    if (https->session != NULL)
        gnutls_deinit(https->session);
    if (https->authorities != NULL)
        gnutls_certificate_free_credentials(https->authorities);
    free(https);
}
