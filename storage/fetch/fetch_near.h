/* Checks whether an address, even a public one, belongs to this host or to a network that this host is connected to. A
 * virtual machine may have services at its public address that are meant for itself or its network only. Each call asks
 * the kernel again, since addresses change. */
#ifndef TD_STORAGE_FETCH_FETCH_NEAR_H
#define TD_STORAGE_FETCH_FETCH_NEAR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets *out to the IPv4 address as an IPv6 one: ::ffff:a.b.c.d (RFC 4291 2.5.5.2). */
void td_fetch_map_ipv4(const uint8_t ipv4[4], struct in6_addr *out);

/* The address of an interface, and the network that its mask defines. IPv4 addresses are IPv4-mapped. */
struct td_fetch_network {
    struct in6_addr address;
    unsigned prefix_bits; /* 0 to 128 */
};

enum td_fetch_near {
    TD_FETCH_FAR,
    TD_FETCH_OWN,       /* an address of this host */
    TD_FETCH_CONNECTED, /* in a network of this host */
};

/* Returns how near the address is to a host with these networks. *first is the address of the first request, or NULL:
 * that address itself is TD_FETCH_FAR, and networks that hold it make no address TD_FETCH_CONNECTED. A network of 0
 * bits, which holds every address, does not count. */
enum td_fetch_near td_fetch_near_of(const struct in6_addr *address, const struct in6_addr *first,
                                    const struct td_fetch_network *networks, size_t count);

/* Sets *out as td_fetch_near_of does, for the networks of this host. *ipv4 is the IPv4 address, IPv4-mapped, that
 * *address embeds (td_fetch_ipv4_within), or NULL. Returns false when the kernel does not list the networks or memory
 * is short. */
bool td_fetch_near_look(const struct in6_addr *address, const struct in6_addr *ipv4, const struct in6_addr *first,
                        enum td_fetch_near *out);

#endif
