/* Times and sizes as people write them in options: "5s", "4G". All options of all commands take this one grammar.
 *   time  seconds ("90", "0.5"), or a number with its unit: ms, s, m, h or d ("500ms", "1.5h", "30d")
 *   size  bytes ("4096"), or a whole number with K, M, G or T in powers of 1024 ("4G"), also written KiB or Ki; with
 * kB, MB, GB or TB in powers of 1000, as GNU coreutils read them. Upper and lower case are the same. */
#ifndef TD_CORE_QUANTITY_H
#define TD_CORE_QUANTITY_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a time with up to nine digits before and behind the point; what is less than a nanosecond is cut off. Returns
 * false, and does not change *ns, for any other text and for more than max_ns. */
bool td_duration_read(struct td_text text, uint64_t max_ns, uint64_t *ns);

/* Reads a time that is a whole number of seconds from min_s to max_s, which is at most 292 years. Returns false, and
 * does not change *seconds, for any other text. */
bool td_duration_read_s(struct td_text text, uint64_t min_s, uint64_t max_s, uint64_t *seconds);

/* Reads a size. Returns false, and does not change *bytes, for any other text and for more than max bytes. */
bool td_size_read(struct td_text text, uint64_t max, uint64_t *bytes);

enum { TD_QUANTITY_BYTES = 40 };

/* Write the shortest text that td_duration_read and td_size_read read as this value, with the largest unit that leaves
 * a whole number: "2m", "100ms", "4G". Nanoseconds that are no whole milliseconds are written as seconds with a
 * fraction.
 */
void td_duration_write(uint64_t ns, char out[TD_QUANTITY_BYTES]);
void td_size_write(uint64_t bytes, char out[TD_QUANTITY_BYTES]);

#endif
