/* The input is what a client does on a connection of HTTP/2. It consists of records: a type, flags, a stream, the
 * length of the payload in two bytes (least first), and the payload. Types below SPECIAL are frames of this type; their
 * length is made here, so that a changed input is still frames. The others are in `enum special`.
 *
 * The connection is the server's, over a pair of sockets, and calls are answered by the facade over a small tree. This
 * thread is the connection's loop. One thread does all jobs, one after the other, and is waited for, so that an input
 * has the same effect each time. What the server sends must be what HTTP/2 and gRPC allow, a header above the bound is
 * refused, a client that is silent loses its connection, and at the end all counters are zero again. */
#include "core/clock.h"
#include "core/log.h"
#include "server/h2/h2_connection.h"
#include "server/h2/h2_requests.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/h2_oracle.h"
#include "tests/kit/loopback.h"

#include <errno.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SPECIAL = 0xF0 };

enum special {
    RAW = SPECIAL, /* the payload is sent as it is */
    PASS,          /* as many seconds pass as `stream` says, and the server checks its deadlines */
    DRAIN,         /* the server drains from now on, and checks */
    PUBLISH,       /* a change is published */
    READING,       /* the client reads what comes: not if flags are 0 */
    PIECES,        /* what is sent next goes in pieces of `stream` bytes, each handled by itself. 0: as whole frames;
                      255: at once all that comes before the next record that is not a frame */
    AGAIN,         /* the last `flags` records (1 to MOST_BEFORE) come again, `stream` times */
    CLOSE,         /* the client closes its socket */
    END,           /* the server ends the connection */
};

/* Streams of records that stand for others. */
enum { LATEST_STREAM = 254, NEXT_STREAM = 255 };

enum {
    HEAD_BYTES = 5,     /* of a record */
    MOST_BEFORE = 4,    /* records that AGAIN can repeat */
    MOST_FRAMES = 3000, /* of an input */
    MOST_TURNS = 20000, /* of the server's loop without a pause; more would be an endless loop */
    HELD_BYTES = 64 * 1024,
    QUEUE_BYTES = 16 * 1024, /* of the server's socket */
    HOLD = 255,              /* bytes of pieces: see PIECES */
};

static struct tree tree;
static struct loopback loop;
static struct td_config config;
static struct td_registry registry;
static struct td_access_log *access_log;
static _Atomic uint64_t dropped_lines;
static struct td_serving serving;
static struct td_h2_mailbox mailbox;
static struct td_h2_owner owner;

struct client {
    struct h2_oracle oracle;
    int fd; /* -1: closed */
    bool is_reading;
    bool is_stuck;                      /* the server did not take its bytes: it sends no more */
    uint8_t pieces;                     /* as the latest PIECES says */
    struct td_buffer held;              /* bytes to be sent at once */
    uint32_t latest_id;                 /* of a stream that NEXT_STREAM stood for */
    uint64_t passed_ns;                 /* how far the time of the server's deadlines is ahead of the clock */
    bool is_draining;                   /* the server drains */
    size_t frames;                      /* that were sent or held */
    const uint8_t *before[MOST_BEFORE]; /* the latest records, newest first */
    const uint8_t *end;                 /* of the input */
};

/* ---- the server ---------------------------------------------------------------------------------------- */

static void clean_up(void)
{
    td_serving_close(&serving);
    td_serving_fini(&serving);
    td_h2_mailbox_fini(&mailbox);
    (void)close(owner.epoll_fd);
    td_registry_fini(&registry);
    td_access_log_destroy(access_log);
    td_config_fini(&config);
    loopback_close(&loop);
    tree_close(&tree);
}

static void make_tree(void)
{
    static const struct tree_tensor tensors[] = {{"a", "U8", "[40000]", 40000}, {"b", "F32", "[2,5]", 40}};
    tree_open(&tree);
    (void)tree_tensors(&tree, "m/model.safetensors", tensors, 2, NULL, 1);
    tree_text(&tree, "datasets/d/data/train-00000-of-00001.jsonl", "{\"a\":1}\n[2]\n\"last\"");
}

/* Makes what the connections share: as td_serving_begin, but with one thread for jobs. */
static void make_serving(void)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_registry_limits limits = {.deadlines.header_timeout_ns = config.header_timeout_ns,
                                              .deadlines.body_timeout_ns = config.body_timeout_ns,
                                              .deadlines.idle_timeout_ns = config.idle_timeout_ns,
                                              .deadlines.send_timeout_ns = config.send_timeout_ns,
                                              .deadlines.min_rate = config.min_rate,
                                              .max_connections = (size_t)config.max_connections,
                                              .max_per_address = (size_t)config.max_connections_per_address};
    FUZZ_CHECK(td_registry_init(&registry, &limits, &loop.api.metrics, &err));
    FUZZ_CHECK(td_access_log_create(config.access_log, &dropped_lines, &access_log, &err));
    serving = (struct td_serving){.config = &config, .api = &loop.api, .registry = &registry, .log = access_log};
    serving.has_uploads =
        td_uploads_init(&serving.uploads, config.max_body_bytes, (size_t)config.max_connections, &err);
    FUZZ_CHECK(serving.has_uploads && td_jobs_create(1, &serving.jobs, &err));
    const struct td_waiters_config waiters = {
        .max = (size_t)config.max_waiters, .count = &loop.api.metrics.waiters, .jobs = serving.jobs};
    FUZZ_CHECK(td_waiters_create(&waiters, &serving.waiters, &err));
}

static void set_up(void)
{
    static char *arguments[] = {"--max-header-bytes=1K", "--max-body-bytes=4K", "--max-waiters=150",
                                "--access-log=/dev/null", tree.path};
    struct td_error err = TD_ERROR_INIT;
    td_log_set_level(TD_LOG_ERROR);
    make_tree();
    loopback_open(&loop, &tree);
    loopback_wait_indexed(loop.catalog);
    FUZZ_CHECK(td_config_parse(&config, (int)(sizeof arguments / sizeof *arguments), arguments, &err));
    make_serving();
    FUZZ_CHECK(td_h2_mailbox_init(&mailbox, &err));
    owner = (struct td_h2_owner){.serving = &serving, .mailbox = &mailbox, .epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    struct epoll_event mail = {.events = EPOLLIN, .data.ptr = NULL};
    FUZZ_CHECK(epoll_ctl(owner.epoll_fd, EPOLL_CTL_ADD, mailbox.wake_fd, &mail) == 0);
    FUZZ_CHECK(atexit(clean_up) == 0);
}

/* Checks that nothing is left of connections that have ended. */
static void check_zeros(void)
{
    struct td_metrics *metrics = &loop.api.metrics;
    FUZZ_CHECK(owner.first == NULL && mailbox.first == NULL && td_registry_count(&registry) == 0);
    FUZZ_CHECK(atomic_load(&metrics->grpc_streams) == 0 && atomic_load(&metrics->in_flight) == 0);
    FUZZ_CHECK(atomic_load(&metrics->waiters) == 0 && atomic_load(&serving.uploads.bytes) == 0);
}

/* Checks what is bounded while a connection is open. */
static void check_bounds(void)
{
    const struct td_metrics *metrics = &loop.api.metrics;
    FUZZ_CHECK(atomic_load(&metrics->grpc_streams) <= 2 * (int64_t)TD_H2_STREAMS);
    FUZZ_CHECK(atomic_load(&metrics->in_flight) >= 0);
    FUZZ_CHECK(atomic_load(&metrics->waiters) <= config.max_waiters);
    FUZZ_CHECK(atomic_load(&serving.uploads.bytes) <= TD_UPLOADS_AT_ONCE * config.max_body_bytes);
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

struct barrier {
    struct td_job job; /* first: the job is a barrier */
    sem_t passed;
};

static void pass_barrier(struct td_job *job)
{
    FUZZ_CHECK(sem_post(&((struct barrier *)(void *)job)->passed) == 0);
}

/* Waits until the jobs that are queued have ended: their one thread takes them in order. */
static void wait_for_jobs(void)
{
    struct barrier barrier = {.job.run = pass_barrier};
    FUZZ_CHECK(sem_init(&barrier.passed, 0, 0) == 0);
    FUZZ_CHECK(td_jobs_run(serving.jobs, NULL, NULL, &barrier.job));
    while (sem_wait(&barrier.passed) != 0)
        FUZZ_CHECK(errno == EINTR);
    FUZZ_CHECK(sem_destroy(&barrier.passed) == 0);
}

/* Handles what epoll reports within `wait_ms`, as the server's loop does. Returns whether there was anything. */
static bool handle_events(int wait_ms)
{
    enum { EVENTS = 4 };
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(owner.epoll_fd, events, EVENTS, wait_ms);
    td_h2_owner_handle(&owner, events, count);
    return count > 0;
}

static void close_client(struct client *client)
{
    if (client->fd >= 0)
        FUZZ_CHECK(close(client->fd) == 0);
    client->fd = -1;
}

/* Reads what the server has sent. Returns whether there was anything. */
static bool receive(struct client *client)
{
    static uint8_t bytes[64 * 1024];
    if (client->fd < 0 || !client->is_reading)
        return false;
    const ssize_t n = recv(client->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n > 0)
        h2_oracle_receives(&client->oracle, bytes, (size_t)n);
    else if (n == 0 || errno != EAGAIN)
        close_client(client);
    return n > 0;
}

/* Has the server do all that it can. */
static void take_turns(struct client *client)
{
    unsigned turns = 0;
    bool goes_on;
    do {
        goes_on = handle_events(0);
        wait_for_jobs();
        goes_on = receive(client) || goes_on;
        check_bounds();
        FUZZ_CHECK(++turns < MOST_TURNS);
    } while (goes_on);
}

/* Has the server check its deadlines, after some time has passed. */
static void pass_time(struct client *client, uint64_t seconds)
{
    client->passed_ns += seconds * (uint64_t)TD_NS_PER_S;
    const struct td_h2_round round = {.limits = td_registry_deadlines(&registry),
                                      .now_ns = td_clock_ns() + client->passed_ns,
                                      .is_draining = client->is_draining};
    if (owner.first != NULL)
        td_h2_connection_check(owner.first, &round);
    take_turns(client);
}

/* ---- the client ---------------------------------------------------------------------------------------- */

/* Sends bytes, as far as the server takes them. A client whose bytes are not taken sends no more. */
static void send_bytes(struct client *client, const uint8_t *bytes, size_t len)
{
    for (size_t at = 0; at < len && client->fd >= 0 && !client->is_stuck;) {
        ssize_t n = send(client->fd, bytes + at, len - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            take_turns(client);
            n = client->fd >= 0 ? send(client->fd, bytes + at, len - at, MSG_DONTWAIT | MSG_NOSIGNAL) : -1;
        }
        client->is_stuck = n < 0;
        if (n > 0)
            h2_oracle_sends(&client->oracle, bytes + at, (size_t)n);
        at += n > 0 ? (size_t)n : 0;
    }
    take_turns(client);
}

/* Sends what was held back. */
static void release(struct client *client)
{
    if (client->held.len > 0)
        send_bytes(client, (const uint8_t *)client->held.data, client->held.len);
    td_buffer_clear(&client->held);
}

/* Sends bytes at once, in pieces, or later. */
static void deliver(struct client *client, const uint8_t *bytes, size_t len)
{
    const size_t most = client->pieces == 0 ? len : client->pieces;
    if (client->pieces == HOLD && len < HELD_BYTES - client->held.len) {
        td_buffer_append(&client->held, bytes, len);
        FUZZ_CHECK(!client->held.failed);
        return;
    }
    release(client);
    for (size_t n; len > 0; bytes += n, len -= n) {
        n = len < most ? len : most;
        send_bytes(client, bytes, n);
    }
}

static uint32_t stream_of(struct client *client, uint8_t stream)
{
    if (stream == NEXT_STREAM)
        client->latest_id += 2;
    if (stream >= LATEST_STREAM)
        return client->latest_id;
    return stream;
}

static void send_frame(struct client *client, const uint8_t *record, const uint8_t *payload, size_t len)
{
    static uint8_t frame[H2_HEAD_BYTES + UINT16_MAX];
    const uint32_t stream = stream_of(client, record[2]);
    const uint8_t head[H2_HEAD_BYTES] = {0,
                                         (uint8_t)(len >> 8),
                                         (uint8_t)len,
                                         record[0],
                                         record[1],
                                         (uint8_t)(stream >> 24),
                                         (uint8_t)(stream >> 16),
                                         (uint8_t)(stream >> 8),
                                         (uint8_t)stream};
    memcpy(frame, head, sizeof head);
    if (len > 0)
        memcpy(frame + sizeof head, payload, len);
    if (client->frames++ < MOST_FRAMES)
        deliver(client, frame, sizeof head + len);
}

/* Does a record that is not a frame, but for RAW and AGAIN. */
static void do_special(struct client *client, const uint8_t *record)
{
    const uint8_t flags = record[1], stream = record[2];
    release(client);
    switch (record[0]) {
    case PASS:
        pass_time(client, stream);
        break;
    case DRAIN:
        client->is_draining = true;
        pass_time(client, 0);
        break;
    case PUBLISH:
        td_serving_retry_waits(&serving);
        take_turns(client);
        break;
    case READING:
        client->is_reading = flags != 0;
        take_turns(client);
        break;
    case PIECES:
        client->pieces = stream;
        break;
    case CLOSE:
        close_client(client);
        take_turns(client);
        break;
    case END:
        if (owner.first != NULL)
            td_h2_connection_end(owner.first);
        take_turns(client);
        break;
    default:
        break;
    }
}

/* Returns the length of the record's payload. */
static size_t payload_bytes(const struct client *client, const uint8_t *record)
{
    const size_t len = (size_t)record[3] | (size_t)record[4] << 8;
    const size_t left = (size_t)(client->end - record) - HEAD_BYTES;
    return len < left ? len : left;
}

static void do_record(struct client *client, const uint8_t *record)
{
    const uint8_t *payload = record + HEAD_BYTES;
    if (record[0] < SPECIAL)
        send_frame(client, record, payload, payload_bytes(client, record));
    else if (record[0] == RAW)
        deliver(client, payload, payload_bytes(client, record));
    else if (record[0] != AGAIN)
        do_special(client, record);
}

/* Does the last records again. */
static void do_again(struct client *client, const uint8_t *record)
{
    const size_t count = record[1] < 1 ? 1 : record[1] < MOST_BEFORE ? record[1] : MOST_BEFORE;
    for (unsigned times = 0; times < record[2] && client->frames < MOST_FRAMES; times++)
        for (size_t i = count; i > 0; i--)
            if (client->before[i - 1] != NULL)
                do_record(client, client->before[i - 1]);
}

static void do_records(struct client *client, const uint8_t *at)
{
    while (client->end - at >= HEAD_BYTES) {
        if (at[0] == AGAIN)
            do_again(client, at);
        else
            do_record(client, at);
        memmove(client->before + 1, client->before, (MOST_BEFORE - 1) * sizeof *client->before);
        client->before[0] = at;
        at += HEAD_BYTES + payload_bytes(client, at);
    }
    release(client);
}

/* ---- an input ------------------------------------------------------------------------------------------ */

enum { MOST_WAITS = 1000, WAIT_MS = 20 }; /* for a thread of the server's on a busy machine */

/* Connects the client. */
static void begin(struct client *client)
{
    const struct in6_addr address = IN6ADDR_LOOPBACK_INIT;
    const int queue = QUEUE_BYTES;
    int pair[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    FUZZ_CHECK(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &queue, sizeof queue) == 0);
    struct td_connection *entry = td_connection_open(&registry, pair[0], &address);
    FUZZ_CHECK(entry != NULL);
    atomic_store(&entry->is_shared, true);
    struct td_h2_connection *connection = td_h2_connection_create(&owner, entry);
    FUZZ_CHECK(connection != NULL);
    *client = (struct client){.fd = pair[1], .is_reading = true, .latest_id = UINT32_MAX};
    h2_oracle_init(&client->oracle, config.max_header_bytes);
    td_buffer_init(&client->held);
    td_h2_mailbox_post(&mailbox, td_h2_connection_mail(connection));
    take_turns(client);
}

/* Returns whether the connection has ended, or may stay: streams that wait for a change may, and before the client's
 * SETTINGS the registry has the deadline. */
static bool may_stay(const struct client *client)
{
    return owner.first == NULL || !client->oracle.was_acknowledged || atomic_load(&loop.api.metrics.waiters) > 0;
}

/* Lets much time pass, in which the client sends nothing. */
static void pass_silence(struct client *client)
{
    enum { ROUNDS = 6, SECONDS = 3600 };
    for (int i = 0; i < ROUNDS; i++)
        pass_time(client, SECONDS);
}

/* Checks that the server ends the connection of a silent client. The waker thread may answer a waiting stream at the
 * end of the silence. The waker's mail then starts the check again. */
static void be_silent(struct client *client)
{
    enum { MAIL_MS = 1000 };
    pass_silence(client);
    for (int i = 0; !may_stay(client); i++) {
        FUZZ_CHECK(i < MOST_WAITS && handle_events(MAIL_MS));
        pass_silence(client);
    }
}

/* Ends what is left of the connection. */
static void finish(struct client *client)
{
    close_client(client);
    for (int i = 0; owner.first != NULL; i++) {
        FUZZ_CHECK(i < MOST_WAITS);
        if (atomic_load(&loop.api.metrics.waiters) > 0)
            td_serving_retry_waits(&serving);
        (void)handle_events(WAIT_MS);
    }
    wait_for_jobs();
    h2_oracle_fini(&client->oracle);
    td_buffer_fini(&client->held);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_set_up;
    static struct client client; /* its pointer tables are large */
    if (!is_set_up)
        set_up();
    is_set_up = true;
    begin(&client);
    client.end = data + size;
    do_records(&client, data);
    be_silent(&client);
    finish(&client);
    check_zeros();
    return 0;
}
