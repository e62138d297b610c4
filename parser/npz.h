/* NumPy's .npz files: zip archives of .npy files (numpy.savez, numpy.savez_compressed). Source:
 * numpy/lib/_npyio_impl.py, NpzFile. */
#ifndef TD_PARSER_NPZ_H
#define TD_PARSER_NPZ_H

#include "parser/format.h"

/* A tensor per array, under the member's name without ".npy". Members that are no .npy files are passed over, as
 * numpy.load gives them out as bytes. Of a deflated array its header alone is unpacked. */
extern const struct td_format td_format_npz;

#endif
