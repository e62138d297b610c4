/* Composed blobs: virtual files assembled from runs of other blobs, such as the safetensors file of one rank. A layout
 * says which runs: data alone, computed once, then immutable and shared by all requests for the file. */
#ifndef TD_STORAGE_COMPOSED_H
#define TD_STORAGE_COMPOSED_H

#include "storage/blob.h"
#include "storage/body.h"

#define TD_RUN_ZEROS UINT32_MAX

/* The bytes that one source gives to each round of a block: `count` pieces of `len` bytes. Piece i of round k begins at
 * off + k * step + i * stride of the source. off, len, stride and step are in bytes. */
struct td_run {
    uint32_t source; /* TD_RUN_ZEROS: zero bytes; off, step and stride are then 0 */
    uint64_t off, len;
    uint64_t count, stride; /* count is at least 1; stride is 0 when count is 1 */
    uint64_t step;          /* from one round to the next; 0 when there is one round */
};

/* A part of the virtual file: `rounds` rounds; each round is the block's runs one after the other. Examples: a whole
 * tensor is one round of one run of one piece; a row-parallel slice is one round of one run with a piece per row;
 * columns of several tensors side by side are a round per row with a run per tensor. */
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
    uint64_t *ends; /* where each block ends in the composed blob; ascending */
    size_t block_count, block_capacity, end_capacity;
    uint32_t source_count; /* 1 more than the largest source number */
    uint64_t total_bytes;
    struct td_budget *budget; /* NULL, or the budget for the layout's memory and that of blobs over it */
};

/* Returns an empty layout with one reference for the caller, or NULL. The layout takes its memory from the budget
 * (borrowed; NULL: none) and gives it back with the last reference. Errors: TD_RESOURCE_EXHAUSTED, or as
 * td_budget_refuse. */
struct td_layout *td_layout_create(struct td_budget *budget, struct td_error *err);

/* Takes a reference for the caller. Returns `layout`. Any thread. */
struct td_layout *td_layout_ref(struct td_layout *layout);

/* Drops a reference; the last one frees the layout. NULL: does nothing. Any thread. */
void td_layout_unref(struct td_layout *layout);

/* Returns whether there are references besides the caller's. */
bool td_layout_is_shared(const struct td_layout *layout);

/* Appends a block of copies of the runs, in its simplest form: runs of 0 bytes are dropped; pieces that touch become
 * one piece; the rounds of a single run become its pieces where they have equal distances; and a block of one piece
 * that continues the last block of one piece makes that longer. Appends nothing when rounds is 0. Call only while
 * nobody else has a reference. Errors (the layout then describes the same bytes as before): TD_INVALID_ARGUMENT when an
 * offset or a size passes 2^64-1, TD_FAILED_PRECONDITION past TD_LAYOUT_MAX_MEMORY_BYTES, TD_RESOURCE_EXHAUSTED, or as
 * td_budget_refuse. */
bool td_layout_append(struct td_layout *layout, uint64_t rounds, const struct td_run *runs, size_t run_count,
                      struct td_error *err);

/* Frees the memory that is reserved for more blocks. Call after the last td_layout_append. Does nothing when memory is
 * short. */
void td_layout_fit(struct td_layout *layout);

/* Returns how many bytes of memory the layout takes; it has taken the same number from its budget. */
size_t td_layout_memory_bytes(const struct td_layout *layout);

/* Opens the sources of a layout. `open` sets *blob to source number `source` (one reference for the caller) and *base
 * to the byte of the blob that the runs' offset 0 stands for. It is called from any thread, by one thread at a time,
 * and not again for a source that it has opened. `close` is called once, when the composed blob is freed. */
struct td_source_opener {
    void *context;
    bool (*open)(void *context, uint32_t source, struct td_blob **blob, uint64_t *base, struct td_error *err);
    void (*close)(void *context);
};

/* Makes a generated blob over the layout, with one reference for the caller; takes a reference on the layout. Takes the
 * opener over: on failure, calls its `close`. The blob opens a source when it first needs it, keeps it open, and copies
 * from it. It counts as changed when an opened source does. Any thread may read it if any thread may read the sources.
 * Memory: the blob takes from the layout's budget, and returns when it is freed, its own size (16 bytes for each number
 * below source_count, and about 100) and the size of the buffer that the sender copies through
 * (TD_COMPOSED_WINDOW_BYTES, or total_bytes where that is less). Errors: TD_RESOURCE_EXHAUSTED, or as td_budget_refuse.
 * Reading fails as `open` and the sources do, and with TD_INTERNAL when a run leaves its source. td_blob_prepare looks
 * at the range's first TD_PREPARE_LOOKAHEAD blocks and prepares the first whose source can be damaged. */
bool td_blob_composed(struct td_layout *layout, const struct td_source_opener *opener, struct td_blob **out,
                      struct td_error *err);

enum { TD_COMPOSED_WINDOW_BYTES = 256 * 1024 };

/* The most memory of one layout: enough for some 800,000 blocks of one run. */
enum { TD_LAYOUT_MAX_MEMORY_BYTES = 64 * 1024 * 1024 };

/* The most blocks of a body that become extents. An answer that waits for a slow reader keeps its extents, some 40
 * bytes each. */
enum { TD_RESOLVE_BLOCKS = 1024 };

/* Replaces extents over composed blobs by extents over their sources, where that lets the sender avoid a copy. A block
 * of one run and one round becomes an extent; zeros become one or two. A block of more runs or rounds stays an extent
 * over the composed blob, and so does an extent with which the body would pass TD_RESOLVE_BLOCKS blocks. Joins extents
 * of one run that touch. Opens only the sources of the body's own bytes. Leaves a body without composed blobs alone.
 * Errors as reading the blob; the body is then as it was. */
bool td_body_resolve(struct td_body *body, struct td_error *err);

#endif
