/* Answers calls of gRPC's health service: https://github.com/grpc/grpc/blob/master/doc/health-checking.md. The whole
 * server, which an empty name stands for, and each service of tensord.v1 are SERVING while /readyz answers 200. */
#ifndef TD_API_RPC_GRPC_HEALTH_H
#define TD_API_RPC_GRPC_HEALTH_H

#include "api/call/call.h"
#include "core/buffer.h"

#include <stdbool.h>

/* Appends the HealthCheckResponse for a HealthCheckRequest. Returns false after it answered an error: 400 for bytes
 * that are no such message, 404 for an unknown service. */
bool td_grpc_health_check(const struct td_call *call, struct td_text message, struct td_buffer *out);

/* Appends the HealthListResponse. */
void td_grpc_health_list(const struct td_call *call, struct td_buffer *out);

/* Answers a HealthCheckRequest with a stream: the status, and each further one when it changes. Ends when the server
 * drains, and when the client's time is over. */
void td_grpc_health_watch(const struct td_call *call, struct td_text message);

#endif
