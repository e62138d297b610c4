/* Datatypes and dataspaces: the type of the elements and the shape. Only for parser/hdf5. */
#ifndef TD_PARSER_HDF5_HDF5_TYPE_H
#define TD_PARSER_HDF5_HDF5_TYPE_H

#include "parser/format/dtype.h"
#include "parser/hdf5/hdf5_cursor.h"
#include "parser/hdf5/hdf5_file.h"

#include <stdbool.h>
#include <stdint.h>

/* The storage of elements, as far as an attribute's value needs it. */
enum td_h5_kind {
    TD_H5_KIND_OTHER,
    TD_H5_KIND_INT,
    TD_H5_KIND_UINT,
    TD_H5_KIND_FLOAT,
    TD_H5_KIND_BOOL,
    TD_H5_KIND_STRING,      /* of elem_bytes */
    TD_H5_KIND_VLEN_STRING, /* in the global heap */
};

struct td_h5_type {
    const struct td_dtype *dtype;
    const char *reason; /* static text: why elements of this type cannot be served; NULL: they can */
    enum td_h5_kind kind;
    uint32_t elem_bytes;
    bool big_endian; /* its numbers are stored big-endian */
    bool opaque;     /* bytes without a meaning; an attribute of Keras may give them one */
};

/* Reads a datatype message. Every well-formed datatype has a type: an unknown one is OPAQUE with a reason. */
bool td_h5_type_read(struct td_h5 *h, struct td_h5_cursor body, struct td_h5_type *out);

#define TD_H5_UNLIMITED UINT64_MAX

struct td_h5_space {
    uint32_t rank;
    bool is_null; /* the dataset has no elements and no shape */
    uint64_t dims[TD_MAX_RANK];
    uint64_t max_dims[TD_MAX_RANK]; /* the most that dims may grow to, or TD_H5_UNLIMITED */
};

/* Reads a dataspace message. */
bool td_h5_space_read(struct td_h5 *h, struct td_h5_cursor body, struct td_h5_space *out);

/* Computes the number of elements. Returns false, without an error, on an overflow. */
bool td_h5_space_elems(const struct td_h5_space *space, uint64_t *elems);

#endif
