/* The dates of HTTP's header fields (RFC 9110 section 5.6.7), in seconds since 1970-01-01T00:00:00Z. Pure. */
#ifndef TD_HTTP_HTTP_DATE_H
#define TD_HTTP_HTTP_DATE_H

#include "core/text.h"

#include <stdbool.h>
#include <stdint.h>

/* Writes an IMF-fixdate, "Sun, 06 Nov 1994 08:49:37 GMT": 29 bytes and a NUL. Writes the date of 0 for a year that has
 * no four digits. */
void td_http_date_format(int64_t seconds, char out[30]);

/* Reads any of the three forms of a date: IMF-fixdate, the form of RFC 850, and that of asctime. Returns false when the
 * text is none of them. A year of two digits that lies more than 50 years ahead is one of the century before. */
bool td_http_date_parse(struct td_text text, int64_t *seconds);

#endif
