/* Guards the addresses that a request may be redirected to. A server that redirects must not make this process ask the
 * services of its own host or network (server-side request forgery), nor weaken what the first URL has promised:
 *
 * - A link-local address is never asked, since clouds serve credentials there; nor are other addresses that clouds are
 *   known to use for that.
 * - A redirect to an address of this host or of a private network is followed only when the first request went to such
 *   an address, too: the operator has a private network then.
 * - A redirect to a public address of this host, or of a network that this host is in, is followed only when the first
 *   request went to a private address, to the same address, or to another address of the same network.
 * - A redirect does not lead from https to http.
 * - Without a digest nothing shows whether the bytes of another host are right: a redirect to it needs https.
 *
 * libcurl asks the guard before it opens a connection, with the address that it is going to use, and again before it
 * sends a request, since a connection may be open already. With a proxy the address is the proxy's, and the proxy
 * decides where the request goes. Then the address says nothing about the first URL. So if the environment has proxies,
 * a URL counts as private only if its host is a private address; and another port at a proxy's address is not the
 * proxy. One guard per handle of libcurl, used by the handle's thread alone. */
#ifndef TD_STORAGE_FETCH_FETCH_GUARD_H
#define TD_STORAGE_FETCH_FETCH_GUARD_H

#include "core/error.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_FETCH_HOST_BYTES = 256 /* with a NUL */ };

enum td_fetch_reach {
    TD_FETCH_PUBLIC,
    TD_FETCH_PRIVATE, /* loopback, private, unique local, shared, unspecified */
    TD_FETCH_LINK_LOCAL,
    TD_FETCH_METADATA, /* a cloud serves credentials there, although it is not link-local */
};

struct td_fetch_guard {
    void *easy;                     /* the handle (CURL *) that it watches */
    bool needs_tls;                 /* on other hosts, since no digest is known */
    bool is_private, has_tls;       /* of the first request; has_tls: of a later one, too */
    char host[TD_FETCH_HOST_BYTES]; /* of the first request */
    char address[INET6_ADDRSTRLEN]; /* where it went: the host's address, or a proxy's */
    int port;                       /* the port at that address */
    char refusal[400];              /* why a request was refused; empty: none was */
};

/* Returns how far an address reaches; an IPv4 address inside an IPv6 one (RFC 4291 2.5.5, 6052, 3056) counts as the
 * IPv4 address. */
enum td_fetch_reach td_fetch_reach_of_ipv4(const uint8_t address[4]);
enum td_fetch_reach td_fetch_reach_of_ipv6(const uint8_t address[16]);

/* Returns whether an IPv6 address embeds the IPv4 address that it leads to (as in 6to4), and sets *out to that address,
 * IPv4-mapped (td_fetch_map_ipv4). */
bool td_fetch_ipv4_within(const struct in6_addr *address, struct in6_addr *out);

/* Makes the guard watch a handle (CURL *). The guard must live as long as the handle. Returns false without memory. */
bool td_fetch_guard_watch(struct td_fetch_guard *guard, void *easy);

/* Prepares for a request. has_digest: the digest of the content is known. */
void td_fetch_guard_begin(struct td_fetch_guard *guard, bool has_digest);

/* Returns whether the guard has ended the request. Then sets the error, TD_FAILED_PRECONDITION, which begins with
 * `what`. Call it only after a failure of libcurl: if a host has several addresses, libcurl may have used another
 * one. */
bool td_fetch_guard_blame(const struct td_fetch_guard *guard, const char *what, struct td_error *err);

/* ---- addresses of this host, for the guard and its tests ------------------------------------------------ */

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

/* Sets *out as td_fetch_near_of does, for the networks of this host: a virtual machine may have services at its public
 * address that are meant for itself or its network only. Asks the kernel each time, since addresses change. *ipv4 is
 * the IPv4 address, IPv4-mapped, that *address embeds (td_fetch_ipv4_within), or NULL. Returns false when the kernel
 * does not list the networks or memory is short. */
bool td_fetch_near_look(const struct in6_addr *address, const struct in6_addr *ipv4, const struct in6_addr *first,
                        enum td_fetch_near *out);

#endif
