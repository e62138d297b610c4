#include "server/commands.h"

#include "server/terminal.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Takes http://host[:port][/path] apart; all of it printable ASCII, as in any URL (RFC 3986 section 2). */
static int split_url(const char *url, char *host, size_t host_capacity, char *port, size_t port_capacity,
                     const char **path)
{
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return -1;
    for (const char *c = url; *c != '\0'; c++)
        if (*c <= ' ' || *c >= 0x7F)
            return -1;
    const char *start = url + sizeof scheme - 1;
    size_t len = strcspn(start, "/");
    *path = start[len] == '/' ? start + len : "/readyz";
    const char *colon = NULL;
    for (size_t i = 0; i < len; i++) {
        if (start[i] == ':')
            colon = start + i;
        else if (start[i] == ']')
            colon = NULL;
    }
    size_t host_len = colon == NULL ? len : (size_t)(colon - start);
    size_t port_len = colon == NULL ? 0 : len - host_len - 1;
    if (host_len > 2 && start[0] == '[' && start[host_len - 1] == ']') {
        start++;
        host_len -= 2;
    }
    if (host_len == 0 || host_len >= host_capacity || port_len >= port_capacity)
        return -1;
    memcpy(host, start, host_len);
    host[host_len] = '\0';
    if (colon == NULL)
        (void)snprintf(port, port_capacity, "80");
    else
        (void)snprintf(port, port_capacity, "%.*s", (int)port_len, colon + 1);
    return 0;
}

static int connect_to(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    struct timeval patience = {.tv_sec = 3};
    int fd = -1;
    if (getaddrinfo(host, port, &hints, &found) != 0)
        return -1;
    for (const struct addrinfo *info = found; info != NULL; info = info->ai_next) {
        fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC, info->ai_protocol);
        if (fd < 0)
            continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (connect(fd, info->ai_addr, info->ai_addrlen) == 0)
            break;
        (void)close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

/* Sends a GET and reads as much of the answer as fits; its length, or -1. */
static ssize_t fetch(int fd, const char *host, const char *path, char *answer, size_t capacity)
{
    char request[2048];
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                     path, host);
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
    (void)fputs("tensord health asks a server how it is, and prints the answer.\n"
                "\n"
                "usage:\n"
                "  tensord health URL     such as http://127.0.0.1:8080; without a path it asks for /readyz\n"
                "\n"
                "exit codes: 0 the answer was 2xx, 1 it was not or there was none, 2 wrong usage.\n",
                out);
}

int td_cmd_health(int argc, char **argv)
{
    char host[256];
    char port[8];
    const char *path;
    char answer[8192];
    if (argc != 1 || split_url(argv[0], host, sizeof host, port, sizeof port, &path) != 0) {
        td_terminal_complain("health takes one URL, such as http://127.0.0.1:8080/readyz");
        return TD_EXIT_USAGE;
    }
    int fd = connect_to(host, port);
    if (fd < 0) {
        td_terminal_complain("cannot connect to %s port %s", host, port);
        return TD_EXIT_FAILED;
    }
    ssize_t n = fetch(fd, host, path, answer, sizeof answer);
    (void)close(fd);
    if (n < 12 || strncmp(answer, "HTTP/1.", 7) != 0 || !isdigit((unsigned char)answer[9]) ||
        !isdigit((unsigned char)answer[10]) || !isdigit((unsigned char)answer[11])) {
        td_terminal_complain(n <= 0 ? "%s did not answer" : "what %s answered is not HTTP", argv[0]);
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
