/* Ends file leases for processes that want to write. When another process wants to write to a file under a lease, the
 * kernel makes it wait until the lease is released. Answers that are being sent from the file get 100 ms to end; then
 * they are cut. Threads: one at a time. */
#ifndef TD_SERVER_NET_LEASE_BREAKS_H
#define TD_SERVER_NET_LEASE_BREAKS_H

#include "server/net/connection.h"
#include "storage/file_source.h"

#include <stdbool.h>
#include <stdint.h>

struct td_lease_breaks {
    struct td_registry *registry;  /* borrowed, as the next one */
    struct td_mapping_cache *maps; /* of the files under leases */
    bool pending;                  /* a writer waits for a lease that has not ended: run this again within 10 ms */
    uint64_t read_ns;              /* time after a break when answers that are not acknowledged are cut */
};

/* Ends the leases that writers wait for, unless an answer still needs them. Waits up to 200 ms for each file with a new
 * break, half of it after cutting its transfers, and up to 100 ms for each other file. */
void td_lease_breaks_run(struct td_lease_breaks *breaks);

#endif
