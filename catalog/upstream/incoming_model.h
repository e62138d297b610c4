/* A model that is being fetched, as a snapshot of its own: its files with their sizes and digests, whose bytes come
 * from incoming blobs (storage/incoming.h). So whatever shows and sends files of a snapshot shows and sends these. Its
 * models are those that will be there when it is published, as far as names tell: a .bin may turn out to be no
 * checkpoint. There are no checkpoints in it: tensors are known when the files are here. */
#ifndef TD_CATALOG_UPSTREAM_INCOMING_MODEL_H
#define TD_CATALOG_UPSTREAM_INCOMING_MODEL_H

#include "catalog/model/snapshot.h"
#include "core/digest.h"
#include "storage/blob.h"

struct td_incoming_file {
    const char *path; /* below the model */
    bool has_sha256;
    uint8_t sha256[TD_SHA256_BYTES];
    struct td_blob *blob; /* of the file's length */
};

struct td_incoming_model {
    const char *id;
    const char *version; /* any text that differs when the content differs: for entity tags without a digest */
    int64_t time_s;      /* the files' modification time, seconds since 1970 */
    const struct td_incoming_file *files; /* sorted by path in byte order; at least one */
    size_t file_count;
};

/* Makes the snapshot, with one reference, whose file i is files[i]. It takes references on the blobs and borrows
 * nothing. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_incoming_model_snapshot(const struct td_incoming_model *model, struct td_snapshot **out, struct td_error *err);

#endif
