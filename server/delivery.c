/* The kernel's socket diagnostics (sock_diag(7)) describe any TCP socket of this network namespace by its two ends,
 * that of another process, too. For the socket of the sender idiag_wqueue counts the unacknowledged bytes; for the
 * socket of the receiver idiag_rqueue counts the bytes that nobody has read. */
#include "server/delivery.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int td_delivery_open(void)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    struct timeval limit = {.tv_sec = 1}; /* the kernel answers within the call to send; never wait for ever */
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Sets the address and the port. Returns false for a family other than IPv4 and IPv6. */
static bool read_end(const struct sockaddr_storage *name, struct in6_addr *address, in_port_t *port)
{
    struct sockaddr_in6 v6;
    struct sockaddr_in v4;
    if (name->ss_family == AF_INET6) {
        memcpy(&v6, name, sizeof v6);
        *address = v6.sin6_addr;
        *port = v6.sin6_port;
        return true;
    }
    memcpy(&v4, name, sizeof v4);
    memset(address, 0, sizeof *address);
    memset(address->s6_addr + 10, 0xFF, 2);
    memcpy(address->s6_addr + 12, &v4.sin_addr, 4);
    *port = v4.sin_port;
    return name->ss_family == AF_INET;
}

bool td_delivery_ends(int fd, struct td_ends *ends)
{
    struct sockaddr_storage own = {0};
    struct sockaddr_storage peer = {0};
    socklen_t own_len = sizeof own;
    socklen_t peer_len = sizeof peer;
    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 &&
           read_end(&own, &ends->own_address, &ends->own_port) &&
           read_end(&peer, &ends->peer_address, &ends->peer_port);
}

struct query {
    struct nlmsghdr header;
    struct inet_diag_req_v2 request;
};

/* Asks for the socket from one end to the other. */
static bool ask(int netlink, const struct in6_addr *from, in_port_t from_port, const struct in6_addr *to,
                in_port_t to_port)
{
    struct query query = {
        .header = {.nlmsg_len = sizeof query, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
        .request = {.sdiag_protocol = IPPROTO_TCP, .idiag_states = UINT32_MAX}};
    struct inet_diag_sockid *id = &query.request.id;
    bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(from) && IN6_IS_ADDR_V4MAPPED(to);
    query.request.sdiag_family = is_ipv4 ? AF_INET : AF_INET6;
    id->idiag_sport = from_port;
    id->idiag_dport = to_port;
    memcpy(id->idiag_src, from->s6_addr + (is_ipv4 ? 12 : 0), is_ipv4 ? 4 : 16);
    memcpy(id->idiag_dst, to->s6_addr + (is_ipv4 ? 12 : 0), is_ipv4 ? 4 : 16);
    id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return send(netlink, &query, sizeof query, 0) == (ssize_t)sizeof query;
}

/* Describes the socket from one end to the other. Returns false when this network namespace has none, or does not
 * tell. */
static bool find_socket(int netlink, const struct in6_addr *from, in_port_t from_port, const struct in6_addr *to,
                        in_port_t to_port, struct inet_diag_msg *found)
{
    union {
        struct nlmsghdr header;
        char bytes[4096];
    } answer;
    if (netlink < 0 || !ask(netlink, from, from_port, to, to_port))
        return false;
    ssize_t len = recv(netlink, &answer, sizeof answer, 0);
    if (len < (ssize_t)NLMSG_LENGTH(sizeof *found) || answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY)
        return false;
    memcpy(found, NLMSG_DATA(&answer.header), sizeof *found);
    return found->idiag_state != TCP_LISTEN; /* the kernel falls back to a listening socket of that port */
}

/* Returns whether the receiver's socket may hold unread bytes. A FIN counts as a byte until the reader has seen it.
 * Both sides of a socket in TIME_WAIT are closed, but its reader may still have a queue, which the kernel does not
 * show. */
static bool may_have_unread(const struct inet_diag_msg *receiver)
{
    bool has_end = receiver->idiag_state == TCP_CLOSE_WAIT || receiver->idiag_state == TCP_LAST_ACK ||
                   receiver->idiag_state == TCP_CLOSING;
    return receiver->idiag_state == TCP_TIME_WAIT || receiver->idiag_rqueue > (has_end ? 1U : 0U);
}

enum td_delivery td_delivery_look(int netlink, int fd, const struct td_ends *ends)
{
    struct inet_diag_msg socket;
    int unacknowledged = 0;
    if (fd >= 0 && ioctl(fd, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 0)
        return TD_DELIVERY_PENDING;
    if (fd < 0 &&
        find_socket(netlink, &ends->own_address, ends->own_port, &ends->peer_address, ends->peer_port, &socket) &&
        socket.idiag_wqueue > 0)
        return TD_DELIVERY_PENDING;
    if (!find_socket(netlink, &ends->peer_address, ends->peer_port, &ends->own_address, ends->own_port, &socket))
        return TD_DELIVERY_ARRIVED;
    return may_have_unread(&socket) ? TD_DELIVERY_PENDING : TD_DELIVERY_READ;
}
