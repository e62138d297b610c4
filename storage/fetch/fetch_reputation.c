#include "storage/fetch/fetch_reputation.h"

#include "core/clock.h"

void td_fetch_reputation_failed(struct td_fetch_reputation *reputations, size_t server, uint64_t now_ns)
{
    if (reputations != NULL)
        atomic_store(&reputations[server].bad_until_ns, now_ns + TD_FETCH_BAD_S * TD_NS_PER_S);
}

void td_fetch_reputation_did_well(struct td_fetch_reputation *reputations, size_t server)
{
    if (reputations != NULL)
        atomic_store(&reputations[server].bad_until_ns, 0);
}

bool td_fetch_reputation_is_bad(const struct td_fetch_reputation *reputations, size_t server, uint64_t now_ns)
{
    return reputations != NULL && atomic_load(&reputations[server].bad_until_ns) > now_ns;
}

void td_fetch_reputation_wait(struct td_fetch_reputation *reputations, size_t server, uint64_t seconds, uint64_t now_ns)
{
    if (reputations == NULL || !reputations[server].keeps_patience)
        return;
    uint64_t due_ns = now_ns + (seconds < TD_FETCH_PATIENCE_S ? seconds : TD_FETCH_PATIENCE_S) * TD_NS_PER_S;
    uint64_t before_ns = atomic_load(&reputations[server].due_ns);
    while (before_ns < due_ns && !atomic_compare_exchange_weak(&reputations[server].due_ns, &before_ns, due_ns))
        continue;
}

uint64_t td_fetch_reputation_due_ns(const struct td_fetch_reputation *reputations, size_t server)
{
    return reputations == NULL ? 0 : atomic_load(&reputations[server].due_ns);
}

void td_fetch_reputation_set_kind(struct td_fetch_reputation *reputations, size_t server, bool is_tensord)
{
    if (reputations != NULL)
        atomic_store(&reputations[server].is_tensord, is_tensord);
}

bool td_fetch_reputation_is_tensord(const struct td_fetch_reputation *reputations, size_t server)
{
    return reputations != NULL && atomic_load(&reputations[server].is_tensord);
}
