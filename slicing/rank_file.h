/* Rank files: a plan as a safetensors file that does not exist on disk: its header, and the layout of its bytes over
 * the checkpoint's tensors. Computed once, immutable, reference-counted, shared by every request on it. It holds no
 * more than sending needs: some 80 bytes for a piece that lies by itself, and the header. */
#ifndef TD_SLICING_RANK_FILE_H
#define TD_SLICING_RANK_FILE_H

#include "slicing/plan.h"
#include "storage/composed.h"

/* Source numbers of the layout: 0 is the header, 1 + i the i-th tensor of the list: its bytes in logical order. */
enum { TD_RANK_SOURCE_HEADER = 0, TD_RANK_SOURCE_TENSOR = 1 };

struct td_rank_file {
    _Atomic int refs;
    struct td_blob *header; /* eight bytes of length and the JSON, padded with spaces to a multiple of 8; NULL: raw */
    struct td_layout *layout;
    uint64_t nbytes;          /* of the whole file */
    struct td_budget *budget; /* NULL, or what its memory is taken from; header and layout hold their own share */
};

/* A key of __metadata__; both are strings there. */
struct td_rank_metadata {
    const char *key, *value;
};

/* The plan is borrowed for the call; nothing points to it afterwards. header_wanted false: tensors' bytes alone, one
 * after the other ("raw"). Without metadata there is no __metadata__. Errors: TD_FAILED_PRECONDITION (names the tensor)
 * for a type that safetensors has no word for, for the name __metadata__, and for a header above the 100,000,000 bytes
 * that safetensors reads; TD_RESOURCE_EXHAUSTED, of the budget too, from which its memory is taken before it is there
 * (borrowed; NULL: none); TD_INVALID_ARGUMENT for a file of more than 2^64-1 bytes; and as td_layout_append_output. */
bool td_rank_file_create(const struct td_plan *plan, const struct td_tensor_list *tensors,
                         const struct td_rank_metadata *metadata, size_t metadata_count, bool header_wanted,
                         struct td_budget *budget, struct td_rank_file **out, struct td_error *err);

/* All is borrowed. */
struct td_rank_label {
    const char *model;   /* its id */
    const char *engine;  /* of no meaning for a plan */
    const char *plan_id; /* of a plan that is kept under an id, whose engine is called "plan"; else "" */
};

/* The plan is borrowed for the call. Errors as td_rank_file_create. */
bool td_rank_file_create_labelled(const struct td_plan *plan, const struct td_tensor_list *tensors,
                                  const struct td_rank_label *label, struct td_budget *budget,
                                  struct td_rank_file **out, struct td_error *err);

struct td_rank_file *td_rank_file_ref(struct td_rank_file *file);
void td_rank_file_unref(struct td_rank_file *file); /* NULL is fine */

/* Whether anybody beside the caller has a reference on the file, on its header or on its layout: an answer that is
 * being sent may have one of these alone. */
bool td_rank_file_is_shared(const struct td_rank_file *file);

/* Returns the memory that it takes. The budget holds as much until the last reference to its header and its layout
 * goes. */
size_t td_rank_file_memory_bytes(const struct td_rank_file *file);

#endif
