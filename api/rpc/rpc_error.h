/* Errors of calls, in all forms: JSON of Connect, the end of a stream of Connect, and trailers of gRPC. */
#ifndef TD_API_RPC_RPC_ERROR_H
#define TD_API_RPC_RPC_ERROR_H

#include "api/call/call.h"
#include "core/buffer.h"
#include "http/facade.h"
#include "http/response.h"

/* Writes an error in failure->form, for td_facade.write_error. In the forms of streams the body is what ends a stream,
 * or for gRPC there are trailers in its place. */
void td_rpc_write_error(struct td_failure *failure, struct td_buffer *out);

/* Answers a call of a path that is no method's: 404, `unimplemented`. */
void td_rpc_refuse_path(const struct td_call *call);

/* Answers a request for a method with another verb than POST: 405, `unknown`. path: "package.Service/Method". */
void td_rpc_refuse_verb(struct td_response *response, const char *path);

/* Answers a call with a Content-Type that the method does not take: 415, `unknown`. types: those that it takes, for
 * Accept-Post and the message. */
void td_rpc_refuse_type(struct td_response *response, const char *path, const char *types);

#endif
