/* Answers from files that are still arriving from the upstream: no answer is completed before its bytes are checked,
 * and no client joins bytes that turned out to be wrong with others. */
#ifndef TD_API_HELD_ANSWER_H
#define TD_API_HELD_ANSWER_H

#include "api/state.h"
#include "http/request.h"
#include "http/response.h"

#include <stdbool.h>

/* Has the end of the answer wait until its file is checked (td_incoming_hold_end), unless the client checks it itself:
 * then the answer may be complete before, and no cache may keep it. Call it when ranges have been applied. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_held_answer_apply(const struct td_request *request, struct td_response *response, struct td_error *err);

/* Returns whether a range may be answered with a part, as far as If-Range has to do with it: not where the validator
 * that the client would go on with has been given out with bytes that were wrong. */
bool td_held_answer_may_go_on(const struct td_api *api, const struct td_request *request,
                              const struct td_response *response);

#endif
