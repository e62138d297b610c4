#include "api/hub/hub_call.h"

#include "core/digits.h"
#include "http/origin.h"

#include <stdio.h>

/* ---- parameters ---------------------------------------------------------------------------------------- */

uint64_t td_hub_number(const struct td_hub_call *hub, const char *name, uint64_t fallback)
{
    const struct td_text *text = td_uri_parameter(hub->call->uri, name);
    uint64_t value = fallback;
    if (text != NULL)
        (void)td_number_read(*text, 999999999, &value);
    return value;
}

bool td_hub_next_link(const struct td_hub_call *hub, const struct td_buffer *target, char link[TD_HEADER_VALUE_BYTES])
{
    struct td_text host = td_origin_host(hub->call->request);
    if (host.len == 0 || target->failed)
        return false;
    int len = snprintf(link, TD_HEADER_VALUE_BYTES, "<%s://%.*s%.*s>; rel=\"next\"",
                       td_origin_scheme(hub->call->request), (int)host.len, host.p, (int)target->len, target->data);
    return len > 0 && len < TD_HEADER_VALUE_BYTES;
}

void td_hub_add_link(const struct td_hub_call *hub, const char *link)
{
    td_response_add_header(hub->call->response, "Link", "%s", link);
    td_response_add_header(hub->call->response, "Vary", "X-Forwarded-Proto");
}

bool td_hub_flag(const struct td_hub_call *hub, const char *name)
{
    const struct td_text *value = td_uri_parameter(hub->call->uri, name);
    return value != NULL && (td_text_equals_ignore_case(*value, "true") || td_text_equals(*value, "1"));
}

/* ---- the view --------------------------------------------------------------------------------------------- */

bool td_hub_try_view(struct td_hub_call *hub, struct td_error *err)
{
    td_error_init(err);
    bool ok = td_repo_view_open(hub->call->snapshot, hub->repo, hub->revision, &hub->view, err);
    if (!ok)
        hub->view.commit[0] = '\0';
    return ok;
}
