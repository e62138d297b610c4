/* The filters that HDF5 applies to a chunk before it is stored: gzip, shuffle, fletcher32 and lzf, undone. Sources:
 * HDF5 File Format Specification, IV.A.2.l; libhdf5's H5Zdeflate.c, H5Zshuffle.c, H5Zfletcher32.c; liblzf's lzf_d.c. */
#ifndef TD_STORAGE_CHUNK_FILTER_H
#define TD_STORAGE_CHUNK_FILTER_H

#include "core/coding.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory that undoing the filters of a chunk takes at most, beside the stored bytes. */
size_t td_chunk_filter_memory_bytes(size_t chunk_bytes);

/* Undoes the filters that were applied: *bytes[0..len), malloc'd, becomes chunk_bytes of the array in another
 * allocation, which the caller frees; on failure *bytes is freed and NULL. Errors: TD_FAILED_PRECONDITION when the
 * bytes are damaged: a checksum is wrong, they do not unpack, or to another size; TD_RESOURCE_EXHAUSTED. */
bool td_chunk_unfilter(const struct td_coding_grid *grid, uint32_t skipped_filters, uint8_t **bytes, size_t len,
                       size_t chunk_bytes, struct td_error *err);

#endif
