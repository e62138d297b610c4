#include "storage/fetch/fetch_health.h"

#include "core/mix64.h"
#include "storage/fetch/fetch_backoff.h"

#include <string.h>
#include <sys/random.h>

void td_fetch_health_init(struct td_fetch_health *health, const struct td_fetch_client *client, uint64_t now_ns)
{
    memset(health, 0, sizeof *health);
    health->count = td_fetch_client_count(client);
    health->retry_for_ns = td_fetch_client_retry_for_ns(client);
    health->reputation = td_fetch_client_reputation(client);
    health->progress_ns = now_ns;
    td_error_init(&health->last);
    if (getrandom(&health->random, sizeof health->random, GRND_NONBLOCK) != (ssize_t)sizeof health->random)
        health->random = now_ns; /* only jitter depends on it */
}

void td_fetch_health_progress(struct td_fetch_health *health, size_t server, uint64_t now_ns)
{
    health->servers[server].failures = 0;
    health->progress_ns = now_ns;
    td_fetch_reputation_did_well(health->reputation, server);
}

uint64_t td_fetch_health_failed(struct td_fetch_health *health, size_t server, uint64_t retry_after_s, uint64_t now_ns,
                                const struct td_error *why)
{
    struct td_fetch_server_health *one = &health->servers[server];
    health->last = *why;
    td_fetch_reputation_failed(health->reputation, server, now_ns);
    if (health->retry_for_ns == 0) {
        one->is_excluded = true;
        return 0;
    }
    if (one->due_ns <= now_ns)
        one->failures++;
    health->random = td_mix64(health->random + 1);
    uint64_t due_ns = now_ns + td_fetch_backoff_ns(one->failures, retry_after_s, health->random);
    if (due_ns > one->due_ns)
        one->due_ns = due_ns;
    return one->due_ns - now_ns;
}

void td_fetch_health_exclude(struct td_fetch_health *health, size_t server, uint64_t now_ns, const struct td_error *why)
{
    td_fetch_reputation_failed(health->reputation, server, now_ns);
    td_fetch_health_leave_out(health, server, why);
}

void td_fetch_health_leave_out(struct td_fetch_health *health, size_t server, const struct td_error *why)
{
    health->servers[server].is_excluded = true;
    health->last = *why;
}

static bool is_due(const struct td_fetch_health *health, size_t server, uint64_t now_ns)
{
    return !health->servers[server].is_excluded && health->servers[server].due_ns <= now_ns;
}

bool td_fetch_health_may(const struct td_fetch_health *health, size_t server, uint64_t now_ns)
{
    if (!is_due(health, server, now_ns))
        return false;
    if (!td_fetch_reputation_is_bad(health->reputation, server, now_ns))
        return true;
    for (size_t i = 0; i < health->count; i++)
        if (is_due(health, i, now_ns) && !td_fetch_reputation_is_bad(health->reputation, i, now_ns))
            return false;
    return true;
}

uint64_t td_fetch_health_due_ns(const struct td_fetch_health *health)
{
    uint64_t due_ns = UINT64_MAX;
    for (size_t i = 0; i < health->count; i++)
        if (!health->servers[i].is_excluded && health->servers[i].due_ns < due_ns)
            due_ns = health->servers[i].due_ns;
    return due_ns;
}

bool td_fetch_health_is_over(const struct td_fetch_health *health, uint64_t now_ns, struct td_error *err)
{
    uint64_t due_ns = td_fetch_health_due_ns(health);
    uint64_t end_ns = health->progress_ns + health->retry_for_ns;
    for (size_t i = 0; i < health->count; i++)
        if (!health->servers[i].is_excluded && health->servers[i].failures == 0)
            return false;
    if (due_ns <= end_ns && now_ns <= end_ns)
        return false;
    (void)td_error_copy(err, &health->last);
    return true;
}
