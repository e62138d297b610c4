/* GET tensors: the manifest of a checkpoint. */
#include "api/native/checkpoint_parameter.h"
#include "api/native/listing.h"
#include "api/native/manifest_view.h"
#include "api/native/routes.h"

#include "core/digest.h"

/* Reads dtype; NULL without the parameter. Returns false after it answered 400 with the known types. */
static bool dtype_filter(const struct td_call *call, const struct td_dtype **dtype)
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

/* Sets the entity tag: a digest of the checkpoint's tag and of the parameters that select a part of the manifest. */
static void manifest_etag(const struct td_call *call, const struct td_checkpoint *checkpoint)
{
    char tag[TD_TAG_BYTES];
    bool is_default = td_model_is_default_checkpoint(call->model, checkpoint);
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, checkpoint->tag);
    td_digest_add_cstring(digest, is_default ? "default" : "");
    for (size_t i = 0; i < call->uri->parameter_count; i++) {
        const struct td_parameter *parameter = &call->uri->parameters[i];
        if (td_text_equals(parameter->name, "checkpoint"))
            continue;
        td_digest_add(digest, parameter->name.p, parameter->name.len);
        td_digest_add(digest, parameter->value.p, parameter->value.len);
    }
    if (td_digest_finish(digest, tag))
        td_response_set_etag(call->response, tag);
    else
        (void)td_call_no_memory(call);
}

void td_handle_manifest(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", "partial", "match", "dtype", "page_size", "page_token", NULL};
    struct td_manifest_query query = {.match = td_uri_parameter(call->uri, "match")};
    const struct td_text *filters[] = {query.match, td_uri_parameter(call->uri, "dtype"),
                                       td_uri_parameter(call->uri, "checkpoint"),
                                       td_uri_parameter(call->uri, "partial")};
    struct td_buffer name;
    struct td_buffer after;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init(&name);
    td_buffer_init(&after);
    const struct td_checkpoint *checkpoint = NULL;
    bool ok = td_call_check_parameters(call, known) && (checkpoint = td_checkpoint_parameter_or_part(call)) != NULL &&
              dtype_filter(call, &query.dtype) && td_listing_page_size(call, &query.page_size) &&
              td_listing_name(call, &name, "tensors", call->model->id, filters, 4);
    query.listing = td_buffer_text(&name);
    if (ok && td_listing_page_token(call, query.listing, &after, &query.page_first)) {
        query.after = td_buffer_text(&after);
        struct td_blob *blob = NULL;
        if (td_manifest_view_create(&call->api->manifests, call->snapshot, call->model, checkpoint, &query, &blob,
                                    &err) &&
            td_body_append(&call->response->body, blob, 0, blob->len_bytes, &err)) {
            td_response_describe(call->response, "application/json");
            manifest_etag(call, checkpoint);
        } else {
            td_response_fail_error(call->response, &err);
        }
        td_blob_unref(blob);
    }
    td_buffer_fini(&name);
    td_buffer_fini(&after);
}
