/* The part of a version that a patch compares: the tensors of a rank's file with their places, and the file's bytes.
 * For one thread. */
#ifndef TD_RANK_PATCH_PATCH_PART_H
#define TD_RANK_PATCH_PATCH_PART_H

#include "core/arena.h"
#include "core/cancel.h"
#include "rank/rank_store.h"
#include "storage/body.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tensor of the part. */
struct td_patch_tensor {
    const char *name;
    const struct td_dtype *dtype;
    const uint64_t *shape;
    uint32_t rank;          /* number of dimensions */
    bool is_known;          /* for the caller; false at first */
    uint64_t place, nbytes; /* in the rank's file */
};

struct td_patch_part {
    struct td_arena arena;            /* owns the tensors */
    struct td_patch_tensor *tensors;  /* in the order of the file */
    struct td_patch_tensor **by_name; /* the same, sorted */
    size_t count;
    uint64_t total_bytes; /* of all tensors */
    struct td_body body;  /* the whole file */
};

/* Plans the rank's file, and opens its bytes. Waits for a place to plan, and gives it back. `cancel` ends long reads of
 * the bytes, and must outlive the part. The caller calls td_patch_part_close in every case. Errors as
 * td_rank_maker_get, td_rank_maker_plan, td_rank_file_append and td_arena_refuse. */
bool td_patch_part_open(struct td_rank_store *ranks, const struct td_rank_set *set, uint64_t rank,
                        const struct td_cancel *cancel, struct td_patch_part *part, struct td_error *err);
void td_patch_part_close(struct td_patch_part *part);

/* Returns the tensor of this name, or NULL. */
struct td_patch_tensor *td_patch_part_find(const struct td_patch_part *part, const char *name);

/* Sets *body, which is empty, to the bytes of one tensor, as extents over the files. Errors as td_body_resolve. */
bool td_patch_part_read(const struct td_patch_part *part, const struct td_patch_tensor *tensor, struct td_body *body,
                        struct td_error *err);

#endif
