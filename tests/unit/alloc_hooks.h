/* Counts allocations by malloc and its family, through the linker's --wrap: live bytes, the peak, and a failure of the
 * k-th allocation. Does not see allocations inside libc (stdio, for example). Thread-safe. */
#ifndef TD_TESTS_UNIT_ALLOC_HOOKS_H
#define TD_TESTS_UNIT_ALLOC_HOOKS_H

#include <stddef.h>

struct alloc_count {
    size_t calls;      /* malloc, calloc, realloc and aligned_alloc */
    size_t live_bytes; /* usable sizes */
    size_t peak_bytes;
};

/* Starts to count from zero. Counting never ends; read the count before a block is freed that existed at the start,
 * because freeing it lowers live_bytes although it was not counted. No other thread may allocate during the call. */
void alloc_count_start(void);

/* Returns the count since the latest start. */
struct alloc_count alloc_count_get(void);

/* Makes the k-th allocation from now fail (1: the next), and only that one. 0: none fails. */
void alloc_fail_at(size_t k);

/* Searches every block that is freed or moved from now on for these bytes (borrowed; NULL ends the search). No other
 * thread may free memory during the search. alloc_found returns the number of blocks with these bytes since then. */
void alloc_look_for(const void *bytes, size_t len);
size_t alloc_found(void);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *p);
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *p);

#endif
