#include "http/request.h"

#include "http/uri.h"

#include <ctype.h>
#include <string.h>

const struct td_header *td_request_next_header(const struct td_request *request, const char *name, size_t *at)
{
    while (*at < request->header_count) {
        const struct td_header *header = &request->headers[(*at)++];
        if (td_text_equals_ignore_case(header->name, name))
            return header;
    }
    return NULL;
}

bool td_request_has_header(const struct td_request *request, const char *name)
{
    size_t at = 0;
    return td_request_next_header(request, name, &at) != NULL;
}

bool td_request_accepts(const struct td_request *request, const char *type)
{
    size_t at = 0;
    size_t len = strlen(type);
    const struct td_header *header;
    while ((header = td_request_next_header(request, "Accept", &at)) != NULL) {
        struct td_text list = header->value;
        while (list.len > 0) {
            struct td_text range = td_text_trim(td_text_take_until(&list, ','), " \t");
            if (td_text_begins_ignore_case(range, type) &&
                (range.len == len || range.p[len] == ';' || range.p[len] == ' '))
                return true;
        }
    }
    return false;
}

const struct td_header *td_request_single_header(const struct td_request *request, const char *name)
{
    size_t at = 0;
    const struct td_header *header = td_request_next_header(request, name, &at);
    if (header == NULL || td_request_next_header(request, name, &at) != NULL)
        return NULL;
    return header;
}

/* ---- the origin that the client addresses -------------------------------------------------------------- */

const char *td_request_scheme(const struct td_request *request)
{
    size_t at = 0;
    const struct td_header *field = td_request_next_header(request, "X-Forwarded-Proto", &at);
    if (field == NULL)
        return request->is_tls ? "https" : "http";
    struct td_text scheme = {.p = field->value.p, .len = 0};
    while (scheme.len < field->value.len && isalpha((unsigned char)scheme.p[scheme.len]))
        scheme.len++;
    bool is_whole = scheme.len == field->value.len || memchr(" \t,", scheme.p[scheme.len], 3) != NULL;
    return is_whole && td_text_equals_ignore_case(scheme, "https") ? "https" : "http";
}

struct td_text td_request_host(const struct td_request *request)
{
    const struct td_header *field = td_request_single_header(request, "Host");
    struct td_text host = td_uri_authority(request->target); /* replaces Host: RFC 9112 section 3.2.2 */
    if (host.p == NULL)
        host = field == NULL ? TD_TEXT("") : field->value;
    for (size_t i = 0; i < host.len; i++)
        if (!isalnum((unsigned char)host.p[i]) && memchr("-._~[]:", host.p[i], 7) == NULL)
            return TD_TEXT("");
    return host;
}
