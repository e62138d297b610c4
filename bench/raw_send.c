/* The raw limit: what this kernel and machine can send from a mapping, with no HTTP server in the way. Maps one
 * file, runs a thread per connection, looks in each request for nothing but "Range: bytes=a-b", and answers with
 * a minimal head and the bytes straight from the mapping. Any path is the file. Not a server to expose to
 * anyone. */
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

struct file {
    uint8_t *bytes;
    uint64_t size_bytes;
    int fd; /* for sendfile; -1: send from the mapping */
};

struct client {
    const struct file *file;
    int fd;
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

/* Sends the head and body in one call, then the rest of the body in a loop. */
static bool answer_send(int fd, char *head, size_t head_bytes, uint8_t *body, size_t body_bytes)
{
    struct iovec parts[2] = {{.iov_base = head, .iov_len = head_bytes}, {.iov_base = body, .iov_len = body_bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (n < (ssize_t)head_bytes)
        return false;
    size_t sent = (size_t)n - head_bytes;
    while (sent < body_bytes) {
        n = send(fd, body + sent, body_bytes - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        sent += (size_t)n;
    }
    return true;
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

static bool request_answer(const struct client *c, const char *request)
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
    if (c->file->fd >= 0)
        return answer_sendfile(c->fd, head, (size_t)(p - head), c->file->fd, first, last - first + 1);
    return answer_send(c->fd, head, (size_t)(p - head), c->file->bytes + first, (size_t)(last - first + 1));
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
            if (!request_answer(c, buffer))
                break;
            have = 0;
        } else if (have == REQUEST_MAX_BYTES) {
            break;
        }
    }
    close(c->fd);
    free(c);
    return NULL;
}

static bool file_map(const char *path, bool keep_open, struct file *file)
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
    file->fd = keep_open ? fd : -1;
    if (!keep_open)
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
        struct client *c = fd >= 0 ? malloc(sizeof *c) : NULL;
        pthread_t thread;
        if (c == NULL) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        *c = (struct client){.file = file, .fd = fd};
        if (pthread_create(&thread, &attributes, client_main, c) != 0) {
            close(fd);
            free(c);
        }
    }
}

int main(int argc, char **argv)
{
    struct file file = {0};
    bool by_reference = argc > 1 && strcmp(argv[1], "--sendfile") == 0;
    argv += by_reference ? 1 : 0;
    argc -= by_reference ? 1 : 0;
    long port = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (argc < 2 || argc > 3 || port < 0 || port > UINT16_MAX) {
        fprintf(stderr, "usage: raw_send [--sendfile] FILE [PORT]\n");
        return 2;
    }
    if (!file_map(argv[1], by_reference, &file)) {
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
