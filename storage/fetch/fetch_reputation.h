/* The memory of servers, which lasts from file to file. A server that has failed lately is avoided, as long as another
 * one may be asked. A server that has asked to be left alone is not asked until the time that it named. A client has an
 * array of reputations, one for each of its servers. Any thread. */
#ifndef TD_STORAGE_FETCH_FETCH_REPUTATION_H
#define TD_STORAGE_FETCH_FETCH_REPUTATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_FETCH_MAX_SERVERS = 16,
    TD_FETCH_BAD_S = 30,       /* how long a server is avoided that has failed and has done nothing well since */
    TD_FETCH_PATIENCE_S = 300, /* the longest time for which a server is left alone since it asks for that */
};

/* The memory of one server. All zeros at the start; only keeps_patience is set then, and never changes. */
struct td_fetch_reputation {
    _Atomic uint64_t bad_until_ns;
    _Atomic uint64_t due_ns;
    _Atomic bool is_tensord;
    bool keeps_patience; /* else each file asks anew, whatever the server has said before */
};

/* Notes that a server has failed, or has done well. The time is td_clock_ns. NULL: does nothing. */
void td_fetch_reputation_failed(struct td_fetch_reputation *reputations, size_t server, uint64_t now_ns);
void td_fetch_reputation_did_well(struct td_fetch_reputation *reputations, size_t server);

/* Returns whether the server is to be avoided. NULL: no. */
bool td_fetch_reputation_is_bad(const struct td_fetch_reputation *reputations, size_t server, uint64_t now_ns);

/* Notes that a server asks to be left alone for so many seconds, of which TD_FETCH_PATIENCE_S count. A shorter time
 * than one that it has asked for before changes nothing. NULL, or one that keeps no patience: does nothing. */
void td_fetch_reputation_wait(struct td_fetch_reputation *reputations, size_t server, uint64_t seconds,
                              uint64_t now_ns);

/* Returns the time (td_clock_ns) before which the server is not to be asked. NULL, or one that has not asked to be left
 * alone: 0. */
uint64_t td_fetch_reputation_due_ns(const struct td_fetch_reputation *reputations, size_t server);

/* Notes whether the server is a tensord, whose answer of 503 may be about one model alone, and returns what was noted
 * (at first: no). NULL: does nothing. */
void td_fetch_reputation_set_kind(struct td_fetch_reputation *reputations, size_t server, bool is_tensord);
bool td_fetch_reputation_is_tensord(const struct td_fetch_reputation *reputations, size_t server);

#endif
