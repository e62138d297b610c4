#include "storage/fetch/fetch_near.h"

#include <ifaddrs.h>
#include <string.h>
#include <sys/socket.h>

void td_fetch_map_ipv4(const uint8_t ipv4[4], struct in6_addr *out)
{
    enum { MAPPED_BYTES = 12, FIRST_FF = 10 };
    memset(out, 0, sizeof *out);
    out->s6_addr[FIRST_FF] = out->s6_addr[FIRST_FF + 1] = 0xFF;
    memcpy(out->s6_addr + MAPPED_BYTES, ipv4, 4);
}

static bool is_within(const struct in6_addr *address, const struct td_fetch_network *network)
{
    const uint8_t *a = address->s6_addr;
    const uint8_t *b = network->address.s6_addr;
    unsigned bytes = network->prefix_bits / 8;
    unsigned rest = network->prefix_bits % 8;
    return memcmp(a, b, bytes) == 0 && (rest == 0 || a[bytes] >> (8 - rest) == b[bytes] >> (8 - rest));
}

enum td_fetch_near td_fetch_near_of(const struct in6_addr *address, const struct in6_addr *first,
                                    const struct td_fetch_network *networks, size_t count)
{
    enum td_fetch_near near = TD_FETCH_FAR;
    if (first != NULL && memcmp(address, first, sizeof *address) == 0)
        return TD_FETCH_FAR;
    for (size_t i = 0; i < count; i++) {
        const struct td_fetch_network *network = &networks[i];
        if (memcmp(address, &network->address, sizeof *address) == 0)
            return TD_FETCH_OWN;
        if (network->prefix_bits > 0 && is_within(address, network) && (first == NULL || !is_within(first, network)))
            near = TD_FETCH_CONNECTED;
    }
    return near;
}

/* ---- the host's own ------------------------------------------------------------------------------------ */

static unsigned count_bits(const struct in6_addr *mask)
{
    unsigned bits = 0;
    for (size_t i = 0; i < sizeof mask->s6_addr; i++)
        bits += (unsigned)__builtin_popcount(mask->s6_addr[i]);
    return bits;
}

/* Reads the address and the mask of an interface. Returns false if the address is neither IPv4 nor IPv6. */
static bool read_network(const struct ifaddrs *interface, struct td_fetch_network *out)
{
    enum { MAPPED_BITS = 96, BITS = 128 };
    if (interface->ifa_addr == NULL)
        return false;
    if (interface->ifa_addr->sa_family == AF_INET) {
        struct sockaddr_in address;
        struct sockaddr_in mask = {.sin_addr.s_addr = UINT32_MAX};
        memcpy(&address, interface->ifa_addr, sizeof address);
        if (interface->ifa_netmask != NULL)
            memcpy(&mask, interface->ifa_netmask, sizeof mask);
        unsigned bits = (unsigned)__builtin_popcount(mask.sin_addr.s_addr);
        td_fetch_map_ipv4((const uint8_t *)&address.sin_addr, &out->address);
        out->prefix_bits = bits == 0 ? 0 : MAPPED_BITS + bits;
        return true;
    }
    if (interface->ifa_addr->sa_family == AF_INET6) {
        struct sockaddr_in6 address;
        struct sockaddr_in6 mask = {0};
        memcpy(&address, interface->ifa_addr, sizeof address);
        out->address = address.sin6_addr;
        out->prefix_bits = BITS;
        if (interface->ifa_netmask != NULL) {
            memcpy(&mask, interface->ifa_netmask, sizeof mask);
            out->prefix_bits = count_bits(&mask.sin6_addr);
        }
        return true;
    }
    return false;
}

bool td_fetch_near_look(const struct in6_addr *address, const struct in6_addr *ipv4, const struct in6_addr *first,
                        enum td_fetch_near *out)
{
    struct ifaddrs *interfaces;
    *out = TD_FETCH_FAR;
    if (getifaddrs(&interfaces) != 0)
        return false;
    for (const struct ifaddrs *at = interfaces; at != NULL && *out != TD_FETCH_OWN; at = at->ifa_next) {
        struct td_fetch_network network;
        if (!read_network(at, &network))
            continue;
        enum td_fetch_near near = td_fetch_near_of(address, first, &network, 1);
        if (near != TD_FETCH_OWN && ipv4 != NULL) {
            enum td_fetch_near inner = td_fetch_near_of(ipv4, first, &network, 1);
            near = inner != TD_FETCH_FAR ? inner : near;
        }
        *out = near != TD_FETCH_FAR ? near : *out;
    }
    freeifaddrs(interfaces);
    return true;
}
