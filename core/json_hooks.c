#include "core/json_hooks.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <stdlib.h>

static void *allocate(size_t bytes)
{
    return malloc(bytes);
}

static void release(void *block)
{
    free(block);
}

static void install(void)
{
    cJSON_Hooks hooks = {.malloc_fn = allocate, .free_fn = release};
    cJSON_InitHooks(&hooks);
}

void td_json_hooks_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, install);
}
