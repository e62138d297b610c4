/* Limits on parsing one file. */
#ifndef TD_PARSER_FORMAT_LIMITS_H
#define TD_PARSER_FORMAT_LIMITS_H

#include <stddef.h>
#include <stdint.h>

struct td_limits {
    /* Bytes of names and structure, such as safetensors' N, a pickle, or a zip's central directory. */
    uint64_t max_header_bytes;
    /* Bytes of memory, arena and scratch together; 0: no limit. */
    size_t max_memory_bytes;
};

/* Returns 100,000,000 bytes of structure and 512 MiB of memory. */
static inline struct td_limits td_limits_default(void)
{
    return (struct td_limits){
        .max_header_bytes = UINT64_C(100000000),       /* MAX_HEADER_SIZE of the safetensors reference */
        .max_memory_bytes = (size_t)512 * 1024 * 1024, /* holds the largest header, all of it shapes */
    };
}

#endif
