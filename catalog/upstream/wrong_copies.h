/* Models of which a copy without digests has left because its bytes were not the upstream's: how long the next copy
 * waits for its first comparison. So an upstream that lists a wrong digest after each fetch does not make every copy
 * leave soon. The latest TD_WRONG_COPIES are remembered, in memory. The caller sees to it that calls do not overlap. */
#ifndef TD_CATALOG_UPSTREAM_WRONG_COPIES_H
#define TD_CATALOG_UPSTREAM_WRONG_COPIES_H

#include "catalog/upstream/kept_table.h"

#include <stddef.h>

enum { TD_WRONG_COPIES = 64 };

/* All zeros: none. */
struct td_wrong_copies {
    struct td_wrong_copy {
        char id[TD_UPSTREAM_ID_BYTES];
        uint64_t wait_ns;
    } copies[TD_WRONG_COPIES]; /* the oldest one first */
    size_t count;
};

/* Notes that a copy of a model has left, and how long the next one waits; forgets the oldest model for it when there
 * are too many. */
void td_wrong_copies_note(struct td_wrong_copies *copies, const char *id, uint64_t wait_ns);

/* Forgets a model, if it is known. */
void td_wrong_copies_forget(struct td_wrong_copies *copies, const char *id);

/* Returns how long the next copy of a model waits; 0 for a model that is not known. */
uint64_t td_wrong_copies_wait_ns(const struct td_wrong_copies *copies, const char *id);

#endif
