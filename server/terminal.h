/* Text for a person at a terminal. */
#ifndef TD_SERVER_TERMINAL_H
#define TD_SERVER_TERMINAL_H

#include "core/buffer.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TD_TERMINAL_BYTES = 32 }; /* what td_terminal_bytes needs */

/* Write one line that a person reads: the formatted text as td_utf8_escape shows it, so that no path, name or message
 * from outside acts on a terminal or forges a line. All that the commands say goes this way, or through
 * td_terminal_name. td_terminal_complain writes to standard error, after "tensord: ". */
void td_terminal_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void td_terminal_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes text of several lines likewise; line feeds stay. */
void td_terminal_text(FILE *out, const char *text);

/* A name from a file, made safe for a terminal; it lives in memory until that is used again. */
const char *td_terminal_name(const char *text, struct td_buffer *memory);

/* Characters, which is what a terminal's columns count (wide ones aside). */
int td_terminal_width(const char *text);

/* "1.19 GiB" */
void td_terminal_bytes(uint64_t bytes, char *out, size_t capacity);

#endif
