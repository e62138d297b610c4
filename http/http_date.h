/* The dates of HTTP's header fields (RFC 9110 section 5.6.7), in seconds since 1970-01-01T00:00:00Z. Pure, except that
 * td_http_date_parse reads the clock for a year of two digits. */
#ifndef TD_HTTP_HTTP_DATE_H
#define TD_HTTP_HTTP_DATE_H

#include "core/text.h"

#include <stdbool.h>
#include <stdint.h>

/* Writes an IMF-fixdate, "Sun, 06 Nov 1994 08:49:37 GMT": 29 bytes and a NUL. Writes the date of 0 s when the year
 * is not in 0..9999. */
void td_http_date_format(int64_t seconds, char out[30]);

/* Reads a date in any of three forms: IMF-fixdate, RFC 850 or asctime. Returns false, with *seconds unchanged, when the
 * text has none of these forms or names no day of the calendar. A year of two digits (RFC 850) is in this century, or
 * in the century before when it would be more than 50 years ahead. */
bool td_http_date_parse(struct td_text text, int64_t *seconds);

#endif
