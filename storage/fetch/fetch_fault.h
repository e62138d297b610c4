/* Why a request has failed, as an error for people, and whether it is any use to ask again. */
#ifndef TD_STORAGE_FETCH_FAULT_H
#define TD_STORAGE_FETCH_FAULT_H

#include "core/error.h"
#include "storage/fetch/fetch_answer.h"

#include <stdbool.h>

/* Sets the error for a failure of libcurl (`code` is a CURLcode, `text` its error buffer) on a handle (CURL *). `what`
 * names what was asked for, with the server. TD_UNAVAILABLE: may pass; all other codes stay. Returns false. */
bool td_fetch_fault_of_code(void *easy, int code, const char *text, const char *what, struct td_error *err);

/* Returns whether a failure with this status may pass, so that asking again may help: 408, 425, 429, 500 and above. */
bool td_fetch_status_may_pass(unsigned status);

/* Sets the error for an answer whose status is not the wanted one. token_advice, or NULL: what a person does about
 * 401. TD_UNAVAILABLE for a status that may pass. Returns false. */
bool td_fetch_fault_of_answer(const struct td_fetch_answer *answer, const char *token_advice, const char *what,
                              struct td_error *err);

#endif
