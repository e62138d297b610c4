/* Open addressing with linear probing: an address is in the first slot, beginning at the one that its hash chooses,
 * that was free when the address was added. Removing it moves later addresses back over the gap, so that no search has
 * to pass freed slots. SipHash: https://www.aumasson.jp/siphash/siphash.pdf. */
#include "server/net/address_counts.h"

#include "core/input.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { LEAST_SLOTS = 16 };

static uint64_t rotate_left(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_rounds(uint64_t v[4], int rounds)
{
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate_left(v[1], 13) ^ v[0];
        v[3] = rotate_left(v[3], 16) ^ v[2];
        v[0] = rotate_left(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate_left(v[1], 17) ^ v[2];
        v[3] = rotate_left(v[3], 21) ^ v[0];
        v[2] = rotate_left(v[2], 32);
    }
}

uint64_t td_address_hash(const uint64_t key[2], const struct in6_addr *address)
{
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    const uint64_t words[3] = {td_load_le64(address->s6_addr), td_load_le64(address->s6_addr + 8),
                               UINT64_C(16) << 56}; /* the last one is the number of bytes */
    for (size_t i = 0; i < 3; i++) {
        v[3] ^= words[i];
        sip_rounds(v, 2);
        v[0] ^= words[i];
    }
    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Returns the slot that the hash of the address chooses. The capacity must not be 0. */
static size_t home_of(const struct td_address_counts *counts, const struct in6_addr *address)
{
    return (size_t)td_address_hash(counts->key, address) & (counts->capacity - 1);
}

/* Returns the slot of the address or, if it has none, the free slot that it would get. The capacity must not be 0. */
static size_t slot_of(const struct td_address_counts *counts, const struct in6_addr *address)
{
    size_t i = home_of(counts, address);
    while (counts->slots[i].count > 0 && memcmp(&counts->slots[i].address, address, sizeof *address) != 0)
        i = (i + 1) & (counts->capacity - 1);
    return i;
}

/* Moves all counts into `capacity` slots. Returns false, with nothing changed, when out of memory. */
static bool resize_slots(struct td_address_counts *counts, size_t capacity)
{
    struct td_address_counts next = *counts;
    next.slots = calloc(capacity, sizeof *next.slots);
    next.capacity = capacity;
    if (next.slots == NULL)
        return false;
    for (size_t i = 0; i < counts->capacity; i++)
        if (counts->slots[i].count > 0)
            next.slots[slot_of(&next, &counts->slots[i].address)] = counts->slots[i];
    free(counts->slots);
    *counts = next;
    return true;
}

bool td_address_counts_init(struct td_address_counts *counts, struct td_error *err)
{
    memset(counts, 0, sizeof *counts);
    if (getrandom(counts->key, sizeof counts->key, 0) != (ssize_t)sizeof counts->key)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED, "the kernel gives no random bytes (getrandom)");
    return true;
}

void td_address_counts_fini(struct td_address_counts *counts)
{
    free(counts->slots);
    counts->slots = NULL;
    counts->capacity = counts->used = 0;
}

size_t td_address_counts_get(const struct td_address_counts *counts, const struct in6_addr *address)
{
    return counts->capacity == 0 ? 0 : counts->slots[slot_of(counts, address)].count;
}

bool td_address_counts_add(struct td_address_counts *counts, const struct in6_addr *address)
{
    if (counts->capacity == 0 && !resize_slots(counts, LEAST_SLOTS))
        return false;
    size_t i = slot_of(counts, address);
    if (counts->slots[i].count == 0) {
        if (counts->used >= counts->capacity / 2) {
            if (!resize_slots(counts, counts->capacity * 2))
                return false;
            i = slot_of(counts, address);
        }
        counts->slots[i].address = *address;
        counts->used++;
    }
    counts->slots[i].count++;
    return true;
}

/* Frees a slot, whose count is 0. Each later address up to the next free slot moves into the gap, unless its hash
 * chooses a slot after the gap. */
static void free_slot(struct td_address_counts *counts, size_t gap)
{
    size_t mask = counts->capacity - 1;
    for (size_t i = (gap + 1) & mask; counts->slots[i].count > 0; i = (i + 1) & mask) {
        size_t from_home = (i - home_of(counts, &counts->slots[i].address)) & mask;
        if (from_home < ((i - gap) & mask))
            continue;
        counts->slots[gap] = counts->slots[i];
        gap = i;
    }
    counts->slots[gap].count = 0;
    counts->used--;
}

void td_address_counts_remove(struct td_address_counts *counts, const struct in6_addr *address)
{
    assert(counts->capacity > 0);
    size_t i = slot_of(counts, address);
    assert(counts->slots[i].count > 0);
    if (--counts->slots[i].count > 0)
        return;
    free_slot(counts, i);
    if (counts->capacity > LEAST_SLOTS && counts->used < counts->capacity / 8)
        (void)resize_slots(counts, counts->capacity / 2); /* without memory the table stays as large as it is */
}
