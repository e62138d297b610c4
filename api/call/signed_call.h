/* Credentials on the main port: a token in the field Authorization, or a signature in the URL. */
#ifndef TD_API_CALL_SIGNED_CALL_H
#define TD_API_CALL_SIGNED_CALL_H

#include "api/call/access.h"

#include <stdbool.h>

/* Takes the field Authorization: td_access_take_bearer or td_access_take_password. */
typedef bool td_take_field(struct td_call *call, struct td_refusal *refusal);

/* Sets call->caller from the credentials of a request on the main port, for td_facade.admit. If the request has the
 * field Authorization, take_field judges it first: a bad token is refused whatever the URL says. A good signature then
 * gives the call the rights of its signer, and sets call->caller.bare to the target that handlers see. Returns false
 * with a refusal, 401 or 403, or 503 when memory is short. */
bool td_signed_call_admit(struct td_call *call, td_take_field *take_field, struct td_refusal *refusal);

#endif
