/* Arena allocator: many small allocations that are freed together (the tensors and names of a manifest). Memory that an
 * arena has handed out never moves. Threads: one at a time may allocate. */
#ifndef TD_CORE_ARENA_H
#define TD_CORE_ARENA_H

#include "core/budget.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Why an allocation failed: malloc did, the arena's limit is reached, or its budget is. */
enum td_arena_lack { TD_ARENA_LACKS_MEMORY, TD_ARENA_LACKS_LIMIT, TD_ARENA_LACKS_BUDGET };

struct td_arena {
    struct td_arena_chunk *chunks;
    size_t used_bytes;        /* handed out so far */
    size_t limit_bytes;       /* bounds used_bytes; 0: no limit */
    struct td_budget *budget; /* NULL, or the budget that the chunks are taken from */
    enum td_arena_lack lack;  /* of the latest failure */
    size_t lacked_bytes;      /* refused by the budget in the latest failure */
};

/* Initialises an empty arena. limit_bytes bounds the sum of all allocations; 0: no limit. */
void td_arena_init(struct td_arena *arena, size_t limit_bytes);

/* Does the same with a budget (borrowed; NULL: none). The arena takes from the budget the bytes that it gets from
 * malloc, which are more than it hands out, and gives them back in td_arena_fini. */
void td_arena_init_budget(struct td_arena *arena, size_t limit_bytes, struct td_budget *budget);

/* Sets the error for the latest NULL that the arena returned. `what` names what needs the memory ("the plan"). Errors:
 * TD_FAILED_PRECONDITION past limit_bytes, as td_budget_refuse past the budget, else TD_RESOURCE_EXHAUSTED. Returns
 * false. */
bool td_arena_refuse(const struct td_arena *arena, const char *what, struct td_error *err);

/* Frees all memory that the arena has handed out. The arena is then empty and keeps its limit and its budget. Allowed
 * for an arena of zeros. */
void td_arena_fini(struct td_arena *arena);

/* Overwrites all memory that the arena has handed out, which held secrets, and frees it as td_arena_fini does. */
void td_arena_erase(struct td_arena *arena);

/* Returns how many bytes of limit_bytes are left; 1 when none is left, because 0 means that the arena has no limit. */
size_t td_arena_left(const struct td_arena *arena);

/* Lowers limit_bytes by `bytes`, for memory outside the arena that counts towards the same limit. The caller restores
 * limit_bytes when that memory is freed. Returns false and changes nothing unless more than `bytes` are left. Does
 * nothing and returns true for an arena without a limit. */
bool td_arena_claim(struct td_arena *arena, size_t bytes);

/* Returns `size` bytes, aligned to 8 and not cleared, that are valid until td_arena_fini. Returns NULL when memory, the
 * limit or the budget is short (td_arena_refuse). */
void *td_arena_alloc(struct td_arena *arena, size_t size);

/* Returns room for `count` items of `size` bytes, as td_arena_alloc does; the product is checked for overflow. The
 * pointer is valid when count or size is 0, too. */
void *td_arena_array(struct td_arena *arena, size_t count, size_t size);

/* Makes room for one more item after `count` items of `size` bytes. Returns `items` while count < *capacity. Else
 * returns a copy in an array of twice the capacity (at first 16) and sets *capacity; the old array stays in the arena,
 * so all old arrays together take at most as much memory again. Returns NULL and changes nothing where td_arena_alloc
 * would return NULL. */
void *td_arena_grow(struct td_arena *arena, void *items, size_t count, size_t *capacity, size_t size);

/* Returns a NUL-terminated copy of the text. Copies are not aligned, so strings take no padding. Returns NULL as
 * td_arena_alloc does. */
char *td_arena_strndup(struct td_arena *arena, struct td_text text);

#endif
