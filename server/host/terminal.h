/* Prints text for a person at a terminal, so that untrusted text is safe, and formats names, columns and sizes. */
#ifndef TD_SERVER_HOST_TERMINAL_H
#define TD_SERVER_HOST_TERMINAL_H

#include "core/buffer.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A size for people. */
struct td_terminal_size {
    char text[32];
};

/* Write the formatted text as one line, escaped by td_utf8_escape, so that no path, name or message from outside can
 * control the terminal or forge a line. Commands print all texts by these functions or through td_terminal_name.
 * td_terminal_complain writes to standard error, with "tensord: " in front. */
void td_terminal_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void td_terminal_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes text of several lines in the same way; line feeds stay. */
void td_terminal_text(FILE *out, const char *text);

/* Returns the text escaped for a terminal, or "?" when out of memory. The result is in `memory`, which the caller owns,
 * and is valid until `memory` is used again. */
const char *td_terminal_name(const char *text, struct td_buffer *memory);

/* Returns the number of characters of UTF-8 text: its columns on a terminal, unless it has wide characters. */
int td_terminal_width(const char *text);

/* Returns a size for people, such as "1.19 GiB". */
struct td_terminal_size td_terminal_size(uint64_t bytes);

#endif
