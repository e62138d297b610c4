/* A load client over TLS 1.3: one thread for each connection asks for one random range after the other, decrypts the
 * answers and drops them. It takes the options of load_client that bench_load.py gives, and prints a line of JSON with
 * the same members. The certificate is not verified. Decrypting costs about as much as encrypting, so on a machine of
 * few processors the rate is bounded by the client, too: compare the servers' processor time as well. */
#include <arpa/inet.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 * 1024, HEAD_BYTES = 4096, CONNECTIONS_MAX = 256, LATENCIES_MAX = 65536 };

static struct {
    struct sockaddr_in address;
    const char *path, *ciphers;
    uint64_t file_bytes, range_bytes, seed, most_requests;
    unsigned connections;
    double duration_s;
} options = {.connections = 1, .seed = 1, .ciphers = "TLS_AES_128_GCM_SHA256"};

static SSL_CTX *context;
static _Atomic uint64_t errors, requests, bytes, bytes_in_time;
static _Atomic(const char *) first_error;
static double end_s;

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    const char *none = NULL;
    (void)atomic_compare_exchange_strong(&first_error, &none, what);
    atomic_fetch_add(&errors, 1);
}

struct worker {
    pthread_t thread;
    uint64_t random;
    size_t latency_count;
    double latencies_us[LATENCIES_MAX];
    char buffer[BUFFER_BYTES];
};

static uint64_t next_random(struct worker *worker)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random;
}

static SSL *open_connection(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&options.address, sizeof options.address) != 0) {
        if (fd >= 0)
            (void)close(fd);
        return NULL;
    }
    SSL *tls = SSL_new(context);
    if (tls == NULL || SSL_set_fd(tls, fd) != 1 || SSL_connect(tls) != 1) {
        SSL_free(tls);
        (void)close(fd);
        return NULL;
    }
    return tls;
}

/* Reads the head of an answer into the buffer. Returns the bytes of the body that came with it, or -1. */
static int64_t read_head(SSL *tls, struct worker *worker, uint64_t wanted)
{
    size_t used = 0;
    for (;;) {
        int n = SSL_read(tls, worker->buffer + used, (int)(HEAD_BYTES - 1 - used));
        if (n <= 0)
            return -1;
        used += (size_t)n;
        worker->buffer[used] = '\0';
        const char *end = strstr(worker->buffer, "\r\n\r\n");
        if (end != NULL) {
            const char *length = strcasestr(worker->buffer, "\r\nContent-Length:");
            if (strncmp(worker->buffer, "HTTP/1.1 206", 12) != 0 || length == NULL || length > end ||
                strtoull(length + 17, NULL, 10) != wanted)
                return -1;
            return (int64_t)used - (end + 4 - worker->buffer);
        }
        if (used == HEAD_BYTES - 1)
            return -1;
    }
}

/* Makes one request and reads its answer. Bytes that come after the end do not count. */
static bool ask(SSL *tls, struct worker *worker)
{
    char request[1024];
    uint64_t len =
        options.range_bytes == 0 || options.range_bytes > options.file_bytes ? options.file_bytes : options.range_bytes;
    uint64_t places = (options.file_bytes - len) / 4096 + 1;
    uint64_t off = next_random(worker) % places * 4096;
    double begin_s = now_s();
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: bench\r\nRange: bytes=%" PRIu64 "-%" PRIu64 "\r\n\r\n", options.path,
                     off, off + len - 1);
    if (SSL_write(tls, request, n) != n)
        return false;
    int64_t got = read_head(tls, worker, len);
    uint64_t left = len;
    while (got >= 0 && (uint64_t)got <= left) {
        left -= (uint64_t)got;
        atomic_fetch_add_explicit(&bytes, (uint64_t)got, memory_order_relaxed);
        if (now_s() <= end_s)
            atomic_fetch_add_explicit(&bytes_in_time, (uint64_t)got, memory_order_relaxed);
        if (left == 0)
            break;
        got = SSL_read(tls, worker->buffer, left < BUFFER_BYTES ? (int)left : BUFFER_BYTES);
        if (got <= 0)
            return false;
    }
    if (left != 0)
        return false;
    atomic_fetch_add(&requests, 1);
    if (worker->latency_count < LATENCIES_MAX)
        worker->latencies_us[worker->latency_count++] = (now_s() - begin_s) * 1e6;
    return true;
}

static void *run(void *argument)
{
    struct worker *worker = argument;
    SSL *tls = open_connection();
    if (tls == NULL) {
        fail("no connection");
        return NULL;
    }
    uint64_t count = 0;
    while (options.most_requests > 0 ? count < options.most_requests : now_s() < end_s) {
        if (!ask(tls, worker)) {
            fail("a wrong answer, or none");
            break;
        }
        count++;
    }
    int fd = SSL_get_fd(tls);
    SSL_free(tls);
    (void)close(fd);
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static void read_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"port", 1, NULL, 'p'},       {"path", 1, NULL, 'u'},     {"file-size", 1, NULL, 'f'},
        {"range-size", 1, NULL, 'r'}, {"threads", 1, NULL, 't'},  {"connections", 1, NULL, 'c'},
        {"seed", 1, NULL, 's'},       {"duration", 1, NULL, 'd'}, {"requests", 1, NULL, 'n'},
        {"ciphers", 1, NULL, 'x'},    {"copy", 0, NULL, 'y'},     {NULL, 0, NULL, 0}};
    int c;
    options.address.sin_family = AF_INET;
    options.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 'p':
            options.address.sin_port = htons((uint16_t)strtoul(optarg, NULL, 10));
            break;
        case 'u':
            options.path = optarg;
            break;
        case 'f':
            options.file_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            options.range_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            options.connections = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 's':
            options.seed = strtoull(optarg, NULL, 10);
            break;
        case 'd':
            options.duration_s = strtod(optarg, NULL);
            break;
        case 'n':
            options.most_requests = strtoull(optarg, NULL, 10);
            break;
        case 'x':
            options.ciphers = optarg;
            break;
        case 't':
        case 'y':
            break; /* a thread for each connection, and copies, in any case */
        default:
            exit(2);
        }
    }
    if (options.path == NULL || options.file_bytes == 0 || options.connections == 0 ||
        options.connections > CONNECTIONS_MAX) {
        (void)fputs("usage: tls_load --port N --path PATH --file-size N --range-size N --connections N --duration S\n",
                    stderr);
        exit(2);
    }
}

/* Prints what load_client prints. */
static void report(struct worker *const *workers, double seconds)
{
    static double all[CONNECTIONS_MAX * LATENCIES_MAX];
    struct rusage usage;
    size_t count = 0;
    for (unsigned i = 0; i < options.connections; i++) {
        memcpy(all + count, workers[i]->latencies_us, workers[i]->latency_count * sizeof *all);
        count += workers[i]->latency_count;
    }
    qsort(all, count, sizeof *all, compare);
    (void)getrusage(RUSAGE_SELF, &usage);
    double cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    const char *error = atomic_load(&first_error);
    (void)printf("{\"requests\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"first_error\":\"%s\",\"bytes\":%" PRIu64
                 ",\"seconds\":%.6f,\"gb_per_s\":%.6f,\"requests_per_s\":%.3f,\"p50_us\":%.1f,\"p99_us\":%.1f,"
                 "\"max_us\":%.1f,\"client_cpu_s\":%.6f}\n",
                 atomic_load(&requests), atomic_load(&errors), error == NULL ? "" : error, atomic_load(&bytes), seconds,
                 (double)atomic_load(&bytes_in_time) / 1e9 / seconds, (double)atomic_load(&requests) / seconds,
                 count == 0 ? 0 : all[count / 2], count == 0 ? 0 : all[count - 1 - count / 100],
                 count == 0 ? 0 : all[count - 1], cpu_s);
}

int main(int argc, char **argv)
{
    static struct worker *workers[CONNECTIONS_MAX];
    read_options(argc, argv);
    context = SSL_CTX_new(TLS_client_method());
    if (context == NULL || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, options.ciphers) != 1)
        return 1;
    double begin_s = now_s();
    end_s = options.most_requests > 0 ? begin_s + 3600 : begin_s + options.duration_s;
    for (unsigned i = 0; i < options.connections; i++) {
        workers[i] = calloc(1, sizeof **workers);
        if (workers[i] == NULL)
            return 1;
        workers[i]->random = options.seed * UINT64_C(0x9E3779B97F4A7C15) + i + 1;
        if (pthread_create(&workers[i]->thread, NULL, run, workers[i]) != 0)
            return 1;
    }
    for (unsigned i = 0; i < options.connections; i++)
        (void)pthread_join(workers[i]->thread, NULL);
    report(workers, options.most_requests > 0 ? now_s() - begin_s : options.duration_s);
    return 0;
}
