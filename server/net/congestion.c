#include "server/net/congestion.h"

#include "server/net/socket_facts.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

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
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (far_name[0] == '\0' || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
        info.tcpi_min_rtt < TD_NEAR_RTT_US)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, far_name, (socklen_t)strlen(far_name));
}

void td_send_queue_shorten(struct td_send_queue *queue, int fd)
{
    if (queue->is_short)
        return;
    struct td_socket_facts facts = td_socket_facts_of(fd);
    if (facts.min_rtt_us == 0 || facts.min_rtt_us >= TD_NEAR_RTT_US)
        return;
    int bytes = TD_NEAR_QUEUE_BYTES;
    queue->is_short = true;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}
