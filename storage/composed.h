/* Composed blobs: a virtual file put together from runs of other blobs, such as one rank's safetensors file. What it is
 * made of is a layout, pure numbers: computed once, immutable, shared by every request on it. */
#ifndef TD_STORAGE_COMPOSED_H
#define TD_STORAGE_COMPOSED_H

#include "storage/blob.h"
#include "storage/body.h"

#define TD_RUN_ZEROS UINT32_MAX

/* Within one round of its block: `count` pieces of `len` bytes, piece i of round k at
 * off + k * step + i * stride of the source. All units are bytes. */
struct td_run {
    uint32_t source; /* TD_RUN_ZEROS: so many zero bytes; off, step and stride are then 0 */
    uint64_t off, len;
    uint64_t count, stride; /* at least 1; stride 0 when it is 1 */
    uint64_t step;          /* from one round to the next; 0 when there is one round */
};

/* `rounds` rounds, each the block's runs one after the other. A whole tensor: one round of one piece. A row-parallel
 * slice: one round of a run with a piece per row. Columns of several tensors side by side: a round per row, a run per
 * tensor. */
struct td_block {
    uint64_t rounds;
    size_t first_run, run_count;
};

/* Reference-counted, immutable once built. */
struct td_layout {
    _Atomic int refs;
    struct td_run *runs;
    size_t run_count, run_capacity;
    struct td_block *blocks;
    uint64_t *ends; /* of each block, in the composed blob; rising */
    size_t block_count, block_capacity, end_capacity;
    uint32_t source_count; /* greater than every source's number */
    uint64_t total_bytes;
    struct td_budget *budget; /* NULL, or what its memory and that of blobs over it is taken from */
};

/* An empty layout with one reference for the caller. What it takes as it grows comes from the budget (borrowed; NULL:
 * none), and goes back to it with the last reference. NULL: an error was set, TD_RESOURCE_EXHAUSTED. */
struct td_layout *td_layout_create(struct td_budget *budget, struct td_error *err);
struct td_layout *td_layout_ref(struct td_layout *layout);
void td_layout_unref(struct td_layout *layout); /* NULL is fine */

/* Whether anybody beside the caller has a reference. */
bool td_layout_is_shared(const struct td_layout *layout);

/* Appends a block (the runs are copied) in its simplest form: runs of no bytes are dropped; pieces that touch are one;
 * rounds of a single run become its pieces where they are a progression; and a block that goes on where the one before
 * it ended, both of one round and one piece of the same source, becomes one with it. No rounds append nothing. Only
 * while nobody else has a reference. Errors (the layout is as it was): TD_INVALID_ARGUMENT when an offset or a size
 * passes 2^64-1, TD_FAILED_PRECONDITION past TD_LAYOUT_MAX_MEMORY_BYTES, TD_RESOURCE_EXHAUSTED (of the budget too). */
bool td_layout_append(struct td_layout *layout, uint64_t rounds, const struct td_run *runs, size_t run_count,
                      struct td_error *err);

/* Gives back what was reserved for more blocks: nothing is going to be appended. */
void td_layout_fit(struct td_layout *layout);

/* Memory that the layout takes, for caches. So much of its budget it holds. */
size_t td_layout_memory_bytes(const struct td_layout *layout);

/* Where a layout's sources come from. `open` gives source number `source` as a blob (one reference for the caller) and
 * the byte of it that the runs count from; it may be called from any thread, one at a time, and at most once for a
 * source, unless it failed. `close` is called once, when the composed blob goes. */
struct td_source_opener {
    void *context;
    bool (*open)(void *context, uint32_t source, struct td_blob **blob, uint64_t *base, struct td_error *err);
    void (*close)(void *context);
};

/* A generated blob over the layout (a reference is taken). Takes the opener over, also on failure. It reads by
 * gathering from its sources, each opened when it is first needed and held; it has changed when a source that was
 * opened has. Reading is thread-safe when that of the sources is. Takes from the layout's budget 16 bytes for every
 * source number below its source_count and, since it can only be sent by copying, a window of TD_COMPOSED_WINDOW_BYTES
 * (or all its bytes, where these are fewer) for whoever sends it. Errors: TD_RESOURCE_EXHAUSTED; reading fails as
 * `open` and the sources do, and with TD_INTERNAL when a run leaves its source. Preparing a range prepares the first of
 * its blocks that can fail by its file's contents. */
bool td_blob_composed(struct td_layout *layout, const struct td_source_opener *opener, struct td_blob **out,
                      struct td_error *err);

enum { TD_COMPOSED_WINDOW_BYTES = 256 * 1024 };

/* What one layout may take: some 800,000 blocks of one run. */
enum { TD_LAYOUT_MAX_MEMORY_BYTES = 64 * 1024 * 1024 };

/* So many blocks of a body become extents, at most: an answer that nobody reads keeps these, some 40 bytes each. */
enum { TD_RESOLVE_BLOCKS = 1024 };

/* Replaces the extents over composed blobs by extents over their sources, as far as that is worth it: blocks of one run
 * in one round become an extent (sent from the mapping or gathered), zeros one or two; anything more involved, and a
 * range with which the body would have more than TD_RESOLVE_BLOCKS blocks, stays and is read through the composed blob.
 * Extents that continue each other are joined. Only the sources of the body's own bytes are opened. Bodies without
 * composed blobs are left alone. Errors as reading from the blob; the body is then as it was. */
bool td_body_resolve(struct td_body *body, struct td_error *err);

#endif
