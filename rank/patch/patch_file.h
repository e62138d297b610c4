/* Sparse patches: the elements that differ between the tensors of two versions, as a safetensors file. For each tensor
 * NAME that a patch changes, the file has NAME.indices, the places of the elements in row-major order (I32, or I64 for
 * a tensor of more than 2^31-1 elements), ascending, and NAME.values, their new values. Tensors without a difference
 * are left out. __metadata__ has:
 *   format            "patch"
 *   since, version    the names of the versions
 *   whole             a JSON list of the tensors that have to be read whole: new ones, those with another type or
 * shape, those that a patch would not make smaller, and changed ones with elements of other sizes than 1, 2, 4 or 8
 * bytes removed           a JSON list of the tensors that the newer version lacks Equal inputs make equal files. */
#ifndef TD_RANK_PATCH_PATCH_FILE_H
#define TD_RANK_PATCH_PATCH_FILE_H

#include "core/cancel.h"
#include "rank/patch/patch_disk.h"
#include "rank/rank_store.h"

#include <stdatomic.h>

/* Two versions, and the part of them that is compared: the file of rank `rank` of both sets, not of a plan of boxes.
 * All is borrowed. */
struct td_patch_order {
    const char *since_name, *version_name;
    struct td_rank_set since, version;
    uint64_t rank;
};

/* Writes the name of the patch: a hash over all that decides its bytes. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_patch_name(const struct td_patch_order *order, char name[TD_TAG_BYTES], struct td_error *err);

/* How far the work is; any thread may read it. */
struct td_patch_progress {
    _Atomic uint64_t done_bytes, total_bytes; /* of the newer version's part */
};

/* Makes the patch of this name, and sets *out, with one reference for the caller. Reads both parts once, in windows.
 * Memory for the names and places of tensors comes from the rank store's budget. Errors: as td_rank_maker_get and
 * td_rank_maker_plan; as td_body_read; as td_spool_add; TD_FAILED_PRECONDITION for a header that safetensors refuses;
 * TD_UNAVAILABLE when a file changed, or when `cancel` is asked. */
bool td_patch_make(struct td_rank_store *ranks, struct td_patch_disk *disk, const struct td_patch_order *order,
                   const char *name, const struct td_cancel *cancel, struct td_patch_progress *progress,
                   struct td_patch **out, struct td_error *err);

#endif
