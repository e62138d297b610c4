#include "slicing/rank_file.h"

#include <inttypes.h>
#include <stdio.h>

bool td_rank_file_create(const struct td_plan *plan, const struct td_tensor_list *tensors,
                         const struct td_rank_label *label, struct td_budget *budget, struct td_shard_file **out,
                         struct td_error *err)
{
    char size[24];
    char rank[24];
    bool by_plan = label->plan_id[0] != '\0';
    (void)snprintf(size, sizeof size, "%" PRIu64, plan->tp_size);
    (void)snprintf(rank, sizeof rank, "%" PRIu64, plan->tp_rank);
    const struct td_shard_metadata metadata[] = {
        {"format", "pt"},  {"model", label->model}, {"engine", by_plan ? "plan" : label->engine},
        {"tp_size", size}, {"tp_rank", rank},       {"plan", label->plan_id},
    };
    size_t count = sizeof metadata / sizeof *metadata - (by_plan ? 0 : 1);
    return td_shard_file_create(plan, tensors, metadata, count, true, budget, out, err);
}
