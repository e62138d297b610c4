/* The interface of typed clients: the services of api/proto/tensord/v1 by the protocol of Connect
 * (https://connectrpc.com/docs/protocol) and by gRPC-Web
 * (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md).
 *
 * A method's request becomes a request of the native interface (rpc_rules.h), whose handler writes its answer as the
 * method's message (core/message/document.h). Both interfaces therefore have the same limits, rights and messages. */
#ifndef TD_API_RPC_RPC_H
#define TD_API_RPC_RPC_H

#include "http/facade.h"

/* Owns /tensord.v1.{Service}/{Method}. */
extern const struct td_facade td_rpc_facade;

#endif
