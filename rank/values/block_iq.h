/* The elements of GGUF's types IQ1, IQ2 and IQ3, whose blocks name vectors of a fixed list. Each decodes one block, as
 * td_block_decoder does. Pure. */
#ifndef TD_RANK_VALUES_BLOCK_IQ_H
#define TD_RANK_VALUES_BLOCK_IQ_H

#include <stdint.h>

void td_block_iq1_s(const uint8_t *block, float *out);
void td_block_iq1_m(const uint8_t *block, float *out);
void td_block_iq2_xxs(const uint8_t *block, float *out);
void td_block_iq2_xs(const uint8_t *block, float *out);
void td_block_iq2_s(const uint8_t *block, float *out);
void td_block_iq3_xxs(const uint8_t *block, float *out);
void td_block_iq3_s(const uint8_t *block, float *out);

#endif
