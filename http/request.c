#include "http/request.h"

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

const struct td_header *td_request_single_header(const struct td_request *request, const char *name)
{
    size_t at = 0;
    const struct td_header *header = td_request_next_header(request, name, &at);
    if (header == NULL || td_request_next_header(request, name, &at) != NULL)
        return NULL;
    return header;
}
