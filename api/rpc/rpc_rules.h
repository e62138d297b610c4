/* The rules by which a method's request becomes a request of the native interface. */
#ifndef TD_API_RPC_RPC_RULES_H
#define TD_API_RPC_RPC_RULES_H

#include "core/message/decode.h"
#include "core/message/message.h"
#include "http/response.h"

#include <stdbool.h>

/* The answers of the native interface to such requests. */
enum td_rpc_answer {
    TD_RPC_DOCUMENT, /* the message */
    TD_RPC_TENSORS,  /* bytes of tensors */
    TD_RPC_ROWS,     /* rows in the form "frame" */
    TD_RPC_WATCHED,  /* a message that each message of the stream contains */
};

/* A request of the native interface. The texts are in the buffers. */
struct td_rpc_native {
    enum td_route route; /* that such a request has; another one means that an id is the path of something else */
    enum td_route label; /* of the method, for metrics and the access log */
    enum td_rpc_answer answer;
    bool is_post;
    struct td_buffer target, body;
};

/* Translates the request of a method. Returns false after it answered an error: 400 for a field that must have a value,
 * 501 for a method that is not served. Call td_rpc_native_fini in every case. */
bool td_rpc_translate(const struct td_method *method, const struct td_record *request, struct td_response *response,
                      struct td_rpc_native *out);
void td_rpc_native_fini(struct td_rpc_native *native);

#endif
