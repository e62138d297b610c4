/* Splitting: computes the part of one dimension that one rule gives to one rank. This is the arithmetic of plans,
 * without names and tensors. */
#ifndef TD_SLICING_PLAN_SPLIT_H
#define TD_SLICING_PLAN_SPLIT_H

#include "slicing/plan/rule.h"

#include <stdbool.h>
#include <stdint.h>

/* Each part gives at most three pieces (a partial group, whole groups, a partial group); padding adds one. */
enum { TD_SPLIT_MAX_PIECES = 3 * TD_RULE_MAX_PARTS + 1 };

/* `count` stretches of `size` indices, the first from `start` on, `stride` apart. Indices count stored elements. */
struct td_split_piece {
    uint64_t start, size, count, stride;
    bool zeros; /* `size` indices of zeros, which the source does not have */
};

struct td_split {
    struct td_split_piece pieces[TD_SPLIT_MAX_PIECES]; /* none is empty; adjoining ones are merged */
    uint32_t count;
    uint64_t size; /* indices in all pieces */
};

/* Computes the pieces of a dimension of `size` stored elements for rank tp_rank of tp_size. `name` is the tensor's, for
 * messages. Errors (TD_FAILED_PRECONDITION): the rule's parts do not make up the dimension, the ranks do not divide the
 * units although the rule requires that, a cut within a packed element, a size past 2^64-1. */
bool td_split_dimension(const struct td_rule *rule, const char *name, uint64_t size, uint64_t tp_size, uint64_t tp_rank,
                        struct td_split *out, struct td_error *err);

#endif
