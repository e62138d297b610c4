/* Reads the messages of a call out of its request: out of their frames, and unpacked. */
#ifndef TD_API_RPC_RPC_INPUT_H
#define TD_API_RPC_RPC_INPUT_H

#include "api/call/call.h"
#include "core/text.h"

#include <stdbool.h>

struct td_rpc_input {
    const struct td_call *call;
    struct td_text left; /* the part of the body that was not taken yet */
    bool is_gzip;        /* the request names gzip as the encoding of its messages */
    char *unpacked;      /* the last message, if it was compressed; owned */
};

/* Refuses a call, because its messages have an unknown encoding, with the code `unimplemented`. Can be a
 * td_facade.refuse_coding. */
void td_rpc_refuse_encoding(const struct td_call *call);

/* Begins with the body of a POST. Returns false after it answered `unimplemented` for an unknown encoding. Call
 * td_rpc_input_fini in each case. */
bool td_rpc_input_init(struct td_rpc_input *input, const struct td_call *call);
void td_rpc_input_fini(struct td_rpc_input *input);

/* Does the same for the message of a GET, which td_rpc_input_unpack then unpacks. `encoding` names how the message is
 * compressed; NULL: it is not. */
bool td_rpc_input_init_get(struct td_rpc_input *input, const struct td_call *call, const struct td_text *encoding);
bool td_rpc_input_unpack(struct td_rpc_input *input, struct td_text *message);

/* Takes the next message of a body in frames; input->left must not be empty. The message is valid until the next
 * call. Returns false after it answered: 400 for a broken frame or broken bytes of gzip, 413, 503, `internal` for a
 * compressed message of a request that names no encoding. */
bool td_rpc_input_take(struct td_rpc_input *input, struct td_text *message);

/* Takes the message of a body that has exactly one: the whole body in a form without frames. Returns false after it
 * answered as td_rpc_input_take does, or `unimplemented` for no message or several ones. */
bool td_rpc_input_take_only(struct td_rpc_input *input, struct td_text *message);

#endif
