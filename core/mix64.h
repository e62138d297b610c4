/* The finaliser of splitmix64, a bijection of 64 bits: similar numbers become numbers that look different. Source:
 * Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014. */
#ifndef TD_CORE_MIX64_H
#define TD_CORE_MIX64_H

#include <stdint.h>

/* Returns the mixed number. No two numbers have the same. */
static inline uint64_t td_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    x ^= x >> 27;
    x *= UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

#endif
