/* Checksums of tensors, as writers of deltas make them: XXH3 with 128 bits, and Adler-32 (RFC 1950). Threads: one at a
 * time per sum. */
#ifndef TD_CATALOG_DELTA_DELTA_SUM_H
#define TD_CATALOG_DELTA_DELTA_SUM_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_delta_sum_kind { TD_DELTA_SUM_XXH3_128, TD_DELTA_SUM_ADLER32 };

enum { TD_DELTA_SUM_TEXT_BYTES = 33 }; /* of the longest sum in hexadecimal, with a NUL */

/* Sets *kind to the checksum of this name: "xxh3-128" or "adler32". Returns false for another name. */
bool td_delta_sum_find(struct td_text name, enum td_delta_sum_kind *kind);

/* Returns whether the text has the form of such a sum: lower-case hexadecimal digits, 32 of XXH3 and 8 of Adler-32. */
bool td_delta_sum_is_text(enum td_delta_sum_kind kind, struct td_text text);

struct td_delta_sum; /* a running checksum */

/* Returns a new sum of no bytes, which td_delta_sum_free frees; NULL when out of memory. */
struct td_delta_sum *td_delta_sum_create(enum td_delta_sum_kind kind);
void td_delta_sum_free(struct td_delta_sum *sum);

void td_delta_sum_add(struct td_delta_sum *sum, const void *bytes, size_t len);

/* Writes the sum of all bytes that were added, in hexadecimal with a NUL. */
void td_delta_sum_write(const struct td_delta_sum *sum, char text[TD_DELTA_SUM_TEXT_BYTES]);

#endif
