#include "server/cmd/commands.h"

#include "core/digits.h"
#include "core/error.h"
#include "server/terminal.h"

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
};

/* Reads host[:port]; an IPv6 address is in brackets. The port is 80 without one. Returns false for other text. */
static bool split_authority(struct td_text start, struct target *out)
{
    const char *colon = NULL;
    uint64_t port = 80;
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

/* Splits http://host[:port][/path], which must be printable ASCII like any URL (RFC 3986 section 2). Returns false
 * after it has complained. */
static bool split_url(const char *url, struct target *out)
{
    static const char scheme[] = "http://";
    bool printable = url[0] != '\0';
    for (const char *c = url; *c != '\0'; c++)
        printable = printable && *c > ' ' && *c < 0x7F;
    if (printable && strncasecmp(url, scheme, sizeof scheme - 1) != 0) {
        bool has_scheme = strstr(url, "://") != NULL;
        td_terminal_complain("the URL must begin with http:// (health has no TLS), but it is \"%.200s\"%s%.200s%s", url,
                             has_scheme ? "" : "; did you mean http://", has_scheme ? "" : url, has_scheme ? "" : "?");
        return false;
    }
    if (printable) {
        const char *start = url + sizeof scheme - 1;
        size_t len = strcspn(start, "/");
        out->path = start[len] == '/' ? start + len : "/readyz";
        if (split_authority(td_text_n(start, len), out))
            return true;
    }
    td_terminal_complain("health takes one URL, such as http://127.0.0.1:8080/readyz, not \"%.200s\"", url);
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

/* Sends a GET and reads as much of the answer as fits. Returns its length, or -1. */
static ssize_t fetch(int fd, const char *host, const char *path, char *answer, size_t capacity)
{
    char request[2048];
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host);
    if (n < 0 || (size_t)n >= sizeof request || send(fd, request, (size_t)n, MSG_NOSIGNAL) != n)
        return -1;
    size_t used = 0;
    while (used < capacity - 1) {
        ssize_t got = recv(fd, answer + used, capacity - 1 - used, 0);
        if (got < 0 && errno == EINTR)
            continue;
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
    (void)fputs("tensord health asks a server whether it is healthy, and prints the answer.\n"
                "\n"
                "usage:\n"
                "  tensord health URL     such as http://127.0.0.1:8080; without a path it asks for /readyz\n"
                "\n"
                "exit codes: 0 the answer was 2xx, 1 it was another or there was none, 2 wrong usage.\n",
                out);
}

int td_cmd_health(int argc, char **argv)
{
    struct target target;
    struct td_error err = TD_ERROR_INIT;
    char answer[8192];
    if (argc != 1) {
        td_terminal_complain("health takes one URL, such as http://127.0.0.1:8080/readyz");
        return TD_EXIT_USAGE;
    }
    if (!split_url(argv[0], &target))
        return TD_EXIT_USAGE;
    int fd = connect_to(&target, &err);
    if (fd < 0) {
        td_terminal_complain("%s", err.message);
        return TD_EXIT_FAILED;
    }
    ssize_t n = fetch(fd, target.host, target.path, answer, sizeof answer);
    (void)close(fd);
    if (n < 12 || strncmp(answer, "HTTP/1.", 7) != 0 || !isdigit((unsigned char)answer[9]) ||
        !isdigit((unsigned char)answer[10]) || !isdigit((unsigned char)answer[11])) {
        td_terminal_complain(n <= 0 ? "%s did not answer" : "the answer of %s is not HTTP", argv[0]);
        return TD_EXIT_FAILED;
    }
    bool healthy = answer[9] == '2';
    const char *body = strstr(answer, "\r\n\r\n");
    if (!healthy)
        td_terminal_complain("%s answered %.3s", argv[0], answer + 9);
    (void)printf("%.3s ", answer + 9);
    td_terminal_text(stdout, body == NULL || body[4] == '\0' ? "\n" : body + 4);
    return healthy ? TD_EXIT_OK : TD_EXIT_FAILED;
}
