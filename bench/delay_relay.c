/* A long path on one machine: two network namespaces, a TUN device in each, and this program between them, which holds
 * every packet back for a time. Takes root. Prints "ready" and runs until it is ended.
 *
 *     delay_relay NAMESPACE_A NAMESPACE_B DELAY_US
 *
 * gives A the address 10.77.0.1 and B 10.77.0.2. The namespaces are those of `ip netns`. Each direction holds at most
 * QUEUE packets; more are dropped, as a router does. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_BYTES = 1600, QUEUE = 16384 };

struct packet {
    uint64_t due_ns;
    uint16_t len;
    uint8_t bytes[PACKET_BYTES];
};

struct direction {
    int from, to;
    struct packet *packets; /* a ring */
    size_t first, count;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Opens a TUN device in the namespace; the descriptor works from any. */
static int open_tun(const char *namespace, const char *address, const char *peer)
{
    char path[128], command[256];
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    (void)snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there = open(path, O_RDONLY | O_CLOEXEC);
    if (home < 0 || there < 0 || setns(there, CLONE_NEWNET) != 0) {
        perror(path);
        exit(1);
    }
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    strcpy(request.ifr_name, "delay0");
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0) {
        perror("/dev/net/tun");
        exit(1);
    }
    (void)snprintf(command, sizeof command,
                   "ip link set lo up && ip addr add %s peer %s dev delay0 && ip link set delay0 up txqueuelen 10000",
                   address, peer);
    if (system(command) != 0 || setns(home, CLONE_NEWNET) != 0)
        exit(1);
    close(home);
    close(there);
    return fd;
}

static void take_in(struct direction *d, uint64_t delay_ns)
{
    static uint8_t dropped[PACKET_BYTES];
    for (int i = 0; i < 64; i++) {
        bool full = d->count == QUEUE;
        struct packet *packet = &d->packets[(d->first + d->count) % QUEUE];
        ssize_t n = read(d->from, full ? dropped : packet->bytes, PACKET_BYTES);
        if (n <= 0)
            return;
        if (full)
            continue;
        packet->len = (uint16_t)n;
        packet->due_ns = now_ns() + delay_ns;
        d->count++;
    }
}

/* Sends what is due. Returns when the next packet is. */
static uint64_t give_out(struct direction *d)
{
    uint64_t now = now_ns();
    while (d->count > 0 && d->packets[d->first].due_ns <= now) {
        struct packet *packet = &d->packets[d->first];
        if (write(d->to, packet->bytes, packet->len) < 0 && errno == EAGAIN)
            return now + 10000;
        d->first = (d->first + 1) % QUEUE;
        d->count--;
    }
    return d->count == 0 ? UINT64_MAX : d->packets[d->first].due_ns;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: delay_relay NAMESPACE_A NAMESPACE_B DELAY_US\n");
        return 2;
    }
    uint64_t delay_ns = strtoull(argv[3], NULL, 10) * 1000;
    int a = open_tun(argv[1], "10.77.0.1", "10.77.0.2"), b = open_tun(argv[2], "10.77.0.2", "10.77.0.1");
    struct direction directions[2] = {{.from = a, .to = b}, {.from = b, .to = a}};
    for (int i = 0; i < 2; i++) {
        directions[i].packets = calloc(QUEUE, sizeof(struct packet));
        if (directions[i].packets == NULL)
            return 1;
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        uint64_t next_ns = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            uint64_t due_ns = give_out(&directions[i]);
            next_ns = due_ns < next_ns ? due_ns : next_ns;
        }
        struct pollfd wait[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
        uint64_t now = now_ns(), left_ns = next_ns == UINT64_MAX ? 1000000000 : next_ns > now ? next_ns - now : 0;
        struct timespec timeout = {.tv_sec = (time_t)(left_ns / 1000000000), .tv_nsec = (long)(left_ns % 1000000000)};
        if (ppoll(wait, 2, &timeout, NULL) < 0 && errno != EINTR)
            return 1;
        for (int i = 0; i < 2; i++)
            take_in(&directions[i], delay_ns);
    }
}
