/* NumPy's .npz files: zip archives of .npy files (numpy.savez, numpy.savez_compressed). Source:
 * numpy/lib/_npyio_impl.py, NpzFile. */
#ifndef TD_PARSER_NPZ_H
#define TD_PARSER_NPZ_H

#include "parser/format/format.h"

/* "npz": lists a tensor per array, under the member's name without ".npy". Skips members that are no .npy files, which
 * numpy.load returns as bytes. Unpacks only the header of a deflated array. */
extern const struct td_format td_format_npz;

#endif
