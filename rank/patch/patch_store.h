/* Sparse patches between versions (patch_file.h), made once and kept: one thread takes patches from a queue, which has
 * each patch once, however many requests wait for it, and in which clients take turns. Patches that are made are kept
 * on the disk, within its limit (patch_disk.h); the least recently used ones are dropped. When a request stops waiting,
 * its patch stays in the queue, and the next request for it waits for the same job. Thread-safe. */
#ifndef TD_RANK_PATCH_PATCH_STORE_H
#define TD_RANK_PATCH_PATCH_STORE_H

#include "rank/patch/patch_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_PATCH_QUEUE = 64,  /* most patches that wait to be made or are being made */
    TD_PATCH_CLIENT = 16, /* most among them that one client asked for */
};

struct td_patch_store;

enum td_patch_state {
    TD_PATCH_READY,
    TD_PATCH_UNDER_WAY, /* the patch is in the queue, or is being made */
    TD_PATCH_FAILED,
};

/* Starts the thread, without a state directory. The rank store is borrowed, and outlives the store. Errors:
 * TD_RESOURCE_EXHAUSTED; TD_INTERNAL when no lock can be created. */
bool td_patch_store_create(struct td_rank_store *ranks, struct td_patch_store **out, struct td_error *err);

/* Sets the limit of patches on the disk, keeps them in state_dir (NULL: nowhere), and finds those of earlier processes
 * there. Call at most once, before the first request. The arguments and failures are those of td_patch_disk_keep. */
void td_patch_store_keep(struct td_patch_store *store, uint64_t max_bytes, const char *state_dir, const char *root);

/* Stops the thread, also in the middle of a patch, and frees the store. All answers must be sent. NULL: does nothing.
 */
void td_patch_store_destroy(struct td_patch_store *store);

/* Finds a patch, or has it made and waits until until_ns (monotonic), no longer once `cancel` (NULL: none) is asked.
 * `plan`: the registered plan of the order's sets; the queue takes a reference on it; NULL: none. `client`: who asks.
 * Sets *out, with one reference for the caller (td_blob_unref), *left_bytes and *done_bytes while the patch is under
 * way (how much of this part is to be read, and how much was read since the call), and *err after a failure. Errors:
 * TD_RESOURCE_EXHAUSTED when the queue or the client's share is full; as td_patch_make; td_may_wait. */
enum td_patch_state td_patch_store_get(struct td_patch_store *store, const struct td_patch_order *order,
                                       struct td_stored_plan *plan, uint64_t client, uint64_t until_ns,
                                       const struct td_cancel *cancel, struct td_patch **out, uint64_t *left_bytes,
                                       uint64_t *done_bytes, struct td_error *err);

#endif
