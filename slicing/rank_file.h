/* Rank files: the shard file of one rank, which says in __metadata__ whose it is. Made here alone, so that whoever asks
 * for one, the server or `tensord plan`, gets the same bytes. */
#ifndef TD_SLICING_RANK_FILE_H
#define TD_SLICING_RANK_FILE_H

#include "slicing/shard_file.h"

/* All is borrowed. */
struct td_rank_label {
    const char *model;   /* its id */
    const char *engine;  /* of no meaning for a plan */
    const char *plan_id; /* of a plan that is kept under an id, whose engine is called "plan"; else "" */
};

/* The plan is borrowed for the call. Errors as td_shard_file_create. */
bool td_rank_file_create(const struct td_plan *plan, const struct td_tensor_list *tensors,
                         const struct td_rank_label *label, struct td_budget *budget, struct td_shard_file **out,
                         struct td_error *err);

#endif
