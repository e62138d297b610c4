/* Whole numbers and hexadecimal digits in text. */
#ifndef TD_CORE_DIGITS_H
#define TD_CORE_DIGITS_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Removes the decimal digits at the beginning of the text and sets *out to their value. Returns the number of digits,
 * which may be 0; the value is then 0. Sets *fits (fits may be NULL) to whether the value is at most 2^64-1; a larger
 * value becomes 2^64-1. */
size_t td_digits_take(struct td_text *text, uint64_t *out, bool *fits);

/* Sets *out to the value of a text of one or more decimal digits and nothing else; leading zeros are allowed. Returns
 * false, and does not change *out, for any other text and for values above max. */
bool td_number_read(struct td_text text, uint64_t max, uint64_t *out);

/* Does the same, but refuses leading zeros, so that each number has one text. */
bool td_number_read_strict(struct td_text text, uint64_t max, uint64_t *out);

/* The most digits of a number, 2^64-1. */
enum { TD_NUMBER_BYTES = 20 };

/* Writes the number's decimal digits, without a NUL. Returns their number. */
size_t td_number_write(uint64_t number, char out[TD_NUMBER_BYTES]);

/* Returns the value of a hexadecimal digit of either case, or -1. */
int td_hex_digit(char c);

/* Returns whether the text has only lower-case hexadecimal digits, as digests and Git's commits do; true for the empty
 * text. */
bool td_hex_is_lower(struct td_text text);

/* Writes bytes[0..len) to `text` as 2 * len lower-case hexadecimal digits and a NUL. */
void td_hex_write(const uint8_t *bytes, size_t len, char *text);

/* Reads what td_hex_write writes: sets bytes[0..len) to the value of 2 * len lower-case hexadecimal digits. Returns
 * false, and does not change the bytes, for any other text. */
bool td_hex_read_bytes(struct td_text text, uint8_t *bytes, size_t len);

/* The most hexadecimal digits of a number, 2^64-1. */
enum { TD_HEX_NUMBER_BYTES = 16 };

/* Writes the number's lower-case hexadecimal digits, without leading zeros and without a NUL. Returns their number. */
size_t td_hex_write_number(uint64_t number, char out[TD_HEX_NUMBER_BYTES]);

/* Sets *out to the value of a text of 1 to 16 lower-case hexadecimal digits. Returns false, and does not change *out,
 * for any other text. */
bool td_hex_read(struct td_text text, uint64_t *out);

/* Returns the ending of a noun after this number in a message: "" after 1, else "s". */
static inline const char *td_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

#endif
