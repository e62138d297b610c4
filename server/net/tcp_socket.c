#include "server/net/tcp_socket.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* States of a TCP socket in tcpi_state, of netinet/tcp.h, which cannot be included beside linux/tcp.h. */
enum { ESTABLISHED = 1, CLOSED = 7, CLOSE_WAIT = 8 };

struct td_socket_facts td_socket_facts_of(int fd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
        memset(&info, 0, sizeof info);
    uint8_t state = info.tcpi_state;
    return (struct td_socket_facts){.acknowledged_bytes = info.tcpi_bytes_acked,
                                    .received_bytes = info.tcpi_bytes_received,
                                    .min_rtt_us = info.tcpi_min_rtt,
                                    .is_established = state == ESTABLISHED,
                                    .client_has_ended = state == CLOSE_WAIT,
                                    .is_closed = state == CLOSED};
}

uint64_t td_socket_given_bytes(int fd)
{
    /* The queue is read first, so that bytes that are acknowledged between the two calls count twice rather than not at
     * all. */
    int queued = td_socket_unacknowledged_bytes(fd);
    return td_socket_facts_of(fd).acknowledged_bytes + (uint64_t)queued;
}

int td_socket_unacknowledged_bytes(int fd)
{
    int bytes = 0;
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? bytes : 0;
}

void td_socket_reset_at_close(int fd)
{
    struct linger reset = {.l_onoff = 1};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

int td_socket_unread_bytes(int fd)
{
    int bytes = 0;
    return ioctl(fd, SIOCINQ, &bytes) == 0 ? bytes : 0;
}

bool td_socket_client_has_ended(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) != 0;
}

void td_congestion_listen(int listen_fd, char far_name[TD_CONGESTION_BYTES])
{
    static const char near_name[] = "cubic";
    socklen_t len = TD_CONGESTION_BYTES;
    memset(far_name, 0, TD_CONGESTION_BYTES);
    if (getsockopt(listen_fd, IPPROTO_TCP, TCP_CONGESTION, far_name, &len) != 0 || strcmp(far_name, near_name) == 0 ||
        setsockopt(listen_fd, IPPROTO_TCP, TCP_CONGESTION, near_name, sizeof near_name - 1) != 0)
        far_name[0] = '\0';
    far_name[TD_CONGESTION_BYTES - 1] = '\0';
}

void td_congestion_accept(int fd, const char *far_name)
{
    if (far_name[0] != '\0' && td_socket_facts_of(fd).min_rtt_us >= TD_NEAR_RTT_US)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, far_name, (socklen_t)strlen(far_name));
}

void td_send_queue_shorten(int fd, bool *is_short)
{
    if (*is_short)
        return;
    struct td_socket_facts facts = td_socket_facts_of(fd);
    if (facts.min_rtt_us == 0 || facts.min_rtt_us >= TD_NEAR_RTT_US)
        return;
    int bytes = TD_NEAR_QUEUE_BYTES;
    *is_short = true;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}
