#include "tests/unit/alloc_hooks.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static struct {
    _Atomic long long live_bytes, peak_bytes;
    _Atomic size_t calls;
} count;
static _Atomic size_t fail_countdown;
static struct {
    const void *bytes;
    size_t len;
    _Atomic size_t found;
} wanted;

void alloc_count_start(void)
{
    count.live_bytes = count.peak_bytes = 0;
    count.calls = 0;
}

struct alloc_count alloc_count_get(void)
{
    return (struct alloc_count){
        .live_bytes = (size_t)count.live_bytes, .peak_bytes = (size_t)count.peak_bytes, .calls = count.calls};
}

void alloc_fail_at(size_t k)
{
    fail_countdown = k;
}

void alloc_look_for(const void *bytes, size_t len)
{
    wanted.bytes = bytes;
    wanted.len = len;
    wanted.found = 0;
}

size_t alloc_found(void)
{
    return wanted.found;
}

/* Returns whether the block holds the wanted bytes. */
static bool has_wanted(const void *block)
{
    const char *at = block;
    if (block == NULL || wanted.bytes == NULL)
        return false;
    for (size_t left = malloc_usable_size((void *)block); left >= wanted.len; left--, at++)
        if (memcmp(at, wanted.bytes, wanted.len) == 0)
            return true;
    return false;
}

static bool must_fail(void)
{
    count.calls++;
    size_t left = fail_countdown;
    while (left > 0 && !atomic_compare_exchange_weak(&fail_countdown, &left, left - 1))
        ;
    if (left != 1)
        return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *p)
{
    if (p == NULL)
        return NULL;
    long long bytes = (long long)malloc_usable_size(p);
    long long live = atomic_fetch_add(&count.live_bytes, bytes) + bytes;
    long long peak = count.peak_bytes;
    while (live > peak && !atomic_compare_exchange_weak(&count.peak_bytes, &peak, live))
        ;
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

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return must_fail() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

/* Counts the new block besides the old one in the peak, because realloc may need both. */
void *__wrap_realloc(void *old, size_t size)
{
    if (must_fail())
        return NULL;
    size_t before = old == NULL ? 0 : malloc_usable_size(old);
    bool is_wanted = has_wanted(old);
    void *p = counted(__real_realloc(old, size));
    if (p != NULL && p != old && is_wanted)
        wanted.found++;
    if (p != NULL)
        atomic_fetch_sub(&count.live_bytes, (long long)before);
    return p;
}

void __wrap_free(void *p)
{
    if (p != NULL)
        atomic_fetch_sub(&count.live_bytes, (long long)malloc_usable_size(p));
    if (has_wanted(p))
        wanted.found++;
    __real_free(p);
}
