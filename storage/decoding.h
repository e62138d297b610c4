/* Functions that both kinds of decoded blobs use. decoded_stream.h and decoded_chunks.h decode; by the functions here
 * they read the stored bytes and get parts from the cache. Thread-safe. */
#ifndef TD_STORAGE_DECODING_H
#define TD_STORAGE_DECODING_H

#include "core/cancel.h"
#include "core/coding.h"
#include "storage/blob.h"
#include "storage/decode_cache.h"

/* A coding, and where its bytes come from. The decoded blob that it is a member of keeps everything alive. */
struct td_decoding {
    struct td_blob *source; /* the whole file */
    const struct td_coding *coding;
    struct td_decode_cache *cache;
    const struct td_cancel *cancel; /* of the request that reads; NULL: none */
    struct td_decode_key key;       /* `part` is not set */
};

/* Copies len stored bytes of the file, at the coding's base plus off, to out. Errors: TD_FAILED_PRECONDITION when the
 * bytes are outside the file, else as td_blob_read. */
bool td_decoding_stored(const struct td_decoding *d, uint64_t off, void *out, size_t len, struct td_error *err);

/* Gets a part from the cache: calls td_decode_cache_get with a copy of the job in which key and cancel are set. Damage
 * is reported as td_decoding_report does, so the cache keeps the damage of an unchanged file only. */
bool td_decoding_get(const struct td_decoding *d, uint64_t part, const struct td_decode_job *job,
                     struct td_decoded_part **out, struct td_error *err);

/* Copies *own to *err, but turns damage (TD_FAILED_PRECONDITION) into TD_UNAVAILABLE when the file has changed. Returns
 * false. */
bool td_decoding_report(const struct td_decoding *d, const struct td_error *own, struct td_error *err);

#endif
