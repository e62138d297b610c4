/* The vectors that GGUF's types IQ1, IQ2 and IQ3 choose from. A vector is 16 bits. Of IQ1 and IQ2 it has 8 elements of
 * 2 bits, of IQ3 4 elements of 4 bits, the first in the lowest bits; each is the number of a value in the type's short
 * list of values (block_iq.c). */
#ifndef TD_RANK_VALUES_BLOCK_GRIDS_H
#define TD_RANK_VALUES_BLOCK_GRIDS_H

#include <stdint.h>

extern const uint16_t td_grid_iq2_xxs[256], td_grid_iq2_xs[512], td_grid_iq2_s[1024];
extern const uint16_t td_grid_iq3_xxs[256], td_grid_iq3_s[512];
extern const uint16_t td_grid_iq1[2048]; /* of IQ1_S and IQ1_M */

#endif
