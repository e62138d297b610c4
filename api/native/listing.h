/* The parameters of lists that come in pages: page_size and page_token. */
#ifndef TD_API_NATIVE_LISTING_H
#define TD_API_NATIVE_LISTING_H

#include "api/call.h"

enum { TD_PAGE_SIZE_MAX = 10000 }; /* rows of a page */

/* Writes the name of a listing, which its page tokens hold: the kind of list, the id of its model, and the values of
 * the parameters that filter it (NULL for a parameter that was not given). Returns false after it answered an error. */
bool td_listing_name(const struct td_call *call, struct td_buffer *out, const char *kind, const char *id,
                     const struct td_text *const *filters, size_t count);

/* Reads page_size, 1 to TD_PAGE_SIZE_MAX. Leaves *size as it is without the parameter. Returns false after it answered
 * 400. */
bool td_listing_page_size(const struct td_call *call, size_t *size);

/* Appends to *after the name that page_token says the last page ended with, and sets *first to false; sets *first to
 * true without the parameter. Returns false after it answered an error, as for the token of another listing. */
bool td_listing_page_token(const struct td_call *call, struct td_text listing, struct td_buffer *after, bool *first);

#endif
