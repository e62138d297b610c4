/* Which congestion control a connection has: sockets of this host, and a round trip as the test says it. */
#include "server/net/tcp_socket.h"

#include "server/net/connection.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

static uint32_t said_rtt_us; /* 0: what the kernel measured */

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    int result = __real_getsockopt(fd, level, name, value, len);
    if (said_rtt_us > 0 && level == IPPROTO_TCP && name == TCP_INFO)
        ((struct tcp_info *)value)->tcpi_min_rtt = said_rtt_us;
    return result;
}

/* Returns a listening socket whose congestion control is this one. Every kernel has reno and cubic. */
static int open_listener(const char *name)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0);
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)), 0);
    return fd;
}

static void check_name(int fd, const char *wanted)
{
    char name[TD_CONGESTION_BYTES] = "";
    socklen_t len = sizeof name;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
    assert_string_equal(name, wanted);
}

static void connections_over_long_paths_keep_the_default(void **state)
{
    (void)state;
    static const struct {
        const char *host, *far, *near_name, *far_name;
    } rows[] = {{"reno", "reno", "cubic", "reno"}, {"cubic", "", "cubic", "cubic"}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char far_name[TD_CONGESTION_BYTES];
        struct sockaddr_in address;
        socklen_t len = sizeof address;
        int listener = open_listener(rows[i].host);
        td_congestion_listen(listener, far_name);
        assert_string_equal(far_name, rows[i].far);
        check_name(listener, "cubic");
        assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
        for (int is_far = 0; is_far <= 1; is_far++) {
            int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
            int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            said_rtt_us = is_far ? TD_NEAR_RTT_US : TD_NEAR_RTT_US - 1;
            td_congestion_accept(fd, far_name);
            check_name(fd, is_far ? rows[i].far_name : rows[i].near_name);
            said_rtt_us = 0;
            assert_int_equal(close(fd), 0);
            assert_int_equal(close(client), 0);
        }
        assert_int_equal(close(listener), 0);
    }
}

static void what_is_no_tcp_socket_is_left_alone(void **state)
{
    (void)state;
    char far_name[TD_CONGESTION_BYTES];
    td_congestion_listen(-1, far_name);
    assert_string_equal(far_name, "");
    td_congestion_accept(-1, "reno");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_over_long_paths_keep_the_default),
        cmocka_unit_test(what_is_no_tcp_socket_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
