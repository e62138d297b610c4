/* The raw limit: what this kernel and machine can send from a mapping, with no HTTP server in the way. Maps one
 * file, runs a thread per connection, looks in each request for nothing but "Range: bytes=a-b", and answers with
 * a minimal head and the bytes straight from the mapping. Any path is the file. Not a server to expose to
 * anyone.
 *
 * With --gather and --vectors it is the raw limit of slices: GET /OFF/RUN/STRIDE/COUNT is answered with COUNT runs of
 * RUN bytes. The first begins at OFF of the file, each other one STRIDE bytes after the one before. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REQUEST_MAX_BYTES 8192u
#define STACK_BYTES (128u << 10)
#define BACKLOG 1024
#define WINDOW_BYTES ((size_t)256 << 10)
#define VECTOR_RUNS 64u /* per call */

enum way {
    WAY_SEND,     /* from the mapping */
    WAY_SENDFILE, /* by reference */
    WAY_GATHER,   /* slices: runs are copied into a window, which is sent */
    WAY_VECTORS   /* slices: from the mapping, many runs in each call */
};

struct file {
    uint8_t *bytes;
    uint64_t size_bytes;
    int fd; /* for sendfile; otherwise -1 */
    enum way way;
};

struct client {
    const struct file *file;
    int fd;
    uint8_t *window; /* for WAY_GATHER; otherwise NULL */
};

struct slice {
    uint64_t off, run_bytes, stride_bytes, count;
};

static char *put_u64(char *out, uint64_t value)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (n > 0)
        *out++ = digits[--n];
    return out;
}

/* Sends all parts, and changes them as it goes. */
static bool parts_send(int fd, struct iovec *parts, size_t count)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    while (message.msg_iovlen > 0) {
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        size_t sent = (size_t)n;
        while (message.msg_iovlen > 0 && sent >= message.msg_iov->iov_len) {
            sent -= message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen > 0) {
            message.msg_iov->iov_base = (uint8_t *)message.msg_iov->iov_base + sent;
            message.msg_iov->iov_len -= sent;
        }
    }
    return true;
}

/* Sends the head and body in one call, then the rest of the body in a loop. */
static bool answer_send(int fd, char *head, size_t head_bytes, uint8_t *body, size_t body_bytes)
{
    struct iovec parts[2] = {{.iov_base = head, .iov_len = head_bytes}, {.iov_base = body, .iov_len = body_bytes}};
    return parts_send(fd, parts, 2);
}

/* The head, held back until the body follows, then the body by reference. */
static bool answer_sendfile(int fd, const char *head, size_t head_bytes, int file, uint64_t off, uint64_t body_bytes)
{
    off_t at = (off_t)off;
    if (send(fd, head, head_bytes, MSG_NOSIGNAL | MSG_MORE) != (ssize_t)head_bytes)
        return false;
    while (body_bytes > 0) {
        ssize_t n = sendfile(fd, file, &at, body_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        body_bytes -= (uint64_t)n;
    }
    return true;
}

/* Copies the runs into the window, and sends the window whenever it is full. */
static bool answer_gather(const struct client *c, char *head, size_t head_bytes, const struct slice *s)
{
    const uint8_t *run = c->file->bytes + s->off;
    uint64_t left = s->count, done_bytes = 0; /* runs left; bytes of the present one that are copied */
    while (left > 0) {
        size_t have = 0;
        while (left > 0 && have < WINDOW_BYTES) {
            size_t n = s->run_bytes - done_bytes < WINDOW_BYTES - have ? (size_t)(s->run_bytes - done_bytes)
                                                                       : WINDOW_BYTES - have;
            memcpy(c->window + have, run + done_bytes, n);
            have += n;
            done_bytes += n;
            if (done_bytes == s->run_bytes) {
                done_bytes = 0;
                run += --left > 0 ? s->stride_bytes : 0;
            }
        }
        if (!answer_send(c->fd, head, head_bytes, c->window, have))
            return false;
        head_bytes = 0;
    }
    return true;
}

/* Sends the head and the first runs in one call, then as many runs in each further one. */
static bool answer_vectors(const struct client *c, char *head, size_t head_bytes, const struct slice *s)
{
    struct iovec parts[1 + VECTOR_RUNS];
    for (uint64_t at = 0; at < s->count;) {
        size_t n = 0;
        parts[n++] = (struct iovec){.iov_base = head, .iov_len = head_bytes};
        for (; n <= VECTOR_RUNS && at < s->count; at++)
            parts[n++] = (struct iovec){.iov_base = c->file->bytes + s->off + at * s->stride_bytes,
                                        .iov_len = (size_t)s->run_bytes};
        if (!parts_send(c->fd, parts, n))
            return false;
        head_bytes = 0;
    }
    return true;
}

/* Reads "GET /OFF/RUN/STRIDE/COUNT ". Returns false if these are not that, or not within the file. */
static bool slice_parse(const char *request, uint64_t size_bytes, struct slice *s)
{
    static const char start[] = "GET ";
    uint64_t *const fields[] = {&s->off, &s->run_bytes, &s->stride_bytes, &s->count};
    if (strncmp(request, start, sizeof start - 1) != 0)
        return false;
    const char *p = request + sizeof start - 1;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char *end = NULL;
        if (*p != '/' || p[1] < '0' || p[1] > '9')
            return false;
        *fields[i] = strtoull(p + 1, &end, 10);
        p = end;
    }
    return *p == ' ' && s->run_bytes > 0 && s->count > 0 && s->stride_bytes >= s->run_bytes && s->off < size_bytes &&
           s->run_bytes <= size_bytes - s->off &&
           s->count - 1 <= (size_bytes - s->off - s->run_bytes) / s->stride_bytes;
}

static bool slice_answer(const struct client *c, const char *request)
{
    struct slice s = {0};
    if (!slice_parse(request, c->file->size_bytes, &s))
        return false;
    char head[256];
    char *p = stpcpy(head, "HTTP/1.1 200 OK\r\nContent-Length: ");
    p = put_u64(p, s.run_bytes * s.count);
    p = stpcpy(p, "\r\n\r\n");
    return c->file->way == WAY_GATHER ? answer_gather(c, head, (size_t)(p - head), &s)
                                      : answer_vectors(c, head, (size_t)(p - head), &s);
}

static bool range_answer(const struct client *c, const char *request)
{
    static const char key[] = "\r\nRange: bytes=";
    uint64_t first = 0, last = c->file->size_bytes - 1;
    const char *range = strstr(request, key);
    if (range != NULL) {
        char *end = NULL;
        first = strtoull(range + sizeof key - 1, &end, 10);
        last = *end == '-' ? strtoull(end + 1, NULL, 10) : 0;
        if (last < first || last >= c->file->size_bytes)
            return false;
    }
    char head[256];
    char *p =
        stpcpy(head, range != NULL ? "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " : "HTTP/1.1 200 OK\r\n");
    if (range != NULL) {
        p = put_u64(p, first);
        p = stpcpy(p, "-");
        p = put_u64(p, last);
        p = stpcpy(p, "/");
        p = put_u64(p, c->file->size_bytes);
        p = stpcpy(p, "\r\n");
    }
    p = stpcpy(p, "Content-Length: ");
    p = put_u64(p, last - first + 1);
    p = stpcpy(p, "\r\n\r\n");
    if (c->file->way == WAY_SENDFILE)
        return answer_sendfile(c->fd, head, (size_t)(p - head), c->file->fd, first, last - first + 1);
    return answer_send(c->fd, head, (size_t)(p - head), c->file->bytes + first, (size_t)(last - first + 1));
}

/* Returns NULL if memory is short. */
static struct client *client_create(const struct file *file, int fd)
{
    struct client *c = malloc(sizeof *c);
    if (c == NULL)
        return NULL;
    *c = (struct client){.file = file, .fd = fd};
    if (file->way == WAY_GATHER && (c->window = malloc(WINDOW_BYTES)) == NULL) {
        free(c);
        return NULL;
    }
    return c;
}

static void client_destroy(struct client *c)
{
    close(c->fd);
    free(c->window);
    free(c);
}

static void *client_main(void *argument)
{
    struct client *c = argument;
    char buffer[REQUEST_MAX_BYTES + 1];
    size_t have = 0;
    for (;;) {
        ssize_t n = recv(c->fd, buffer + have, REQUEST_MAX_BYTES - have, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        have += (size_t)n;
        buffer[have] = '\0';
        if (have >= 4 && memcmp(buffer + have - 4, "\r\n\r\n", 4) == 0) { /* the load client never pipelines */
            bool of_slices = c->file->way == WAY_GATHER || c->file->way == WAY_VECTORS;
            if (!(of_slices ? slice_answer(c, buffer) : range_answer(c, buffer)))
                break;
            have = 0;
        } else if (have == REQUEST_MAX_BYTES) {
            break;
        }
    }
    client_destroy(c);
    return NULL;
}

static bool file_map(const char *path, struct file *file)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && st.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (bytes != MAP_FAILED) {
            file->bytes = bytes;
            file->size_bytes = (uint64_t)st.st_size;
        }
    }
    file->fd = file->way == WAY_SENDFILE ? fd : -1;
    if (file->fd < 0)
        close(fd);
    return file->bytes != NULL;
}

/* Returns a listening socket on 127.0.0.1; port 0 takes any free port. */
static int listener_open(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof address;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        return -1;
    fprintf(stderr, "raw_send: listening on http://127.0.0.1:%u\n", (unsigned)ntohs(address.sin_port));
    return fd;
}

static void accept_forever(int listener, const struct file *file)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), one = 1;
        struct client *c = fd >= 0 ? client_create(file, fd) : NULL;
        pthread_t thread;
        if (c == NULL) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (pthread_create(&thread, &attributes, client_main, c) != 0)
            client_destroy(c);
    }
}

int main(int argc, char **argv)
{
    static const char *const ways[] = {
        [WAY_SENDFILE] = "--sendfile", [WAY_GATHER] = "--gather", [WAY_VECTORS] = "--vectors"};
    struct file file = {.way = WAY_SEND};
    for (enum way way = WAY_SENDFILE; argc > 1 && way <= WAY_VECTORS; way++)
        if (strcmp(argv[1], ways[way]) == 0)
            file.way = way;
    argv += file.way != WAY_SEND ? 1 : 0;
    argc -= file.way != WAY_SEND ? 1 : 0;
    long port = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (argc < 2 || argc > 3 || port < 0 || port > UINT16_MAX) {
        fprintf(stderr, "usage: raw_send [--sendfile | --gather | --vectors] FILE [PORT]\n");
        return 2;
    }
    if (!file_map(argv[1], &file)) {
        fprintf(stderr, "raw_send: cannot map %s: %s\n", argv[1], errno != 0 ? strerror(errno) : "empty file");
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    int listener = listener_open((uint16_t)port);
    if (listener < 0) {
        fprintf(stderr, "raw_send: cannot listen: %s\n", strerror(errno));
        return 1;
    }
    accept_forever(listener, &file);
    return 0;
}
