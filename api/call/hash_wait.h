/* How long requests wait for digests, and when they are to ask again. */
#ifndef TD_API_CALL_HASH_WAIT_H
#define TD_API_CALL_HASH_WAIT_H

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

#endif
