#include "core/arena.h"

#include "core/checked.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Chunks start small and grow geometrically, so that neither 2,000 manifests of a few tensors nor one of a million
 * tensors wastes much memory. Arenas with a budget live shortly; their chunks grow to 1 MiB, because malloc gives
 * chunks of that size back to the system when they are freed (server/cmd/cmd_serve.c), while smaller ones would stay in
 * the process uncounted. */
enum { ARENA_CHUNK_MIN_BYTES = 1024, ARENA_CHUNK_MAX_BYTES = 256 * 1024, ARENA_BUDGET_CHUNK_MAX_BYTES = 1024 * 1024 };

struct td_arena_chunk {
    struct td_arena_chunk *next;
    size_t capacity;
    size_t low;  /* aligned allocations grow up from 0 */
    size_t high; /* strings grow down from capacity */
    alignas(max_align_t) unsigned char bytes[];
};

void td_arena_init(struct td_arena *arena, size_t limit_bytes)
{
    td_arena_init_budget(arena, limit_bytes, NULL);
}

void td_arena_init_budget(struct td_arena *arena, size_t limit_bytes, struct td_budget *budget)
{
    *arena = (struct td_arena){.limit_bytes = limit_bytes, .budget = budget};
}

bool td_arena_refuse(const struct td_arena *arena, const char *what, struct td_error *err)
{
    switch (arena->lack) {
    case TD_ARENA_LACKS_LIMIT:
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s needs more than the limit of %zu KiB of memory", what,
                            arena->limit_bytes >> 10);
    case TD_ARENA_LACKS_BUDGET:
        return td_budget_refuse(arena->budget, arena->lacked_bytes, err);
    case TD_ARENA_LACKS_MEMORY:
        break;
    }
    return td_error_no_memory(err);
}

void td_arena_fini(struct td_arena *arena)
{
    struct td_arena_chunk *chunk = arena->chunks;
    while (chunk != NULL) {
        struct td_arena_chunk *next = chunk->next;
        size_t bytes = chunk->capacity + sizeof *chunk;
        free(chunk);
        td_budget_give(arena->budget, bytes);
        chunk = next;
    }
    arena->chunks = NULL;
    arena->used_bytes = 0;
}

void td_arena_erase(struct td_arena *arena)
{
    for (struct td_arena_chunk *chunk = arena->chunks; chunk != NULL; chunk = chunk->next)
        explicit_bzero(chunk->bytes, chunk->capacity);
    td_arena_fini(arena);
}

size_t td_arena_left(const struct td_arena *arena)
{
    if (arena->limit_bytes == 0)
        return 0;
    return arena->used_bytes < arena->limit_bytes ? arena->limit_bytes - arena->used_bytes : 1;
}

bool td_arena_claim(struct td_arena *arena, size_t bytes)
{
    if (arena->limit_bytes == 0)
        return true;
    if (bytes >= td_arena_left(arena))
        return false;
    arena->limit_bytes -= bytes;
    return true;
}

/* Notes that memory is short. Returns NULL. A later allocation that succeeds keeps the note, so that the caller of
 * several allocations may ask at the end why one of them failed. */
static void *lack_memory(struct td_arena *arena)
{
    arena->lack = TD_ARENA_LACKS_MEMORY;
    return NULL;
}

/* Adds a chunk of `capacity` bytes as the arena's first. Returns NULL, and notes why, when there is no memory. */
static struct td_arena_chunk *arena_chunk(struct td_arena *arena, size_t capacity)
{
    size_t bytes;
    struct td_arena_chunk *chunk;
    if (!td_add_size(capacity, sizeof *chunk, &bytes))
        return lack_memory(arena);
    if (!td_budget_take(arena->budget, bytes)) {
        arena->lack = TD_ARENA_LACKS_BUDGET;
        arena->lacked_bytes = bytes;
        return NULL;
    }
    chunk = malloc(bytes);
    if (chunk == NULL) {
        td_budget_give(arena->budget, bytes);
        return lack_memory(arena);
    }
    chunk->capacity = capacity;
    chunk->low = 0;
    chunk->high = capacity;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    return chunk;
}

/* Returns a chunk with at least `need` free bytes and counts them as used. Returns NULL, and notes why, on failure. */
static struct td_arena_chunk *arena_room(struct td_arena *arena, size_t need)
{
    size_t total;
    if (!td_add_size(arena->used_bytes, need, &total))
        return lack_memory(arena);
    if (arena->limit_bytes != 0 && total > arena->limit_bytes) {
        arena->lack = TD_ARENA_LACKS_LIMIT;
        return NULL;
    }
    struct td_arena_chunk *chunk = arena->chunks;
    if (chunk == NULL || need > chunk->high - chunk->low) {
        size_t capacity = chunk == NULL ? ARENA_CHUNK_MIN_BYTES : chunk->capacity * 2;
        size_t most = arena->budget == NULL ? ARENA_CHUNK_MAX_BYTES : ARENA_BUDGET_CHUNK_MAX_BYTES;
        if (capacity > most)
            capacity = most;
        if (arena->limit_bytes != 0 && capacity > arena->limit_bytes - arena->used_bytes)
            capacity = arena->limit_bytes - arena->used_bytes; /* do not take what can never be handed out */
        if (capacity < need)
            capacity = need;
        const struct td_arena before = *arena;
        chunk = arena_chunk(arena, capacity);
        if (chunk == NULL && arena->lack == TD_ARENA_LACKS_BUDGET)
            chunk = arena_chunk(arena, need); /* the budget may have enough for this allocation alone */
        if (chunk == NULL)
            return NULL;
        arena->lack = before.lack;
        arena->lacked_bytes = before.lacked_bytes;
    }
    arena->used_bytes = total;
    return chunk;
}

void *td_arena_alloc(struct td_arena *arena, size_t size)
{
    size_t rounded;
    if (!td_add_size(size, sizeof(uint64_t) - 1, &rounded))
        return lack_memory(arena);
    rounded &= ~(sizeof(uint64_t) - 1); /* 8 aligns everything that manifests hold */
    if (rounded == 0)
        rounded = sizeof(uint64_t);
    struct td_arena_chunk *chunk = arena_room(arena, rounded);
    if (chunk == NULL)
        return NULL;
    void *given = chunk->bytes + chunk->low;
    chunk->low += rounded;
    return given;
}

void *td_arena_array(struct td_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!td_mul_size(count, size, &bytes))
        return lack_memory(arena);
    return td_arena_alloc(arena, bytes);
}

void *td_arena_grow(struct td_arena *arena, void *items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    size_t more;
    if (*capacity == 0)
        more = 16;
    else if (!td_mul_size(*capacity, 2, &more))
        return lack_memory(arena);
    void *grown = td_arena_array(arena, more, size);
    if (grown == NULL)
        return NULL;
    if (count > 0)
        memcpy(grown, items, count * size);
    *capacity = more;
    return grown;
}

char *td_arena_strndup(struct td_arena *arena, struct td_text text)
{
    size_t need;
    if (!td_add_size(text.len, 1, &need))
        return lack_memory(arena);
    struct td_arena_chunk *chunk = arena_room(arena, need);
    if (chunk == NULL)
        return NULL;
    chunk->high -= need;
    char *given = (char *)chunk->bytes + chunk->high;
    if (text.len > 0) /* an empty text may have no memory */
        memcpy(given, text.p, text.len);
    given[text.len] = '\0';
    return given;
}
