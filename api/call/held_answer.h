/* Answers from files that are still arriving from the upstream. No answer is completed before its bytes are verified,
 * and no client joins wrong bytes with right ones. */
#ifndef TD_API_CALL_HELD_ANSWER_H
#define TD_API_CALL_HELD_ANSWER_H

#include "api/call/state.h"
#include "http/request.h"
#include "http/response.h"

#include <stdbool.h>

/* Holds back the end of the answer until its file is verified (td_incoming_hold_end). If the client verifies the file
 * itself, the answer may be completed earlier, but no cache may store it. The answer stops waiting for bytes when its
 * client disconnects. Does nothing without an upstream. Call it after ranges have been applied. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_held_answer_apply(const struct td_api *api, const struct td_request *request, struct td_response *response,
                          struct td_error *err);

/* Returns whether the entity tag allows a range to be answered with a part. Returns false when the client would resume
 * with an entity tag under which wrong bytes may have been sent: a request with If-Range must then get the whole file,
 * and this function answers 412 to one with If-Match alone. */
bool td_held_answer_may_go_on(const struct td_api *api, const struct td_request *request, struct td_response *response);

#endif
