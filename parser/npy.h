/* NumPy's .npy files, versions 1.0 to 3.0: a magic, a Python dict of descr, fortran_order and shape, and the array. The
 * dict is parsed as a literal and never evaluated. Source: numpy/lib/_format_impl.py. */
#ifndef TD_PARSER_NPY_H
#define TD_PARSER_NPY_H

#include "core/arena.h"
#include "parser/format/format.h"

#include <stdbool.h>
#include <stdint.h>

enum { TD_NPY_HEADER_MAX_CHARS = 10000 }; /* numpy.load's max_header_size */

/* "npy": lists one tensor with the empty name, because the parser does not know the file's name. */
extern const struct td_format td_format_npy;

/* Sets *is_npy to whether the input begins as a .npy file does. Returns false only when the input cannot be read. */
bool td_npy_probe(const struct td_input *input, bool *is_npy, struct td_error *err);

/* Fills all members of *tensor but its name from the header of a .npy file, the whole input. Copies go to the arena.
 * Reads no data; sets *header_bytes to the offset at which the data begin. Offsets count from the input's start.
 * Errors: TD_INVALID_ARGUMENT with the position, TD_RESOURCE_EXHAUSTED, and those of the input. */
bool td_npy_read(const struct td_input *input, const struct td_limits *limits, struct td_arena *arena,
                 struct td_tensor *tensor, uint64_t *header_bytes, struct td_error *err);

#endif
