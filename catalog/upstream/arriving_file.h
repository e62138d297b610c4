/* One file of an intake while it is fetched: its readers get its bytes as they arrive, and it becomes what it will be
 * when the model is published. Used by one thread, without the upstream's lock. Its bytes arrive in pieces and out of
 * order; the frontier tells how many are there from its front without a gap, and is pure. */
#ifndef TD_CATALOG_UPSTREAM_ARRIVING_FILE_H
#define TD_CATALOG_UPSTREAM_ARRIVING_FILE_H

#include "catalog/upstream/intake.h"
#include "catalog/upstream/upstream_config.h"

#include <stdatomic.h>
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

struct td_arriving_file {
    const struct td_upstream_config *config;
    struct td_intake *intake; /* of which only what does not change while files are fetched is read */
    size_t index;             /* of the file */
    _Atomic uint64_t *fetched_bytes;
    struct td_blob *blob; /* borrowed: the caller has a reference */
    /* of the fetch alone */
    struct td_frontier frontier;
    bool is_attached;
    uint64_t resumed_bytes; /* result: of an earlier process */
    bool is_lfs_pointer;    /* result: the file is a Git LFS pointer; readers must not get its text */
};

/* Fetches the file, gives it the model's time, opens it for its readers and tells the catalog its digest. Members up to
 * `blob` are set. When all that has arrived was wrong, the intake is cancelled, since readers may have been given some
 * of it. Errors as the source's fetch; TD_IO. */
bool td_arriving_file_fetch(struct td_arriving_file *arriving, struct td_fetch_outcome *outcome, struct td_error *err);

#endif
