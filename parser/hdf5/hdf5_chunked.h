/* Datasets that are stored in chunks, as codings (core/coding.h). Only for parser/hdf5. */
#ifndef TD_PARSER_HDF5_CHUNKED_H
#define TD_PARSER_HDF5_CHUNKED_H

#include "parser/hdf5/hdf5_chunk_list.h"
#include "parser/hdf5/hdf5_cursor.h"
#include "parser/hdf5/hdf5_file.h"
#include "parser/hdf5/hdf5_object.h"
#include "parser/hdf5/hdf5_type.h"

#include <stdbool.h>

/* Reads the rest of a layout message, from behind its class on. Sets *reason when the kind of index is unknown. `rank`
 * is what versions below 3 say before the class. */
bool td_h5_chunked_layout(struct td_h5 *h, struct td_h5_cursor c, unsigned version, unsigned rank,
                          struct td_h5_chunked *out, const char **reason);

/* Gives the tensor a coding, or a reason when its filters or its chunks cannot be read. `text`, in the arena, is the
 * coding's text and names the filters. filters and fill may be NULL. `list` is scratch, to be used again for the next
 * dataset. Returns false on an error of the file. */
bool td_h5_chunked_tensor(struct td_h5 *h, const struct td_h5_chunked *layout, const struct td_h5_space *space,
                          const struct td_h5_message *filters, const struct td_h5_message *fill, const char *text,
                          struct td_h5_chunk_list *list, struct td_tensor *tensor);

#endif
