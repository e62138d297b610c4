/* What one rank gets of one dimension by one rule: the arithmetic of plans, apart from names and tensors. */
#ifndef TD_SLICING_SPLIT_H
#define TD_SLICING_SPLIT_H

#include "slicing/rule.h"

#include <stdbool.h>
#include <stdint.h>

/* At most a beginning, a middle and an end of groups for each part, and what pads. */
enum { TD_SPLIT_MAX_PIECES = 3 * TD_RULE_MAX_PARTS + 1 };

/* `count` times `size` elements, from `start` on, `stride` apart; stored elements. */
struct td_split_piece {
    uint64_t start, size, count, stride;
    bool zeros; /* no elements of the source: size zeros */
};

struct td_split {
    struct td_split_piece pieces[TD_SPLIT_MAX_PIECES]; /* none is empty; those that touch are one */
    uint32_t count;
    uint64_t size; /* elements of all pieces */
};

/* Splits a dimension of `size` stored elements. Errors (TD_FAILED_PRECONDITION, "tensor NAME: ..."): parts that are not
 * the dimension, units that the ranks do not divide where the rule wants them to, a cut within a packed element. */
bool td_split_dimension(const struct td_rule *rule, const char *name, uint64_t size, uint64_t tp_size, uint64_t tp_rank,
                        struct td_split *out, struct td_error *err);

#endif
