/* Rank files: a plan in the form of a safetensors file that does not exist on disk. A rank file holds the header and
 * the layout of the file's bytes over the checkpoint's tensors; the bytes are read as they are sent. It is computed
 * once, immutable, reference-counted, and shared by all requests for it. It takes about 80 bytes for each piece that
 * does not adjoin another, and the header. */
#ifndef TD_SLICING_RANK_FILE_H
#define TD_SLICING_RANK_FILE_H

#include "slicing/plan/plan.h"
#include "slicing/plan/plan_items.h"
#include "storage/composed.h"

/* Source numbers of the layout: 0 is the file's own bytes, 1 + i is tensor i of the list, with its bytes in logical
 * order. */
enum { TD_RANK_SOURCE_OWN = 0, TD_RANK_SOURCE_TENSOR = 1 };

struct td_rank_file {
    _Atomic int refs;
    /* The bytes that come from no tensor. First the header: 8 bytes of length, then JSON, padded with spaces to a
     * multiple of 8. Then the values of the constants, 4 bytes each, in the order of the file. NULL: the file has
     * neither. */
    struct td_blob *own;
    uint64_t header_bytes; /* 0: the file is raw, without a header */
    struct td_layout *layout;
    uint64_t nbytes;          /* of the whole file */
    struct td_budget *budget; /* of this struct's memory; `own` and layout return their own shares; or NULL */
};

/* An entry of __metadata__. */
struct td_rank_metadata {
    const char *key, *value;
};

/* Makes the file of a plan. The plan and the tensors are borrowed for the call. With header_wanted false the file is
 * "raw": the tensors' bytes without a header. With metadata_count 0 the header has no __metadata__. Memory is taken
 * from the budget before it is allocated; the budget is borrowed and must outlive the file; NULL: none. The caller owns
 * the one reference. Errors as td_layout_append_output, and:
 * - TD_FAILED_PRECONDITION, with the tensor's name: safetensors has no name for the type, or reserves the name
 *   "__metadata__". Without a name: the header has more than 100,000,000 bytes, which safetensors refuses, or the file
 *   more than 2^63-1.
 * - TD_INVALID_ARGUMENT: the tensors add up to more than 2^64-1 bytes.
 * - TD_RESOURCE_EXHAUSTED: memory or the budget is short. */
bool td_rank_file_create(const struct td_plan *plan, const struct td_tensor_list *tensors,
                         const struct td_rank_metadata *metadata, size_t metadata_count, bool header_wanted,
                         struct td_budget *budget, struct td_rank_file **out, struct td_error *err);

/* The origin of a rank file, for its __metadata__; everything is borrowed. */
struct td_rank_label {
    const char *model;   /* its id */
    const char *engine;  /* its name; unused with a plan_id */
    const char *plan_id; /* id of a client's plan, whose engine is then "plan"; "" for an engine's */
};

/* Makes the file of a plan with a header whose __metadata__ has format, model, engine, tp_size, tp_rank and, for a
 * client's plan, plan. Otherwise as td_rank_file_create. */
bool td_rank_file_create_labelled(const struct td_plan *plan, const struct td_tensor_list *tensors,
                                  const struct td_rank_label *label, struct td_budget *budget,
                                  struct td_rank_file **out, struct td_error *err);

/* Takes a further reference, and returns the file. Any thread. */
struct td_rank_file *td_rank_file_ref(struct td_rank_file *file);

/* Drops a reference; the last one frees the file. NULL is allowed. Any thread. */
void td_rank_file_unref(struct td_rank_file *file);

/* Returns whether there are references beside the caller's to the file, its own bytes or its layout. An answer that is
 * being sent may hold one to the own bytes or the layout alone. */
bool td_rank_file_is_shared(const struct td_rank_file *file);

/* Returns the memory that the file takes, in bytes. As much of the budget is in use until the last references to its
 * own bytes and layout are dropped. */
size_t td_rank_file_memory_bytes(const struct td_rank_file *file);

/* Makes the raw file of a list of boxes, which are parts of tensors: their bytes back to back in the order of the list.
 * Boxes are items without `as`, whose names may recur. An item without a slice is the whole tensor. Tensors have their
 * bytes in logical order, in any type. Items and tensors are borrowed for the call. Beside the file's memory, which
 * comes from the budget (as in td_rank_file_create), none grows with the number of boxes. The caller owns the one
 * reference. Errors name the box by its number, which counts from 0, and its name: TD_NOT_FOUND for an unknown name;
 * TD_INVALID_ARGUMENT for a bad slice, or one that begins or ends within a block of the type; TD_FAILED_PRECONDITION
 * for a tensor without bytes, a slice of too many separate places, more than TD_LAYOUT_MAX_MEMORY_BYTES, or more than
 * 2^63-1 bytes; TD_RESOURCE_EXHAUSTED. */
bool td_box_file_create(const struct td_plan_item *boxes, size_t count, const struct td_tensor_list *tensors,
                        struct td_budget *budget, struct td_rank_file **out, struct td_error *err);

#endif
