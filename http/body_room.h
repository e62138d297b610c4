/* The memory that the handler of a request may take for its body, beside the body as it arrived: for the body or a
 * message in it, unpacked. It counts in the same limits as bodies that arrive, of all clients together and of each
 * address. For one thread. */
#ifndef TD_HTTP_BODY_ROOM_H
#define TD_HTTP_BODY_ROOM_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_body_room {
    uint64_t most_bytes; /* of one body (--max-body-bytes) */
    /* Counts bytes that the caller is about to allocate. Errors: TD_FAILED_PRECONDITION when the request would have
     * more than most_bytes, TD_RESOURCE_EXHAUSTED when other requests have the memory; then nothing that was taken
     * counts any more, and the caller frees it. */
    bool (*take)(const struct td_body_room *room, uint64_t bytes, struct td_error *err);
    /* Subtracts all that was taken, which the caller has freed. */
    void (*give)(const struct td_body_room *room);
};

#endif
