/* NumPy's .npy files, versions 1.0 to 3.0: a magic, a Python dict of descr, fortran_order and shape, the array. The
 * dict is read as the literal that it is and never evaluated. Source: numpy/lib/_format_impl.py. */
#ifndef TD_PARSER_NPY_H
#define TD_PARSER_NPY_H

#include "core/arena.h"
#include "parser/format.h"

#include <stdbool.h>
#include <stdint.h>

enum { TD_NPY_HEADER_MAX_CHARS = 10000 }; /* numpy.load's max_header_size */

/* "npy": one tensor, with the empty name, since a file's name is not known here. */
extern const struct td_format td_format_npy;

/* Whether the input begins as a .npy file does: *is_npy. False only when the input cannot be read. */
bool td_npy_probe(const struct td_input *input, bool *is_npy, struct td_error *err);

/* Fills *tensor but for its name with the array of the .npy file that the input is. Reads its header, of which *tensor
 * holds copies in the arena, and no data; *header_bytes is where these begin. Offsets count from the input's start. */
bool td_npy_read(const struct td_input *input, const struct td_limits *limits, struct td_arena *arena,
                 struct td_tensor *tensor, uint64_t *header_bytes, struct td_error *err);

#endif
