/* Permutations of [0, n) that are computed, not stored: any place of an epoch's order costs the same, and a position is
 * all that has to be stored to resume. The Python client has the same definition
 * (clients/python/tensord/permutation.py), and both are tested with the vectors in tests/data/permutation.json.
 *
 * A Feistel network of 8 rounds permutes the numbers of `bits` bits, the smallest even number of at least 16 with
 * 2^bits >= n; a result of n or more is permuted again (cycle walking), fewer than 4 times on average for n above 2^14,
 * and 2^16 / n times for smaller n. The round function is the finaliser of splitmix64 (Steele, Lea, Flood: Fast
 * splittable pseudorandom number generators, OOPSLA 2014). It is not a cipher: the order is not secret. */
#ifndef TD_CORE_PERMUTATION_H
#define TD_CORE_PERMUTATION_H

#include <stdint.h>

enum { TD_PERMUTATION_ROUNDS = 8 };

struct td_permutation {
    uint64_t count; /* n */
    unsigned half_bits;
    uint64_t keys[TD_PERMUTATION_ROUNDS];
};

/* Makes the permutation of [0, count) for a seed and an epoch. count is above 0. */
void td_permutation_init(struct td_permutation *permutation, uint64_t count, uint64_t seed, uint64_t epoch);

/* Returns the number at this position; both are below count. Any thread. */
uint64_t td_permutation_at(const struct td_permutation *permutation, uint64_t position);

#endif
