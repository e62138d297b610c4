/* Dense storage: fractal heaps, which hold the links and attributes of objects that have many, and the B-trees of
 * version 2 that index them. Only for parser/hdf5. */
#ifndef TD_PARSER_HDF5_HDF5_HEAP_H
#define TD_PARSER_HDF5_HDF5_HEAP_H

#include "parser/hdf5/hdf5_cursor.h"
#include "parser/hdf5/hdf5_file.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TD_H5_TREE_LINKS = 5,
    TD_H5_TREE_ATTRIBUTES = 8,
    TD_H5_TREE_CHUNKS = 10,
    TD_H5_TREE_FILTERED_CHUNKS = 11,
};

/* Receives an object of a heap, or a record of a B-tree. Returns false to stop, after setting h->err. */
typedef bool td_h5_object_fn(void *context, struct td_h5_cursor object);

/* Reads a link info or attribute info message, `what` in errors, which says where dense storage is. Calls `each` with
 * every object (a link or attribute message) that the B-tree names in the heap. Stops at the first false and returns
 * that; true when all calls returned true. */
bool td_h5_each_dense(struct td_h5 *h, struct td_h5_cursor info, const char *what, unsigned tree_type,
                      td_h5_object_fn *each, void *context);

/* Does the same with every record of a B-tree without a heap, such as a tree of chunks. */
bool td_h5_each_record(struct td_h5 *h, uint64_t tree, unsigned tree_type, td_h5_object_fn *each, void *context);

#endif
