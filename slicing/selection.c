#include "slicing/selection.h"

void td_selection_all(uint32_t rank, const uint64_t *shape, struct td_selection *out)
{
    out->rank = rank;
    out->dropped = 0;
    for (uint32_t i = 0; i < rank; i++) {
        out->starts[i] = 0;
        out->sizes[i] = shape[i];
    }
}
