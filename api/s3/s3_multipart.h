/* Multipart uploads as S3 has them. Private to api/s3/. */
#ifndef TD_API_S3_S3_MULTIPART_H
#define TD_API_S3_S3_MULTIPART_H

#include "api/call/call.h"
#include "api/s3/s3_checksum.h"
#include "catalog/publish/publish_parts.h"

struct td_s3_upload {
    struct td_parts_upload parts;
    struct td_text bucket, key;     /* in parts.label, so that the struct may not be copied */
    enum td_s3_algorithm algorithm; /* of the parts' checksums; TD_S3_NO_ALGORITHM: none was named */
    bool is_composite;              /* the object's checksum is that of the parts' checksums */
};

/* Sets the members from parts.label. */
void td_s3_read_upload(struct td_s3_upload *upload);

/* Finds the upload that the query names, for a caller that may write to the key. or_done: also one that was completed.
 * Returns false after it answered. */
bool td_s3_find_upload(struct td_call *call, struct td_text bucket, struct td_text key, bool or_done,
                       struct td_s3_upload *upload);

/* Appends the element with a part's checksum, if it has one. */
void td_s3_write_part_sum(struct td_buffer *xml, const struct td_part_info *info);

#endif
