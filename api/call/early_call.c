#include "api/call/early_call.h"

#include <stdio.h>

bool td_early_call_knows_no_names(const struct td_call *call, char reason[TD_EARLY_REASON_BYTES])
{
    if (call->snapshot == NULL || call->stage == TD_CATALOG_COMPLETE)
        return false;
    (void)snprintf(reason, TD_EARLY_REASON_BYTES, "the server is not ready yet: %s; see /readyz, and try again",
                   call->stage == TD_CATALOG_LACKING ? "fewer models are published than --require-models asks for"
                                                     : "files that changed just before its start are not published");
    return true;
}

bool td_early_call_lacks_files(const struct td_call *call, struct td_text directory, char reason[TD_EARLY_REASON_BYTES])
{
    return call->stage == TD_CATALOG_STARTING && call->snapshot != NULL &&
           td_snapshot_lacks_below(call->snapshot, directory) && td_early_call_knows_no_names(call, reason);
}

/* Answers 503 for the reason. Returns false. */
static bool refuse_early(const struct td_call *call, const char *reason)
{
    td_response_fail(call->response, 503, NULL, "%s", reason);
    return false;
}

void td_early_call_mend(const struct td_call *call)
{
    char reason[TD_EARLY_REASON_BYTES];
    if (call->response->status == 404 && td_early_call_knows_no_names(call, reason))
        (void)refuse_early(call, reason);
}

bool td_early_call_may_describe(const struct td_call *call, struct td_text directory)
{
    char reason[TD_EARLY_REASON_BYTES];
    return !td_early_call_lacks_files(call, directory, reason) || refuse_early(call, reason);
}

bool td_early_call_may_list(const struct td_call *call)
{
    return td_early_call_may_describe(call, TD_TEXT(""));
}
