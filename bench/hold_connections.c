/* Opens keep-alive connections as fast as one thread can, asks for one range on each, and holds them open.
 *
 *   hold_connections PORT PATH FILE_BYTES RANGE_BYTES CONNECTIONS
 *
 * Prints a line of JSON when every connection has its answer, then waits for the end of its standard input, counts the
 * connections that the server has ended until then, prints a second line, and closes them all. Status, Content-Length
 * and Content-Range of each answer are checked. At most IN_FLIGHT connections wait for an answer at once, so that no
 * server's listen queue runs over. Ends with 1 and a message at the first error. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ALIGN_BYTES 4096u
#define RANGE_MAX_BYTES 16384u /* an answer is looked at as a whole, in the socket's queue */
#define ANSWER_MAX_BYTES (RANGE_MAX_BYTES + 8192u)
#define CONNECTIONS_MAX 60000u
#define IN_FLIGHT 64u
#define STALL_SECONDS 30 /* after so long without any answer it is an error */

struct holder {
    struct sockaddr_in address;
    const char *path;
    uint64_t file_bytes, range_bytes;
    unsigned connections; /* to open */
    unsigned opened, answered;
    int epoll_fd;
    int *fds; /* of the opened ones */
};

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("hold_connections: ", stderr);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static double clock_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns the first byte of the range that a connection asks for: each another one, spread over the file. */
static uint64_t range_start(const struct holder *h, unsigned index)
{
    uint64_t slots = (h->file_bytes - h->range_bytes) / ALIGN_BYTES + 1;
    return index * UINT64_C(0x9E3779B1) % slots * ALIGN_BYTES;
}

/* Connects, waiting for it, and sends the request. */
static void open_next(struct holder *h)
{
    char request[4096];
    unsigned index = h->opened;
    uint64_t first = range_start(h, index);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = index};
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("connection %u: socket: %s", index, strerror(errno));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (const struct sockaddr *)&h->address, sizeof h->address) != 0)
        fail("connection %u: connect: %s", index, strerror(errno));
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=%" PRIu64 "-%" PRIu64 "\r\n\r\n", h->path,
                     first, first + h->range_bytes - 1);
    h->fds[h->opened++] = fd;
    if (epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        fail("connection %u: epoll_ctl: %s", index, strerror(errno));
    if (n < 0 || (size_t)n >= sizeof request || send(fd, request, (size_t)n, MSG_NOSIGNAL) != n)
        fail("connection %u: the request was not taken whole", index);
}

/* Checks the header of an answer, a text that ends with its empty line. */
static void check_head(const struct holder *h, unsigned index, const char *head)
{
    char length[64], range[128];
    uint64_t first = range_start(h, index);
    (void)snprintf(length, sizeof length, "\r\nContent-Length: %" PRIu64 "\r\n", h->range_bytes);
    (void)snprintf(range, sizeof range, "\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n", first,
                   first + h->range_bytes - 1, h->file_bytes);
    if (strncmp(head, "HTTP/1.1 206", 12) != 0)
        fail("connection %u: %.*s instead of 206", index, (int)strcspn(head, "\r\n"), head);
    if (strcasestr(head, length) == NULL || strcasestr(head, range) == NULL)
        fail("connection %u: Content-Length or Content-Range missing or wrong", index);
}

/* Takes the answer from the socket if all of it is there. Returns whether it was; the edge-triggered epoll reports
 * when more has come. */
static bool take_answer(const struct holder *h, unsigned index)
{
    char answer[ANSWER_MAX_BYTES + 1];
    ssize_t n = recv(h->fds[index], answer, ANSWER_MAX_BYTES, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0)
        fail("connection %u: closed before its answer", index);
    answer[n] = '\0';
    char *blank = memmem(answer, (size_t)n, "\r\n\r\n", 4);
    if (blank == NULL)
        return false;
    uint64_t whole = (uint64_t)(blank - answer) + 4 + h->range_bytes;
    blank[4] = '\0'; /* the body was not needed */
    check_head(h, index, answer);
    if ((uint64_t)n > whole)
        fail("connection %u: %" PRIu64 " bytes too many", index, (uint64_t)n - whole);
    return (uint64_t)n == whole && recv(h->fds[index], answer, (size_t)n, MSG_DONTWAIT) == n;
}

static void open_all(struct holder *h)
{
    struct epoll_event events[IN_FLIGHT];
    while (h->answered < h->connections) {
        while (h->opened < h->connections && h->opened - h->answered < IN_FLIGHT)
            open_next(h);
        int count = epoll_wait(h->epoll_fd, events, IN_FLIGHT, STALL_SECONDS * 1000);
        if (count == 0)
            fail("%u of %u connections answered, then nothing for %d s", h->answered, h->connections, STALL_SECONDS);
        for (int i = 0; i < count; i++) {
            unsigned index = events[i].data.u32;
            if (!take_answer(h, index))
                continue;
            h->answered++;
            if (epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, h->fds[index], NULL) != 0)
                fail("connection %u: epoll_ctl: %s", index, strerror(errno));
        }
    }
}

/* Returns how many connections the server has ended or written to since their answers. */
static unsigned count_ended(const struct holder *h)
{
    unsigned ended = 0;
    char byte;
    for (unsigned i = 0; i < h->opened; i++)
        ended += recv(h->fds[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN ? 1 : 0;
    return ended;
}

static uint64_t argument(const char *text, const char *what, uint64_t least, uint64_t most)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < least || value > most)
        fail("%s is not a number from %" PRIu64 " to %" PRIu64 ": %s", what, least, most, text);
    return value;
}

int main(int argc, char **argv)
{
    struct holder h = {.address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    struct rlimit files;
    struct rusage usage;
    char input[64];
    if (argc != 6)
        fail("usage: hold_connections PORT PATH FILE_BYTES RANGE_BYTES CONNECTIONS");
    h.address.sin_port = htons((uint16_t)argument(argv[1], "PORT", 1, UINT16_MAX));
    h.path = argv[2];
    h.file_bytes = argument(argv[3], "FILE_BYTES", 1, INT64_MAX);
    h.range_bytes =
        argument(argv[4], "RANGE_BYTES", 1, h.file_bytes < RANGE_MAX_BYTES ? h.file_bytes : RANGE_MAX_BYTES);
    h.connections = (unsigned)argument(argv[5], "CONNECTIONS", 1, CONNECTIONS_MAX);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    h.fds = calloc(h.connections, sizeof *h.fds);
    h.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (h.fds == NULL || h.epoll_fd < 0)
        fail("out of memory or descriptors");
    double start_s = clock_now_s();
    open_all(&h);
    double seconds = clock_now_s() - start_s;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"connections\":%u,\"seconds\":%.6f,\"client_cpu_s\":%.4f}\n", h.answered, seconds,
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    fflush(stdout);
    while (read(STDIN_FILENO, input, sizeof input) > 0)
        continue;
    printf("{\"ended\":%u}\n", count_ended(&h));
    return 0; /* the kernel closes the connections */
}
