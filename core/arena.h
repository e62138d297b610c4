/* An arena: many small allocations that live and die together (a manifest). Never moves what it gave out. */
#ifndef TD_CORE_ARENA_H
#define TD_CORE_ARENA_H

#include "core/budget.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Why an arena handed out nothing. */
enum td_arena_lack { TD_ARENA_LACKS_MEMORY, TD_ARENA_LACKS_LIMIT, TD_ARENA_LACKS_BUDGET };

struct td_arena {
    struct td_arena_chunk *chunks;
    size_t used_bytes;        /* handed out so far */
    size_t limit_bytes;       /* 0 = none */
    struct td_budget *budget; /* NULL, or what its chunks are taken from */
    enum td_arena_lack lack;  /* of the latest failure */
    size_t lacked_bytes;      /* that the budget did not have */
};

/* limit_bytes bounds the sum of all allocations; 0 means no bound. */
void td_arena_init(struct td_arena *arena, size_t limit_bytes);

/* The same with a budget, from which the arena takes what it gets from malloc, and to which it gives that back at its
 * end. The budget is borrowed; NULL: none. */
void td_arena_init_budget(struct td_arena *arena, size_t limit_bytes, struct td_budget *budget);

/* Sets the error for the latest NULL that the arena returned: past its limit TD_FAILED_PRECONDITION, saying what would
 * take so much ("the plan"); else TD_RESOURCE_EXHAUSTED, or as td_budget_refuse. Returns false. */
bool td_arena_refuse(const struct td_arena *arena, const char *what, struct td_error *err);

void td_arena_fini(struct td_arena *arena);

/* What can still be handed out, at least 1; 0 = no bound. */
size_t td_arena_left(const struct td_arena *arena);

/* Memory beside the arena that shares its limit: what is claimed, the arena may not hand out, until the caller puts
 * limit_bytes back. False when that much is not left. */
bool td_arena_claim(struct td_arena *arena, size_t bytes);

/* size bytes aligned to 8, which is enough for all that manifests hold, not cleared; NULL when out of memory or past
 * the limit. */
void *td_arena_alloc(struct td_arena *arena, size_t size);

/* count * size bytes, checked. count or size 0 gives a valid pointer. */
void *td_arena_array(struct td_arena *arena, size_t count, size_t size);

/* Room for one more item of `size` bytes in an array of count, which has room for *capacity: items itself, or a larger
 * array with what was in it. What is outgrown stays in the arena, at most as much again. NULL: as td_arena_alloc, and
 * nothing has changed. */
void *td_arena_grow(struct td_arena *arena, void *items, size_t count, size_t *capacity, size_t size);

/* A NUL-terminated copy of text[0..len). Byte-aligned: strings do not pad each other. */
char *td_arena_strndup(struct td_arena *arena, struct td_text text);

#endif
