/* Floating-point numbers as decimal text. Thread-safe. Needs the locale "C", which the program never changes. */
#ifndef TD_CORE_DECIMAL_H
#define TD_CORE_DECIMAL_H

#include "core/buffer.h"

#include <stdbool.h>

/* Appends a decimal that reads back as the same double (as the same float when `single`), in the form of Python's repr:
 * 0.1, 1.0, 1e-05, 1e+16, inf, -inf, nan. The decimal is the shortest, as in repr, except for 46 powers of two far from
 * 1, which get a seventeenth digit. */
void td_write_decimal(struct td_buffer *out, double value, bool single);

#endif
