#include "catalog/upstream/client_turns.h"

static const uint64_t name_ns = TD_CLIENT_NAME_MS * UINT64_C(1000000);

/* Returns the number of the client's entry; turns->count when it has none. */
static size_t find(const struct td_client_turns *turns, uint64_t client)
{
    size_t i = 0;
    while (i < turns->count && turns->clients[i].client != client)
        i++;
    return i;
}

/* Returns the client's entry, a new one where it has none: in the place of the client that has the most names left. */
static struct td_client_turn *entry_of(struct td_client_turns *turns, uint64_t client)
{
    size_t found = find(turns, client);
    struct td_client_turn *entry = &turns->clients[0];
    if (found < turns->count)
        return &turns->clients[found];
    if (turns->count < TD_CLIENT_TURNS) {
        entry = &turns->clients[turns->count++];
    } else {
        for (size_t i = 1; i < turns->count; i++)
            if (turns->clients[i].spent_until_ns < entry->spent_until_ns)
                entry = &turns->clients[i];
    }
    *entry = (struct td_client_turn){.client = client};
    return entry;
}

bool td_client_turns_count(struct td_client_turns *turns, uint64_t client, uint64_t now_ns, uint64_t *wait_ns)
{
    struct td_client_turn *entry = entry_of(turns, client);
    uint64_t spent_ns = entry->spent_until_ns > now_ns ? entry->spent_until_ns - now_ns : 0;
    if (spent_ns > (TD_CLIENT_NAMES - 1) * name_ns) {
        *wait_ns = spent_ns - (TD_CLIENT_NAMES - 1) * name_ns;
        return false;
    }
    entry->spent_until_ns = now_ns + spent_ns + name_ns;
    return true;
}

void td_client_turns_take(struct td_client_turns *turns, uint64_t client)
{
    entry_of(turns, client)->turn = ++turns->turn;
}

uint64_t td_client_turns_latest(const struct td_client_turns *turns, uint64_t client)
{
    size_t found = find(turns, client);
    return found < turns->count ? turns->clients[found].turn : 0;
}
