/* The SHA-256 of tensors, and of the results of a plan: of the bytes that the raw answer of a tensor has, or that the
 * rank file has of it. The digests are in the table of virtual digests (rank/virtual_digests.h), by a content key. A
 * key is made of what decides the bytes: the identity of the file, the place in it, and how the bytes there are read.
 * So pages, plans and models that show the same bytes share one digest, a changed file has other keys, and the digests
 * of the old one are dropped when the table is full. For one thread. */
#ifndef TD_RANK_TENSOR_SUMS_H
#define TD_RANK_TENSOR_SUMS_H

#include "catalog/catalog.h"
#include "rank/virtual_hasher.h"
#include "slicing/rank_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most tensors of one set: a quarter of what the table has room for, so that the digests of a set do not push out
 * each other. */
enum { TD_TENSOR_SUMS_MAX = TD_VIRTUAL_TENSORS_MAX / 4 };

/* Where the bytes of a set come from. All members are borrowed. */
struct td_tensor_sums_source {
    struct td_catalog *catalog;
    struct td_snapshot *snapshot;
    const struct td_model *model;
    const struct td_checkpoint *checkpoint;
    struct td_rank_file *file; /* with the results of a plan; NULL: the set is of the checkpoint's own tensors */
};

/* One tensor or result. */
struct td_tensor_sum {
    struct td_virtual_key key;
    uint8_t sum[TD_SHA256_BYTES]; /* when is_known */
    uint64_t place; /* the number of the tensor in the checkpoint; or the offset of the result in the file */
    uint64_t nbytes;
    bool has_bytes; /* false: the tensor's bytes cannot be served, so it has no digest */
    bool is_known;
};

/* A set of them, in the order in which they were added. */
struct td_tensor_sums {
    struct td_tensor_sums_source source;
    struct td_budget *budget; /* of `items`; borrowed; or NULL */
    struct td_tensor_sum *items;
    size_t count, capacity;
};

/* Starts an empty set, which takes its memory from the budget. */
void td_tensor_sums_init(struct td_tensor_sums *sums, const struct td_tensor_sums_source *source,
                         struct td_budget *budget);

/* Frees the memory. */
void td_tensor_sums_fini(struct td_tensor_sums *sums);

/* Adds tensor `number` of the source's checkpoint. Errors: TD_FAILED_PRECONDITION when the set has TD_TENSOR_SUMS_MAX
 * tensors; TD_RESOURCE_EXHAUSTED; as td_budget_refuse. */
bool td_tensor_sums_add(struct td_tensor_sums *sums, size_t number, struct td_error *err);

/* Adds the next result of the plan of the source's file: call it for all results, in the order of the plan. `layout`
 * holds the result alone, with tensor i as source TD_RANK_SOURCE_TENSOR + i; NULL for a constant, which has none. A
 * result that is a whole tensor has the key of that tensor. Errors as td_tensor_sums_add. */
bool td_tensor_sums_add_result(struct td_tensor_sums *sums, const struct td_plan_output *output,
                               const struct td_layout *layout, struct td_error *err);

/* Returns whether the last tensors of two sets have the same key, and so the same bytes. Both sets have one. */
bool td_tensor_sums_last_equal(const struct td_tensor_sums *a, const struct td_tensor_sums *b);

/* Removes the last tensor of the set, which has one. */
void td_tensor_sums_drop_last(struct td_tensor_sums *sums);

/* Sets those digests that the table has. Returns whether all are known. */
bool td_tensor_sums_find(struct td_tensor_sums *sums, struct td_virtual_digests *digests);

/* Computes the key under which td_tensor_sums_begin queues the set. It does not depend on which digests are known, so
 * that requests that are repeated wait for the same job. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_tensor_sums_key(const struct td_tensor_sums *sums, struct td_virtual_key *key, struct td_error *err);

/* Queues those tensors of the set whose digests are not known for hashing on behalf of a client, under the set's key.
 * Takes the job's memory from `budget`, which outlives the hasher. Errors as td_virtual_hasher_begin and
 * td_budget_refuse; for a rank file as td_rank_file_append. Failures of hashing are those of td_tensor_open and of
 * reading its blob. */
bool td_tensor_sums_begin(const struct td_tensor_sums *sums, const struct td_virtual_key *key,
                          struct td_virtual_hasher *hasher, struct td_budget *budget, uint64_t client,
                          struct td_error *err);

#endif
