#include "tests/unit/alloc_hooks.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <string.h>

static struct alloc_count count;
static size_t fail_countdown;

void alloc_count_start(void)
{
    memset(&count, 0, sizeof count);
}

struct alloc_count alloc_count_get(void)
{
    return count;
}

void alloc_fail_at(size_t k)
{
    fail_countdown = k;
}

static bool must_fail(void)
{
    count.calls++;
    if (fail_countdown == 0 || --fail_countdown > 0)
        return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *p)
{
    if (p != NULL)
        count.live_bytes += malloc_usable_size(p);
    if (count.live_bytes > count.peak_bytes)
        count.peak_bytes = count.live_bytes;
    return p;
}

void *__wrap_malloc(size_t size)
{
    return must_fail() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return must_fail() ? NULL : counted(__real_calloc(n, size));
}

/* A grown block is counted beside the old one at the peak: that is what realloc may need. */
void *__wrap_realloc(void *old, size_t size)
{
    if (must_fail())
        return NULL;
    size_t before = old == NULL ? 0 : malloc_usable_size(old);
    void *p = counted(__real_realloc(old, size));
    if (p != NULL)
        count.live_bytes -= before;
    return p;
}

void __wrap_free(void *p)
{
    if (p != NULL)
        count.live_bytes -= malloc_usable_size(p);
    __real_free(p);
}
