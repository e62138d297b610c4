/* Text for a person at a terminal. */
#ifndef TD_SERVER_TERMINAL_H
#define TD_SERVER_TERMINAL_H

#include "core/buffer.h"

#include <stddef.h>
#include <stdint.h>

enum { TD_TERMINAL_BYTES = 32 }; /* what td_terminal_bytes needs */

/* A name from a file, made safe for a terminal; it lives in memory until that is used again. */
const char *td_terminal_name(const char *text, struct td_buffer *memory);

/* Characters, which is what a terminal's columns count (wide ones aside). */
int td_terminal_width(const char *text);

/* "1.19 GiB" */
void td_terminal_bytes(uint64_t bytes, char *out, size_t capacity);

#endif
