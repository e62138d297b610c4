#include "server/cmd/commands.h"

#include "core/buffer.h"
#include "core/digits.h"
#include "core/error.h"
#include "core/socket_send.h"
#include "server/cmd/https_client.h"
#include "server/config/config.h"
#include "server/config/listen_address.h"
#include "server/host/terminal.h"
#include "storage/fetch/fetch_url.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

struct target {
    char host[256], port[8];
    const char *path;
    bool has_tls;
};

/* The URL to ask and how to trust its server, from the arguments or the environment. */
struct wish {
    char url[4096];
    bool is_local; /* the URL is that of the environment */
    struct td_https_trust trust;
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
    static const char plain[] = "http://";
    static const char tls[] = "https://";
    *has_tls = strncasecmp(url, tls, sizeof tls - 1) == 0;
    if (*has_tls)
        return url + sizeof tls - 1;
    return strncasecmp(url, plain, sizeof plain - 1) == 0 ? url + sizeof plain - 1 : NULL;
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
        if (strcmp(argv[i], "--local") == 0) {
            wish->is_local = true;
        } else if (strcmp(argv[i], "--ca") == 0 && i + 1 < argc) {
            wish->trust.ca = argv[++i];
        } else if (strncmp(argv[i], "--ca=", 5) == 0) {
            wish->trust.ca = argv[i] + 5;
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

/* Sends the whole request, over TLS unless https is NULL. */
static bool send_all(int fd, struct td_https *https, const char *bytes, size_t len)
{
    return https != NULL ? td_https_send(https, bytes, len)
                         : td_socket_send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* Receives as recv(2) does, over TLS unless https is NULL. */
static ssize_t receive(int fd, struct td_https *https, char *bytes, size_t capacity)
{
    ssize_t n = -1;
    if (https != NULL)
        return td_https_receive(https, bytes, capacity);
    do
        n = recv(fd, bytes, capacity, 0);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Sends a GET and reads as much of the answer as fits. Returns its length, or -1. */
static ssize_t fetch(int fd, struct td_https *https, const struct target *target, char *answer, size_t capacity)
{
    char request[2048];
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target->path,
                     target->host);
    if (n < 0 || (size_t)n >= sizeof request)
        return -1;
    if (!send_all(fd, https, request, (size_t)n) && https == NULL)
        return -1; /* with TLS there may be an alert to read */
    size_t used = 0;
    while (used < capacity - 1) {
        ssize_t got = receive(fd, https, answer + used, capacity - 1 - used);
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
    struct td_error err = TD_ERROR_INIT;
    struct td_https *https = NULL;
    char answer[8192];
    if (!read_arguments(argc, argv, &wish) || !split_url(wish.url, &target))
        return TD_EXIT_USAGE;
    int fd = connect_to(&target, &err);
    if (fd < 0) {
        td_terminal_complain("%s", err.message);
        return TD_EXIT_FAILED;
    }
    int code = TD_EXIT_FAILED;
    ssize_t n = -1;
    bool ok = !target.has_tls || td_https_begin(fd, target.host, &wish.trust, &https, &err);
    if (ok)
        n = fetch(fd, https, &target, answer, sizeof answer);
    if (!ok || (n < 0 && https != NULL && td_https_was_refused(https, &err)))
        td_terminal_complain("%s: %s", wish.url, err.message);
    else
        code = print_answer(&wish, answer, n);
    td_https_end(https);
    (void)close(fd);
    return code;
}
