/* Waits of requests for digests: how long a request waits, after how many seconds the client should ask again, and the
 * wait for digests of tensors. */
#ifndef TD_API_CALL_HASH_WAIT_H
#define TD_API_CALL_HASH_WAIT_H

#include "api/call/call.h"
#include "rank/tensor_sums.h"

#include <stdint.h>

/* An answer waits for digests for at most 25 s. Clients of registries do not retry after a 503, so a longer wait saves
 * whole pulls. No known client gives up before it has waited 30 s for the header (containerd since 2.3, and Docker with
 * it; others wait without a limit). */
#define TD_HASH_WAIT_NS UINT64_C(25000000000)

/* The limits of Retry-After, in seconds, in answers that report how far hashing is. A longer time would only delay the
 * client after hashing has ended, and each request waits for digests itself. */
enum { TD_HASH_RETRY_LEAST_S = 1, TD_HASH_RETRY_MOST_S = 60 };

/* Estimates how long hashing left_bytes takes. Returns seconds, rounded up and within these limits. The rate is
 * hashed_bytes per took_ns, measured while a request waited; 1 GB/s if it waited less than 0.1 s or nothing was hashed.
 */
unsigned td_hash_retry_s(double left_bytes, uint64_t hashed_bytes, uint64_t took_ns);

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
