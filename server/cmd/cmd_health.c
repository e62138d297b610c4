#include "server/cmd/commands.h"

#include "core/buffer.h"
#include "core/digits.h"
#include "core/error.h"
#include "core/socket_send.h"
#include "server/cmd/shared/command_line.h"
#include "server/config/config.h"
#include "server/config/listen_address.h"
#include "server/host/terminal.h"
#include "server/serving/tls.h"
#include "storage/fetch/fetch_url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <gnutls/x509.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

struct target {
    char host[256], port[8];
    const char *path;
    bool has_tls;
};

/* How to verify the server's certificate. */
struct trust {
    const char *ca; /* a file of authorities in PEM; NULL: those of the system. The name and the dates must be right */
    const char *pinned; /* a file with the certificate that the server must have, whatever its name and dates; NULL:
                           the certificate is judged by `ca` */
};

/* The URL to ask and how to trust its server, from the arguments or the environment. */
struct wish {
    char url[4096];
    bool is_local; /* the URL is that of the environment */
    struct trust trust;
};

/* Reads host[:port]; an IPv6 address is in brackets. The port is 80 or, with TLS, 443 without one. Returns false for
 * other text. */
static bool split_authority(struct td_text start, struct target *out)
{
    const char *colon = NULL;
    uint64_t port = out->has_tls ? 443 : 80;
    for (size_t i = 0; i < start.len; i++) {
        if (start.p[i] == ':')
            colon = start.p + i;
        else if (start.p[i] == ']')
            colon = NULL;
    }
    size_t host_len = colon == NULL ? start.len : (size_t)(colon - start.p);
    size_t port_len = colon == NULL ? 0 : start.len - host_len - 1;
    if (host_len > 2 && start.p[0] == '[' && start.p[host_len - 1] == ']') {
        start.p++;
        host_len -= 2;
    }
    if (host_len == 0 || host_len >= sizeof out->host ||
        (port_len > 0 && !td_number_read(td_text_n(colon + 1, port_len), 65535, &port)))
        return false;
    memcpy(out->host, start.p, host_len);
    out->host[host_len] = '\0';
    (void)snprintf(out->port, sizeof out->port, "%u", (unsigned)port);
    return true;
}

/* Returns the URL without its scheme, and sets *has_tls to whether that is https. Returns NULL for other schemes. */
static const char *skip_scheme(const char *url, bool *has_tls)
{
    *has_tls = td_text_begins_ignore_case(td_text_of(url), "https://");
    return *has_tls                                                 ? url + strlen("https://")
           : td_text_begins_ignore_case(td_text_of(url), "http://") ? url + strlen("http://")
                                                                    : NULL;
}

/* Splits http[s]://host[:port][/path], which must be printable ASCII like any URL (RFC 3986 section 2). Returns false
 * after printing a message. */
static bool split_url(const char *url, struct target *out)
{
    bool printable = url[0] != '\0';
    for (const char *c = url; *c != '\0'; c++)
        printable = printable && *c > ' ' && *c < 0x7F;
    const char *start = skip_scheme(url, &out->has_tls);
    if (printable && start == NULL) {
        struct td_buffer hint;
        td_buffer_init(&hint);
        td_fetch_url_suggest(url, &hint);
        struct td_text text = td_buffer_text(&hint);
        td_terminal_complain("the URL must begin with http:// or https://, but it is \"%.200s\"%.*s", url,
                             (int)text.len, text.p);
        td_buffer_fini(&hint);
        return false;
    }
    if (printable) {
        size_t len = strcspn(start, "/");
        out->path = start[len] == '/' ? start + len : "/readyz";
        if (split_authority(td_text_n(start, len), out))
            return true;
    }
    td_terminal_complain("health takes one URL, such as http://127.0.0.1:8080/readyz, not \"%.200s\"", url);
    return false;
}

/* Writes the URL by which this machine reaches a port to listen on. Returns false for an address that is not one. */
static bool write_url(const char *listen, bool has_tls, char *url, size_t capacity)
{
    char address[TD_LISTEN_ADDRESS_BYTES];
    const char *port;
    if (!td_listen_address_split(listen, address, sizeof address, &port))
        return false;
    if (address[0] == '\0' || strcmp(address, "0.0.0.0") == 0)
        (void)snprintf(address, sizeof address, "127.0.0.1");
    else if (strcmp(address, "::") == 0)
        (void)snprintf(address, sizeof address, "::1");
    bool is_ipv6 = strchr(address, ':') != NULL;
    int n = snprintf(url, capacity, "http%s://%s%s%s:%s/readyz", has_tls ? "s" : "", is_ipv6 ? "[" : "", address,
                     is_ipv6 ? "]" : "", port);
    return n > 0 && (size_t)n < capacity;
}

/* Reads the server of this machine from the environment: the variables of `tensord serve`, which a container has. With
 * TLS the server must have the certificate of the file; its names need not include the loopback address, and its dates
 * are not checked. */
static bool read_environment(struct wish *wish)
{
    const char *plain = td_config_environment("plain-listen");
    const char *listen = td_config_environment("listen");
    const char *cert = td_config_environment("tls-cert");
    if (plain != NULL)
        return write_url(plain, false, wish->url, sizeof wish->url);
    wish->trust.pinned = cert;
    return write_url(listen != NULL ? listen : "127.0.0.1:8080", cert != NULL, wish->url, sizeof wish->url);
}

/* Reads the arguments. Returns false after printing a message. */
static bool read_arguments(int argc, char **argv, struct wish *wish)
{
    size_t urls = 0;
    memset(wish, 0, sizeof *wish);
    for (int i = 0; i < argc; i++) {
        if (td_take_option(argc, argv, &i, "--ca", &wish->trust.ca) && wish->trust.ca != NULL)
            continue;
        if (strcmp(argv[i], "--local") == 0) {
            wish->is_local = true;
        } else if (strncmp(argv[i], "--", 2) == 0) {
            td_terminal_complain("health has the options --ca FILE and --local, not \"%.200s\"", argv[i]);
            return false;
        } else {
            urls++;
            (void)snprintf(wish->url, sizeof wish->url, "%s", argv[i]);
        }
    }
    if (wish->is_local && urls == 0 && read_environment(wish))
        return true;
    if (!wish->is_local && urls == 1)
        return true;
    td_terminal_complain(wish->is_local
                             ? "health --local takes no URL, and needs TENSORD_LISTEN to be ADDRESS:PORT if it is set"
                             : "health takes one URL, such as http://127.0.0.1:8080/readyz, or --local");
    return false;
}

/* Connects to one of the host's addresses, waiting 3 s for each; later reads and writes wait as long. Returns the
 * socket, or -1 with the reason why the last address failed. */
static int connect_to(const struct target *target, struct td_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    struct timeval patience = {.tv_sec = 3};
    int sys = 0;
    int fd = -1;
    int failed = getaddrinfo(target->host, target->port, &hints, &found);
    if (failed != 0) {
        (void)td_error_set(err, TD_UNAVAILABLE, "cannot connect to %s port %s: %s", target->host, target->port,
                           gai_strerror(failed));
        return -1;
    }
    for (const struct addrinfo *info = found; fd < 0 && info != NULL; info = info->ai_next) {
        int one = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC, info->ai_protocol);
        if (one >= 0) {
            (void)setsockopt(one, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
            (void)setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        }
        if (one >= 0 && connect(one, info->ai_addr, info->ai_addrlen) == 0) {
            fd = one;
            continue;
        }
        sys = errno == EINPROGRESS || errno == EAGAIN ? ETIMEDOUT : errno; /* SO_SNDTIMEO expired */
        if (one >= 0)
            (void)close(one);
    }
    freeaddrinfo(found);
    if (fd < 0)
        (void)td_error_sys(err, TD_UNAVAILABLE, sys, "cannot connect to %s port %s", target->host, target->port);
    return fd;
}

/* ---- TLS ----------------------------------------------------------------------------------------------- */

/* The connection to the server. */
struct channel {
    int fd;
    gnutls_session_t session; /* NULL: without TLS, or not begun */
    gnutls_certificate_credentials_t authorities;
    bool has_alert; /* the server has sent one that ends the connection */
};

static bool not_pem(const char *path, struct td_error *err)
{
    return td_error_set(err, TD_FAILED_PRECONDITION, "\"%.200s\" has no certificate in PEM", path);
}

static bool trust_authorities(struct channel *channel, const char *ca, struct td_error *err)
{
    struct td_buffer text;
    gnutls_datum_t pem;
    if (ca == NULL) {
        int count = gnutls_certificate_set_x509_system_trust(channel->authorities);
        return count > 0 || td_error_set(err, TD_FAILED_PRECONDITION,
                                         "this system has no list of authorities; name the server's with --ca FILE");
    }
    bool ok = td_tls_read_pem(ca, "file of authorities", &text, &pem, NULL, err) &&
              (gnutls_certificate_set_x509_trust_mem(channel->authorities, &pem, GNUTLS_X509_FMT_PEM) > 0 ||
               not_pem(ca, err));
    td_buffer_fini(&text);
    return ok;
}

/* Returns whether the server's certificate is the first one of the file. */
static bool is_pinned(struct channel *channel, const char *path, struct td_error *err)
{
    struct td_buffer text;
    gnutls_datum_t pem;
    gnutls_datum_t der = {.data = NULL};
    gnutls_x509_crt_t wanted = NULL;
    unsigned int count = 0;
    const gnutls_datum_t *has = gnutls_certificate_get_peers(channel->session, &count);
    bool ok = td_tls_read_pem(path, "certificate", &text, &pem, NULL, err);
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
static bool not_trusted(const struct channel *channel, const char *host, bool has_ca, struct td_error *err)
{
    unsigned int status = gnutls_session_get_verify_cert_status(channel->session);
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
static bool report_alert(const struct channel *channel, struct td_error *err)
{
    gnutls_alert_description_t alert = gnutls_alert_get(channel->session);
    bool wants_certificate =
        alert == GNUTLS_A_CERTIFICATE_REQUIRED || gnutls_certificate_client_get_request_status(channel->session) != 0;
    return td_error_set(err, TD_UNAVAILABLE, "it ended the TLS connection: %s%s", gnutls_alert_get_name(alert),
                        wants_certificate ? "; it asks for a certificate, and health has none: ask the port of its "
                                            "--plain-listen"
                                          : "");
}

static bool handshake(struct channel *channel, const char *host, const struct trust *trust, struct td_error *err)
{
    int code = GNUTLS_E_INTERRUPTED;
    while (code == GNUTLS_E_INTERRUPTED || code == GNUTLS_E_WARNING_ALERT_RECEIVED)
        code = gnutls_handshake(channel->session);
    if (code == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
        return not_trusted(channel, host, trust->ca != NULL, err);
    if (code == GNUTLS_E_AGAIN)
        return td_error_set(err, TD_UNAVAILABLE, "it does not answer");
    if (code == GNUTLS_E_FATAL_ALERT_RECEIVED)
        return report_alert(channel, err);
    if (code < 0) /* a port without TLS answers something else, or nothing and closes */
        return td_error_set(err, TD_UNAVAILABLE, "the TLS handshake failed (%s); is this a port for http://?",
                            gnutls_strerror_name(code));
    return trust->pinned == NULL || is_pinned(channel, trust->pinned, err);
}

/* Prepares the session of TLS. */
static bool prepare_tls(struct channel *channel, const char *host, const struct trust *trust, struct td_error *err)
{
    if (gnutls_certificate_allocate_credentials(&channel->authorities) < 0 ||
        gnutls_init(&channel->session, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL) < 0 ||
        gnutls_priority_set_direct(channel->session, TD_TLS_PRIORITIES, NULL) < 0 ||
        gnutls_credentials_set(channel->session, GNUTLS_CRD_CERTIFICATE, channel->authorities) < 0 ||
        (!is_address(host) && gnutls_server_name_set(channel->session, GNUTLS_NAME_DNS, host, strlen(host)) < 0))
        return td_error_no_memory(err);
    gnutls_transport_set_int(channel->session, channel->fd);
    if (trust->pinned != NULL)
        return true;
    gnutls_session_set_verify_cert(channel->session, host, 0);
    return trust_authorities(channel, trust->ca, err);
}

/* Makes the handshake with the server of this name or address. Errors say what is wrong with the server's certificate:
 * TD_PERMISSION_DENIED for one that is not trusted, else TD_FAILED_PRECONDITION, TD_IO for a file that cannot be read,
 * TD_UNAVAILABLE for a server that does not answer, TD_RESOURCE_EXHAUSTED. */
static bool begin_tls(struct channel *channel, const char *host, const struct trust *trust, struct td_error *err)
{
    return prepare_tls(channel, host, trust, err) && handshake(channel, host, trust, err);
}

static void close_channel(struct channel *channel)
{
    if (channel->session != NULL)
        gnutls_deinit(channel->session);
    if (channel->authorities != NULL)
        gnutls_certificate_free_credentials(channel->authorities);
    (void)close(channel->fd);
}

/* ---- the request --------------------------------------------------------------------------------------- */

/* Sends the whole request. Returns false on failure. */
static bool send_all(struct channel *channel, const char *bytes, size_t len)
{
    size_t sent = 0;
    if (channel->session == NULL)
        return td_socket_send(channel->fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len;
    while (sent < len) {
        ssize_t n = gnutls_record_send(channel->session, bytes + sent, len - sent);
        if (n < 0 && n != GNUTLS_E_INTERRUPTED)
            return false;
        sent += n < 0 ? 0 : (size_t)n;
    }
    return true;
}

/* Receives as recv(2) does: returns -1 also when the server is silent for too long. */
static ssize_t receive(struct channel *channel, char *bytes, size_t capacity)
{
    ssize_t n = -1;
    if (channel->session == NULL) {
        do
            n = recv(channel->fd, bytes, capacity, 0);
        while (n < 0 && errno == EINTR);
        return n;
    }
    do
        n = gnutls_record_recv(channel->session, bytes, capacity);
    while (n == GNUTLS_E_INTERRUPTED || n == GNUTLS_E_WARNING_ALERT_RECEIVED);
    channel->has_alert = n == GNUTLS_E_FATAL_ALERT_RECEIVED;
    return n == GNUTLS_E_PREMATURE_TERMINATION ? 0 : n < 0 ? -1 : n;
}

/* Sends a GET and reads as much of the answer as fits. Returns its length, or -1. */
static ssize_t fetch(struct channel *channel, const struct target *target, char *answer, size_t capacity)
{
    char request[2048];
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target->path,
                     target->host);
    if (n < 0 || (size_t)n >= sizeof request)
        return -1;
    if (!send_all(channel, request, (size_t)n) && channel->session == NULL)
        return -1; /* with TLS there may be an alert to read */
    size_t used = 0;
    while (used < capacity - 1) {
        ssize_t got = receive(channel, answer + used, capacity - 1 - used);
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    answer[used] = '\0';
    return (ssize_t)used;
}

void td_cmd_health_help(FILE *out)
{
    (void)fputs(
        "tensord health asks a server whether it is healthy, and prints the answer.\n"
        "\n"
        "usage:\n"
        "  tensord health URL [--ca FILE]   such as http://127.0.0.1:8080; without a path it asks for /readyz.\n"
        "                                   With https:// the server's certificate must be for the URL's name,\n"
        "                                   and of an authority in FILE, or else of one that the system trusts\n"
        "  tensord health --local           of the server that TENSORD_LISTEN, TENSORD_PLAIN_LISTEN and\n"
        "                                   TENSORD_TLS_CERT describe, on this machine\n"
        "\n"
        "A server with --tls-client-ca answers at its --plain-listen alone, since health has no certificate.\n"
        "\n"
        "exit codes: 0 the answer was 2xx, 1 another answer or no answer, 2 wrong usage.\n",
        out);
}

/* Prints the answer. Returns the exit code. */
static int print_answer(const struct wish *wish, const char *answer, ssize_t n)
{
    const char *url = wish->url;
    if (n < 12 || strncmp(answer, "HTTP/1.", 7) != 0 || !isdigit((unsigned char)answer[9]) ||
        !isdigit((unsigned char)answer[10]) || !isdigit((unsigned char)answer[11])) {
        td_terminal_complain(n <= 0 ? "%s did not answer" : "the answer of %s is not HTTP", url);
        return TD_EXIT_FAILED;
    }
    bool healthy = answer[9] == '2';
    const char *body = strstr(answer, "\r\n\r\n");
    if (!healthy)
        td_terminal_complain("%s answered %.3s%s", url, answer + 9,
                             wish->is_local && body != NULL && strstr(body, "speaks HTTPS") != NULL
                                 ? "; set TENSORD_TLS_CERT or TENSORD_PLAIN_LISTEN as the server has them"
                                 : "");
    (void)printf("%.3s ", answer + 9);
    td_terminal_text(stdout, body == NULL || body[4] == '\0' ? "\n" : body + 4);
    return healthy ? TD_EXIT_OK : TD_EXIT_FAILED;
}

int td_cmd_health(int argc, char **argv)
{
    struct target target;
    struct wish wish;
    struct channel channel = {0};
    struct td_error err = TD_ERROR_INIT;
    char answer[8192];
    if (!read_arguments(argc, argv, &wish) || !split_url(wish.url, &target))
        return TD_EXIT_USAGE;
    channel.fd = connect_to(&target, &err);
    if (channel.fd < 0) {
        td_terminal_complain("%s", err.message);
        return TD_EXIT_FAILED;
    }
    int code = TD_EXIT_FAILED;
    ssize_t n = -1;
    bool ok = !target.has_tls || begin_tls(&channel, target.host, &wish.trust, &err);
    if (ok)
        n = fetch(&channel, &target, answer, sizeof answer);
    if (!ok || (n < 0 && channel.has_alert && !report_alert(&channel, &err)))
        td_terminal_complain("%s: %s", wish.url, err.message);
    else
        code = print_answer(&wish, answer, n);
    close_channel(&channel);
    return code;
}
