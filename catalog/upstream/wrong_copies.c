#include "catalog/upstream/wrong_copies.h"

#include <stdio.h>
#include <string.h>

/* Returns the number of a model's copy; copies->count when it is not known. */
static size_t find(const struct td_wrong_copies *copies, const char *id)
{
    size_t at = 0;
    while (at < copies->count && strcmp(copies->copies[at].id, id) != 0)
        at++;
    return at;
}

static void remove_at(struct td_wrong_copies *copies, size_t at)
{
    copies->count--;
    memmove(&copies->copies[at], &copies->copies[at + 1], (copies->count - at) * sizeof copies->copies[0]);
}

void td_wrong_copies_note(struct td_wrong_copies *copies, const char *id, uint64_t wait_ns)
{
    td_wrong_copies_forget(copies, id);
    if (copies->count == TD_WRONG_COPIES)
        remove_at(copies, 0);
    struct td_wrong_copy *copy = &copies->copies[copies->count++];
    (void)snprintf(copy->id, sizeof copy->id, "%s", id);
    copy->wait_ns = wait_ns;
}

void td_wrong_copies_forget(struct td_wrong_copies *copies, const char *id)
{
    size_t at = find(copies, id);
    if (at < copies->count)
        remove_at(copies, at);
}

uint64_t td_wrong_copies_wait_ns(const struct td_wrong_copies *copies, const char *id)
{
    size_t at = find(copies, id);
    return at < copies->count ? copies->copies[at].wait_ns : 0;
}
