/* Object headers: lists of messages that describe a group, a dataset or a committed datatype. Only for parser/hdf5. */
#ifndef TD_PARSER_HDF5_HDF5_OBJECT_H
#define TD_PARSER_HDF5_HDF5_OBJECT_H

#include "parser/hdf5/hdf5_cursor.h"
#include "parser/hdf5/hdf5_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_h5_message_type {
    TD_H5_DATASPACE = 0x01,
    TD_H5_LINK_INFO = 0x02,
    TD_H5_DATATYPE = 0x03,
    TD_H5_FILL_OLD = 0x04,
    TD_H5_FILL = 0x05,
    TD_H5_LINK = 0x06,
    TD_H5_EXTERNAL = 0x07,
    TD_H5_LAYOUT = 0x08,
    TD_H5_FILTERS = 0x0B,
    TD_H5_ATTRIBUTE = 0x0C,
    TD_H5_CONTINUATION = 0x10,
    TD_H5_SYMBOL_TABLE = 0x11,
    TD_H5_ATTRIBUTE_INFO = 0x15,
    TD_H5_KNOWN_TYPES = 0x18, /* all types below are known */
};

enum { TD_H5_MESSAGE_SHARED = 0x02, TD_H5_MESSAGE_FAIL_IF_UNKNOWN = 0x80 };

struct td_h5_message {
    unsigned type, flags;
    struct td_h5_cursor body;
};

/* A block of messages. */
struct td_h5_chunk {
    size_t off, len; /* of its messages, in the header's bytes */
    uint64_t addr;   /* of its messages, in the file */
};

/* One object header with all of its blocks in memory. Begin with {0}; the same header can be read into again. */
struct td_h5_header {
    uint64_t addr;
    unsigned version, flags;
    struct td_h5_buffer bytes;
    size_t used_bytes;
    struct td_h5_chunk *chunks;
    size_t chunk_count, chunk_capacity;
};

/* The position of a reader of messages. Begin with {0}. */
struct td_h5_place {
    size_t chunk, off;
};

/* Reads the header at addr with all of its continuations. Call td_h5_header_fini after the last use, in every case. */
bool td_h5_header_read(struct td_h5 *h, struct td_h5_header *header, uint64_t addr);
void td_h5_header_fini(struct td_h5_header *header);

/* Reads the next message, of any type. out->body points into the header and is valid until the header is read into
 * again. Returns false at the end, and on an error (h->err is then set). */
bool td_h5_next_message(struct td_h5 *h, const struct td_h5_header *header, struct td_h5_place *place,
                        struct td_h5_message *out);

/* Sets *addr to the object header that a shared message stands for (that of a committed datatype). Returns false,
 * without an error, when the message is shared in another way. */
bool td_h5_shared_address(struct td_h5 *h, struct td_h5_cursor body, uint64_t *addr);

#endif
