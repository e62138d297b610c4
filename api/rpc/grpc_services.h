/* The services that servers of gRPC have beside their own: health and reflection, in protobuf's binary form. They
 * answer on the port of gRPC and on the main port. And the facade of the port of gRPC, which answers calls of unknown
 * services. */
#ifndef TD_API_RPC_GRPC_SERVICES_H
#define TD_API_RPC_GRPC_SERVICES_H

#include "http/facade.h"

/* Owns /grpc.health.v1.Health/{Method} and /grpc.reflection.{v1|v1alpha}.ServerReflection/{Method}. Needs no token: the
 * answers show no model. */
extern const struct td_facade td_grpc_services_facade;

/* Of a port of its own. */
extern const struct td_facade td_grpc_facade;

#endif
