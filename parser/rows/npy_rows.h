/* The rows of a NumPy file (.npy), which parser/npy.h reads: row i is array[i], the bytes of all elements with the
 * first index i. `columns` has one column, "array": its type as numpy.dtype spells it ("<f4", ">i2"; the name of
 * parser/format/dtype.h for dates, whose unit is not kept), and the shape of a row, without the first dimension.
 *
 * Rows are counted but not answered, with a reason, where they are not contiguous or are not numbers: arrays in Fortran
 * order of more than one dimension, structured types, strings, opaque types. Big-endian numbers are answered as stored;
 * the type says so.
 *
 * Refused: what parser/npy.h refuses, objects (a pickle), and arrays without dimensions. */
#ifndef TD_PARSER_ROWS_NPY_ROWS_H
#define TD_PARSER_ROWS_NPY_ROWS_H

#include "parser/rows/index/row_format.h"

extern const struct td_row_format td_row_format_npy;

#endif
