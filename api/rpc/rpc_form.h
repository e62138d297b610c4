/* The forms of requests and answers: protocols, codecs, frames and errors. */
#ifndef TD_API_RPC_RPC_FORM_H
#define TD_API_RPC_RPC_FORM_H

#include "core/buffer.h"
#include "core/message/message.h"
#include "http/facade.h"
#include "http/response.h"

#include <stdbool.h>

/* The bits of td_response.form for this facade. */
enum {
    TD_RPC_JSON = 1,    /* messages are JSON; else protobuf */
    TD_RPC_FRAMES = 2,  /* messages are in frames */
    TD_RPC_WEB = 4,     /* gRPC-Web. With TD_RPC_FRAMES */
    TD_RPC_GRPC = 8,    /* gRPC. With TD_RPC_FRAMES. Without both it is Connect */
    TD_RPC_UNKNOWN = 16 /* the Content-Type is not in td_rpc_types */
};

/* Returns the form that the request asks for by its Content-Type, or by the parameter `encoding` of a GET. */
unsigned td_rpc_form_of(const struct td_request *request);

/* Returns the media type of messages in this form. Static. */
const char *td_rpc_type(unsigned form);

/* The media types of requests, for Accept-Post. */
extern const char td_rpc_types[];

/* Writes an error in failure->form, for td_facade.write_error. */
void td_rpc_write_error(struct td_failure *failure, struct td_buffer *out);

/* Puts the message, which is the whole body of a 200 answer, into a frame, and adds the trailers, of gRPC-Web in a
 * frame. Does nothing for a form without frames. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_rpc_frame(struct td_response *response, struct td_error *err);

/* Takes the only message out of a request's body. Returns false after it answered an error. */
bool td_rpc_unframe(struct td_response *response, struct td_text *message);

/* The time that a client waits for an answer, in nanoseconds, by Connect-Timeout-Ms or grpc-timeout. *ns is UINT64_MAX
 * without such a field. Returns false for a field with another value. */
bool td_rpc_timeout(const struct td_request *request, unsigned form, uint64_t *ns);

#endif
