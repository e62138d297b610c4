#include "core/json/json_hooks.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { POOL_BYTES = 4096, ALIGNMENT = 16 };

static _Thread_local struct td_json_pool *current;

static void *allocate_from_pool(size_t bytes)
{
    struct td_json_pool *pool = current;
    if (pool == NULL || bytes > POOL_BYTES - pool->used_bytes)
        return malloc(bytes);
    if (pool->block == NULL)
        pool->block = malloc(POOL_BYTES);
    if (pool->block == NULL)
        return NULL;
    char *given = pool->block + pool->used_bytes;
    pool->used_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; /* POOL_BYTES is a multiple */
    return given;
}

static void release_to_pool(void *memory)
{
    const struct td_json_pool *pool = current;
    uintptr_t at = (uintptr_t)memory;
    bool in_pool =
        pool != NULL && pool->block != NULL && at >= (uintptr_t)pool->block && at < (uintptr_t)pool->block + POOL_BYTES;
    if (!in_pool)
        free(memory);
}

static void install(void)
{
    cJSON_Hooks hooks = {.malloc_fn = allocate_from_pool, .free_fn = release_to_pool};
    cJSON_InitHooks(&hooks);
}

void td_json_hooks_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, install);
}

void td_json_hooks_use(struct td_json_pool *pool)
{
    current = pool;
}

void td_json_pool_fini(struct td_json_pool *pool)
{
    free(pool->block);
    *pool = (struct td_json_pool){0};
}
