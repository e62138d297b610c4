/* The reflection service of gRPC: https://github.com/grpc/grpc/blob/master/doc/server-reflection.md. It shows the
 * schema that GET /tensord.v1.binpb has, with what that imports, and the services of health and reflection. */
#ifndef TD_API_RPC_GRPC_REFLECTION_H
#define TD_API_RPC_GRPC_REFLECTION_H

#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>

/* Appends the ServerReflectionResponse for a ServerReflectionRequest; what is not found is an answer, too. Errors:
 * TD_INVALID_ARGUMENT for bytes that are no such message, TD_RESOURCE_EXHAUSTED. Any thread. */
bool td_grpc_reflect(struct td_text message, struct td_buffer *out, struct td_error *err);

#endif
