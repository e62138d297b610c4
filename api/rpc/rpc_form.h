/* The forms of requests and answers: protocols, codecs and frames. */
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
    TD_RPC_UNKNOWN = 16 /* the Content-Type is unknown */
};

/* Returns the form that the request asks for by its Content-Type, or by the parameter `encoding` of a GET. */
unsigned td_rpc_form_of(const struct td_request *request);

/* Returns the media type of messages in this form. Static. */
const char *td_rpc_type(unsigned form);

/* Returns the media types of requests, for Accept-Post: of methods that answer with a stream, or of others. Static. */
const char *td_rpc_types(bool is_stream);

/* The head of a frame: a byte of flags, and the length of what follows, four bytes, big-endian. TD_RPC_FLAG_END marks
 * the last frame of Connect. */
enum { TD_RPC_FRAME_BYTES = 5, TD_RPC_FLAG_END = 2 };

/* Appends the head of a frame, whose length td_rpc_end_frame fills in. Returns where its contents begin. */
size_t td_rpc_begin_frame(struct td_buffer *out, uint8_t flags);
void td_rpc_end_frame(struct td_buffer *out, size_t start);

/* Writes the length, which is below 4 GiB, into a head. */
void td_rpc_write_length(uint8_t head[TD_RPC_FRAME_BYTES], size_t len);

/* Appends the frame of trailers of gRPC-Web. */
void td_rpc_write_trailers(const struct td_trailers *trailers, struct td_buffer *out);

/* Ends an answer of frames without an error: appends the last frame, or for gRPC adds the trailers. Returns false when
 * memory is short. */
bool td_rpc_write_end(unsigned form, struct td_buffer *out, struct td_trailers *trailers);

/* Puts the message, which is the whole body of a 200 answer, into a frame, and adds the trailers, of gRPC-Web in a
 * frame. Does nothing for a form without frames. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_rpc_frame(struct td_response *response, struct td_error *err);

/* Sets *deadline_ns (td_clock_ns) to the end of the time that the client waits for an answer, by Connect-Timeout-Ms or
 * grpc-timeout; to UINT64_MAX without such a field. Returns false for a field with another value. */
bool td_rpc_deadline(const struct td_request *request, unsigned form, uint64_t *deadline_ns);

#endif
