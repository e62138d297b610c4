/* Whole numbers and hexadecimal digits in text. Pure. */
#ifndef TD_CORE_DIGITS_H
#define TD_CORE_DIGITS_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes the decimal digits off the beginning of the text. Returns how many there were. *out is their number; above
 * 2^64-1 it is 2^64-1, and *fits is false. `fits` may be NULL. */
size_t td_digits_take(struct td_text *text, uint64_t *out, bool *fits);

/* The number that all of the text is: decimal digits alone, one or more, no sign. False: it is none, or above max; *out
 * is as it was then. */
bool td_number_read(struct td_text text, uint64_t max, uint64_t *out);

/* The same without leading zeros: a number has one text. */
bool td_number_read_strict(struct td_text text, uint64_t max, uint64_t *out);

/* What a hexadecimal digit of either case counts, or -1. */
int td_hex_digit(char c);

/* Whether the text is lower-case hexadecimal digits alone, as digests and Git's commits are; so is the empty one. */
bool td_hex_is_lower(struct td_text text);

/* Writes 2 * len lower-case hexadecimal digits and a NUL. */
void td_hex_write(const uint8_t *bytes, size_t len, char *text);

/* The number that 1 to 16 such digits are. False: they are none; *out is as it was then. */
bool td_hex_read(struct td_text text, uint64_t *out);

#endif
