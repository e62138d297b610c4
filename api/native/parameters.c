#include "api/native/parameters.h"

#include "catalog/checkpoints/partial_checkpoint.h"
#include "core/clock.h"
#include "core/json/json_build.h"
#include "core/waiting.h"
#include "http/conditional.h"

#include <stdio.h>
#include <string.h>

/* ---- checkpoint and partial ---------------------------------------------------------------------------- */

static void list_checkpoints(const struct td_model *model, struct td_buffer *out)
{
    struct td_json_builder json;
    td_json_builder_init(&json, out);
    td_json_begin_object(&json, NULL);
    td_json_begin_array(&json, "checkpoints");
    for (size_t i = 0; i < model->checkpoint_count; i++) {
        td_json_add_string(&json, NULL, model->checkpoints[i].id);
        td_json_flush(&json);
    }
    td_json_end(&json);
    td_json_end(&json);
    td_json_builder_fini(&json);
}

/* Returns the checkpoint that the request names; NULL after it answered an error. can_be_part: the route takes
 * ?partial=1.
 */
static const struct td_checkpoint *find_checkpoint(const struct td_call *call, bool can_be_part)
{
    const struct td_text empty = TD_TEXT("");
    const struct td_text *given = td_uri_parameter(call->uri, "checkpoint");
    const struct td_text *id = given == NULL ? &empty : given;
    bool names_nothing = given != NULL && given->len == 0; /* ?checkpoint= is no id, and not the default either */
    const struct td_checkpoint *found = names_nothing ? NULL : td_model_find_checkpoint(call->model, *id);
    if (found != NULL)
        return found;
    struct td_buffer details;
    td_buffer_init(&details);
    list_checkpoints(call->model, &details);
    const char *text = td_buffer_terminate(&details);
    const char *advice =
        call->model->partial_count == td_model_rank_part_count(call->model) || !can_be_part
            ? ""
            : "; add ?partial=1 to .../tensors or .../tensors/{name} to get the tensors that are there";
    const struct td_checkpoint *part = td_partial_find(call->model, *id);
    if (part != NULL && part->is_rank_part)
        td_response_fail(call->response, 404, text,
                         "checkpoint \"%s\" of model \"%s\" is one rank's part of the tensors, not the whole; "
                         ".../tensors?checkpoint= and .../tensors/{name}?checkpoint= answer it",
                         part->id, call->model->id);
    else if (call->model->checkpoint_count == 0 && td_model_rank_part_count(call->model) > 0)
        td_response_fail(call->response, 404, text,
                         "model \"%s\" has no default checkpoint: its files hold one rank's part of the tensors each; "
                         "GET /models/%s lists them in parts%s%s",
                         call->model->id, call->model->id,
                         can_be_part ? "; add ?checkpoint=ID to .../tensors or .../tensors/{name} to read one" : "",
                         advice);
    else if (call->model->checkpoint_count == 0)
        td_response_fail(call->response, 404, text,
                         "model \"%s\" has no readable checkpoint; GET /models/%s lists %s%s", call->model->id,
                         call->model->id,
                         call->model->problems.count > 0 ? "the errors" : "its files, all in other formats", advice);
    else
        td_response_fail(call->response, 404, text, "model \"%s\" has no checkpoint \"%.*s\"%s", call->model->id,
                         TD_SHOW(*id, 200), advice);
    td_buffer_fini(&details);
    return NULL;
}

void td_native_refuse_delta(const struct td_call *call)
{
    const char *base = call->model->base;
    td_response_fail(call->response, 422, NULL,
                     "model \"%.400s\" is a delta: its files hold the changes to %s%.255s%s; make the full version of "
                     "both with \"tensord apply\", or read its files",
                     call->model->id, base == NULL ? "another version" : "version \"", base == NULL ? "" : base,
                     base == NULL ? "" : "\"");
}

const struct td_checkpoint *td_checkpoint_parameter(const struct td_call *call)
{
    return find_checkpoint(call, false);
}

const struct td_checkpoint *td_checkpoint_parameter_or_part(const struct td_call *call)
{
    const struct td_text *partial = td_uri_parameter(call->uri, "partial");
    const struct td_text *id = td_uri_parameter(call->uri, "checkpoint");
    if (partial != NULL && !td_text_equals(*partial, "1")) {
        td_response_fail(call->response, 400, NULL,
                         "partial must be 1: it asks for the present tensors of an incomplete checkpoint");
        return NULL;
    }
    const struct td_checkpoint *found = NULL;
    if (id == NULL ? partial != NULL : id->len > 0)
        found = td_partial_find(call->model, id == NULL ? TD_TEXT("") : *id);
    if (found != NULL && partial == NULL && !found->is_rank_part)
        found = NULL; /* without ?partial=1 only one rank's part, which its id names */
    return found != NULL ? found : find_checkpoint(call, partial == NULL);
}

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
