/* Within parser/hdf5*.c only: an open HDF5 file, and what its structures are read with.
 *
 *   hdf5_file.c       superblock, reading, bounds on work and memory, checksums, sets of addresses
 *   hdf5_object.c     object headers and the messages in them
 *   hdf5_heap.c       fractal heaps with their B-trees (version 2): links and attributes of large objects
 *   hdf5_group.c      the links of a group, in each of the three ways to store them
 *   hdf5_type.c       datatypes and dataspaces
 *   hdf5_chunked.c    datasets in chunks: hdf5_chunked.h
 *   hdf5_chunk_index.c  where their chunks are
 *   hdf5_attribute.c  attributes, and their values as JSON
 *   hdf5.c            the walk from the root group to the manifest
 *
 * Work is bounded by the file's size: every structure is visited once (td_h5_visit), and all bytes that are read as
 * structure are counted (td_h5_read), whatever the addresses in them say. Nothing recurses. Addresses count from the
 * superblock; positions in errors from the start of the file. */
#ifndef TD_PARSER_HDF5_FILE_H
#define TD_PARSER_HDF5_FILE_H

#include "core/error.h"
#include "core/input.h"
#include "parser/limits.h"
#include "parser/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- reading (hdf5_file.c) ----------------------------------------------------------------------------- */

/* Addresses, each with a number: an open hash table. */
struct td_h5_map {
    struct td_h5_slot *slots;
    size_t capacity, count;
};

/* Memory that grows and is used again for the next structure. */
struct td_h5_buffer {
    uint8_t *p;
    size_t capacity;
};

enum { TD_H5_PAGE_BYTES = 4096, TD_H5_PAGE_COUNT = 64 };

struct td_h5 {
    const struct td_input *input;
    struct td_manifest *manifest;
    struct td_error *err;
    uint64_t base;                       /* of the superblock in the file: addresses count from there */
    uint64_t size_bytes;                 /* of the file from there on */
    unsigned offset_bytes, length_bytes; /* how wide addresses and lengths are: 2, 4 or 8 */
    uint64_t root;                       /* address of the root group's header */
    uint64_t budget_bytes;               /* of structure that may still be read */
    uint64_t chunk_budget_bytes;         /* the same, of where chunks are */
    struct td_h5_map visited;            /* structures that must not be met again */
    uint8_t *pages;                      /* a cache: small structures lie close together, and a read is a system call */
    uint64_t page_at[TD_H5_PAGE_COUNT];  /* which page each place holds: its number + 1, 0: none */
};

/* Finds and reads the superblock. td_h5_close in every case. */
bool td_h5_open(struct td_h5 *h, const struct td_input *input, const struct td_limits *limits,
                struct td_manifest *manifest, struct td_error *err);
void td_h5_close(struct td_h5 *h);

/* Records that the file is wrong at an address. Returns false. */
bool td_h5_fail(struct td_h5 *h, uint64_t addr, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool td_h5_no_memory(struct td_h5 *h);

/* Counts len bytes at addr as read. False, with an error: they are not in the file, or more are read than may be. */
bool td_h5_spend(struct td_h5 *h, uint64_t addr, uint64_t len, const char *what);

/* Copies len bytes of structure at addr; `what` names it in errors ("B-tree node"). */
bool td_h5_read(struct td_h5 *h, uint64_t addr, void *out, size_t len, const char *what);

/* The same into a buffer at off, which grows as needed, and only when the bytes are there. */
bool td_h5_load(struct td_h5 *h, struct td_h5_buffer *buffer, size_t off, uint64_t addr, uint64_t len,
                const char *what);
void td_h5_buffer_fini(struct td_h5_buffer *buffer);

/* Whether len bytes at addr are in the file. */
bool td_h5_within(const struct td_h5 *h, uint64_t addr, uint64_t len);

/* The address that says "none": all ones. */
bool td_h5_undefined(const struct td_h5 *h, uint64_t addr);

/* Marks a structure as visited; one that was visited before is an error: a cycle, or a claim of two. */
bool td_h5_visit(struct td_h5 *h, uint64_t addr, const char *what);

/* Room for one more item of size bytes in an array of *capacity that holds count: the array, moved perhaps, or NULL
 * (and an error; the old one stays). It counts against the file's memory. free() it with td_h5_release. */
void *td_h5_grow(struct td_h5 *h, void *items, size_t *capacity, size_t count, size_t size);

/* *value is what the map holds for the address, and true; or the value is put there, and *is_new. False: no memory. */
bool td_h5_map_add(struct td_h5 *h, struct td_h5_map *map, uint64_t addr, size_t *value, bool *is_new);
void td_h5_map_fini(struct td_h5_map *map);

/* Compares the checksum (Jenkins' lookup3) of bytes[0..len) with the stored one. */
bool td_h5_check_sum(struct td_h5 *h, const uint8_t *bytes, size_t len, uint32_t stored, uint64_t addr,
                     const char *what);

/* ---- bytes in memory ----------------------------------------------------------------------------------- */

/* Reads past the end give zeros and set `bad`, which is looked at once, at the end. */
struct td_h5_cursor {
    const uint8_t *p;
    size_t left;
    uint64_t addr; /* of p in the file: for errors */
    bool bad;
};

static inline const uint8_t *td_h5_take(struct td_h5_cursor *c, size_t len)
{
    if (c->bad || len > c->left) {
        c->bad = true;
        return NULL;
    }
    const uint8_t *p = c->p;
    c->p += len;
    c->left -= len;
    c->addr += len;
    return p;
}

/* A little-endian number of 1 to 8 bytes. */
static inline uint64_t td_h5_number(struct td_h5_cursor *c, unsigned bytes)
{
    const uint8_t *p = td_h5_take(c, bytes);
    uint64_t value = 0;
    if (p != NULL)
        for (unsigned i = bytes; i-- > 0;)
            value = value << 8 | p[i];
    return value;
}

static inline uint8_t td_h5_u8(struct td_h5_cursor *c)
{
    return (uint8_t)td_h5_number(c, 1);
}

static inline uint16_t td_h5_u16(struct td_h5_cursor *c)
{
    return (uint16_t)td_h5_number(c, 2);
}

static inline uint32_t td_h5_u32(struct td_h5_cursor *c)
{
    return (uint32_t)td_h5_number(c, 4);
}

/* Reads the first n bytes and compares them with a signature of 4 letters. */
static inline bool td_h5_signature(struct td_h5_cursor *c, const char *letters)
{
    const uint8_t *p = td_h5_take(c, 4);
    return p != NULL && p[0] == (uint8_t)letters[0] && p[1] == (uint8_t)letters[1] && p[2] == (uint8_t)letters[2] &&
           p[3] == (uint8_t)letters[3];
}

/* ---- object headers (hdf5_object.c) -------------------------------------------------------------------- */

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
    TD_H5_KNOWN_TYPES = 0x18, /* below it, all are known */
};

enum { TD_H5_MESSAGE_SHARED = 0x02, TD_H5_MESSAGE_FAIL_IF_UNKNOWN = 0x80 };

struct td_h5_message {
    unsigned type, flags;
    struct td_h5_cursor body;
};

struct td_h5_chunk {
    size_t off, len; /* of its messages in the header's bytes */
    uint64_t addr;   /* of these in the file */
};

/* One object header, all of its chunks in memory. Used again for the next. */
struct td_h5_header {
    uint64_t addr;
    unsigned version, flags;
    struct td_h5_buffer bytes;
    size_t used_bytes;
    struct td_h5_chunk *chunks;
    size_t chunk_count, chunk_capacity;
};

/* Where a reader of messages stands. Start with {0}. */
struct td_h5_place {
    size_t chunk, off;
};

bool td_h5_header_read(struct td_h5 *h, struct td_h5_header *header, uint64_t addr);
void td_h5_header_fini(struct td_h5_header *header);

/* The next message, whatever its type; false at the end, or on an error (h->err). */
bool td_h5_next_message(struct td_h5 *h, const struct td_h5_header *header, struct td_h5_place *place,
                        struct td_h5_message *out);

/* The address that a shared message stands for (a committed datatype's header); false for other ways of sharing, which
 * is no error. */
bool td_h5_shared_address(struct td_h5 *h, struct td_h5_cursor body, uint64_t *addr);

/* ---- types and shapes (hdf5_type.c) -------------------------------------------------------------------- */

/* How elements are stored, as far as an attribute's value needs it. */
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
    const char *reason; /* static: why elements of this type cannot be served; NULL: they can */
    enum td_h5_kind kind;
    uint32_t elem_bytes;
    bool big_endian; /* its numbers are */
    bool opaque;     /* Keras may say more */
};

/* Every datatype that is put together rightly has a type; what is unknown is OPAQUE with a reason. */
bool td_h5_type_read(struct td_h5 *h, struct td_h5_cursor body, struct td_h5_type *out);

#define TD_H5_UNLIMITED UINT64_MAX

struct td_h5_space {
    uint32_t rank;
    bool is_null; /* no elements and no shape */
    uint64_t dims[TD_MAX_RANK];
    uint64_t max_dims[TD_MAX_RANK]; /* what dims may grow to */
};

bool td_h5_space_read(struct td_h5 *h, struct td_h5_cursor body, struct td_h5_space *out);

/* How many elements; false on an overflow. */
bool td_h5_space_elems(const struct td_h5_space *space, uint64_t *elems);

/* ---- dense storage (hdf5_heap.c) ----------------------------------------------------------------------- */

/* Calls `each` with every object (a link or attribute message) that the B-tree names in the heap. Returns what the
 * last call returned, and stops at the first false. */
typedef bool td_h5_object_fn(void *context, struct td_h5_cursor object);
enum {
    TD_H5_TREE_LINKS = 5,
    TD_H5_TREE_ATTRIBUTES = 8,
    TD_H5_TREE_CHUNKS = 10,
    TD_H5_TREE_FILTERED_CHUNKS = 11,
};
bool td_h5_each_dense(struct td_h5 *h, uint64_t heap, uint64_t tree, unsigned tree_type, td_h5_object_fn *each,
                      void *context);

/* The same with every record of a B-tree that has all in itself, as trees of chunks do. */
bool td_h5_each_record(struct td_h5 *h, uint64_t tree, unsigned tree_type, td_h5_object_fn *each, void *context);

/* ---- groups (hdf5_group.c) ----------------------------------------------------------------------------- */

enum td_h5_link_kind { TD_H5_HARD, TD_H5_SOFT, TD_H5_EXTERNAL_LINK, TD_H5_USER_LINK };

struct td_h5_link {
    const char *name; /* raw bytes, borrowed for the call */
    size_t name_len;
    enum td_h5_link_kind kind;
    uint64_t object;  /* of a hard link */
    uint64_t at;      /* where the link stands, for errors */
    const char *path; /* of a soft or external one: raw bytes */
    size_t path_len;
    const char *file; /* of an external one */
    size_t file_len;
};

typedef bool td_h5_link_fn(void *context, const struct td_h5_link *link);

/* Calls `each` with every link of the group that the header belongs to. */
bool td_h5_each_link(struct td_h5 *h, const struct td_h5_header *header, td_h5_link_fn *each, void *context);

/* ---- attributes (hdf5_attribute.c) --------------------------------------------------------------------- */

struct td_h5_attribute {
    const char *name; /* raw bytes, borrowed for the call */
    size_t name_len;
    struct td_h5_type type;
    struct td_h5_space space;
    uint64_t elems;
    struct td_h5_cursor data; /* elems elements */
};

typedef bool td_h5_attribute_fn(void *context, const struct td_h5_attribute *attribute);

/* Calls `each` with every attribute whose value is stored in the usual way. */
bool td_h5_each_attribute(struct td_h5 *h, const struct td_h5_header *header, td_h5_attribute_fn *each, void *context);

/* Strings of the global heap, whose collections are each gone through once. */
struct td_h5_strings {
    struct td_h5_map objects;  /* by collection and index: the address of their bytes */
    struct td_h5_buffer bytes; /* the latest collection or string */
};

void td_h5_strings_fini(struct td_h5_strings *strings);

/* The value as JSON in *out, or nothing in it when it is not of a kind that is shown. */
struct td_buffer;
bool td_h5_attribute_json(struct td_h5 *h, struct td_h5_strings *strings, const struct td_h5_attribute *attribute,
                          struct td_buffer *out);

/* The value as one string (raw bytes, borrowed); false when it is none. An error is in h->err. */
bool td_h5_attribute_string(struct td_h5 *h, struct td_h5_strings *strings, const struct td_h5_attribute *attribute,
                            const char **text, size_t *len);

#endif
