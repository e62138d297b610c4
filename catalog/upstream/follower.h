/* Follows the events of an upstream that is a tensord (GET /events), once there is a model that may change: a thread
 * keeps a stream open to one of its servers, connects again when it ends, and reports which models have changed. An
 * upstream without events is asked again after a while, and is no fault. The events are a stranger's: their number and
 * size are bounded. */
#ifndef TD_CATALOG_UPSTREAM_FOLLOWER_H
#define TD_CATALOG_UPSTREAM_FOLLOWER_H

#include "catalog/upstream/upstream_source.h"

#include <stdbool.h>

struct td_follower_config {
    const struct td_upstream_source *source; /* borrowed, as `context` is; its `follow` is not NULL */
    /* Called by the follower's thread: a model of this id was published or has other content, or its revision
     * (empty: main) was; or changes may have been missed, so that any model may have. */
    void (*on_change)(void *context, struct td_text id, struct td_text revision);
    void (*on_reset)(void *context);
    void *context;
};

struct td_follower;

/* Starts the thread, which waits for td_follower_begin. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_follower_create(const struct td_follower_config *config, struct td_follower **out, struct td_error *err);

/* Has the thread follow the events from now on. Any thread. NULL: does nothing. */
void td_follower_begin(struct td_follower *follower);

/* Returns whether a stream is open. Any thread. */
bool td_follower_is_open(const struct td_follower *follower);

/* Has the thread end within about 1 s; does not wait for it. Any thread. NULL is allowed, as for td_follower_destroy.
 */
void td_follower_stop(struct td_follower *follower);

/* Stops the thread, waits for its end, and frees the follower. */
void td_follower_destroy(struct td_follower *follower);

#endif
