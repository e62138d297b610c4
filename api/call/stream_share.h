/* Shares of streams: a client may have only so many streams open at once (td_event_streams.most_of_client), so that it
 * does not keep all others out. */
#ifndef TD_API_CALL_STREAM_SHARE_H
#define TD_API_CALL_STREAM_SHARE_H

#include "api/call/call.h"

#include <stdbool.h>
#include <stdint.h>

/* A stream of a client; part of the stream. */
struct td_stream_share {
    struct td_api *api;
    uint64_t client;
    struct td_stream_share *next; /* of the api's list */
};

/* Counts a stream as one of the call's client. Returns false, with nothing counted, when the client has its share
 * already. Any thread. */
bool td_stream_share_take(struct td_stream_share *share, const struct td_call *call);

/* Counts the stream no longer. Any thread. */
void td_stream_share_give(struct td_stream_share *share);

#endif
