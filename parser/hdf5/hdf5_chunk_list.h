/* The chunks of one dataset, as a list that an index fills. Only for parser/hdf5. */
#ifndef TD_PARSER_HDF5_HDF5_CHUNK_LIST_H
#define TD_PARSER_HDF5_HDF5_CHUNK_LIST_H

#include "core/coding.h"
#include "parser/hdf5/hdf5_file.h"
#include "parser/hdf5/hdf5_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The kind of index that says where the chunks of a dataset are. */
enum td_h5_index {
    TD_H5_INDEX_TREE_1 = 0, /* a B-tree of version 1: layouts up to version 3 */
    TD_H5_INDEX_SINGLE = 1,
    TD_H5_INDEX_IMPLICIT = 2,
    TD_H5_INDEX_FIXED = 3,
    TD_H5_INDEX_EXTENSIBLE = 4,
    TD_H5_INDEX_TREE_2 = 5,
};

/* A layout message of class "chunked". */
struct td_h5_chunked {
    enum td_h5_index index;
    uint64_t addr; /* of the index; of the chunk for SINGLE; of the first chunk for IMPLICIT */
    uint32_t rank; /* dimensions of a chunk */
    uint64_t shape[TD_CODING_RANK_MAX];
    uint32_t elem_bytes;     /* as the layout says */
    bool plain_edges;        /* chunks that reach past the edge have no filters */
    uint64_t single_bytes;   /* SINGLE: stored bytes of a filtered chunk; 0: the chunk has no filters */
    uint32_t single_skipped; /* SINGLE: the filters that were skipped, a bit each */
};

/* Begin with {0}; free `chunks` with free(). */
struct td_h5_chunk_list {
    struct td_coding_chunk *chunks;
    size_t count, capacity;
};

/* One dataset while its index is read. */
struct td_h5_chunk_reader {
    struct td_h5 *h;
    const struct td_h5_chunked *layout;
    const struct td_h5_space *space;
    uint32_t filter_count;
    uint64_t chunk_bytes;                   /* of a decoded chunk */
    uint64_t along[TD_CODING_RANK_MAX];     /* number of chunks in each dimension now */
    uint64_t max_along[TD_CODING_RANK_MAX]; /* the same for the largest shape; 2^64-1: no bound */
    struct td_h5_chunk_list *list;
};

/* Adds the chunk with these coordinates, counted in chunks, to the list. Ignores a chunk outside of the array and one
 * without an address. `bytes` is its stored size; 0 means the size of a decoded chunk. Refuses more than 4,194,304
 * chunks, and a chunk that leaves the file or is larger than its filters can make it. */
bool td_h5_add_chunk(struct td_h5_chunk_reader *r, const uint64_t *scaled, uint64_t addr, uint64_t bytes,
                     uint32_t skipped);

#endif
