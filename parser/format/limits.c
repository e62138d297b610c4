#include "parser/format/limits.h"

struct td_limits td_limits_default(void)
{
    return (struct td_limits){
        .max_header_bytes = UINT64_C(100000000),       /* MAX_HEADER_SIZE of the safetensors reference */
        .max_memory_bytes = (size_t)512 * 1024 * 1024, /* holds the largest header, all of it shapes */
    };
}
