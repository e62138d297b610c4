/* The indexes that say where the chunks of a dataset are. Only for parser/hdf5. */
#ifndef TD_PARSER_HDF5_HDF5_CHUNK_INDEX_H
#define TD_PARSER_HDF5_HDF5_CHUNK_INDEX_H

#include "parser/hdf5/hdf5_chunk_list.h"

#include <stdbool.h>

/* Reads the index of r->layout and adds every chunk to r->list. The caller sets r->h->err to an error of its own,
 * because a damaged index makes one tensor unreadable and not the file. */
bool td_h5_read_chunks(struct td_h5_chunk_reader *r);

#endif
