#include "catalog/upstream/renewals.h"

#include <stdio.h>
#include <string.h>

enum { FEW = TD_RENEWALS_MAX / 2 };

struct td_renewal *td_renewals_find(struct td_renewals *renewals, const char *id)
{
    for (size_t i = 0; i < renewals->count; i++)
        if (strcmp(renewals->items[i].id, id) == 0)
            return &renewals->items[i];
    return NULL;
}

void td_renewals_add(struct td_renewals *renewals, struct td_text id)
{
    struct td_renewal added = {.due_ns = 0};
    if (id.len >= sizeof added.id)
        return; /* no kept model has such an id */
    (void)snprintf(added.id, sizeof added.id, "%.*s", (int)id.len, id.p);
    struct td_renewal *found = td_renewals_find(renewals, added.id);
    if (found != NULL)
        *found = added;
    else if (renewals->count < TD_RENEWALS_MAX)
        renewals->items[renewals->count++] = added;
    else
        td_renewals_add_all(renewals);
}

void td_renewals_add_all(struct td_renewals *renewals)
{
    renewals->wants_all = true;
    renewals->after[0] = '\0';
}

bool td_renewals_has_room(const struct td_renewals *renewals)
{
    return renewals->wants_all && renewals->count < FEW;
}

struct td_renewal *td_renewals_due(struct td_renewals *renewals, uint64_t now_ns)
{
    for (size_t i = 0; i < renewals->count; i++)
        if (renewals->items[i].due_ns <= now_ns)
            return &renewals->items[i];
    return NULL;
}

void td_renewals_end(struct td_renewals *renewals, const char *id)
{
    struct td_renewal *found = td_renewals_find(renewals, id);
    if (found != NULL)
        *found = renewals->items[--renewals->count];
}

uint64_t td_renewals_next_ns(const struct td_renewals *renewals)
{
    uint64_t next_ns = UINT64_MAX;
    for (size_t i = 0; i < renewals->count; i++)
        next_ns = renewals->items[i].due_ns < next_ns ? renewals->items[i].due_ns : next_ns;
    return next_ns;
}
