/* Fetches one file of an intake. Its readers get its bytes as they arrive, and the finished file is the one that is
 * published. Used by one thread, without the upstream's lock. The bytes arrive in pieces and out of order: the
 * frontier, which is pure, counts the bytes from the file's start that have arrived without a gap. */
#ifndef TD_CATALOG_UPSTREAM_ARRIVING_FILE_H
#define TD_CATALOG_UPSTREAM_ARRIVING_FILE_H

#include "catalog/upstream/intake.h"
#include "catalog/upstream/upstream_config.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes [off, end) that have arrived after a gap. */
struct td_frontier_piece {
    uint64_t off, end;
};

/* All zeros: nothing has arrived. */
struct td_frontier {
    uint64_t bytes;                   /* result: bytes from the start without a gap */
    struct td_frontier_piece *pieces; /* after the first gap; sorted, with gaps between them; owned */
    size_t count, capacity;
};

/* Adds bytes that have arrived. When memory is short, drops pieces after a gap: the frontier is then too small, never
 * too large. */
void td_frontier_add(struct td_frontier *frontier, uint64_t off, uint64_t len);

/* Frees the pieces. */
void td_frontier_fini(struct td_frontier *frontier);

struct td_arriving_file {
    const struct td_upstream_config *config;
    struct td_intake *intake; /* reads only members that do not change while files are fetched */
    size_t index;             /* of the file */
    _Atomic uint64_t *fetched_bytes;
    struct td_blob *blob; /* borrowed: the caller has a reference */
    /* used by the fetch alone */
    struct td_frontier frontier;
    bool is_attached;
    uint64_t resumed_bytes; /* result: bytes that an earlier process fetched */
    bool is_lfs_pointer;    /* result: the file is a Git LFS pointer; readers must not get its text */
};

/* Fetches the file, sets its modification time to the model's, opens it for its readers and passes its digest to the
 * catalog. The caller sets the members up to `blob`. Cancels the intake when all bytes that arrived were wrong, since
 * readers may have received some of them. Errors as the source's fetch; TD_IO. */
bool td_arriving_file_fetch(struct td_arriving_file *arriving, struct td_fetch_outcome *outcome, struct td_error *err);

#endif
