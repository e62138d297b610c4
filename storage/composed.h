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

/* `rounds` rounds, each the block's runs one after the other. A whole tensor: one round of one run. A row-parallel
 * slice: a round per row. Columns of several tensors side by side: a round per row, a run per tensor. */
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
    size_t block_count, block_capacity;
    uint64_t total_bytes;
};

/* An empty layout with one reference for the caller, or NULL when out of memory. */
struct td_layout *td_layout_create(void);
struct td_layout *td_layout_ref(struct td_layout *layout);
void td_layout_unref(struct td_layout *layout); /* NULL is fine */

/* Appends a block (the runs are copied); runs of no bytes are dropped, and a block that goes on where the one before it
 * ended, both of one round and one piece of the same source, becomes one with it. Only while nobody else has a
 * reference. Errors: TD_INVALID_ARGUMENT when sizes pass 2^64-1, TD_RESOURCE_EXHAUSTED. */
bool td_layout_append(struct td_layout *layout, uint64_t rounds, const struct td_run *runs, size_t run_count,
                      struct td_error *err);

/* Memory that the layout takes, for caches. */
size_t td_layout_memory_bytes(const struct td_layout *layout);

/* Where a layout's sources come from. `open` gives source number `source` as a blob (one reference for the caller) and
 * the byte of it that the runs count from; it may be called from any thread, one at a time, and as often as is needed.
 * `close` is called once, with the composed blob. */
struct td_source_opener {
    void *context;
    bool (*open)(void *context, uint32_t source, struct td_blob **blob, uint64_t *base, struct td_error *err);
    void (*close)(void *context);
};

/* A generated blob over the layout (a reference is taken). Takes the opener over, also on failure. It reads by gathering
 * from its sources, each opened when it is first needed and held; it has changed when a source that was opened has. */
bool td_blob_composed(struct td_layout *layout, const struct td_source_opener *opener, struct td_blob **out,
                      struct td_error *err);

/* Replaces every extent over a composed blob by extents over its sources, as far as that is worth it: blocks of one
 * piece per round become one extent (sent from the mapping or gathered), anything more involved stays as it is. Only
 * the sources that the body's bytes lie in are opened. Bodies without composed blobs are left alone. */
bool td_body_resolve(struct td_body *body, struct td_error *err);

#endif
