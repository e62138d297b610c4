/* The events that lead from one snapshot to the next. They are about what clients know by name: the models and the
 * datasets of the lists, and of repositories in a Hugging Face cache also each branch and each tag, and the branch
 * `main` of one that is neither a model nor a dataset. Digests that become known are no event. */
#ifndef TD_CATALOG_EVENTS_SNAPSHOT_CHANGES_H
#define TD_CATALOG_EVENTS_SNAPSHOT_CHANGES_H

#include "catalog/events/event_ring.h"
#include "catalog/model/snapshot.h"

#include <stdbool.h>
#include <stddef.h>

struct td_snapshot_changes {
    struct td_event *events[TD_EVENTS_MAX]; /* sorted: models first, then by id and revision */
    size_t count;
    bool are_incomplete; /* memory was short, or there are more than TD_EVENTS_MAX */
};

/* Returns the changes, or NULL when memory is short. Takes time in proportion to what both snapshots hold. The caller
 * frees them with td_snapshot_changes_add. */
struct td_snapshot_changes *td_snapshot_changes_find(const struct td_snapshot *before, const struct td_snapshot *after);

/* Adds the changes to the ring, which loses its position when they are NULL or incomplete, and frees them. */
void td_snapshot_changes_add(struct td_snapshot_changes *changes, struct td_event_ring *ring);

#endif
