#include "parser/format/elements.h"

#include "core/checked.h"

uint64_t td_tensor_elements(const struct td_tensor *tensor)
{
    uint64_t elems = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] == 0)
            return 0;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (!td_mul_u64(elems, tensor->shape[i], &elems))
            return UINT64_MAX;
    return elems;
}
