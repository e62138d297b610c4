/* Which of several servers have failed lately, remembered from file to file: others are asked instead, as long as one
 * of them may be asked. Any thread. */
#ifndef TD_STORAGE_FETCH_REPUTATION_H
#define TD_STORAGE_FETCH_REPUTATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_FETCH_MAX_SERVERS = 16,
    TD_FETCH_BAD_S = 30, /* how long a server is avoided that has failed and has done nothing well since */
};

/* Zeroed at the start. */
struct td_fetch_reputation {
    _Atomic uint64_t bad_until_ns[TD_FETCH_MAX_SERVERS];
};

/* Notes that a server has failed, or has done well. The time is td_clock_ns. NULL: does nothing. */
void td_fetch_reputation_failed(struct td_fetch_reputation *reputation, size_t server, uint64_t now_ns);
void td_fetch_reputation_did_well(struct td_fetch_reputation *reputation, size_t server);

/* Returns whether the server is to be avoided. NULL: no. */
bool td_fetch_reputation_is_bad(const struct td_fetch_reputation *reputation, size_t server, uint64_t now_ns);

#endif
