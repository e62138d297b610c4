/* How long to wait before a server is asked again: exponential, with jitter, or as its Retry-After says. Pure. */
#ifndef TD_STORAGE_FETCH_FETCH_BACKOFF_H
#define TD_STORAGE_FETCH_FETCH_BACKOFF_H

#include <stdint.h>

/* Returns the time to wait in ns after `failures` failures in a row (from 1): between half of and the whole of 0.25 s,
 * 0.5 s, 1 s ... and at most 15 s; never less than retry_after_s seconds. `random` is any number; it decides the
 * jitter, so that many clients do not come back at once. */
uint64_t td_fetch_backoff_ns(unsigned failures, uint64_t retry_after_s, uint64_t random);

#endif
