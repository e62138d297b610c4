/* Attributes of groups and datasets. Only for parser/hdf5. */
#ifndef TD_PARSER_HDF5_HDF5_ATTRIBUTE_H
#define TD_PARSER_HDF5_HDF5_ATTRIBUTE_H

#include "core/buffer.h"
#include "parser/hdf5/hdf5_cursor.h"
#include "parser/hdf5/hdf5_file.h"
#include "parser/hdf5/hdf5_object.h"
#include "parser/hdf5/hdf5_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_h5_attribute {
    const char *name; /* raw bytes, valid during the call */
    size_t name_len;
    struct td_h5_type type;
    struct td_h5_space space;
    uint64_t elems;
    struct td_h5_cursor data; /* the `elems` elements */
};

/* Receives an attribute. Returns false to stop, after setting h->err. */
typedef bool td_h5_attribute_fn(void *context, const struct td_h5_attribute *attribute);

/* Calls `each` with every attribute of the object that the header belongs to. Stops and returns false when a call
 * returns false or the file is wrong. Leaves out shared attributes, attributes of a committed type, and attributes too
 * large for their heap. */
bool td_h5_each_attribute(struct td_h5 *h, const struct td_h5_header *header, td_h5_attribute_fn *each, void *context);

/* A cache of the global heap's strings: every collection is indexed once. Begin with {0}. */
struct td_h5_strings {
    struct td_h5_map objects;  /* by collection and index: the address of the object's bytes */
    struct td_h5_buffer bytes; /* the collection or string that was read last */
};

/* Frees the cache. Allowed for {0}. */
void td_h5_strings_fini(struct td_h5_strings *strings);

/* Appends the value to *out as JSON (hdf5.h says how long values are cut); appends nothing when the value is of a kind
 * that is not shown. */
bool td_h5_attribute_json(struct td_h5 *h, struct td_h5_strings *strings, const struct td_h5_attribute *attribute,
                          struct td_buffer *out);

/* Sets *text to the value when it is one string: raw bytes, valid until the next call with these strings. Returns false
 * when the value is not one string, or on an error; h->err distinguishes the two. */
bool td_h5_attribute_string(struct td_h5 *h, struct td_h5_strings *strings, const struct td_h5_attribute *attribute,
                            const char **text, size_t *len);

#endif
