/* When a client should ask again for what needs digests that are not known yet. Pure. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_RETRY_H
#define TD_API_OCI_OCI_RETRY_H

#include <stdint.h>

/* Retry-After of answers that tell how far hashing is lies between these, in seconds: a client that asks later than
 * hashing ends waits for nothing, and each request waits for digests itself. */
enum { TD_OCI_RETRY_LEAST_S = 1, TD_OCI_RETRY_MOST_S = 60 };

/* Returns how long hashing left_bytes takes, in seconds, rounded up and within these limits. The rate is that of
 * hashed_bytes in took_ns, all that was hashed while a request waited; 1 GB/s where that was less than 0.1 s, or
 * nothing was hashed. */
unsigned td_oci_retry_s(double left_bytes, uint64_t hashed_bytes, uint64_t took_ns);

#endif
