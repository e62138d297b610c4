/* The kernel's socket diagnostics (sock_diag(7)) describe any TCP socket of this network namespace by its two ends,
 * that of another process, too: idiag_rqueue counts the bytes that nobody has read. What is hard:
 *   - A socket that is bound to an interface is found only if the query names the interface. A socket behind a DNAT or
 *     REDIRECT rule of this host is found only by the address that it connected to. So a socket that is not found may
 *     still be on this host.
 *   - After both sides have shut down, the kernel replaces a socket by a short record (TIME_WAIT) or by nothing, but
 *     its process may still read from it. Before that, a socket that no process has open any more has no inode.
 *   - The routing table (rtnetlink(7)) shows whether an address is this host's, also for whole networks that are routed
 *     to this host. A transparent proxy has a socket here under the address of another host. */
#include "server/net/delivery.h"

#include "core/clock.h"
#include "core/socket_send.h"
#include "server/config/listen_address.h"
#include "server/net/tcp_socket.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- netlink ------------------------------------------------------------------------------------------- */

/* Opens a netlink socket. Returns -1 on failure. The kernel answers within the call to send; a limit keeps receivers
 * from waiting for ever. */
static int open_netlink(int protocol)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    struct timeval limit = {.tv_sec = 1};
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Sends a request and receives the first message of the answer. Returns whether the message has this type and at least
 * `len` bytes of payload; if so, copies them to `out`. */
static bool query_netlink(struct td_delivery *delivery, int netlink, const struct nlmsghdr *request, uint16_t type,
                          void *out, size_t len)
{
    union {
        struct nlmsghdr header;
        char bytes[4096];
    } answer;
    pthread_mutex_lock(&delivery->lock);
    bool is_sent =
        netlink >= 0 && td_socket_send(netlink, request, request->nlmsg_len, 0) == (ssize_t)request->nlmsg_len;
    ssize_t got = is_sent ? recv(netlink, &answer, sizeof answer, 0) : -1;
    pthread_mutex_unlock(&delivery->lock);
    bool is_good = got >= (ssize_t)NLMSG_LENGTH(len) && answer.header.nlmsg_type == type;
    if (is_good)
        memcpy(out, NLMSG_DATA(&answer.header), len);
    return is_good;
}

struct socket_query {
    struct nlmsghdr header;
    struct inet_diag_req_v2 request;
};

/* Returns whether the kernel describes TCP sockets: asks for the sockets of an empty set of states, and expects the end
 * of the list without an error. */
static bool describes_sockets(struct td_delivery *delivery)
{
    int failed;
    struct socket_query query = {.header = {.nlmsg_len = sizeof query,
                                            .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                                            .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                                 .request = {.sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP}};
    return query_netlink(delivery, delivery->sockets, &query.header, NLMSG_DONE, &failed, sizeof failed) && failed == 0;
}

bool td_delivery_init(struct td_delivery *delivery, struct td_error *err)
{
    *delivery = (struct td_delivery){.sockets = -1, .routes = -1};
    int sys = pthread_mutex_init(&delivery->lock, NULL);
    if (sys != 0)
        return td_error_sys(err, TD_INTERNAL, sys, "cannot create a lock");
    delivery->sockets = open_netlink(NETLINK_SOCK_DIAG);
    delivery->routes = open_netlink(NETLINK_ROUTE);
    delivery->can_look = describes_sockets(delivery);
    return true;
}

void td_delivery_fini(struct td_delivery *delivery)
{
    if (delivery->sockets >= 0)
        (void)close(delivery->sockets);
    if (delivery->routes >= 0)
        (void)close(delivery->routes);
    (void)pthread_mutex_destroy(&delivery->lock);
}

/* ---- sockets ------------------------------------------------------------------------------------------- */

/* Describes the client's socket. Returns false when this network namespace does not have it, or the kernel does not
 * show it. */
static bool find_client(struct td_delivery *delivery, const struct td_ends *ends, struct inet_diag_msg *found)
{
    struct socket_query query = {
        .header = {.nlmsg_len = sizeof query, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
        .request = {.sdiag_protocol = IPPROTO_TCP, .idiag_states = UINT32_MAX}};
    struct inet_diag_sockid *id = &query.request.id;
    bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&ends->peer_address) && IN6_IS_ADDR_V4MAPPED(&ends->own_address);
    query.request.sdiag_family = is_ipv4 ? AF_INET : AF_INET6;
    id->idiag_sport = ends->peer_port;
    id->idiag_dport = ends->own_port;
    memcpy(id->idiag_src, ends->peer_address.s6_addr + (is_ipv4 ? 12 : 0), is_ipv4 ? 4 : 16);
    memcpy(id->idiag_dst, ends->own_address.s6_addr + (is_ipv4 ? 12 : 0), is_ipv4 ? 4 : 16);
    id->idiag_if = ends->device;
    id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return query_netlink(delivery, delivery->sockets, &query.header, SOCK_DIAG_BY_FAMILY, found, sizeof *found) &&
           found->idiag_state != TCP_LISTEN; /* the kernel falls back to a listening socket of that port */
}

/* Returns the state of the bytes that the client's socket has received. A FIN counts as a byte until the reader has
 * seen it. */
static enum td_delivery_state state_of(const struct inet_diag_msg *client)
{
    bool is_given_up = client->idiag_state == TCP_FIN_WAIT1 || client->idiag_state == TCP_FIN_WAIT2 ||
                       client->idiag_state == TCP_CLOSING || client->idiag_state == TCP_LAST_ACK;
    bool has_end = client->idiag_state == TCP_CLOSE_WAIT || client->idiag_state == TCP_LAST_ACK ||
                   client->idiag_state == TCP_CLOSING;
    if (client->idiag_state == TCP_TIME_WAIT)
        return TD_DELIVERY_UNKNOWN;
    if (is_given_up && client->idiag_inode == 0)
        return TD_DELIVERY_READ;
    return client->idiag_rqueue > (has_end ? 1U : 0U) ? TD_DELIVERY_PENDING : TD_DELIVERY_READ;
}

enum td_delivery_state td_delivery_look(struct td_delivery *delivery, int fd, const struct td_ends *ends)
{
    struct inet_diag_msg client;
    if (fd >= 0 && td_socket_unacknowledged_bytes(fd) > 0)
        return td_socket_facts_of(fd).is_closed ? TD_DELIVERY_READ : TD_DELIVERY_PENDING;
    if (find_client(delivery, ends, &client))
        return state_of(&client);
    return ends->is_local ? TD_DELIVERY_UNKNOWN : TD_DELIVERY_ARRIVED;
}

bool td_delivery_is_proved(struct td_delivery *delivery, int fd, const struct td_ends *ends, uint64_t *arrived_ns,
                           enum td_delivery_state *state)
{
    *state = td_delivery_look(delivery, fd, ends);
    if (*state != TD_DELIVERY_ARRIVED) {
        *arrived_ns = 0;
        return *state == TD_DELIVERY_READ;
    }
    uint64_t now_ns = td_clock_ns();
    if (*arrived_ns == 0)
        *arrived_ns = now_ns;
    return now_ns - *arrived_ns >= TD_DELIVERY_GRACE_NS;
}

/* ---- ends ---------------------------------------------------------------------------------------------- */

/* Sets the address and the port. Returns false for a family other than IPv4 and IPv6, which have the port in the same
 * place. */
static bool read_end(const struct sockaddr_storage *name, struct in6_addr *address, in_port_t *port)
{
    struct sockaddr_in v4;
    memcpy(&v4, name, sizeof v4);
    *port = v4.sin_port;
    return td_address_of(name, address);
}

/* The address is last, since an IPv4 address is shorter. */
struct route_query {
    struct nlmsghdr header;
    struct rtmsg request;
    struct rtattr device_header;
    uint32_t device; /* 0: any */
    struct rtattr address_header;
    uint8_t address[16];
};

/* Returns whether the routing table sends the client's address to this host itself. An address without a route counts
 * as this host's. */
static bool is_routed_here(struct td_delivery *delivery, const struct td_ends *ends)
{
    struct rtmsg route = {.rtm_type = RTN_LOCAL};
    bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&ends->peer_address);
    size_t len = is_ipv4 ? 4 : 16;
    struct route_query query = {
        .header = {.nlmsg_len = (uint32_t)(offsetof(struct route_query, address) + len),
                   .nlmsg_type = RTM_GETROUTE,
                   .nlmsg_flags = NLM_F_REQUEST},
        .request = {.rtm_family = is_ipv4 ? AF_INET : AF_INET6, .rtm_dst_len = (uint8_t)(8 * len)},
        .device_header = {.rta_type = RTA_OIF, .rta_len = RTA_LENGTH(sizeof ends->device)},
        .device = ends->device,
        .address_header = {.rta_type = RTA_DST, .rta_len = (uint16_t)RTA_LENGTH(len)}};
    memcpy(query.address, ends->peer_address.s6_addr + (is_ipv4 ? 12 : 0), len);
    (void)query_netlink(delivery, delivery->routes, &query.header, RTM_NEWROUTE, &route, sizeof route);
    return route.rtm_type == RTN_LOCAL;
}

/* Returns whether the client's address is one of this host's. */
static bool is_own_address(struct td_delivery *delivery, const struct td_ends *ends)
{
    const struct in6_addr *peer = &ends->peer_address;
    return td_address_is_loopback(peer) || IN6_ARE_ADDR_EQUAL(peer, &ends->own_address) ||
           is_routed_here(delivery, ends);
}

bool td_delivery_ends(struct td_delivery *delivery, int fd, struct td_ends *ends)
{
    struct sockaddr_storage own = {0};
    struct sockaddr_storage peer = {0};
    socklen_t own_len = sizeof own;
    socklen_t peer_len = sizeof peer;
    struct inet_diag_msg client;
    int device = 0;
    socklen_t device_len = sizeof device;
    if (getsockname(fd, (struct sockaddr *)&own, &own_len) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_len) != 0 ||
        !read_end(&own, &ends->own_address, &ends->own_port) || !read_end(&peer, &ends->peer_address, &ends->peer_port))
        return false;
    bool is_bound = getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &device, &device_len) == 0 && device > 0;
    ends->device = is_bound ? (uint32_t)device : 0;
    ends->is_found = find_client(delivery, ends, &client);
    ends->is_local = ends->is_found || is_own_address(delivery, ends);
    return true;
}
