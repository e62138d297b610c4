/* Answers calls that come before the server is ready for the first time (td_catalog_stage). An unknown name may then
 * belong to a file that is about to be published, so the answer is 503 instead of 404 or an incomplete list. */
#ifndef TD_API_EARLY_CALL_H
#define TD_API_EARLY_CALL_H

#include "api/call.h"

enum { TD_EARLY_REASON_BYTES = 320 };

/* Returns whether the call's snapshot was taken before the server was ready for the first time, so that a name that it
 * lacks may appear soon. If so, writes the reason for a 503. */
bool td_early_call_knows_no_names(const struct td_call *call, char reason[TD_EARLY_REASON_BYTES]);

/* Returns whether files below this directory (empty: any files) that existed at the start are not published yet, so
 * that what is made of them, such as a model's description, would be incomplete. If so, writes the reason for a 503. */
bool td_early_call_lacks_files(const struct td_call *call, struct td_text directory,
                               char reason[TD_EARLY_REASON_BYTES]);

/* Turns a 404 into a 503 if td_early_call_knows_no_names. For facades whose errors need only a status and a message. */
void td_early_call_mend(const struct td_call *call);

/* Returns whether the call may describe what is below a directory. Answers 503 and returns false if
 * td_early_call_lacks_files. For the same facades. */
bool td_early_call_may_describe(const struct td_call *call, struct td_text directory);

/* Does the same for a list of all that the caller may see. */
bool td_early_call_may_list(const struct td_call *call);

#endif
