/* The allocator of cJSON. */
#ifndef TD_CORE_JSON_JSON_HOOKS_H
#define TD_CORE_JSON_JSON_HOOKS_H

#include <stddef.h>

/* A block that cJSON allocates from before it asks malloc. A row of a list fits, so a list costs no malloc for each
 * row. Zero at first. */
struct td_json_pool {
    char *block; /* owned; NULL before the first allocation */
    size_t used_bytes;
};

/* Makes cJSON allocate with malloc and free as this program links them, so that tests that count or fail allocations
 * see those of cJSON. Call before any other function of cJSON; later calls do nothing. Thread-safe. */
void td_json_hooks_install(void);

/* Makes cJSON allocate from the pool (borrowed; NULL: from malloc) in this thread from now on. Memory of a pool may be
 * freed only while that pool is in use. */
void td_json_hooks_use(struct td_json_pool *pool);

/* Frees the pool's block. */
void td_json_pool_fini(struct td_json_pool *pool);

#endif
