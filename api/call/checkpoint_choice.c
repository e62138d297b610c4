#include "api/call/checkpoint_choice.h"

#include "catalog/checkpoints/partial_checkpoint.h"
#include "core/message/document.h"

static void list_checkpoints(const struct td_model *model, struct td_buffer *out)
{
    struct td_document json;
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    td_document_begin_array(&json, "checkpoints");
    for (size_t i = 0; i < model->checkpoint_count; i++) {
        td_document_add_string(&json, NULL, model->checkpoints[i].id);
    }
    td_document_end(&json);
    td_document_end(&json);
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

void td_call_refuse_delta(const struct td_call *call)
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

bool td_dtype_parameter(const struct td_call *call, const struct td_dtype **dtype)
{
    const struct td_text *name = td_uri_parameter(call->uri, "dtype");
    *dtype = NULL;
    if (name == NULL)
        return true;
    *dtype = td_dtype_find(*name);
    if (*dtype != NULL)
        return true;
    const char *known[256];
    size_t count = 0;
    for (; td_dtype_at(count) != NULL && count + 1 < sizeof known / sizeof *known; count++)
        known[count] = td_dtype_at(count)->name;
    known[count] = NULL;
    td_call_fail_known(call, 400, known, "unknown dtype \"%.*s\"; details list the known ones", TD_SHOW(*name, 64));
    return false;
}

void td_call_fail_tensor(const struct td_call *call, const struct td_checkpoint *checkpoint)
{
    struct td_buffer absence;
    td_buffer_init(&absence);
    if (checkpoint->lacks != NULL)
        td_partial_write_absence(call->snapshot, checkpoint, call->rest, &absence);
    const char *text = absence.len > 0 ? td_buffer_terminate(&absence) : NULL;
    if (text != NULL)
        td_response_fail(call->response, 404, NULL, "%s", text);
    else
        td_response_fail(call->response, 404, NULL, "checkpoint \"%s\" of model \"%s\" has no tensor \"%.*s\"",
                         checkpoint->id, call->model->id, TD_SHOW(call->rest, 400));
    td_buffer_fini(&absence);
}
