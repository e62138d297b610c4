/* Reads decoded bytes of an array in chunks (TD_CODING_CHUNKS). Undoes the filters that HDF5 applies to a chunk when it
 * is written: gzip, shuffle, fletcher32 and lzf. Sources: HDF5 File Format Specification, IV.A.2.l; libhdf5's
 * H5Zdeflate.c, H5Zshuffle.c, H5Zfletcher32.c; liblzf's lzf_d.c. */
#ifndef TD_STORAGE_DECODED_CHUNKS_H
#define TD_STORAGE_DECODED_CHUNKS_H

#include "storage/decode_cache.h"

/* Copies [off, off+len), which is within the coding's size_bytes, to out. Errors: TD_FAILED_PRECONDITION when the
 * stored bytes are damaged, TD_UNAVAILABLE when they are damaged because the file has changed, TD_RESOURCE_EXHAUSTED,
 * and those of the file's blob. Thread-safe. */
bool td_decoded_chunks_read(const struct td_decoding *d, uint64_t off, void *out, size_t len, struct td_error *err);

/* Undoes the grid's filters, except those whose bit i is set in skipped_filters, the last one first. Takes the stored
 * chunk, len bytes at *bytes from malloc, and replaces *bytes by the chunk_bytes bytes of the array, which the caller
 * frees with free(). On failure *bytes is freed and NULL. Errors: TD_FAILED_PRECONDITION when the chunk is damaged (a
 * checksum is wrong, or the bytes do not unpack, or not to chunk_bytes), TD_RESOURCE_EXHAUSTED. Thread-safe. */
bool td_chunk_unfilter(const struct td_coding_grid *grid, uint32_t skipped_filters, uint8_t **bytes, size_t len,
                       size_t chunk_bytes, struct td_error *err);

#endif
