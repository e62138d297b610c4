/* Addresses that this host has, and networks that it is connected to, whatever their range: a virtual machine with a
 * public address has services at that address that only the host, or its network, is meant to reach. Looked up anew for
 * each question, since addresses come and go. */
#ifndef TD_STORAGE_FETCH_NEAR_H
#define TD_STORAGE_FETCH_NEAR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets *out to the IPv4 address as an IPv6 one: ::ffff:a.b.c.d (RFC 4291 2.5.5.2). */
void td_fetch_map_ipv4(const uint8_t ipv4[4], struct in6_addr *out);

/* An address of an interface, and the network that its mask states. IPv4 addresses are mapped (::ffff:a.b.c.d). */
struct td_fetch_network {
    struct in6_addr address;
    unsigned prefix_bits; /* 0 to 128 */
};

enum td_fetch_near {
    TD_FETCH_FAR,
    TD_FETCH_OWN,       /* an address of this host */
    TD_FETCH_CONNECTED, /* in a network of this host */
};

/* Returns where the address is, seen from a host with these networks. *first is the address that was asked first, or
 * NULL; that address, and networks that hold it, are not near. A network of 0 bits, which holds every address, does not
 * count. */
enum td_fetch_near td_fetch_near_of(const struct in6_addr *address, const struct in6_addr *first,
                                    const struct td_fetch_network *networks, size_t count);

/* Does the same for the networks of this host. *ipv4 is an IPv4 address, mapped, to which the address leads as well, or
 * NULL. Returns false when the kernel does not tell the networks, or without memory. */
bool td_fetch_near_look(const struct in6_addr *address, const struct in6_addr *ipv4, const struct in6_addr *first,
                        enum td_fetch_near *out);

#endif
