/* A strict reader of HDF5 without libhdf5. It reads what checkpoints use: Keras' `.h5` and `.weights.h5`, and files
 * that hold the records of a torch archive as byte datasets. Source: HDF5 File Format Specification 3.0 and 4.0.
 *
 * Tensors. Every link is listed under its path, without the leading '/'.
 * - A dataset is served when hard links lead to it, its type is a number of either byte order, and its bytes are in the
 *   file: contiguous, or in chunks whose filters are known (gzip, shuffle, fletcher32, lzf).
 * - Everything else is listed with a reason: other filters, compact, virtual, external or unallocated storage, and
 * types that are not numbers.
 * - Soft and external links are listed as OBJECT of rank 0 without bytes; they are never followed. So is a second link
 * to a group ("hard link to ..."); the group's contents are listed under its first path only.
 * - A dataset with several hard links is listed under each of them, as an alias.
 * - Keras writes bfloat16 as two opaque bytes with an attribute `dtype` that says so: this is BF16.
 * - In names, bytes that are not UTF-8, a NUL, and a '/' within one link's name are written \xNN.
 *
 * Metadata. Attributes of the root group are listed as `name`, those of the groups in it as `group@name`, when they are
 * strings, whole numbers, floats or booleans, or lists of these. A string of more than 4,096 bytes is cut to
 * {"length":N,"first":"..."} with N in bytes, a list of more than 64 items to {"length":N,"first":[...]}. Of two
 * attributes with one key the first counts.
 *
 * A file with a dataset `archive/data.pkl` is a torch archive (td_torch_parse_records). */
#ifndef TD_PARSER_HDF5_HDF5_H
#define TD_PARSER_HDF5_HDF5_H

#include "parser/format/format.h"

extern const struct td_format td_format_hdf5; /* "hdf5" */

#endif
