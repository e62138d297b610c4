/* The address of a port to listen on: ADDRESS:PORT, [ADDRESS]:PORT or :PORT. */
#ifndef TD_SERVER_CONFIG_LISTEN_ADDRESS_H
#define TD_SERVER_CONFIG_LISTEN_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

enum { TD_LISTEN_ADDRESS_BYTES = 256 }; /* capacity for an address */

/* Writes the address without its brackets to `address`; it is empty for all addresses. Sets *port to the digits after
 * the last colon, borrowed from `listen`. Returns false when the text does not have that form, when the address takes
 * more than `capacity` bytes, or when the port is above 65535. Does not look the address up. */
bool td_listen_address_split(const char *listen, char *address, size_t capacity, const char **port);

/* Returns whether td_listen_address_split accepts the text. */
bool td_listen_address_is_valid(const char *listen);

/* Returns whether the address is in 127.0.0.0/8, IPv4-mapped, or ::1: only this machine has it. */
bool td_address_is_loopback(const struct in6_addr *address);

#endif
