/* Answers calls that come before the server is ready for the first time (td_catalog_stage). An unknown name may then
 * belong to a file that is about to be published, so the answer is 503 instead of 404 or an incomplete list. */
#ifndef TD_API_CALL_EARLY_CALL_H
#define TD_API_CALL_EARLY_CALL_H

#include "api/call/call.h"

enum { TD_EARLY_REASON_BYTES = 320 };

/* Returns true if the call came before the server was ready for the first time: a name that its snapshot lacks may
 * appear soon. Then writes the reason for a 503. */
bool td_early_call_knows_no_names(const struct td_call *call, char reason[TD_EARLY_REASON_BYTES]);

/* Returns true if the server has not yet published all files that were below this directory (empty: anywhere) at its
 * start. The description of a model or a list would then lack them. Then writes the reason for a 503. */
bool td_early_call_lacks_files(const struct td_call *call, struct td_text directory,
                               char reason[TD_EARLY_REASON_BYTES]);

/* The functions below answer in the form of facades whose errors have a status and a message alone. */

/* Replaces a 404 by a 503 if td_early_call_knows_no_names returns true. */
void td_early_call_mend(const struct td_call *call);

/* Returns true if td_early_call_lacks_files returns false for the directory. Otherwise answers 503 and returns false.
 */
bool td_early_call_may_describe(const struct td_call *call, struct td_text directory);

/* Does the same for a list of everything that the caller may see. */
bool td_early_call_may_list(const struct td_call *call);

#endif
