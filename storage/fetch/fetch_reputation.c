#include "storage/fetch/fetch_reputation.h"

#include "core/clock.h"

void td_fetch_reputation_failed(struct td_fetch_reputation *reputation, size_t server, uint64_t now_ns)
{
    if (reputation != NULL)
        atomic_store(&reputation->bad_until_ns[server], now_ns + TD_FETCH_BAD_S * TD_NS_PER_S);
}

void td_fetch_reputation_did_well(struct td_fetch_reputation *reputation, size_t server)
{
    if (reputation != NULL)
        atomic_store(&reputation->bad_until_ns[server], 0);
}

bool td_fetch_reputation_is_bad(const struct td_fetch_reputation *reputation, size_t server, uint64_t now_ns)
{
    return reputation != NULL && atomic_load(&reputation->bad_until_ns[server]) > now_ns;
}
