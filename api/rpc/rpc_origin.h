/* Asks the native interface on behalf of a call, once or, for streams, again and again. */
#ifndef TD_API_RPC_RPC_ORIGIN_H
#define TD_API_RPC_RPC_ORIGIN_H

#include "api/call/call.h"
#include "api/rpc/rpc_rules.h"
#include "core/message/document.h"

#include <stdbool.h>

/* Has the native interface answer `request` as a part of the call: `native` is what it was translated to. The answer is
 * in the call's response, an error in the call's form; an answer of another kind than the native request's becomes 404.
 * results: as in td_call. Drops the call's snapshot for that of the answer, and sets the call's dataset to the
 * answer's. */
void td_rpc_ask(struct td_call *call, const struct td_request *request, const struct td_rpc_native *native,
                const struct td_document_kind *kind, struct td_read_results *results);

/* So much of a request as is needed to judge its sender again, when a stream asks again. */
struct td_rpc_origin {
    struct td_api *api;
    const struct td_facade *facade;
    bool is_local, is_tls;
    uint64_t client;
    unsigned form;                              /* of the answer */
    const struct td_cancel *cancel, *ends_wait; /* of the request */
    const struct td_method *method;
    uint64_t deadline_ns;         /* (td_clock_ns), by the client's timeout; UINT64_MAX: none */
    bool is_stopped;              /* the server has asked the stream to end */
    struct td_text authorization; /* the value of the field Authorization, owned; p NULL: the request has none */
};

/* Copies what is needed of the call's request. Returns false when memory is short. Call td_rpc_origin_fini in every
 * case. */
bool td_rpc_origin_init(struct td_rpc_origin *origin, const struct td_call *call, const struct td_method *method,
                        uint64_t deadline_ns);
void td_rpc_origin_fini(struct td_rpc_origin *origin);

/* Returns whether the stream is to end whatever the native interface answers; answers why. */
bool td_rpc_is_over(const struct td_rpc_origin *origin, struct td_response *response);

/* Ends a stream by the error in the response: appends the last frame, or for gRPC moves the trailers, which the caller
 * adds at the end. */
void td_rpc_end_by(struct td_response *response, struct td_buffer *out, struct td_trailers *trailers);

/* A call that continues one that was answered by a stream. */
struct td_rpc_again {
    struct td_call call;
    struct td_request request;
    struct td_response response;
    struct td_header authorization;
    struct td_uri uri;
    struct td_buffer target;
};

/* Begins such a call, whose sender is admitted as of now. Returns false after it answered an error. Call
 * td_rpc_again_end in every case. */
bool td_rpc_again_begin(struct td_rpc_again *again, const struct td_rpc_origin *origin);
void td_rpc_again_end(struct td_rpc_again *again);

#endif
