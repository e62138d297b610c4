/* Bodies that libmicrohttpd sends from td_sender_memory: its calls reach server/mhd/sender, each byte is the body's,
 * and a full socket or a body that cannot be read is handled. */
#include "server/mhd/sender.h"
#include "server/net/sent_body.h"

#include "tests/unit/unit.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CONTENT_BYTES = 600000, OFFSET = 12345, LONG = 500000 }; /* the body begins at OFFSET of the content */

static uint8_t content[CONTENT_BYTES];
static _Atomic int calls; /* of send_content */

static void make_content(void)
{
    uint64_t state = 7;
    for (size_t i = 0; i < CONTENT_BYTES; i++)
        content[i] = (uint8_t)random_next(&state);
}

static ssize_t send_content(void *context, int socket, size_t at, size_t len)
{
    size_t done = 0;
    const int *sys = context;
    atomic_fetch_add(&calls, 1);
    if (sys != NULL && *sys != 0) {
        errno = *sys;
        return -1;
    }
    while (done < len) {
        ssize_t n = sendto(socket, content + OFFSET + at + done, len - done, MSG_NOSIGNAL, NULL, 0);
        if (n < 0)
            return errno == EAGAIN && done > 0 ? (ssize_t)done : -1;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static struct td_sent body_of(size_t len)
{
    return (struct td_sent){.len = len, .send = send_content};
}

struct server {
    struct td_sent body;
    _Atomic bool was_registered;
};

/* Answers /copied from memory, and all else by server/mhd/sender. */
static enum MHD_Result answer(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_len, void **context)
{
    static int second;
    struct server *server = cls;
    (void)method, (void)version, (void)upload, (void)upload_len;
    if (*context == NULL) {
        *context = &second;
        return MHD_YES;
    }
    bool is_copied = strcmp(url, "/copied") == 0;
    int socket = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    char *memory = is_copied ? (char *)content : td_sender_memory(server->body.len);
    if (memory == NULL)
        return MHD_NO;
    if (!is_copied)
        atomic_store(&server->was_registered, td_sent_begin(socket, &server->body));
    struct MHD_Response *mhd_response =
        MHD_create_response_from_buffer(server->body.len, memory, MHD_RESPMEM_PERSISTENT);
    enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, mhd_response);
    MHD_destroy_response(mhd_response);
    return result;
}

static void completed(void *cls, struct MHD_Connection *connection, void **context,
                      enum MHD_RequestTerminationCode code)
{
    (void)cls, (void)context, (void)code;
    td_sent_end(MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
}

static int connect_to(struct MHD_Daemon *daemon)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons(MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int small = 8 * 1024;
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&to, sizeof to), 0);
    return client;
}

/* Asks for the path, and checks that the body is these bytes. */
static void check_answer(int client, const char *path, const uint8_t *wanted, size_t len)
{
    static char got[CONTENT_BYTES + 4096];
    char request[100];
    char *body = NULL;
    size_t count = 0;
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path);
    assert_int_equal(send(client, request, (size_t)n, 0), n);
    while (body == NULL || count < (size_t)(body - got) + len) {
        ssize_t part = recv(client, got + count, sizeof got - 1 - count, 0);
        assert_true(part > 0);
        count += (size_t)part;
        got[count] = '\0';
        if (body == NULL && (body = strstr(got, "\r\n\r\n")) != NULL)
            body += 4;
    }
    assert_int_equal(count, (size_t)(body - got) + len);
    assert_memory_equal(body, wanted, len);
}

static void libmicrohttpd_calls_the_body(void **state)
{
    (void)state;
    static const unsigned int ways[] = {MHD_USE_EPOLL_INTERNAL_THREAD,
                                        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL};
    static const size_t lengths[] = {1, 1000, 65536, LONG};
    for (size_t w = 0; w < COUNT_OF(ways); w++) {
        for (size_t i = 0; i < COUNT_OF(lengths); i++) {
            struct server server = {.body = body_of(lengths[i])};
            struct MHD_Daemon *daemon = MHD_start_daemon(ways[w], 0, NULL, NULL, answer, &server,
                                                         MHD_OPTION_NOTIFY_COMPLETED, completed, NULL, MHD_OPTION_END);
            assert_non_null(daemon);
            int client = connect_to(daemon);
            int before = atomic_load(&calls);
            check_answer(client, "/copied", content, lengths[i]);
            assert_int_equal(atomic_load(&calls), before);
            check_answer(client, "/", content + OFFSET, lengths[i]);
            CHECK(atomic_load(&server.was_registered) && atomic_load(&calls) > before, "%zu bytes", lengths[i]);
            check_answer(client, "/", content + OFFSET, lengths[i]);
            check_answer(client, "/copied", content, lengths[i]);
            assert_int_equal(close(client), 0);
            MHD_stop_daemon(daemon);
        }
    }
}

/* Sends a header and the body's memory in one call, as libmicrohttpd does. */
static ssize_t send_header_and_body(int socket, size_t len)
{
    struct iovec parts[] = {{.iov_base = (char[]){'h', '\n'}, .iov_len = 2},
                            {.iov_base = td_sender_memory(len), .iov_len = len}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

static void open_pair(int *pair)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
}

static void close_pair(const int *pair)
{
    td_sent_end(pair[0]);
    assert_int_equal(close(pair[0]), 0);
    assert_int_equal(close(pair[1]), 0);
}

static void a_full_socket_is_a_short_count(void **state)
{
    (void)state;
    static char got[CONTENT_BYTES];
    int pair[2];
    struct td_sent body = body_of(LONG);
    open_pair(pair);
    assert_true(td_sent_begin(pair[0], &body));
    size_t sent = 0;
    size_t count = 0;
    ssize_t n = send_header_and_body(pair[0], body.len);
    assert_true(n > 2 && (size_t)n < 2 + body.len);
    sent = (size_t)n - 2;
    assert_int_equal(send(pair[0], td_sender_memory(LONG) + sent, body.len - sent, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EAGAIN);
    while (count < 2 + body.len) {
        n = recv(pair[1], got + count, sizeof got - count, 0);
        count += n > 0 ? (size_t)n : 0;
        n = sent < body.len ? send(pair[0], td_sender_memory(LONG) + sent, body.len - sent, MSG_NOSIGNAL) : 0;
        sent += n > 0 ? (size_t)n : 0;
    }
    assert_memory_equal(got, "h\n", 2);
    assert_memory_equal(got + 2, content + OFFSET, body.len);
    close_pair(pair);
}

static void what_cannot_be_sent_is_an_error(void **state)
{
    (void)state;
    int pair[2];
    int sys = 0;
    struct td_sent body = {.len = 100000, .send = send_content, .context = &sys};
    open_pair(pair);
    /* not registered: nobody can read the memory */
    assert_int_equal(send(pair[0], td_sender_memory(LONG), 1000, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EFAULT);
    assert_true(td_sent_begin(pair[0], &body));
    /* beyond the body */
    assert_int_equal(send(pair[0], td_sender_memory(LONG), body.len + 1, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(send(pair[0], td_sender_memory(LONG) + body.len, 1, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EFAULT);
    /* other bytes, of one registered */
    assert_int_equal(send(pair[0], "other", 5, MSG_NOSIGNAL), 5);
    /* the body cannot be had */
    sys = EIO;
    assert_int_equal(send_header_and_body(pair[0], body.len), -1);
    assert_int_equal(errno, EIO);
    sys = EAGAIN; /* after the header, the socket is full */
    assert_int_equal(send_header_and_body(pair[0], body.len), 2);
    assert_int_equal(send(pair[0], td_sender_memory(LONG) + 7, body.len - 7, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EAGAIN);
    td_sent_end(pair[0]);
    assert_int_equal(send(pair[0], td_sender_memory(LONG), 1000, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EFAULT);
    close_pair(pair);
    assert_false(td_sent_begin(-1, &body));
    assert_false(td_sent_begin(1 << 20, &body));
    td_sent_end(-1);
    td_sent_end(1 << 20);
}

static void nothing_is_sent_before_a_call_has_come(void **state)
{
    (void)state;
    int pair[2];
    char got[4];
    struct iovec parts[] = {{.iov_base = (char[]){'a', 'b'}, .iov_len = 2},
                            {.iov_base = (char[]){'c', 'd'}, .iov_len = 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    assert_null(td_sender_memory(LONG));
    open_pair(pair);
    assert_int_equal(sendmsg(pair[0], &message, MSG_NOSIGNAL), 4);
    assert_int_equal(recv(pair[1], got, sizeof got, 0), 4);
    assert_memory_equal(got, "abcd", 4);
    assert_non_null(td_sender_memory(LONG));
    assert_ptr_equal(td_sender_memory(1), td_sender_memory((size_t)1 << 36)); /* a whole checkpoint */
    assert_null(td_sender_memory(SIZE_MAX));
    close_pair(pair);
}

int main(void)
{
    make_content();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_sent_before_a_call_has_come), /* the first */
        cmocka_unit_test(a_full_socket_is_a_short_count),
        cmocka_unit_test(what_cannot_be_sent_is_an_error),
        cmocka_unit_test(libmicrohttpd_calls_the_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
