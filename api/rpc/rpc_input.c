#include "api/rpc/rpc_input.h"

#include "api/call/coded_body.h"
#include "api/rpc/rpc_form.h"
#include "http/body_room.h"
#include "http/response.h"

#include <stdint.h>
#include <stdlib.h>

enum { FLAG_COMPRESSED = 1 };

static bool is_of_connect(unsigned form)
{
    return (form & (TD_RPC_WEB | TD_RPC_GRPC)) == 0;
}

/* Returns the field that names the encoding of messages in frames. */
static const char *encoding_field(unsigned form)
{
    return is_of_connect(form) ? "Connect-Content-Encoding" : "grpc-encoding";
}

/* Returns the field of an answer that names the known encodings. */
static const char *accept_field(unsigned form)
{
    return !is_of_connect(form)          ? "grpc-accept-encoding"
           : (form & TD_RPC_FRAMES) != 0 ? "Connect-Accept-Encoding"
                                         : "Accept-Encoding";
}

void td_rpc_refuse_encoding(const struct td_call *call)
{
    td_response_fail_as(call->response, 501, "UNIMPLEMENTED", "the encoding of the message is not known; known are %s",
                        TD_BODY_CODINGS);
    td_response_add_header(call->response, accept_field(call->response->form), TD_BODY_CODINGS);
}

bool td_rpc_input_init_get(struct td_rpc_input *input, const struct td_call *call, const struct td_text *encoding)
{
    bool is_gzip = encoding != NULL && td_text_equals_ignore_case(*encoding, "gzip");
    *input = (struct td_rpc_input){.call = call, .is_gzip = is_gzip};
    if (is_gzip || encoding == NULL || encoding->len == 0 || td_text_equals_ignore_case(*encoding, "identity"))
        return true;
    td_rpc_refuse_encoding(call);
    return false;
}

bool td_rpc_input_init(struct td_rpc_input *input, const struct td_call *call)
{
    const struct td_header *encoding = NULL;
    const unsigned form = call->response->form;
    if ((form & TD_RPC_FRAMES) != 0) /* else api/call/coded_body has unpacked the body */
        encoding = td_request_single_header(call->request, encoding_field(form));
    bool ok = td_rpc_input_init_get(input, call, encoding == NULL ? NULL : &encoding->value);
    input->left = call->request->body;
    return ok;
}

void td_rpc_input_fini(struct td_rpc_input *input)
{
    free(input->unpacked);
    input->unpacked = NULL;
}

/* Frees the last message. */
static void drop_unpacked(struct td_rpc_input *input)
{
    if (input->unpacked == NULL)
        return;
    td_rpc_input_fini(input);
    input->call->request->room->give(input->call->request->room);
}

bool td_rpc_input_unpack(struct td_rpc_input *input, struct td_text *message)
{
    size_t len;
    if (!input->is_gzip || message->len == 0)
        return true;
    if (input->call->request->room == NULL) {
        td_rpc_refuse_encoding(input->call);
        return false;
    }
    if (!td_coded_body_unpack(input->call, *message, &input->unpacked, &len))
        return false;
    *message = td_text_n(input->unpacked == NULL ? "" : input->unpacked, len);
    return true;
}

bool td_rpc_input_take(struct td_rpc_input *input, struct td_text *message)
{
    struct td_response *response = input->call->response;
    const struct td_text body = input->left;
    const uint8_t *p = (const uint8_t *)body.p;
    size_t len = SIZE_MAX;
    if (body.len >= TD_RPC_FRAME_BYTES)
        len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | (size_t)p[4];
    drop_unpacked(input);
    if (body.len < TD_RPC_FRAME_BYTES || len > body.len - TD_RPC_FRAME_BYTES) {
        td_response_fail(response, 400, NULL, "the body ends within a frame");
        return false;
    }
    const bool is_packed = (p[0] & FLAG_COMPRESSED) != 0;
    if (is_packed && !input->is_gzip) {
        td_response_fail(response, 500, NULL, "a frame is marked as compressed, but the request names no encoding");
        return false;
    }
    if ((p[0] & ~FLAG_COMPRESSED) != 0) {
        td_response_fail(response, 400, NULL, "a frame has flags that are not known");
        return false;
    }
    *message = td_text_n(body.p + TD_RPC_FRAME_BYTES, len);
    input->left = td_text_skip(body, TD_RPC_FRAME_BYTES + len);
    return !is_packed || td_rpc_input_unpack(input, message);
}

bool td_rpc_input_take_only(struct td_rpc_input *input, struct td_text *message)
{
    struct td_response *response = input->call->response;
    *message = input->left;
    if ((response->form & TD_RPC_FRAMES) == 0)
        return true;
    if (message->len == 0) {
        td_response_fail_as(response, 501, "UNIMPLEMENTED", "the request has no message; this method takes one");
        return false;
    }
    if (!td_rpc_input_take(input, message))
        return false;
    if (input->left.len > 0)
        td_response_fail_as(response, 501, "UNIMPLEMENTED", "the request has several messages; this method takes one");
    return input->left.len == 0;
}
