#include "api/held_answer.h"

#include "storage/incoming.h"

static bool client_checks(const struct td_request *request)
{
    const struct td_header *header = td_request_single_header(request, TD_INCOMING_CHECKS);
    return header != NULL && td_text_equals(header->value, "sha256");
}

bool td_held_answer_apply(const struct td_request *request, struct td_response *response, struct td_error *err)
{
    enum td_incoming_worth worth = td_incoming_worth_of(&response->body);
    if (worth == TD_INCOMING_CHECKED)
        return true;
    if (worth == TD_INCOMING_UNCHECKED || !client_checks(request))
        return td_incoming_hold_end(&response->body, err);
    response->cache_control = "no-store";
    return true;
}

bool td_held_answer_may_go_on(const struct td_api *api, const struct td_request *request,
                              const struct td_response *response)
{
    size_t at = 0;
    return api->upstream == NULL || response->etag[0] == '\0' ||
           td_request_next_header(request, "If-Range", &at) == NULL ||
           !td_upstream_was_wrong(api->upstream, td_text_of(response->etag));
}
