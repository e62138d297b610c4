/* Objects that are read by their keys from the store of what was published, or for a copy. Private to api/s3/. */
#ifndef TD_API_S3_S3_SOURCE_H
#define TD_API_S3_S3_SOURCE_H

#include "api/call/call.h"
#include "core/digest.h"
#include "storage/blob.h"

#include <stdbool.h>

/* The content of an object. */
struct td_s3_source {
    struct td_blob *blob; /* one reference */
    uint64_t size_bytes;
    int64_t written_ns;             /* since 1970 */
    char tag[TD_SHA256_TEXT_BYTES]; /* without its end */
    bool has_sha256;                /* the tag is the content's SHA-256, sha256 too */
    uint8_t sha256[TD_SHA256_BYTES];
};

void td_s3_source_fini(struct td_s3_source *source);

/* Opens a file that was published and that no scan lists, because of its name: .metadata.tmp. Returns false when there
 * is no such file that the caller may see (err is TD_OK or TD_NOT_FOUND), or with another error. The call has a
 * snapshot and may wait. */
bool td_s3_source_hidden(const struct td_call *call, struct td_text bucket, struct td_text key,
                         struct td_s3_source *source, struct td_error *err);

/* Opens any object but the files of ranks. Errors as above. */
bool td_s3_source_open(const struct td_call *call, struct td_text bucket, struct td_text key,
                       struct td_s3_source *source, struct td_error *err);

#endif
