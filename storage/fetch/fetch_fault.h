/* Why a request has failed, as an error for people, and whether it is any use to ask again. */
#ifndef TD_STORAGE_FETCH_FETCH_FAULT_H
#define TD_STORAGE_FETCH_FETCH_FAULT_H

#include "core/error.h"
#include "storage/fetch/fetch_answer.h"

#include <stdbool.h>

/* Sets the error for a failure of libcurl (`code` is a CURLcode, `text` its error buffer) on a handle (CURL *). `what`
 * names what was asked for, with the server. TD_UNAVAILABLE: may pass; all other codes stay. Returns false. */
bool td_fetch_fault_of_code(void *easy, int code, const char *text, const char *what, struct td_error *err);

enum { TD_FETCH_ADVICE_BYTES = 140 }; /* with a NUL; so much fits beside two long names */

/* Returns whether the failure that the answer tells may pass, so that asking again may help: 408, 425, 429, 500 and
 * above. Of 507, no room (RFC 4918 section 11.5: "MUST NOT be repeated"), that is so only with Retry-After. */
bool td_fetch_fault_may_pass(const struct td_fetch_answer *answer);

/* Sets the error for an answer whose status is not the wanted one. advice: what a person does about it; NULL: for 401
 * that a token is needed, for others none. What the server says comes last, so that nothing else is cut with it.
 * TD_UNAVAILABLE for a failure that may pass; TD_RESOURCE_EXHAUSTED with sys EFBIG for 507 without Retry-After: the
 * server never has room for what was asked for. Returns false. */
bool td_fetch_fault_of_answer(const struct td_fetch_answer *answer, const char *advice, const char *what,
                              struct td_error *err);

/* Returns whether the error says that there is never room for something, whatever else leaves. Whoever finds that out,
 * here or at a server, sets sys to EFBIG. */
bool td_fetch_fault_never_fits(const struct td_error *why);

#endif
