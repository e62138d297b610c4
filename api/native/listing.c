#include "api/native/listing.h"

#include "core/digits.h"
#include "http/page_token.h"

bool td_listing_page_size(const struct td_call *call, size_t *size)
{
    const struct td_text *text = td_uri_parameter(call->uri, "page_size");
    uint64_t value = 0;
    if (text == NULL)
        return true;
    if (!td_number_read(*text, TD_PAGE_SIZE_MAX, &value) || value < 1) {
        td_response_fail(call->response, 400, NULL, "page_size must be a whole number from 1 to %d", TD_PAGE_SIZE_MAX);
        return false;
    }
    *size = (size_t)value;
    return true;
}

bool td_listing_page_token(const struct td_call *call, struct td_text listing, struct td_buffer *after, bool *first)
{
    const struct td_text *token = td_uri_parameter(call->uri, "page_token");
    *first = token == NULL || token->len == 0;
    if (*first || td_page_token_read(*token, listing, after))
        return true;
    if (after->failed)
        return td_call_no_memory(call);
    td_response_fail(call->response, 400, NULL,
                     "page_token is not one that this listing gave out: repeat the request that gave it, with the same "
                     "parameters, or leave it out to begin again");
    return false;
}

bool td_listing_name(const struct td_call *call, struct td_buffer *out, const char *kind, const char *id,
                     const struct td_text *const *filters, size_t count)
{
    td_buffer_puts(out, kind);
    td_buffer_putc(out, '\n');
    td_buffer_puts(out, id);
    for (size_t i = 0; i < count; i++) {
        td_buffer_putc(out, '\n');
        if (filters[i] != NULL) {
            td_buffer_putc(out, '=');
            td_buffer_append(out, filters[i]->p, filters[i]->len);
        }
    }
    return !out->failed || td_call_no_memory(call);
}
