/* The frontier of a file that arrives in pieces and out of order: how many bytes are there from its front without a
 * gap. Pure; for one thread. */
#ifndef TD_CATALOG_UPSTREAM_FRONTIER_H
#define TD_CATALOG_UPSTREAM_FRONTIER_H

#include <stddef.h>
#include <stdint.h>

/* Bytes [off, end) that have arrived behind a gap. */
struct td_frontier_piece {
    uint64_t off, end;
};

/* All zeros: nothing has arrived. */
struct td_frontier {
    uint64_t bytes;                   /* the result */
    struct td_frontier_piece *pieces; /* behind the first gap; sorted, apart from each other; owned */
    size_t count, capacity;
};

/* Adds bytes that have arrived. Without memory, forgets pieces behind a gap: the frontier is then too small, never too
 * large. */
void td_frontier_add(struct td_frontier *frontier, uint64_t off, uint64_t len);

/* Frees the pieces. */
void td_frontier_fini(struct td_frontier *frontier);

#endif
