/* Kept models that have to be compared with the upstream, because it has reported a change. The caller holds the
 * upstream's lock. Memory is bounded: when too many models wait, all kept models are compared. */
#ifndef TD_CATALOG_UPSTREAM_RENEWALS_H
#define TD_CATALOG_UPSTREAM_RENEWALS_H

#include "catalog/upstream/kept_table.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_RENEWALS_MAX = 256 /* models that wait */ };

struct td_renewal {
    char id[TD_UPSTREAM_ID_BYTES];
    uint64_t due_ns; /* when it is looked at (td_clock_ns) */
    unsigned tries;  /* lists that did not decide, since they lack digests */
};

/* All zeros: none waits. */
struct td_renewals {
    struct td_renewal items[TD_RENEWALS_MAX];
    size_t count;
    bool wants_all;                   /* all kept models are to be added, one after the other: those after this id */
    char after[TD_UPSTREAM_ID_BYTES]; /* empty: from the first one on */
};

/* Adds a model, which is due now; one that waits already becomes due, and begins its tries again. */
void td_renewals_add(struct td_renewals *renewals, struct td_text id);

/* Has all kept models compared. */
void td_renewals_add_all(struct td_renewals *renewals);

/* Returns whether the next one of all kept models may be added: all are wanted, and few wait. */
bool td_renewals_has_room(const struct td_renewals *renewals);

/* Returns a model that is due, or NULL. */
struct td_renewal *td_renewals_due(struct td_renewals *renewals, uint64_t now_ns);

/* Returns the model with this id, if it waits, or NULL. */
struct td_renewal *td_renewals_find(struct td_renewals *renewals, const char *id);

/* Removes the model, if it waits. */
void td_renewals_end(struct td_renewals *renewals, const char *id);

/* Returns when the first one is due; UINT64_MAX: none waits. */
uint64_t td_renewals_next_ns(const struct td_renewals *renewals);

#endif
