/* Accounting for malloc and its family, by the linker's --wrap: what is live, the peak, and a k-th failure.
 * Allocations inside libc (stdio, for one) do not pass here. Thread-safe. */
#ifndef TD_TESTS_ALLOC_HOOKS_H
#define TD_TESTS_ALLOC_HOOKS_H

#include <stddef.h>

struct alloc_count {
    size_t calls;      /* malloc, calloc and realloc */
    size_t live_bytes; /* usable sizes */
    size_t peak_bytes;
};

/* Counts from zero; blocks that live already are not counted when freed later, so free none of them
 * between. */
void alloc_count_start(void);
struct alloc_count alloc_count_get(void);

/* The k-th allocation from now (1 = the next) fails, that one only; 0 fails none. */
void alloc_fail_at(size_t k);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *p);
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *p);

#endif
