/* The addresses of ports to listen on: their form, ADDRESS:PORT, [ADDRESS]:PORT or :PORT; whether others reach them;
 * and whether a server that others reach has TLS and tokens. */
#ifndef TD_SERVER_CONFIG_LISTEN_ADDRESS_H
#define TD_SERVER_CONFIG_LISTEN_ADDRESS_H

#include "core/error.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { TD_LISTEN_ADDRESS_BYTES = 256 }; /* capacity for an address */

/* Writes the address without its brackets to `address`; it is empty for all addresses. Sets *port to the digits after
 * the last colon, borrowed from `listen`. Returns false when the text does not have that form, when the address takes
 * more than `capacity` bytes, or when the port is above 65535. Does not look the address up. */
bool td_listen_address_split(const char *listen, char *address, size_t capacity, const char **port);

/* Returns whether td_listen_address_split accepts the text. */
bool td_listen_address_is_valid(const char *listen);

/* Returns whether the address is in 127.0.0.0/8, IPv4-mapped, or ::1: only this machine has it. */
bool td_address_is_loopback(const struct in6_addr *address);

/* Writes the address of a socket; an IPv4 address is IPv4-mapped. Returns false for another family, with the address
 * undefined. */
bool td_address_of(const struct sockaddr_storage *name, struct in6_addr *address);

struct td_exposure {
    const char *url;   /* of a port that other machines can reach; NULL: only this machine reaches the ports */
    bool has_tls;      /* on all ports that other machines can reach */
    bool has_tokens;   /* clients need one */
    bool require_tls;  /* --require-tls */
    bool require_auth; /* --require-auth */
    bool publish_any;  /* --publish any */
};

/* Warns when other machines reach a port without TLS, so that others can read the traffic, and when they need no token.
 * With require_tls or require_auth either is an error (TD_INVALID_ARGUMENT) that says what to do; with publish_any a
 * port without tokens is. */
bool td_exposure_judge(const struct td_exposure *exposure, struct td_error *err);

#endif
