/* HDF5, strictly and without libhdf5: what checkpoints use (Keras' `.h5` and `.weights.h5`, and files that hold the
 * records of a torch archive as byte datasets). Source: HDF5 File Format Specification 3.0 and 4.0.
 *
 * Every link is listed under its path, without the leading '/'. Served are datasets whose bytes lie in the file as the
 * values are: reached by hard links, contiguous, no filters, no external files, a plain little-endian type, as many
 * bytes as the shape needs, all of them in the file. Everything else that has a name is listed with the reason:
 *   compressed, chunked, compact, virtual, external, unallocated; big-endian and types that are no numbers;
 *   soft and external links (OBJECT, rank 0, no bytes; they are never followed); a second link to a group (OBJECT,
 *   "hard link to ..."), whose contents are listed under its first path only.
 * A dataset with several hard links is listed under each of them, as an alias.
 * Keras writes bfloat16 as two opaque bytes with an attribute `dtype` that says so: that is BF16.
 * Names: bytes that are not UTF-8, a NUL, and a '/' within one link's name are written \xNN.
 *
 * Metadata: attributes of the root group, as `name`, and of the groups in it, as `group@name`, where they are strings,
 * whole numbers, floats or booleans, or lists of them. Strings longer than 4096 bytes are cut, as
 * {"length":N,"first":"..."} with N in bytes; lists longer than 64 as {"length":N,"first":[...]}. Of two with one
 * key the first counts.
 *
 * A file with a dataset `archive/data.pkl` is a torch archive (td_torch_parse_records). */
#ifndef TD_PARSER_HDF5_H
#define TD_PARSER_HDF5_H

#include "parser/format.h"

extern const struct td_format td_format_hdf5;

#endif
