#include "api/call/held_answer.h"

#include "storage/incoming.h"

static bool client_checks(const struct td_request *request)
{
    const struct td_header *header = td_request_single_header(request, TD_INCOMING_CHECKS);
    return header != NULL && td_text_equals(header->value, "sha256");
}

bool td_held_answer_apply(const struct td_api *api, const struct td_request *request, struct td_response *response,
                          struct td_error *err)
{
    if (api->upstream == NULL) /* a body may have many extents */
        return true;
    enum td_incoming_worth worth = td_incoming_worth_of(&response->body);
    if (worth == TD_INCOMING_CHECKED)
        return true;
    if (worth == TD_INCOMING_UNCHECKED || !client_checks(request))
        return td_incoming_hold_end(&response->body, request->cancel, err);
    response->cache_control = "no-store";
    return td_incoming_end_with(&response->body, request->cancel, err);
}

/* Returns whether the request has the field. */
static bool has_field(const struct td_request *request, const char *name)
{
    size_t at = 0;
    return td_request_next_header(request, name, &at) != NULL;
}

bool td_held_answer_may_go_on(const struct td_api *api, const struct td_request *request, struct td_response *response)
{
    if (api->upstream == NULL || response->etag[0] == '\0' || !has_field(request, "Range"))
        return true;
    const struct td_header *match = td_request_single_header(request, "If-Match");
    bool has_match = has_field(request, "If-Match") && (match == NULL || !td_text_equals(match->value, "*"));
    bool has_if_range = has_field(request, "If-Range");
    if (!(has_match || has_if_range) || !td_upstream_was_wrong(api->upstream, td_text_of(response->etag)))
        return true;
    if (!has_if_range)
        td_response_fail(response, 412, NULL,
                         "bytes that were sent under this entity tag were wrong; get the whole file, without Range");
    return false;
}
