/* Responses through a real libmicrohttpd on a loopback socket: the bytes on the wire, the computed length of the
 * header, and answers that are cut because a file changes. */
#include "server/mhd/transfer.h"

#include "api/native/native.h"
#include "core/clock.h"
#include "server/net/tcp_socket.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SMALL = 1000, LARGE = 3000000 };

/* ---- a blob with a chosen behaviour -------------------------------------------------------------------- */

struct actor {
    struct td_blob blob;
    int descriptor; /* of a file with the blob's bytes */
    _Atomic bool unchanged, pinned;
    _Atomic uint64_t fails_at; /* reading this byte fails; UINT64_MAX: no read fails */
    _Atomic bool changes_when_read;
    _Atomic int fails_with; /* enum td_code; TD_OK: TD_UNAVAILABLE */
    _Atomic int destroyed;
};

static uint8_t wire_byte(uint64_t i)
{
    return (uint8_t)(i * 7 + i / 251 + 1);
}

static bool actor_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct actor *actor = (struct actor *)(void *)blob;
    if (off <= atomic_load(&actor->fails_at) && atomic_load(&actor->fails_at) - off < len)
        return td_error_set(err,
                            atomic_load(&actor->fails_with) != TD_OK ? (enum td_code)atomic_load(&actor->fails_with)
                                                                     : TD_UNAVAILABLE,
                            "the actor failed");
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)out)[i] = wire_byte(off + i);
    if (atomic_load(&actor->changes_when_read))
        atomic_store(&actor->unchanged, false);
    return true;
}

static bool actor_unchanged(struct td_blob *blob)
{
    return atomic_load(&((struct actor *)(void *)blob)->unchanged);
}

static bool actor_pinned(struct td_blob *blob)
{
    return atomic_load(&((struct actor *)(void *)blob)->pinned);
}

static int actor_descriptor(const struct td_blob *blob)
{
    return ((const struct actor *)(const void *)blob)->descriptor;
}

static void actor_destroy(struct td_blob *blob)
{
    atomic_fetch_add(&((struct actor *)(void *)blob)->destroyed, 1);
}

static const struct td_blob_class actor_class = {
    .destroy = actor_destroy, .read = actor_read, .unchanged = actor_unchanged, .pinned = actor_pinned};

static const struct td_blob_class file_class = {.destroy = actor_destroy,
                                                .read = actor_read,
                                                .unchanged = actor_unchanged,
                                                .pinned = actor_pinned,
                                                .descriptor = actor_descriptor};

static uint8_t memory[LARGE];

/* ---- a daemon that answers what the test wants ---------------------------------------------------------- */

struct scene {
    void (*fill)(struct scene *scene, struct td_response *response);
    struct actor actor;
    int status;
    uint64_t len;
    bool head, with_all_headers;
    /* results */
    uint64_t header_bytes;
    struct td_link link; /* the scene has one connection */
    struct td_transfer transfer;
    _Atomic int cut;
    struct td_metrics metrics;
    struct td_registry registry;
    struct MHD_Daemon *daemon;
    uint16_t port;
};

static enum MHD_Result answer(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_len, void **context)
{
    static int seen;
    struct scene *scene = cls;
    (void)url;
    (void)version;
    (void)upload;
    (void)upload_len;
    if (*context == NULL) { /* a response queued in the first call would close the connection */
        *context = &seen;
        return MHD_YES;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct td_connection *connection = td_registry_find(&scene->registry, info->connect_fd);
    struct td_response response;
    td_response_init(&response);
    response.facade = &td_native_facade;
    response.status = scene->status;
    scene->fill(scene, &response);
    scene->head = strcmp(method, "HEAD") == 0;
    scene->link.connection = connection;
    struct MHD_Response *mhd_response = td_transfer_create(&response, &scene->link, scene->head, &scene->transfer);
    if (mhd_response == NULL)
        return MHD_NO;
    scene->header_bytes = scene->transfer.header_bytes;
    enum MHD_Result result = MHD_queue_response(mhd, (unsigned int)response.status, mhd_response);
    td_transfer_release(mhd_response, &scene->transfer);
    td_response_fini(&response);
    return result;
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct scene *scene = cls;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        struct in6_addr address = IN6ADDR_LOOPBACK_INIT;
        *context = td_connection_open(&scene->registry, info->connect_fd, &address);
    } else {
        int cut = atomic_load(&((struct td_connection *)*context)->cut);
        if (cut != TD_CUT_NONE) /* an earlier connection may end later */
            atomic_store(&scene->cut, cut);
        td_connection_close(*context);
    }
}

static void open_scene(struct scene *scene)
{
    struct td_registry_limits limits = {.deadlines.header_timeout_ns = UINT64_C(60000000000),
                                        .deadlines.idle_timeout_ns = UINT64_C(60000000000),
                                        .deadlines.send_timeout_ns = UINT64_C(60000000000),
                                        .max_connections = 10,
                                        .max_per_address = 10};
    struct td_error err = TD_ERROR_INIT;
    for (size_t i = 0; i < LARGE; i++)
        memory[i] = wire_byte(i);
    assert_true(td_registry_init(&scene->registry, &limits, &scene->metrics, &err));
    scene->daemon =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | MHD_USE_ITC,
                         0, NULL, NULL, answer, scene, MHD_OPTION_SOCK_ADDR,
                         &(struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)64 * 1024, MHD_OPTION_NOTIFY_CONNECTION,
                         on_connection, scene, MHD_OPTION_END);
    assert_non_null(scene->daemon);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(scene->daemon, MHD_DAEMON_INFO_BIND_PORT);
    scene->port = info->port;
}

static void close_scene(struct scene *scene)
{
    MHD_stop_daemon(scene->daemon);
    assert_int_equal(td_registry_count(&scene->registry), 0);
    td_registry_fini(&scene->registry);
    td_kept_response_destroy(scene->link.kept);
}

/* Waits until no connection uses the scene's blob, then sets the blob up again. The scene owns the blob. */
static void set_actor(struct scene *scene, bool in_memory)
{
    while (td_registry_count(&scene->registry) > 0)
        (void)poll(NULL, 0, 1);
    assert_int_equal(scene->actor.destroyed, 0);
    scene->actor.blob =
        (struct td_blob){.class = &actor_class, .refs = 1, .bytes = in_memory ? memory : NULL, .len_bytes = LARGE};
    atomic_store(&scene->actor.unchanged, true);
    atomic_store(&scene->actor.pinned, in_memory);
    atomic_store(&scene->actor.fails_at, UINT64_MAX);
    atomic_store(&scene->actor.changes_when_read, false);
}

struct reply {
    char *bytes; /* all that came, NUL-terminated */
    size_t len, header_len;
    int status;
};

/* Sends a request and reads the reply until the server closes. header_len includes the empty line. */
static void ask(const struct scene *scene, const char *method, struct reply *reply)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(scene->port)};
    char request[128];
    size_t capacity = LARGE + 65536;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    int n = snprintf(request, sizeof request, "%s /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", method);
    assert_int_equal(send(fd, request, (size_t)n, MSG_NOSIGNAL), n);
    reply->bytes = malloc(capacity + 1);
    assert_non_null(reply->bytes);
    reply->len = 0;
    ssize_t got;
    while ((got = recv(fd, reply->bytes + reply->len, capacity - reply->len, 0)) > 0)
        reply->len += (size_t)got;
    assert_int_equal(close(fd), 0);
    reply->bytes[reply->len] = '\0';
    const char *end = strstr(reply->bytes, "\r\n\r\n");
    reply->header_len = end == NULL ? 0 : (size_t)(end - reply->bytes) + 4;
    reply->status = reply->len > 12 ? atoi(reply->bytes + 9) : 0;
}

static void check_body(const struct reply *reply, uint64_t off, uint64_t len)
{
    assert_true(reply->len == reply->header_len + len);
    for (uint64_t i = 0; i < len; i++)
        if ((uint8_t)reply->bytes[reply->header_len + i] != wire_byte(off + i))
            fail_msg("byte %llu", (unsigned long long)i);
}

/* ---- bodies -------------------------------------------------------------------------------------------- */

static void fill_actor(struct scene *scene, struct td_response *response)
{
    struct td_error err = TD_ERROR_INIT;
    (void)td_body_append(&response->body, &scene->actor.blob, 0, scene->len, &err);
    response->content_type = "application/octet-stream";
    if (scene->with_all_headers) {
        td_response_set_etag(response, "0123456789abcdef-4d");
        response->accept_ranges = true;
        response->cache_control = "no-cache";
        response->last_modified_s = 784111777;
        td_response_add_header(response, "X-Tensor-Dtype", "BF16");
        td_response_add_header(response, "Content-Range", "bytes 0-%llu/3000000",
                               (unsigned long long)(scene->len == 0 ? 0 : scene->len - 1));
    }
    response->announced_bytes = scene->len;
}

/* Lengths around every limit between the ways of sending, from memory and from a read function. */
static void bodies_of_every_length(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {0,
                                       1,
                                       SMALL,
                                       TD_COPY_BYTES,
                                       TD_COPY_BYTES + 1,
                                       TD_FLAT_BYTES,
                                       TD_FLAT_BYTES + 1,
                                       TD_WINDOW_BYTES - 1,
                                       TD_WINDOW_BYTES,
                                       TD_WINDOW_BYTES + 1,
                                       TD_NEAR_ANSWER_BYTES,
                                       (uint64_t)2 * TD_WINDOW_BYTES + 1,
                                       LARGE};
    static struct scene scene;
    scene.fill = fill_actor;
    scene.status = 200;
    scene.with_all_headers = true;
    open_scene(&scene);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        for (int in_memory = 0; in_memory <= 1; in_memory++) {
            for (int head = 0; head <= 1; head++) {
                struct reply reply;
                char wanted[64];
                scene.len = lengths[i];
                set_actor(&scene, in_memory != 0);
                ask(&scene, head != 0 ? "HEAD" : "GET", &reply);
                assert_int_equal(reply.status, 200);
                check_body(&reply, 0, head != 0 ? 0 : scene.len);
                (void)snprintf(wanted, sizeof wanted, "\r\nContent-Length: %llu\r\n", (unsigned long long)scene.len);
                assert_non_null(strstr(reply.bytes, wanted));
                assert_true(scene.transfer.body_bytes == (head != 0 ? 0 : scene.len));
                assert_int_equal(scene.transfer.is_long, head == 0 && scene.len > TD_FLAT_BYTES);
                free(reply.bytes);
            }
        }
    }
    close_scene(&scene);
    assert_int_equal(scene.actor.blob.refs, 1);
    assert_int_equal(scene.actor.destroyed, 0);
}

/* The computed length of the header is the one on the wire, less "Connection: close", which this client requests. */
static void header_lengths_are_exact(void **state)
{
    (void)state;
    static const int statuses[] = {200, 206, 304, 400, 403, 404, 405, 412, 416, 422, 429, 431, 500, 503};
    static const char asked[] = "Connection: close\r\n";
    static struct scene scene;
    scene.fill = fill_actor;
    open_scene(&scene);
    for (size_t i = 0; i < COUNT_OF(statuses); i++) {
        for (int full = 0; full <= 1; full++) {
            for (uint64_t len = 9; len < LARGE; len = len * 31 + 7) {
                struct reply reply;
                scene.status = statuses[i];
                scene.with_all_headers = full != 0;
                scene.len = len;
                set_actor(&scene, true);
                ask(&scene, "GET", &reply);
                CHECK(reply.status == statuses[i], "%d", reply.status);
                CHECK(scene.header_bytes + strlen(asked) == reply.header_len, "%d: %llu and %zu:\n%.*s", statuses[i],
                      (unsigned long long)scene.header_bytes + strlen(asked), reply.header_len, (int)reply.header_len,
                      reply.bytes);
                free(reply.bytes);
            }
        }
    }
    close_scene(&scene);
}

static void fill_timed(struct scene *scene, struct td_response *response)
{
    fill_actor(scene, response);
    td_response_add_timing(response, TD_TIMED_NS);
}

/* An answer with its time in a field gets a response of its own; the connection's kept response does not change. */
static void timed_answers_are_not_kept(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {SMALL, LARGE};
    static struct scene scene;
    scene.status = 200;
    open_scene(&scene);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        for (int timed = 0; timed <= 1; timed++) {
            struct reply reply;
            scene.fill = timed != 0 ? fill_timed : fill_actor;
            scene.len = lengths[i];
            set_actor(&scene, true);
            ask(&scene, "GET", &reply);
            assert_int_equal(reply.status, 200);
            check_body(&reply, 0, scene.len);
            assert_int_equal(scene.transfer.is_kept, timed == 0);
            assert_int_equal(strstr(reply.bytes, "\r\nServer-Timing: total;dur=1.0\r\n") != NULL, timed != 0);
            free(reply.bytes);
        }
    }
    close_scene(&scene);
}

static void fill_runs(struct scene *scene, struct td_response *response)
{
    struct td_error err = TD_ERROR_INIT;
    (void)td_body_append_runs(&response->body, &scene->actor.blob, 5, 100, scene->len / 100, 300, &err);
    response->content_type = "application/octet-stream";
}

/* Up to TD_IOVEC_RUNS runs are sent as a vector, more are gathered. */
static void many_runs(void **state)
{
    (void)state;
    static const uint64_t counts[] = {2, 100, TD_IOVEC_RUNS - 1, TD_IOVEC_RUNS, TD_IOVEC_RUNS + 1, 1000, 9000};
    static struct scene scene;
    scene.fill = fill_runs;
    scene.status = 200;
    open_scene(&scene);
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        for (int in_memory = 0; in_memory <= 1; in_memory++) {
            struct reply reply;
            scene.len = 100 * counts[i];
            set_actor(&scene, in_memory != 0);
            ask(&scene, "GET", &reply);
            assert_true(reply.len == reply.header_len + scene.len);
            for (uint64_t k = 0; k < scene.len; k++)
                assert_int_equal((uint8_t)reply.bytes[reply.header_len + k], wire_byte(5 + k / 100 * 300 + k % 100));
            free(reply.bytes);
        }
    }
    close_scene(&scene);
    assert_int_equal(scene.actor.blob.refs, 1);
}

/* ---- by reference -------------------------------------------------------------------------------------- */

/* Runs of a file go out by reference beyond TD_REFERENCE_BYTES, unless the connection ends after them or an answer from
 * another file may be unread. The reference on the blob is then the connection's. server/mhd/sender sends all longer
 * bodies but those that a shared thread sends in turns or by jobs. */
static void runs_of_files_go_by_reference(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    static struct scene scene;
    struct actor actor = {.blob = {.class = &file_class, .refs = 1, .bytes = memory, .len_bytes = LARGE},
                          .pinned = true};
    struct actor other = actor;
    struct td_departed departed = {.ends = {.is_local = true, .is_found = true}}; /* its socket can be inspected */
    struct td_connection connection = {.registry = &scene.registry};
    struct td_link link = {.connection = &connection};
    struct iovec parts[] = {{.iov_base = (char[]){'a'}, .iov_len = 1}, {.iov_base = (char[]){'b'}, .iov_len = 1}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    int pair[2];
    scene.registry.proofs.delivery.can_look = true;
    actor.descriptor = memfd_create("actor", MFD_CLOEXEC);
    assert_true(actor.descriptor >= 0 && ftruncate(actor.descriptor, LARGE) == 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(sendmsg(pair[0], &message, MSG_NOSIGNAL), 2); /* as libmicrohttpd does: server/mhd/sender */
    static const struct {
        uint64_t len, runs;
        bool close, has_unread, pinned;
        enum td_way way;
        bool is_shared; /* its thread */
        bool by_sender;
        bool has_large_number; /* the descriptor: server/mhd/sender takes neither it nor its end */
        bool is_tls;
    } rows[] = {
        {TD_REFERENCE_BYTES + 1, 1, false, false, true, TD_WAY_FILE, false, true, false, false},
        {LARGE, 1, false, false, true, TD_WAY_FILE, false, true, false, false},
        {TD_TURN_BYTES, 1, false, false, true, TD_WAY_FILE, true, true, false, false},
        {TD_TURN_BYTES + 1, 1, false, false, true, TD_WAY_FILE, true, false, false, false},
        {TD_REFERENCE_BYTES, 1, false, false, true, TD_WAY_MEMORY, false, false, false, false},
        {TD_REFERENCE_BYTES + 1, 2, false, false, true, TD_WAY_FILE, false, true, false, false},
        {TD_REFERENCE_BYTES + 1, 2, false, false, true, TD_WAY_FILE, true, true, false, false},
        {TD_TURN_BYTES, 2, false, false, true, TD_WAY_MEMORY, true, false, false, false},
        {1000, 2000, false, false, true, TD_WAY_MEMORY, false, true, false, false},
        {1000, 200, false, false, true, TD_WAY_MEMORY, true, true, false, false},
        {LARGE, 1, true, false, true, TD_WAY_MEMORY, false, true, false, false},
        {LARGE, 1, false, true, true, TD_WAY_MEMORY, false, true, false, false},
        {LARGE, 1, false, false, false, TD_WAY_CHECKED, false, true, false, false},
        {1000, 2000, false, false, false, TD_WAY_CHECKED, false, true, false, false},
        {TD_FLAT_BYTES, 1, false, false, false, TD_WAY_COPY, false, false, false, false},
        {TD_TURN_BYTES, 1, false, false, false, TD_WAY_COPY, true, false, false, false},
        {TD_TURN_BYTES + 1, 1, false, false, false, TD_WAY_CHECKED, true, false, false, false},
        {LARGE, 1, false, false, true, TD_WAY_CHECKED, false, false, true, false},
        {TD_LOOK_BYTES, 1, true, false, true, TD_WAY_MEMORY, false, false, true, false},
        {TD_LOOK_BYTES + 1, 1, true, false, true, TD_WAY_CHECKED, false, false, true, false},
        {TD_LOOK_BYTES, 2, false, false, true, TD_WAY_CHECKED, false, false, true, false},
        {TD_FLAT_BYTES, 1, false, false, true, TD_WAY_COPY, false, false, false, true},
        {TD_FLAT_BYTES + 1, 1, false, false, true, TD_WAY_CHECKED, false, false, false, true},
        {LARGE, 1, false, false, true, TD_WAY_CHECKED, false, false, false, true},
        {1000, 2000, false, false, true, TD_WAY_CHECKED, false, false, false, true},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct td_response response;
        struct td_transfer transfer;
        connection.fd = rows[i].has_large_number ? 1 << 20 : pair[0];
        td_read_proof_init(&connection.proof, &scene.registry.proofs);
        connection.proof.departed = rows[i].has_large_number ? NULL : &departed;
        td_response_init(&response);
        response.facade = &td_native_facade;
        response.close = rows[i].close;
        connection.is_tls = rows[i].is_tls;
        connection.proof.proves_nothing = rows[i].has_unread;
        connection.is_shared = rows[i].is_shared;
        link.jobs = rows[i].is_shared ? (struct td_jobs *)(void *)&scene : NULL; /* not used */
        atomic_store(&connection.proof.unread, rows[i].has_unread ? &other.blob : NULL);
        atomic_store(&actor.pinned, rows[i].pinned);
        atomic_store(&actor.unchanged, true);
        atomic_store(&actor.fails_at, UINT64_MAX);
        assert_true(td_body_append_runs(&response.body, &actor.blob, 0, rows[i].len, rows[i].runs, rows[i].len, &err));
        struct MHD_Response *mhd_response = td_transfer_create(&response, &link, false, &transfer);
        assert_non_null(mhd_response);
        CHECK(transfer.way == rows[i].way, "row %zu: %d", i, (int)transfer.way);
        CHECK(!rows[i].is_tls || atomic_load(&connection.pins[0]) == NULL, "row %zu", i);
        assert_true(transfer.body_bytes == rows[i].len * rows[i].runs);
        assert_ptr_equal(connection.proof.referenced, rows[i].way == TD_WAY_FILE ? &actor.blob : NULL);
        td_transfer_release(mhd_response, &transfer);
        td_response_fini(&response);
        CHECK((connection.sent_body.sent.len > 0) == rows[i].by_sender, "row %zu", i);
        assert_int_equal(actor.blob.refs, 1 + rows[i].by_sender + (rows[i].way == TD_WAY_FILE));
        assert_int_equal(connection.proof.is_held,
                         (rows[i].way == TD_WAY_FILE && !rows[i].by_sender) || rows[i].has_unread);
        assert_int_equal(transfer.is_kept, rows[i].by_sender && !rows[i].close);
        td_connection_end_answer(&connection, false);
        assert_false(connection.proof.is_held);
        assert_int_equal(actor.blob.refs, 1);
        assert_null(atomic_load(&connection.pins[0]));
    }
    assert_int_equal(close(actor.descriptor), 0); /* the duplicates are closed by libmicrohttpd */
    assert_int_equal(close(pair[0]) + close(pair[1]), 0);
    td_kept_response_destroy(link.kept);
}

/* ---- files that change --------------------------------------------------------------------------------- */

/* Checks that a read failing with `code` at the last byte cuts the answer, and that the cause is `cut`. */
static void check_broken_off(enum td_code code, enum td_cut cut)
{
    static struct scene scene;
    struct reply reply;
    memset(&scene, 0, sizeof scene);
    scene.fill = fill_actor;
    scene.status = 200;
    open_scene(&scene);
    scene.len = LARGE;
    set_actor(&scene, false);
    atomic_store(&scene.actor.fails_with, (int)code);
    atomic_store(&scene.actor.fails_at, scene.len - 1);
    atomic_store(&scene.cut, TD_CUT_NONE);
    ask(&scene, "GET", &reply);
    assert_true(reply.len < reply.header_len + scene.len);
    uint64_t until_ns = td_clock_ns() + UINT64_C(10000000000);
    while (atomic_load(&scene.cut) == TD_CUT_NONE && td_clock_ns() < until_ns)
        (void)poll(NULL, 0, 1);
    assert_int_equal(atomic_load(&scene.cut), cut);
    free(reply.bytes);
    close_scene(&scene);
}

/* shows: security.md content-damage-midway */
static void damaged_files_never_complete(void **state)
{
    (void)state;
    check_broken_off(TD_FAILED_PRECONDITION, TD_CUT_DAMAGED);
}

static void want_of_memory_is_no_change(void **state)
{
    (void)state;
    check_broken_off(TD_RESOURCE_EXHAUSTED, TD_CUT_BUSY);
}

/* A small answer is checked after the copy and becomes a 503. A large answer is cut before its end. */
static void changed_files_never_complete(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {
        1, SMALL, TD_FLAT_BYTES, TD_FLAT_BYTES + 1, TD_WINDOW_BYTES, TD_WINDOW_BYTES + 1, LARGE};
    static struct scene scene;
    scene.fill = fill_actor;
    scene.status = 200;
    open_scene(&scene);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        for (int how = 0; how < 4; how++) {
            struct reply reply;
            scene.len = lengths[i];
            set_actor(&scene, false);
            if (how == 0)
                atomic_store(&scene.actor.unchanged, false);
            else if (how == 1)
                atomic_store(&scene.actor.changes_when_read, true);
            else
                atomic_store(&scene.actor.fails_at, how == 2 ? 0 : scene.len - 1);
            atomic_store(&scene.cut, TD_CUT_NONE);
            ask(&scene, "GET", &reply);
            if (scene.len <= TD_FLAT_BYTES) {
                CHECK(reply.status == 503, "length %llu, %d: %d", (unsigned long long)scene.len, how, reply.status);
                assert_non_null(strstr(reply.bytes, "\r\nRetry-After: "));
                assert_non_null(strstr(reply.bytes + reply.header_len, "\"UNAVAILABLE\""));
                assert_true(scene.transfer.body_bytes == reply.len - reply.header_len);
            } else {
                CHECK(reply.len < reply.header_len + scene.len || reply.len == 0, "length %llu, %d: complete",
                      (unsigned long long)scene.len, how);
                uint64_t until_ns = td_clock_ns() + UINT64_C(10000000000);
                while (atomic_load(&scene.cut) == TD_CUT_NONE && td_clock_ns() < until_ns)
                    (void)poll(NULL, 0, 1);
                assert_int_equal(atomic_load(&scene.cut), TD_CUT_CHANGED);
            }
            free(reply.bytes);
        }
    }
    close_scene(&scene);
    assert_int_equal(scene.actor.blob.refs, 1);
}

/* If a lease breaks before the answer is sent, the server checks the file while it sends. */
static void what_is_not_pinned_is_checked(void **state)
{
    (void)state;
    static struct scene scene;
    struct reply reply;
    scene.fill = fill_actor;
    scene.status = 200;
    scene.len = LARGE;
    open_scene(&scene);
    set_actor(&scene, true);
    atomic_store(&scene.actor.pinned, false);
    ask(&scene, "GET", &reply);
    check_body(&reply, 0, LARGE);
    free(reply.bytes);
    atomic_store(&scene.actor.unchanged, false);
    ask(&scene, "GET", &reply);
    assert_true(reply.len < reply.header_len + LARGE || reply.len == 0);
    free(reply.bytes);
    atomic_store(&scene.actor.pinned, true); /* pinned bytes are not checked */
    ask(&scene, "GET", &reply);
    check_body(&reply, 0, LARGE);
    free(reply.bytes);
    close_scene(&scene);
}

/* While an answer is sent directly from a blob, a broken lease cuts its connection. */
static void pinned_transfers_can_be_cut(void **state)
{
    (void)state;
    static struct scene scene;
    struct sockaddr_in to = {.sin_family = AF_INET};
    static const char request[] = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
    static char sink[65536];
    int small = 4096;
    scene.fill = fill_actor;
    scene.status = 200;
    scene.len = LARGE;
    open_scene(&scene);
    set_actor(&scene, true);
    assert_false(td_registry_uses_blob(&scene.registry, &scene.actor.blob));
    to.sin_port = htons(scene.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    uint64_t until_ns = td_clock_ns() + UINT64_C(10000000000);
    while (!td_registry_uses_blob(&scene.registry, &scene.actor.blob) && td_clock_ns() < until_ns)
        (void)poll(NULL, 0, 1);
    struct td_blob other = {.class = &actor_class};
    td_registry_cut_blob(&scene.registry, &other); /* a blob of no connection */
    assert_true(td_registry_uses_blob(&scene.registry, &scene.actor.blob));
    td_registry_cut_blob(&scene.registry, &scene.actor.blob);
    size_t total = 0;
    ssize_t got;
    while ((got = recv(fd, sink, sizeof sink, 0)) > 0)
        total += (size_t)got;
    assert_true(total < LARGE);
    while (td_registry_count(&scene.registry) > 0 && td_clock_ns() < until_ns)
        (void)poll(NULL, 0, 1);
    assert_int_equal(atomic_load(&scene.cut), TD_CUT_CHANGED);
    assert_false(td_registry_uses_blob(&scene.registry, &scene.actor.blob));
    assert_int_equal(close(fd), 0);
    close_scene(&scene);
    assert_int_equal(scene.actor.blob.refs, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_of_every_length),        cmocka_unit_test(header_lengths_are_exact),
        cmocka_unit_test(timed_answers_are_not_kept),    cmocka_unit_test(many_runs),
        cmocka_unit_test(runs_of_files_go_by_reference), cmocka_unit_test(changed_files_never_complete),
        cmocka_unit_test(damaged_files_never_complete),  cmocka_unit_test(want_of_memory_is_no_change),
        cmocka_unit_test(what_is_not_pinned_is_checked), cmocka_unit_test(pinned_transfers_can_be_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
