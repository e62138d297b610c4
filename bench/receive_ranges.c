/* The least that a client can do, for --client: threads that ask for ranges of one URL and receive them where they
 * belong, without a check of anything but the status and the length. A shared library, so that client_peer.py can have
 * it write into the same memory as tensord's Python client. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_HEAD = 4096, MAX_THREADS = 64 };

struct work {
    struct sockaddr_in server;
    const char *path;
    uint64_t offset, nbytes, range_bytes;
    unsigned char *into;
    _Atomic uint64_t next;
    _Atomic int fault;
};

int receive_ranges(const char *address, unsigned port, const char *path, uint64_t offset, uint64_t nbytes,
                   uint64_t range_bytes, unsigned threads, void *into);

static int receive_all(int fd, unsigned char *into, size_t count)
{
    while (count > 0) {
        const ssize_t got = recv(fd, into, count, MSG_WAITALL);
        if (got <= 0)
            return got == 0 ? ECONNRESET : errno;
        into += got;
        count -= (size_t)got;
    }
    return 0;
}

/* Receives the head of an answer and what came with it of the body. */
static int receive_head(int fd, uint64_t wanted, unsigned char *into, size_t *taken)
{
    char head[MAX_HEAD + 1];
    size_t have = 0;
    const char *end = NULL;
    while (end == NULL) {
        const ssize_t got = recv(fd, head + have, MAX_HEAD - have, 0);
        if (got <= 0)
            return got == 0 ? ECONNRESET : errno;
        have += (size_t)got;
        head[have] = '\0';
        end = strstr(head, "\r\n\r\n");
        if (end == NULL && have == MAX_HEAD)
            return EPROTO;
    }
    const char *length = strcasestr(head, "\r\ncontent-length:");
    if (strncmp(head, "HTTP/1.1 206", 12) != 0 || length == NULL || strtoull(length + 17, NULL, 10) != wanted)
        return EPROTO;
    *taken = have - (size_t)(end + 4 - head);
    memcpy(into, end + 4, *taken);
    return 0;
}

static int receive_range(int fd, const struct work *work, uint64_t at, uint64_t count)
{
    char request[1024];
    const int length = snprintf(
        request, sizeof request, "GET %s HTTP/1.1\r\nHost: bench\r\nRange: bytes=%llu-%llu\r\n\r\n", work->path,
        (unsigned long long)(work->offset + at), (unsigned long long)(work->offset + at + count - 1));
    if (length < 0 || (size_t)length >= sizeof request)
        return ENAMETOOLONG;
    if (send(fd, request, (size_t)length, MSG_NOSIGNAL) != length)
        return errno;
    size_t taken = 0;
    const int fault = receive_head(fd, count, work->into + at, &taken);
    return fault != 0 ? fault : receive_all(fd, work->into + at + taken, (size_t)count - taken);
}

static int receive_some(struct work *work)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    const int on = 1;
    int fault = 0;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        connect(fd, (const struct sockaddr *)&work->server, sizeof work->server) != 0)
        fault = errno;
    while (fault == 0 && atomic_load(&work->fault) == 0) {
        const uint64_t at = atomic_fetch_add(&work->next, work->range_bytes);
        if (at >= work->nbytes)
            break;
        const uint64_t left = work->nbytes - at;
        fault = receive_range(fd, work, at, left < work->range_bytes ? left : work->range_bytes);
    }
    close(fd);
    return fault;
}

static void *run(void *given)
{
    struct work *work = given;
    const int fault = receive_some(work);
    if (fault != 0)
        atomic_store(&work->fault, fault);
    return NULL;
}

/* Receives bytes [offset, offset + nbytes) of a URL's path into memory of nbytes. Returns 0 or an errno value. */
int receive_ranges(const char *address, unsigned port, const char *path, uint64_t offset, uint64_t nbytes,
                   uint64_t range_bytes, unsigned threads, void *into)
{
    struct work work = {.path = path, .offset = offset, .nbytes = nbytes, .range_bytes = range_bytes, .into = into};
    work.server.sin_family = AF_INET;
    work.server.sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, address, &work.server.sin_addr) != 1 || threads == 0 || threads > MAX_THREADS)
        return EINVAL;
    pthread_t started[MAX_THREADS];
    unsigned count = 0;
    while (count < threads && pthread_create(&started[count], NULL, run, &work) == 0)
        count++;
    for (unsigned i = 0; i < count; i++)
        pthread_join(started[i], NULL);
    return count == 0 ? EAGAIN : atomic_load(&work.fault);
}
