#include "server/net/linger.h"

#include "core/clock.h"
#include "server/net/sent_body.h"

#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Drops received bytes, which the kernel does not copy (MSG_TRUNC). Returns their number, or 0 at the end of the
 * connection. */
static uint64_t drop_received(int fd)
{
    enum { AT_ONCE = 1024 * 1024 };
    ssize_t n = recv(fd, NULL, AT_ONCE, MSG_TRUNC | MSG_DONTWAIT);
    return n > 0 ? (uint64_t)n : 0;
}

void td_linger(int fd)
{
    uint64_t end_ns = td_clock_ns() + TD_LINGER_NS;
    uint64_t dropped = 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    (void)td_sent_shut_down(fd, SHUT_WR);
    while (dropped < TD_LINGER_BYTES) {
        uint64_t now_ns = td_clock_ns();
        if (now_ns >= end_ns || poll(&wait, 1, (int)((end_ns - now_ns) / 1000000) + 1) <= 0)
            return;
        uint64_t n = drop_received(fd);
        if (n == 0)
            return;
        dropped += n;
    }
}
