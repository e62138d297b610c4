/* The links of a group. Only for parser/hdf5. */
#ifndef TD_PARSER_HDF5_HDF5_GROUP_H
#define TD_PARSER_HDF5_HDF5_GROUP_H

#include "parser/hdf5/hdf5_file.h"
#include "parser/hdf5/hdf5_object.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_h5_link_kind { TD_H5_HARD, TD_H5_SOFT, TD_H5_EXTERNAL_LINK, TD_H5_USER_LINK };

struct td_h5_link {
    const char *name; /* raw bytes, valid during the call */
    size_t name_len;
    enum td_h5_link_kind kind;
    uint64_t object;  /* address of a hard link's object */
    uint64_t at;      /* address of the link itself: for errors */
    const char *path; /* target of a soft or external link: raw bytes */
    size_t path_len;
    const char *file; /* file of an external link */
    size_t file_len;
};

/* Receives a link. Returns false to stop, after setting h->err. */
typedef bool td_h5_link_fn(void *context, const struct td_h5_link *link);

/* Calls `each` with every link of the group that the header belongs to. Stops and returns false when a call returns
 * false or the file is wrong. */
bool td_h5_each_link(struct td_h5 *h, const struct td_h5_header *header, td_h5_link_fn *each, void *context);

#endif
