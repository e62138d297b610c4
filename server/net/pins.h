/* The blobs that a connection sends from in place or by reference, so that other threads find the connections that use
 * a blob. */
#ifndef TD_SERVER_NET_PINS_H
#define TD_SERVER_NET_PINS_H

#include "storage/body.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Most different blobs from which one answer is sent in place. */
enum { TD_PINNED_BLOBS = 4 };

/* All zero: no blob is recorded. */
struct td_pins {
    _Atomic(const struct td_blob *) blobs[TD_PINNED_BLOBS]; /* compared, never read */
};

/* Records that the body will be sent in place from its pinned mappings. Returns false, with nothing recorded, when the
 * body has bytes of more than TD_PINNED_BLOBS mappings. Called by the connection's thread, as is td_pins_clear. */
bool td_pins_add(struct td_pins *pins, const struct td_body *body);

/* Removes what td_pins_add recorded. */
void td_pins_clear(struct td_pins *pins);

/* Returns whether the blob is recorded. Any thread. */
bool td_pins_have(const struct td_pins *pins, const struct td_blob *blob);

#endif
