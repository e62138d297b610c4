/* Within parser/hdf5*.c only: datasets in chunks, as codings. */
#ifndef TD_PARSER_HDF5_CHUNKED_H
#define TD_PARSER_HDF5_CHUNKED_H

#include "core/coding.h"
#include "parser/hdf5/hdf5_file.h"

/* How the chunks of a dataset are found. */
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
    uint64_t addr; /* of the index, or of the only chunk, or of the first one */
    uint32_t rank; /* of the chunks */
    uint64_t shape[TD_CODING_RANK_MAX];
    uint32_t elem_bytes;   /* as the layout says */
    bool plain_edges;      /* chunks that reach past the edge have no filters */
    uint64_t single_bytes; /* of the only chunk, with filters; 0: it has none */
    uint32_t single_skipped;
};

/* Reads the rest of a layout message, from behind its class on. *reason is set when it is of a kind that is not read.
 */
bool td_h5_chunked_layout(struct td_h5 *h, struct td_h5_cursor c, unsigned version, unsigned rank,
                          struct td_h5_chunked *out, const char **reason);

/* The list of chunks while an index is read. */
struct td_h5_chunk_list {
    struct td_coding_chunk *chunks;
    size_t count, capacity;
};

/* Where the chunks of one dataset are: what an index is read with. */
struct td_h5_chunk_reader {
    struct td_h5 *h;
    const struct td_h5_chunked *layout;
    const struct td_h5_space *space;
    uint32_t filter_count;
    uint64_t chunk_bytes;
    uint64_t along[TD_CODING_RANK_MAX];     /* chunks in each dimension now */
    uint64_t max_along[TD_CODING_RANK_MAX]; /* and at most; 2^64-1: no bound */
    struct td_h5_chunk_list *list;
};

/* Adds the chunk at these scaled coordinates; one outside of the array is passed over. bytes 0: as many as it has
 * decoded. */
bool td_h5_add_chunk(struct td_h5_chunk_reader *r, const uint64_t *scaled, uint64_t addr, uint64_t bytes,
                     uint32_t skipped);

/* Reads the index (hdf5_chunk_index.c). Errors are of the index alone. */
bool td_h5_read_chunks(struct td_h5_chunk_reader *r);

/* Makes the tensor's coding, or gives it a reason: its filters or its chunks are not read. text: what is shown of it,
 * in the arena. False: an error of the file. */
bool td_h5_chunked_tensor(struct td_h5 *h, const struct td_h5_chunked *layout, const struct td_h5_space *space,
                          const struct td_h5_message *filters, const struct td_h5_message *fill, const char *text,
                          struct td_h5_chunk_list *list, struct td_tensor *tensor);

#endif
