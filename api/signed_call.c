#include "api/signed_call.h"

#include "core/clock.h"
#include "http/auth/signed_url.h"

#include <stdio.h>

/* Sets call->access from the signature of the URL. */
static bool take_signature(struct td_call *call, struct td_refusal *refusal)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_token *token;
    const struct td_request *request = call->request;
    if (!td_signed_url_check(call->caller.tokens, request->method, request->target, td_wall_now().seconds, &token,
                             &call->caller.bare, &err)) {
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

bool td_signed_call_admit(struct td_call *call, struct td_refusal *refusal)
{
    size_t at = 0;
    bool is_signed = td_signed_url_is_meant(call->request->target);
    bool has_field = td_request_next_header(call->request, "Authorization", &at) != NULL;
    return ((is_signed && !has_field) || td_access_take_bearer(call, refusal)) &&
           (!is_signed || take_signature(call, refusal));
}
