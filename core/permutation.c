#include "core/permutation.h"

#include "core/mix64.h"

static const uint64_t golden = UINT64_C(0x9E3779B97F4A7C15);

void td_permutation_init(struct td_permutation *permutation, uint64_t count, uint64_t seed, uint64_t epoch)
{
    uint64_t state = td_mix64(td_mix64(seed + golden) + epoch + golden);
    unsigned half_bits = 8;
    while (half_bits < 32 && count > UINT64_C(1) << (2 * half_bits))
        half_bits++;
    permutation->count = count;
    permutation->half_bits = half_bits;
    for (unsigned round = 0; round < TD_PERMUTATION_ROUNDS; round++)
        permutation->keys[round] = td_mix64(state + (round + 1) * golden);
}

static uint64_t permute_bits(const struct td_permutation *permutation, uint64_t x)
{
    unsigned half_bits = permutation->half_bits;
    uint64_t left = x >> half_bits, right = x & ((UINT64_C(1) << half_bits) - 1);
    for (unsigned round = 0; round < TD_PERMUTATION_ROUNDS; round++) {
        uint64_t next = left ^ (td_mix64(right + permutation->keys[round]) >> (64 - half_bits));
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t td_permutation_at(const struct td_permutation *permutation, uint64_t position)
{
    uint64_t x = permute_bits(permutation, position);
    while (x >= permutation->count)
        x = permute_bits(permutation, x);
    return x;
}
