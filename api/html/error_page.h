/* The page of an error, for browsers. */
#ifndef TD_API_HTML_ERROR_PAGE_H
#define TD_API_HTML_ERROR_PAGE_H

#include "http/facade.h"

/* Appends the page. For td_facade.write_error_page. */
void td_html_write_error(const struct td_failure *failure, struct td_buffer *out);

#endif
