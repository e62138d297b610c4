/* Finds the elements in which two arrays differ. Pure. */
#ifndef TD_RANK_PATCH_PATCH_DIFF_H
#define TD_RANK_PATCH_PATCH_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether the other functions take elements of this size: 1, 2, 4 or 8 bytes. */
bool td_patch_takes(size_t element_bytes);

/* Compares `count` elements, at most 2^32-1, bit by bit, so that NaNs and zeros with a sign count as what they are.
 * Writes the numbers of those that differ to `places`, which has room for `count`, in ascending order. Returns how many
 * differ. */
size_t td_patch_diff(const uint8_t *before, const uint8_t *after, size_t count, size_t element_bytes, uint32_t *places);

/* Copies the elements with these numbers from `from` to `to`, one after the other. */
void td_patch_gather(const uint8_t *from, size_t element_bytes, const uint32_t *places, size_t count, uint8_t *to);

#endif
