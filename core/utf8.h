/* UTF-8: validation (Unicode 15, table 3-7) and display escaping. */
#ifndef TD_CORE_UTF8_H
#define TD_CORE_UTF8_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length in bytes (1-4) of the well-formed sequence at p, or 0 when the bytes there are not UTF-8. */
size_t td_utf8_sequence(const uint8_t *p, size_t len);

/* True when all of p[0..len) is well-formed UTF-8. */
bool td_utf8_valid(const void *p, size_t len);

/* Copies p[0..len) to out (capacity bytes, NUL-terminated, cut when too long, never within a sequence), with
 * controls, DEL, bidirectional controls, separators of lines and bytes that are not UTF-8 written as \xNN: safe for
 * terminals, logs and JSON strings. */
void td_utf8_escape(struct td_text p, char *out, size_t capacity);

/* Writes code point cp (<= 0x10FFFF, no surrogate) to out[4]; returns its length. */
size_t td_utf8_encode(uint32_t cp, char out[4]);

#endif
