/* Reads decoded bytes of a deflate stream (TD_CODING_DEFLATE). */
#ifndef TD_STORAGE_DECODED_STREAM_H
#define TD_STORAGE_DECODED_STREAM_H

#include "storage/decode_cache.h"

/* Copies [off, off+len), which is within the coding's size_bytes, to out. Errors: TD_FAILED_PRECONDITION when the
 * stored bytes are damaged, TD_UNAVAILABLE when they are damaged because the file has changed, TD_RESOURCE_EXHAUSTED,
 * and those of the file's blob. Thread-safe. */
bool td_decoded_stream_read(const struct td_decoding *d, uint64_t off, void *out, size_t len, struct td_error *err);

#endif
