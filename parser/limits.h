/* What one file may make us hold. */
#ifndef TD_PARSER_LIMITS_H
#define TD_PARSER_LIMITS_H

#include <stddef.h>
#include <stdint.h>

struct td_limits {
    /* Bytes of names and structure: safetensors' N, a pickle, a zip's central directory. */
    uint64_t max_header_bytes;
    /* Bytes of arena and scratch of one parse. */
    size_t max_memory_bytes;
};

struct td_limits td_limits_default(void);

#endif
