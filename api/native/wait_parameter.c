#include "api/native/wait_parameter.h"

#include "core/clock.h"

#include <string.h>

/* Returns the tag without W/ and without its quotes. */
static struct td_text bare_tag(struct td_text tag)
{
    if (td_text_begins(tag, TD_TEXT("W/")))
        tag = td_text_skip(tag, 2);
    if (tag.len >= 2 && tag.p[0] == '"' && tag.p[tag.len - 1] == '"')
        tag = td_text_n(tag.p + 1, tag.len - 2);
    return tag;
}

/* Returns whether the tag, without its quotes, is of a description of the model in its present state. */
static bool names_state(struct td_text tag, const struct td_model *model)
{
    struct td_text state = td_text_of(model->tag);
    return tag.len > state.len && tag.p[state.len] == '-' && td_text_begins(tag, state);
}

enum td_wait td_wait_parameter(const struct td_call *call)
{
    const struct td_request *request = call->request;
    const struct td_text *wait = td_uri_parameter(call->uri, "wait");
    uint64_t timeout_s = TD_WAIT_DEFAULT_S;
    if (!td_call_read_number(call, "timeout", TD_WAIT_MAX_S, &timeout_s))
        return TD_WAIT_ANSWERED;
    if (wait == NULL)
        return TD_WAIT_NONE;
    if (!names_state(bare_tag(*wait), call->model))
        return TD_WAIT_CHANGED;
    uint64_t until_ns = request->since_ns + timeout_s * UINT64_C(1000000000);
    if (request->since_ns == 0 || td_clock_ns() >= until_ns || td_call_over(call))
        return TD_WAIT_UNCHANGED;
    call->response->wait_until_ns = until_ns;
    return TD_WAIT_ANSWERED;
}
