/* Datasets that are stored in chunks, as codings (core/coding.h). Only for parser/hdf5. */
#ifndef TD_PARSER_HDF5_HDF5_CHUNKED_H
#define TD_PARSER_HDF5_HDF5_CHUNKED_H

#include "parser/hdf5/hdf5_chunk_list.h"
#include "parser/hdf5/hdf5_cursor.h"
#include "parser/hdf5/hdf5_file.h"
#include "parser/hdf5/hdf5_object.h"
#include "parser/hdf5/hdf5_type.h"

#include <stdbool.h>

/* Reads the rest of a layout message of this version, 1 to 5; the cursor is after the message's class. `rank` is the
 * number of dimensions that versions below 3 state before the class, and counts the element's size as one; else
 * ignored. When the kind of index is unknown, sets *reason to a static text; *out is then incomplete. Returns false,
 * with the error in h->err, when the message is too short or its number of dimensions is not from 2 to
 * TD_CODING_RANK_MAX + 1. */
bool td_h5_chunked_layout(struct td_h5 *h, struct td_h5_cursor c, unsigned version, unsigned rank,
                          struct td_h5_chunked *out, const char **reason);

/* Gives the tensor a coding, or a reason when its filters or its chunks cannot be read; a tensor without bytes gets
 * neither. The tensor's type, shape and nbytes are set already; its offset becomes 0. `filters` is not a shared
 * message; filters and fill may be NULL. `text`, static or in the manifest's arena, describes the filters and is kept.
 * `list` is scratch memory for one dataset after the other, which the caller frees at the end. A damaged index is a
 * reason too: returns false only when the file cannot be read or memory is short, with the error in h->err. */
bool td_h5_chunked_tensor(struct td_h5 *h, const struct td_h5_chunked *layout, const struct td_h5_space *space,
                          const struct td_h5_message *filters, const struct td_h5_message *fill, const char *text,
                          struct td_h5_chunk_list *list, struct td_tensor *tensor);

#endif
