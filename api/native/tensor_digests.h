/* The parameter digests, and the wait for digests of tensors. */
#ifndef TD_API_NATIVE_TENSOR_DIGESTS_H
#define TD_API_NATIVE_TENSOR_DIGESTS_H

#include "api/call/call.h"
#include "rank/tensor_sums.h"

/* Reads digests, which is "1" or absent. Returns false after it answered 400. */
bool td_digests_parameter(const struct td_call *call, bool *is_wanted);

/* Starts an empty set of tensors of a checkpoint of the call's snapshot; file: of the results of a plan, else NULL. Its
 * memory is part of the client's share for lists. */
void td_digests_init(const struct td_call *call, struct td_tensor_sums *sums, const struct td_model *model,
                     const struct td_checkpoint *checkpoint, struct td_rank_file *file);

/* Has the tensors of all these sets hashed, and waits for the digests, at most TD_HASH_WAIT_NS. Returns false after it
 * answered an error: 503 with Retry-After while hashing continues, 422 if the server does not hash, or why a tensor
 * cannot be hashed. */
bool td_digests_wait(const struct td_call *call, struct td_tensor_sums *const *sets, size_t count);

#endif
