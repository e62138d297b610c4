#include "api/html/asset.h"

static const struct td_text folder = TD_TEXT("/-/");

bool td_asset_is_path(struct td_text path)
{
    return td_text_begins(path, folder);
}

/* Lets caches keep the answer forever, if the address has the hash of the bytes; a client may ask for the name alone.
 */
static void describe(const struct td_call *call, const struct td_asset *asset)
{
    struct td_response *response = call->response;
    const struct td_text *hash = td_uri_parameter(call->uri, "v");
    td_response_describe_bytes(response, asset->type);
    td_response_set_etag(response, asset->tag);
    if (hash != NULL && td_text_equals(*hash, asset->tag))
        response->cache_control = "public, max-age=31536000, immutable";
}

void td_html_asset(const struct td_call *call)
{
    static const char *const known[] = {"v", NULL};
    struct td_response *response = call->response;
    struct td_error err = TD_ERROR_INIT;
    struct td_text name = td_text_skip(call->uri->path, folder.len);
    if (!td_call_check_parameters(call, known))
        return;
    for (size_t i = 0; i < td_asset_count; i++) {
        const struct td_asset *asset = &td_assets[i];
        if (!td_text_equals(name, asset->name))
            continue;
        struct td_buffer bytes;
        size_t len;
        td_buffer_init(&bytes);
        td_buffer_append(&bytes, asset->bytes, asset->len);
        char *copy = td_buffer_release(&bytes, &len);
        if (copy == NULL)
            td_error_no_memory(&err);
        if (copy == NULL || !td_body_append_heap(&response->body, copy, len, &err))
            td_response_fail_error(response, &err);
        else
            describe(call, asset);
        return;
    }
    td_response_fail(response, 404, NULL, "there is no such file of the pages");
}
