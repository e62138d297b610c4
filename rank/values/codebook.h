/* The codebooks of GGUF's types IQ1, IQ2 and IQ3. A point is a vector of 8 or 4 small numbers; a codebook is a list of
 * points, and an element of a block is a number of one of them. Codebooks are constants of the format GGUF. Pure. */
#ifndef TD_RANK_VALUES_CODEBOOK_H
#define TD_RANK_VALUES_CODEBOOK_H

#include <stdint.h>

enum { TD_CODEBOOK_MOST_LEVELS = 8, TD_CODEBOOK_MOST_NUMBERS = 8 };

struct td_codebook {
    uint16_t points;                       /* in the list */
    uint8_t numbers;                       /* of a point, at most TD_CODEBOOK_MOST_NUMBERS */
    uint8_t levels;                        /* values that a number can have, at most TD_CODEBOOK_MOST_LEVELS */
    int8_t level[TD_CODEBOOK_MOST_LEVELS]; /* these values, ascending */
    const uint64_t *set;                   /* see codebook.c */
};

extern const struct td_codebook td_codebook_iq1, td_codebook_iq2_xxs, td_codebook_iq2_xs, td_codebook_iq2_s,
    td_codebook_iq3_xxs, td_codebook_iq3_s;

/* Sets out[0..book->numbers) to the numbers of point i of the list, i < book->points. */
void td_codebook_point(const struct td_codebook *book, unsigned i, int8_t *out);

#endif
