/* UTF-8: validation (Unicode 15, table 3-7) and display escaping. */
#ifndef TD_CORE_UTF8_H
#define TD_CORE_UTF8_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the length in bytes (1 to 4) of the well-formed sequence that p[0..len) begins with, or 0 when there is
 * none. */
size_t td_utf8_sequence(const uint8_t *p, size_t len);

/* Returns whether all of p[0..len) is well-formed UTF-8. */
bool td_utf8_valid(const void *p, size_t len);

/* Copies the text to out (capacity bytes) for terminals, logs and JSON strings. Writes controls, DEL, bidirectional
 * controls, line and paragraph separators and bytes that are not UTF-8 as \xNN. The result is UTF-8 with a NUL. A
 * result that is too long is cut between characters, never within the bytes or the escapes of a character. Capacity 0:
 * writes nothing. */
void td_utf8_escape(struct td_text p, char *out, size_t capacity);

/* Returns how many of the first `most` bytes of a text stay when it is cut for people: it is cut between characters,
 * and not before a combining mark, a variation selector, a modifier of an emoji or a joiner, nor after a joiner. A text
 * that has no such place in the last 64 of these bytes is cut as by td_text_shown. */
size_t td_utf8_cut(struct td_text text, size_t most);

/* Returns where the end of the text begins that stays when its beginning is cut off: at most `most` bytes before its
 * end, by the same rules. A text that has no such place in the first 64 of these bytes is cut between characters, and
 * one that is not UTF-8 anywhere. */
size_t td_utf8_cut_end(struct td_text text, size_t most);

/* Writes the code point (at most 0x10FFFF, no surrogate) as UTF-8, without a NUL. Returns the number of bytes
 * written. */
size_t td_utf8_encode(uint32_t cp, char out[4]);

#endif
