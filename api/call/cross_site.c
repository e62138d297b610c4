#include "api/call/cross_site.h"

#include "http/cors.h"
#include "http/origin.h"

static const char fetch_site[] = "Sec-Fetch-Site", origin_field[] = "Origin";

bool td_cross_site_answer_preflight(const struct td_request *request, struct td_response *response)
{
    static const char asks_private[] = "Access-Control-Request-Private-Network";
    if (response->allow_origin == NULL || !td_text_equals(request->method, "OPTIONS") ||
        !td_request_has_header(request, origin_field) ||
        !td_request_has_header(request, "Access-Control-Request-Method"))
        return false;
    response->status = 204;
    td_response_add_header(response, "Vary", "Access-Control-Request-Method, Access-Control-Request-Headers");
    td_response_add_header(response, "Access-Control-Allow-Methods", "%s", td_cors_methods);
    td_response_add_header(response, "Access-Control-Allow-Headers", "%s", td_cors_headers);
    td_response_add_header(response, "Access-Control-Max-Age", "%s", td_cors_max_age);
    if (td_request_has_header(request, asks_private))
        td_response_add_header(response, "Access-Control-Allow-Private-Network", "true");
    return true;
}

/* Returns whether the field names the origin that the client addresses. */
static bool is_own(const struct td_request *request, const struct td_header *field)
{
    struct td_origin own, sent;
    return field != NULL && td_origin_read(field->value, &sent) &&
           td_origin_of(td_text_of(td_request_scheme(request)), td_request_host(request), &own) &&
           td_origin_equals(&own, &sent);
}

bool td_cross_site_is(const struct td_request *request)
{
    const struct td_header *site = td_request_single_header(request, fetch_site);
    if (td_request_has_header(request, fetch_site))
        return site == NULL || !(td_text_equals(site->value, "same-origin") || td_text_equals(site->value, "none"));
    return td_request_has_header(request, origin_field) &&
           !is_own(request, td_request_single_header(request, origin_field));
}

void td_cross_site_refuse(const struct td_request *request, struct td_response *response)
{
    size_t at = 0;
    const char *name = td_request_has_header(request, fetch_site) ? fetch_site : origin_field;
    const struct td_header *field = td_request_next_header(request, name, &at);
    td_response_fail(response, 403, NULL,
                     "a page of another site may not change anything here, and the browser says that one sent this "
                     "request (%s: %.*s); send it from a page of this server, or without a browser",
                     name, TD_SHOW(field == NULL ? TD_TEXT("") : field->value, 100));
}
