/* Calls that come before the server was ready once (td_catalog_stage). A name that is not known may then be that of a
 * file which is about to be published, so such calls are answered 503 in place of 404 and of lists with gaps. */
#ifndef TD_API_EARLY_CALL_H
#define TD_API_EARLY_CALL_H

#include "api/call.h"

enum { TD_EARLY_REASON_BYTES = 320 };

/* Returns whether the call's snapshot was taken before the server was ready once, and writes the reason for a 503 if
 * so: a name that it lacks may be there soon. */
bool td_early_call_knows_no_names(const struct td_call *call, char reason[TD_EARLY_REASON_BYTES]);

/* Does the same for what is made of the files below a directory of the snapshot (empty: of all files), such as a
 * model's description: returns whether files below it that were there at the start are not published yet. */
bool td_early_call_lacks_files(const struct td_call *call, struct td_text directory,
                               char reason[TD_EARLY_REASON_BYTES]);

/* Turns a 404 into a 503 where td_early_call_knows_no_names. For facades whose errors need nothing but a message. */
void td_early_call_mend(const struct td_call *call);

/* Returns whether the call may go on to describe what is below a directory, as td_early_call_lacks_files has it; false
 * after it answered 503. For the same facades. */
bool td_early_call_may_describe(const struct td_call *call, struct td_text directory);

/* Does the same for a list of all that the caller may see. */
bool td_early_call_may_list(const struct td_call *call);

#endif
