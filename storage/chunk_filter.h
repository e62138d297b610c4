/* Undoes the filters that HDF5 applies to a chunk when it is written: gzip, shuffle, fletcher32 and lzf. Sources: HDF5
 * File Format Specification, IV.A.2.l; libhdf5's H5Zdeflate.c, H5Zshuffle.c, H5Zfletcher32.c; liblzf's lzf_d.c. */
#ifndef TD_STORAGE_CHUNK_FILTER_H
#define TD_STORAGE_CHUNK_FILTER_H

#include "core/coding.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the most memory that td_chunk_unfilter takes for a chunk of this size, besides the stored bytes. */
size_t td_chunk_filter_memory_bytes(size_t chunk_bytes);

/* Undoes the grid's filters, except those whose bit i is set in skipped_filters, the last one first. Takes the stored
 * chunk, len bytes at *bytes from malloc, and replaces *bytes by the chunk_bytes bytes of the array, which the caller
 * frees with free(). On failure *bytes is freed and NULL. Errors: TD_FAILED_PRECONDITION when the chunk is damaged (a
 * checksum is wrong, or the bytes do not unpack, or not to chunk_bytes), TD_RESOURCE_EXHAUSTED. Thread-safe. */
bool td_chunk_unfilter(const struct td_coding_grid *grid, uint32_t skipped_filters, uint8_t **bytes, size_t len,
                       size_t chunk_bytes, struct td_error *err);

#endif
