#include "server/net/lease_breaks.h"

#include "core/clock.h"
#include "storage/file_system.h"

#include <time.h>

/* Waits up to 100 ms until no transfer sends from the blob. Returns whether none does. */
static bool wait_unused(struct td_registry *registry, const struct td_blob *blob)
{
    enum { STEPS = 50, STEP_NS = 2000000 };
    struct timespec step = {.tv_nsec = STEP_NS};
    for (int i = 0; i < STEPS && td_registry_uses_blob(registry, blob); i++)
        (void)nanosleep(&step, NULL);
    return !td_registry_uses_blob(registry, blob);
}

/* Ends the transfers that send from a file which another process waits to write to: short ones finish within 100 ms,
 * long ones are cut. Waits for complete answers that were sent by reference until their clients have read them. Cuts
 * those that are still not acknowledged when the kernel is about to end the lease by itself. Returns whether no
 * transfer and no unread answer remains. */
static bool cut_blob(void *context, const struct td_blob *blob, bool is_first, uint64_t since_ns)
{
    struct td_lease_breaks *breaks = context;
    struct td_registry *registry = breaks->registry;
    if (is_first && !wait_unused(registry, blob))
        td_registry_cut_blob(registry, blob);
    if (td_registry_uses_blob(registry, blob) && !wait_unused(registry, blob))
        return false;
    if (td_registry_settle(registry, blob) == 0)
        return true;
    if (td_clock_ns() >= since_ns + breaks->read_ns)
        td_registry_cut_unacknowledged(registry, blob);
    return false;
}

void td_lease_breaks_run(struct td_lease_breaks *breaks)
{
    if (!breaks->pending)
        breaks->read_ns = td_lease_break_ns() / 10 * 9;
    breaks->pending = !td_mapping_cache_break_leases(breaks->maps, cut_blob, breaks);
}
