#include "api/hub/hub_call.h"

#include "core/digits.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- parameters ---------------------------------------------------------------------------------------- */

uint64_t td_hub_number(const struct td_hub_call *hub, const char *name, uint64_t fallback)
{
    const struct td_text *text = td_uri_parameter(hub->call->uri, name);
    uint64_t value = fallback;
    if (text != NULL)
        (void)td_number_read(*text, 999999999, &value);
    return value;
}

/* Returns whether the text can stand in a link without escapes. */
static bool is_plain_host(struct td_text host)
{
    for (size_t i = 0; i < host.len; i++)
        if (!isalnum((unsigned char)host.p[i]) && memchr("-._~[]:", host.p[i], 7) == NULL)
            return false;
    return host.len > 0;
}

/* Returns whether the client uses TLS: by X-Forwarded-Proto, of a proxy, or else by the connection. Each proxy appends
 * its scheme to the field, so the client's scheme comes first. A client that forges the field breaks only its own
 * links. X-Forwarded-Host is not read: caches tell answers apart by Host, so a forged host would send other clients
 * elsewhere. */
static bool is_https(const struct td_request *request)
{
    size_t at = 0;
    const struct td_header *field = td_request_next_header(request, "X-Forwarded-Proto", &at);
    if (field == NULL)
        return request->is_encrypted;
    struct td_text scheme = {.p = field->value.p, .len = 0};
    while (scheme.len < field->value.len && isalpha((unsigned char)scheme.p[scheme.len]))
        scheme.len++;
    bool is_whole = scheme.len == field->value.len || memchr(" \t,", scheme.p[scheme.len], 3) != NULL;
    return is_whole && td_text_equals_ignore_case(scheme, "https");
}

bool td_hub_next_link(const struct td_hub_call *hub, const struct td_buffer *target, char link[TD_HEADER_VALUE_BYTES])
{
    const struct td_header *host = td_request_single_header(hub->call->request, "Host");
    if (host == NULL || !is_plain_host(host->value) || target->failed)
        return false;
    int len = snprintf(link, TD_HEADER_VALUE_BYTES, "<%s://%.*s%.*s>; rel=\"next\"",
                       is_https(hub->call->request) ? "https" : "http", (int)host->value.len, host->value.p,
                       (int)target->len, target->data);
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
