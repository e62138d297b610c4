/* Reads and writes times and sizes in options, such as "5s" and "4G". All options of all commands use this grammar:
 *   time  seconds ("90", "0.5"), or a number with a unit: ms, s, m, h or d ("500ms", "1.5h", "30d")
 *   size  bytes ("4096"), or a whole number with a unit. K, M, G and T, also written Ki or KiB, are powers of 1024
 *         ("4G"); kB, MB, GB and TB are powers of 1000, as in GNU coreutils. Units of sizes ignore case. */
#ifndef TD_CORE_QUANTITY_H
#define TD_CORE_QUANTITY_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a time with at most nine digits after its point, and rounds it down to nanoseconds. Returns false, and does not
 * change *ns, for any other text and for more than max_ns. */
bool td_duration_read(struct td_text text, uint64_t max_ns, uint64_t *ns);

/* Reads a time that is a whole number of seconds from min_s to max_s, which is at most 292 years. Returns false, and
 * does not change *seconds, for any other text. */
bool td_duration_read_s(struct td_text text, uint64_t min_s, uint64_t max_s, uint64_t *seconds);

/* Reads a size. Returns false, and does not change *bytes, for any other text and for more than max bytes. */
bool td_size_read(struct td_text text, uint64_t max, uint64_t *bytes);

enum { TD_QUANTITY_BYTES = 40 };

/* Writes the value in the grammar above, with the largest unit that leaves a whole number: "2m", "100ms", "4G". Writes
 * a time that is not a whole number of milliseconds as seconds with a fraction. */
void td_duration_write(uint64_t ns, char out[TD_QUANTITY_BYTES]);
void td_size_write(uint64_t bytes, char out[TD_QUANTITY_BYTES]);

#endif
