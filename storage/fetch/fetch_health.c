#include "storage/fetch/fetch_health.h"

#include "core/clock.h"
#include "core/mix64.h"

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

/* ---- how long to wait ---------------------------------------------------------------------------------- */

#define FIRST_NS UINT64_C(250000000)
#define MOST_NS UINT64_C(15000000000)

uint64_t td_fetch_backoff_ns(unsigned failures, uint64_t retry_after_s, uint64_t random)
{
    uint64_t whole = FIRST_NS;
    for (unsigned i = 1; i < failures && whole < MOST_NS; i++)
        whole *= 2;
    if (whole > MOST_NS)
        whole = MOST_NS;
    uint64_t ns = whole / 2 + random % (whole / 2 + 1);
    uint64_t asked_ns = retry_after_s < UINT64_MAX / TD_NS_PER_S ? retry_after_s * TD_NS_PER_S : UINT64_MAX;
    return asked_ns > ns ? asked_ns : ns;
}

/* ---- which server to ask ------------------------------------------------------------------------------- */

void td_fetch_health_init(struct td_fetch_health *health, const struct td_fetch_client *client, uint64_t now_ns)
{
    memset(health, 0, sizeof *health);
    health->count = td_fetch_client_count(client);
    health->retry_for_ns = td_fetch_client_retry_for_ns(client);
    health->client = client;
    health->reputations = td_fetch_client_reputations(client);
    health->progress_ns = now_ns;
    td_error_init(&health->last);
    if (getrandom(&health->random, sizeof health->random, GRND_NONBLOCK) != (ssize_t)sizeof health->random)
        health->random = now_ns; /* only jitter depends on it */
    for (size_t i = 0; i < health->count; i++) {
        struct td_fetch_server_health *one = &health->servers[i];
        one->due_ns = td_fetch_reputation_due_ns(health->reputations, i);
        one->failures = one->due_ns > now_ns ? 1 : 0;
    }
}

void td_fetch_health_progress(struct td_fetch_health *health, size_t server, uint64_t now_ns)
{
    health->servers[server].failures = 0;
    health->progress_ns = now_ns;
    td_fetch_reputation_did_well(health->reputations, server);
}

void td_fetch_health_begin_patience(struct td_fetch_health *health, size_t server, uint64_t now_ns)
{
    if (health->servers[server].failures == 0)
        health->progress_ns = now_ns;
}

/* Returns whether the answer is the server's own (not after a redirect), and concerns all of its files. */
static bool is_for_all(const struct td_fetch_health *health, size_t server, const struct td_fetch_answer *answer)
{
    bool is_tensord = td_fetch_reputation_is_tensord(health->reputations, server);
    return !answer->is_redirected && (answer->status == 429 || (answer->status == 503 && !is_tensord));
}

uint64_t td_fetch_health_failed(struct td_fetch_health *health, size_t server, const struct td_fetch_answer *answer,
                                uint64_t now_ns, const struct td_error *why)
{
    struct td_fetch_server_health *one = &health->servers[server];
    health->last = *why;
    td_fetch_reputation_failed(health->reputations, server, now_ns);
    if (is_for_all(health, server, answer))
        td_fetch_reputation_wait(health->reputations, server, answer->retry_after_s, now_ns);
    if (health->retry_for_ns == 0) {
        one->is_excluded = true;
        return 0;
    }
    if (one->due_ns <= now_ns)
        one->failures++;
    health->random = td_mix64(health->random + 1);
    uint64_t due_ns = now_ns + td_fetch_backoff_ns(one->failures, answer->retry_after_s, health->random);
    if (due_ns > one->due_ns)
        one->due_ns = due_ns;
    return one->due_ns - now_ns;
}

void td_fetch_health_exclude(struct td_fetch_health *health, size_t server, uint64_t now_ns, const struct td_error *why)
{
    td_fetch_reputation_failed(health->reputations, server, now_ns);
    td_fetch_health_leave_out(health, server);
    health->last = *why;
}

void td_fetch_health_leave_out(struct td_fetch_health *health, size_t server)
{
    health->servers[server].is_excluded = true;
}

static bool is_due(const struct td_fetch_health *health, size_t server, uint64_t now_ns)
{
    return !health->servers[server].is_excluded && health->servers[server].due_ns <= now_ns;
}

bool td_fetch_health_may(const struct td_fetch_health *health, size_t server, uint64_t now_ns)
{
    if (!is_due(health, server, now_ns))
        return false;
    if (!td_fetch_reputation_is_bad(health->reputations, server, now_ns))
        return true;
    for (size_t i = 0; i < health->count; i++)
        if (is_due(health, i, now_ns) && !td_fetch_reputation_is_bad(health->reputations, i, now_ns))
            return false;
    return true;
}

/* Returns the server that may be asked first; SIZE_MAX: all are excluded. */
static size_t first_due(const struct td_fetch_health *health)
{
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < health->count; i++)
        if (!health->servers[i].is_excluded &&
            (first == SIZE_MAX || health->servers[i].due_ns < health->servers[first].due_ns))
            first = i;
    return first;
}

uint64_t td_fetch_health_due_ns(const struct td_fetch_health *health)
{
    size_t first = first_due(health);
    return first == SIZE_MAX ? UINT64_MAX : health->servers[first].due_ns;
}

/* Returns how long a server must not be asked yet. */
static uint64_t left_ns(const struct td_fetch_health *health, size_t server, uint64_t now_ns)
{
    uint64_t due_ns = health->servers[server].due_ns;
    return due_ns > now_ns ? due_ns - now_ns : 0;
}

/* Sets the error to the latest failure, or to the server's request to wait. */
static void set_final_error(const struct td_fetch_health *health, uint64_t now_ns, struct td_error *err)
{
    size_t first = first_due(health);
    if (health->last.code != TD_OK || first == SIZE_MAX)
        (void)td_error_copy(err, &health->last);
    else
        (void)td_error_set(err, TD_UNAVAILABLE, "%s has sent Retry-After and may be asked again in %" PRIu64 " s",
                           td_fetch_client_url(health->client, first),
                           (left_ns(health, first, now_ns) + TD_NS_PER_S - 1) / TD_NS_PER_S);
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
    set_final_error(health, now_ns, err);
    return true;
}
