/* WatchModel: a stream of descriptions of a model, one at once and one after each change. */
#ifndef TD_API_RPC_RPC_WATCH_H
#define TD_API_RPC_RPC_WATCH_H

#include "api/call/call.h"
#include "api/rpc/rpc_rules.h"
#include "core/message/document.h"
#include "core/message/message.h"

#include <stdint.h>

/* A call of WatchModel. All is borrowed for td_rpc_watch_begin. */
struct td_rpc_watch_wish {
    const struct td_method *method;
    const struct td_rpc_native *native;  /* the request that describes the model */
    const struct td_document_kind *kind; /* of the description */
    struct td_text etag;                 /* of the state that the client knows; may be empty */
    uint64_t deadline_ns;                /* (td_clock_ns); UINT64_MAX: none */
};

/* Makes the response a stream, which ends at the deadline, when its sender may not see the model any more, when the
 * model is removed, and when the server drains: each time with an error. Looks at the model for the first time, and
 * answers an error that it has. Answers RESOURCE_EXHAUSTED when the client has its share of streams already. */
void td_rpc_watch_begin(struct td_call *call, const struct td_rpc_watch_wish *wish);

#endif
