/* Asks the native interface on behalf of a call, once or, for streams, again and again. */
#ifndef TD_API_RPC_RPC_STREAM_H
#define TD_API_RPC_RPC_STREAM_H

#include "api/call/call.h"
#include "api/rpc/rpc_rules.h"
#include "core/message/document.h"

#include <stdbool.h>

/* Passes a request to the native interface, which writes the answer into the call's response; an error has the call's
 * form. `native` describes the request: an answer of another kind than it expects becomes 404. results: as in td_call.
 * The call then has the snapshot and the dataset of the answer. */
void td_rpc_ask(struct td_call *call, const struct td_request *request, const struct td_rpc_native *native,
                const struct td_document_kind *kind, struct td_read_results *results);

/* The part that all streams of messages share: the request that they answer, as far as it is needed to ask again, and
 * their end. */
struct td_rpc_stream {
    struct td_stream stream; /* first, so that a pointer to it is one to the whole */
    struct td_api *api;
    const struct td_facade *facade;
    bool is_local, is_tls;
    uint64_t client;
    unsigned form;                              /* of the answer */
    const struct td_cancel *cancel, *ends_wait; /* of the request */
    const struct td_method *method;
    uint64_t deadline_ns;         /* (td_clock_ns), by the client's timeout; UINT64_MAX: none */
    struct td_text authorization; /* the value of the field Authorization, owned; p NULL: the request has none */
    struct td_trailers trailers;  /* in gRPC, those that end the stream */
    bool is_stopped;              /* the server has asked the stream to end */
    bool has_ended;               /* its last message, or the error that ends it, was read */
};

/* Initialises the stream with the parts of the call's request by which it asks again. method: NULL for a stream that
 * never asks the native interface; such a stream keeps no Authorization. Returns false when memory is short. Call
 * td_rpc_stream_fini in every case. */
bool td_rpc_stream_init(struct td_rpc_stream *stream, const struct td_stream_class *class, const struct td_call *call,
                        const struct td_method *method, uint64_t deadline_ns);
void td_rpc_stream_fini(struct td_rpc_stream *stream);

/* For the classes of streams: td_stream_class.stop and add_trailers. */
void td_rpc_stream_stop(struct td_stream *stream);
void td_rpc_stream_add_trailers(struct td_stream *stream, struct td_trailers *out);

/* Makes the stream the body of the call's response, in the call's form. */
void td_rpc_stream_begin(const struct td_call *call, struct td_rpc_stream *stream);

/* Returns whether the stream must end whatever the native interface answers: the server ends, or the client's time is
 * over. The response, which was a success, then says so. */
bool td_rpc_stream_is_over(const struct td_rpc_stream *stream, struct td_response *response);

/* Ends the stream by the error in the response: appends the last frame, or for gRPC moves the trailers. Returns what
 * td_stream_class.read then returns. */
enum td_stream_state td_rpc_stream_end_by(struct td_rpc_stream *stream, struct td_response *response,
                                          struct td_buffer *out);

/* A call that continues one that was answered by a stream. */
struct td_rpc_again {
    struct td_call call;
    struct td_request request;
    struct td_response response;
    struct td_header authorization;
    struct td_uri uri;
    struct td_buffer target;
};

/* Begins such a call. Checks again that its sender may make it. Returns false if not: the response then has the error.
 * Call td_rpc_again_end in every case. */
bool td_rpc_again_begin(struct td_rpc_again *again, const struct td_rpc_stream *stream);
void td_rpc_again_end(struct td_rpc_again *again);

#endif
