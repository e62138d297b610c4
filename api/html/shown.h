/* Numbers, sizes and times as people read them on pages. All append plain text. */
#ifndef TD_API_HTML_SHOWN_H
#define TD_API_HTML_SHOWN_H

#include "core/buffer.h"

#include <stdint.h>

/* Appends a number of bytes in binary units, with one digit after the point: "1.5 MiB", "812 B". */
void td_shown_bytes(struct td_buffer *out, uint64_t bytes);

/* Appends a count in short: "8.03 B" for 8,030,261,248, "124 M", "4,096". */
void td_shown_count(struct td_buffer *out, uint64_t count);

/* Appends a whole number in groups of three digits: "1,048,576". */
void td_shown_number(struct td_buffer *out, uint64_t number);

/* Appends a time, in ns since 1970, as "2026-11-29 21:05 UTC". */
void td_shown_time(struct td_buffer *out, int64_t time_ns);

#endif
