#include "slicing/plan.h"

#include <string.h>

void td_plan_fini(struct td_plan *plan)
{
    td_arena_fini(&plan->arena);
    memset(plan, 0, sizeof *plan);
}
