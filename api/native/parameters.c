#include "api/native/parameters.h"

#include "core/clock.h"
#include "core/waiting.h"
#include "http/conditional.h"

#include <stdio.h>
#include <string.h>

/* ---- the manifest's tag -------------------------------------------------------------------------------- */

enum { SHOWN_BYTES = 64 };

static bool has_tag(const struct td_checkpoint *checkpoint, const char *tag)
{
    return strcmp(tag, checkpoint->tag) == 0 || strcmp(tag, checkpoint->former_tag) == 0;
}

static bool fail_binding(const struct td_call *call, const struct td_checkpoint *checkpoint, const char *tag)
{
    td_response_fail(call->response, 412, NULL,
                     "the manifest of checkpoint \"%.200s\" has the tag \"%s\" now, not \"%.*s\": the checkpoint has "
                     "changed since that manifest was read, or it was another's; read the manifest again, GET "
                     "/models/%s/tensors, and make the request from that",
                     checkpoint->id, checkpoint->tag, TD_SHOW(td_text_of(tag), SHOWN_BYTES), call->model->id);
    return false;
}

bool td_native_check_manifest(const struct td_call *call, const struct td_checkpoint *checkpoint, const char *tag)
{
    return tag == NULL || has_tag(checkpoint, tag) || fail_binding(call, checkpoint, tag);
}

/* ---- wait and timeout ---------------------------------------------------------------------------------- */

/* Returns the tag without W/ and without its quotes. */
static struct td_text bare_tag(struct td_text tag)
{
    if (td_text_begins(tag, TD_TEXT("W/")))
        tag = td_text_skip(tag, 2);
    if (tag.len >= 2 && tag.p[0] == '"' && tag.p[tag.len - 1] == '"')
        tag = td_text_n(tag.p + 1, tag.len - 2);
    return tag;
}

/* Returns whether the tag, without its quotes, begins with the state. */
static bool names_state(struct td_text tag, struct td_text state)
{
    return tag.len > state.len && tag.p[state.len] == '-' && td_text_begins(tag, state);
}

/* Sets the time at which the call is handled again at the latest. Returns false when the wait is over. */
static bool goes_on(const struct td_call *call, uint64_t timeout_s)
{
    const struct td_request *request = call->request;
    uint64_t until_ns = request->since_ns + timeout_s * TD_NS_PER_S;
    if (request->since_ns == 0 || td_clock_ns() >= until_ns || td_call_ends_wait(call))
        return false;
    call->response->wait_until_ns = until_ns;
    return true;
}

enum td_wait td_wait_parameter(const struct td_call *call, const char *state, const char *former)
{
    const struct td_text *wait = td_uri_parameter(call->uri, "wait");
    uint64_t timeout_s = TD_WAIT_DEFAULT_S;
    if (!td_call_read_number(call, "timeout", TD_WAIT_MAX_S, &timeout_s))
        return TD_WAIT_ANSWERED;
    if (wait == NULL)
        return TD_WAIT_NONE;
    struct td_text tag = bare_tag(*wait);
    if (!names_state(tag, td_text_of(state)) && !names_state(tag, td_text_of(former)))
        return TD_WAIT_CHANGED;
    return goes_on(call, timeout_s) ? TD_WAIT_ANSWERED : TD_WAIT_UNCHANGED;
}

/* Returns when to ask the upstream again for a name that it lacks, since it does not announce new names. */
static uint64_t ask_again_ns(void)
{
    return td_clock_ns() + UINT64_C(5000000000);
}

bool td_wait_for_name(const struct td_call *call, const char *const *known)
{
    struct td_text method = call->request->method;
    const struct td_text *wait = td_uri_parameter(call->uri, "wait");
    uint64_t timeout_s = TD_WAIT_DEFAULT_S;
    bool reads = td_text_equals(method, "GET") || td_text_equals(method, "HEAD");
    if (wait == NULL || wait->len > 0 || !reads)
        return false;
    if (!td_call_check_parameters(call, known) || !td_call_read_number(call, "timeout", TD_WAIT_MAX_S, &timeout_s))
        return true;
    if (td_waiting_was_refused() || !goes_on(call, timeout_s))
        return false;
    uint64_t again_ns = ask_again_ns();
    if (call->api->upstream != NULL && again_ns < call->response->wait_until_ns)
        call->response->wait_until_ns = again_ns;
    return true;
}

bool td_wait_for_more(const struct td_call *call)
{
    uint64_t timeout_s = TD_WAIT_DEFAULT_S;
    return td_uri_parameter(call->uri, "wait") != NULL &&
           td_call_read_number(call, "timeout", TD_WAIT_MAX_S, &timeout_s) && goes_on(call, timeout_s);
}

void td_wait_end(struct td_response *response, enum td_wait wait, const char *state)
{
    char text[TD_ETAG_BYTES];
    if (response->status != 200)
        return;
    (void)snprintf(text, sizeof text, "%s-%.16s", state, response->etag + 1);
    td_response_set_etag(response, text);
    if (wait == TD_WAIT_UNCHANGED)
        td_conditional_not_modified(response);
}
