#include "catalog/upstream/frontier.h"

#include "core/array.h"

#include <stdlib.h>
#include <string.h>

/* Inserts a piece at its place, joined with those that it touches. */
static void insert(struct td_frontier *frontier, struct td_frontier_piece piece)
{
    size_t first = 0;
    while (first < frontier->count && frontier->pieces[first].end < piece.off)
        first++;
    size_t end = first;
    for (; end < frontier->count && frontier->pieces[end].off <= piece.end; end++) {
        const struct td_frontier_piece *other = &frontier->pieces[end];
        piece.off = other->off < piece.off ? other->off : piece.off;
        piece.end = other->end > piece.end ? other->end : piece.end;
    }
    if (first == end && !TD_ARRAY_GROW(frontier->pieces, frontier->count, frontier->capacity, NULL))
        return;
    memmove(&frontier->pieces[first + 1], &frontier->pieces[end], (frontier->count - end) * sizeof piece);
    frontier->count = frontier->count - (end - first) + 1;
    frontier->pieces[first] = piece;
}

void td_frontier_add(struct td_frontier *frontier, uint64_t off, uint64_t len)
{
    uint64_t end = len > UINT64_MAX - off ? UINT64_MAX : off + len;
    if (off > frontier->bytes) {
        insert(frontier, (struct td_frontier_piece){off, end});
        return;
    }
    if (end > frontier->bytes)
        frontier->bytes = end;
    size_t used = 0;
    for (; used < frontier->count && frontier->pieces[used].off <= frontier->bytes; used++)
        if (frontier->pieces[used].end > frontier->bytes)
            frontier->bytes = frontier->pieces[used].end;
    if (used == 0)
        return;
    frontier->count -= used;
    memmove(frontier->pieces, &frontier->pieces[used], frontier->count * sizeof *frontier->pieces);
}

void td_frontier_fini(struct td_frontier *frontier)
{
    free(frontier->pieces);
    memset(frontier, 0, sizeof *frontier);
}
