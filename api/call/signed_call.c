#include "api/call/signed_call.h"

#include "core/clock.h"
#include "http/auth/signed_url.h"

#include <stdio.h>

/* Sets call->caller from the signature of the URL. */
static bool take_signature(struct td_call *call, struct td_refusal *refusal)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_token *token;
    const struct td_request *request = call->request;
    if (!td_signed_url_check(call->caller.tokens, request->method, request->target, td_wall_now().seconds, &token,
                             &call->caller.bare, &err)) {
        if (token != NULL)
            td_access_note_name(call, token);
        *refusal = (struct td_refusal){.status = err.code == TD_RESOURCE_EXHAUSTED ? 503 : 403};
        (void)snprintf(refusal->message, sizeof refusal->message, "%.*s", TD_REFUSAL_BYTES - 1, err.message);
        return false;
    }
    if (token != NULL)
        return td_access_take_token(call, token, refusal);
    call->caller.kind = TD_CALLER_HOLDER;
    call->caller.token = NULL;
    call->response->token[0] = '\0'; /* of the field Authorization */
    return true;
}

/* Returns whether a client of S3 signed the request: it has mixed up the ports. */
static bool is_signed_for_s3(const struct td_call *call)
{
    const struct td_header *field = td_request_single_header(call->request, "Authorization");
    return td_uri_parameter(call->uri, "X-Amz-Signature") != NULL ||
           (field != NULL && td_text_begins(field->value, TD_TEXT("AWS")));
}

bool td_signed_call_admit(struct td_call *call, td_take_field *take_field, struct td_refusal *refusal)
{
    size_t at = 0;
    bool is_signed = td_signed_url_is_meant(call->request->target);
    bool has_field = td_request_next_header(call->request, "Authorization", &at) != NULL;
    bool is_admitted =
        ((is_signed && !has_field) || take_field(call, refusal)) && (!is_signed || take_signature(call, refusal));
    if (!is_admitted && is_signed_for_s3(call))
        (void)snprintf(refusal->message, sizeof refusal->message,
                       "this is not the port for clients of S3, which is that of --s3-listen; this one takes tokens");
    return is_admitted;
}
