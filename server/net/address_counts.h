/* Counts by client address, such as of open connections. The time of a call does not depend on the number of addresses,
 * even if a client chooses the addresses, as it can within an IPv6 prefix: the table is a hash table with a secret key.
 * Its memory is proportional to the number of addresses, and shrinks with it.
 *
 * Threads: calls on one table must not overlap. */
#ifndef TD_SERVER_NET_ADDRESS_COUNTS_H
#define TD_SERVER_NET_ADDRESS_COUNTS_H

#include "core/error.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_address_count {
    struct in6_addr address;
    uint32_t count; /* 0: the slot is free */
};

struct td_address_counts {
    struct td_address_count *slots; /* NULL while capacity is 0 */
    size_t capacity;                /* number of slots: 0 or a power of two */
    size_t used;                    /* number of slots that are not free: at most half of them */
    uint64_t key[2];                /* secret */
};

/* Prepares an empty table with a random key. Fails with TD_RESOURCE_EXHAUSTED when the kernel gives no random bytes. */
bool td_address_counts_init(struct td_address_counts *counts, struct td_error *err);

void td_address_counts_fini(struct td_address_counts *counts);

/* Returns the count of the address. */
size_t td_address_counts_get(const struct td_address_counts *counts, const struct in6_addr *address);

/* Adds 1 to the count of the address. Returns false, with nothing changed, when out of memory. */
bool td_address_counts_add(struct td_address_counts *counts, const struct in6_addr *address);

/* Subtracts 1 from the count of the address, which must not be 0. Needs no memory. */
void td_address_counts_remove(struct td_address_counts *counts, const struct in6_addr *address);

/* Returns SipHash-2-4 of the address. Without the key a client cannot choose addresses with hashes that share their low
 * bits. */
uint64_t td_address_hash(const uint64_t key[2], const struct in6_addr *address);

#endif
