/* Errors of calls, in all forms: JSON of Connect, the end of a stream of Connect, and trailers of gRPC. */
#ifndef TD_API_RPC_RPC_ERROR_H
#define TD_API_RPC_RPC_ERROR_H

#include "core/buffer.h"
#include "http/facade.h"

/* Writes an error in failure->form, for td_facade.write_error. In the forms of streams the body is what ends a stream,
 * or for gRPC there are trailers in its place. */
void td_rpc_write_error(struct td_failure *failure, struct td_buffer *out);

#endif
