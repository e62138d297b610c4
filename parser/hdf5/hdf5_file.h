/* An open HDF5 file, and the functions that read its structures. Only for parser/hdf5, whose files have these parts:
 *
 *   hdf5_file         superblock, reading, bounds on work and memory, checksums, sets of addresses
 *   hdf5_cursor       the fields of a structure that is in memory
 *   hdf5_object       object headers and their messages
 *   hdf5_heap         fractal heaps with their B-trees (version 2): links and attributes of large objects
 *   hdf5_group        the links of a group, in each of the three ways to store them
 *   hdf5_type         datatypes and dataspaces
 *   hdf5_chunk_list   the chunks of a dataset, as a list
 *   hdf5_chunk_index  the indexes that say where the chunks are
 *   hdf5_chunked      datasets in chunks
 *   hdf5_attribute    attributes, and their values as JSON
 *   hdf5              the walk from the root group to the manifest
 *
 * Work is bounded by the file's size: every structure is visited once (td_h5_visit), and all bytes that are read as
 * structure are counted (td_h5_read), whatever the addresses in them say. Nothing recurses. Addresses count from the
 * superblock, positions in errors from the start of the file. A function that returns false has set h->err, unless its
 * comment says otherwise. */
#ifndef TD_PARSER_HDF5_HDF5_FILE_H
#define TD_PARSER_HDF5_HDF5_FILE_H

#include "core/error.h"
#include "core/input.h"
#include "parser/format/limits.h"
#include "parser/format/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A map from addresses to numbers: an open hash table. */
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
    uint64_t base;                       /* position of the superblock in the file: addresses count from there */
    uint64_t size_bytes;                 /* of the file from there on */
    unsigned offset_bytes, length_bytes; /* the width of addresses and of lengths: 2, 4 or 8 */
    uint64_t root;                       /* address of the root group's header */
    uint64_t budget_bytes;               /* bytes of structure that may still be read */
    uint64_t chunk_budget_bytes;         /* the same for the indexes of chunks */
    struct td_h5_map visited;            /* structures that must not be visited again */
    uint8_t *pages;                      /* a cache: small structures are close together, and a read is a system call */
    uint64_t page_at[TD_H5_PAGE_COUNT];  /* which page each place of the cache holds: its number + 1, 0: none */
};

/* Finds and reads the superblock. Call td_h5_close in every case. */
bool td_h5_open(struct td_h5 *h, const struct td_input *input, const struct td_limits *limits,
                struct td_manifest *manifest, struct td_error *err);
void td_h5_close(struct td_h5 *h);

/* Records that the file is wrong at an address. Returns false. */
bool td_h5_fail(struct td_h5 *h, uint64_t addr, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Records that memory is short. Returns false. */
bool td_h5_no_memory(struct td_h5 *h);

/* ---- reading; `what` names the structure in errors ("B-tree node") ---- */

/* Counts len bytes at addr as read. Returns false when they are not in the file or the budget does not allow them. */
bool td_h5_spend(struct td_h5 *h, uint64_t addr, uint64_t len, const char *what);

/* Copies len bytes of structure at addr to out, and counts them. */
bool td_h5_read(struct td_h5 *h, uint64_t addr, void *out, size_t len, const char *what);

/* Copies them into a buffer at off instead. The buffer grows as needed, and only when the bytes are in the file. */
bool td_h5_load(struct td_h5 *h, struct td_h5_buffer *buffer, size_t off, uint64_t addr, uint64_t len,
                const char *what);
void td_h5_buffer_fini(struct td_h5_buffer *buffer);

/* Returns whether len bytes at addr are in the file. Sets no error. */
bool td_h5_within(const struct td_h5 *h, uint64_t addr, uint64_t len);

/* Returns whether the address says "none": all bits are set. */
bool td_h5_undefined(const struct td_h5 *h, uint64_t addr);

/* Marks a structure as visited. A second visit is an error, because the file has a cycle or two owners of one
 * structure.
 */
bool td_h5_visit(struct td_h5 *h, uint64_t addr, const char *what);

/* Compares the checksum (Jenkins' lookup3) of bytes[0..len) with the stored one. */
bool td_h5_check_sum(struct td_h5 *h, const uint8_t *bytes, size_t len, uint32_t stored, uint64_t addr,
                     const char *what);

/* ---- memory, which counts against the file's limit ---- */

/* Makes room for one more item of size bytes in an array of *capacity items that holds `count`. `items` is the address
 * of the pointer to the array, which may move. Returns false and an error on failure; the old array then stays. The
 * caller frees it with free(). */
bool td_h5_grow(struct td_h5 *h, void *items, size_t *capacity, size_t count, size_t size);

/* Sets *value to the number that the map has for the address. When the map has none, adds *value and sets *is_new. */
bool td_h5_map_add(struct td_h5 *h, struct td_h5_map *map, uint64_t addr, size_t *value, bool *is_new);
void td_h5_map_fini(struct td_h5_map *map);

#endif
