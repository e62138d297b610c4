/* S3's error documents. Source: Amazon S3 API Reference, "Error responses". */
#ifndef TD_API_S3_S3_ERROR_H
#define TD_API_S3_S3_ERROR_H

#include "core/buffer.h"
#include "http/request.h"

#define TD_S3_REQUEST_ID "x-amz-request-id"

/* S3's word for an answer of this status, where nothing better is known; static. S3 has not all statuses: *status
 * becomes the one that it answers then. */
const char *td_s3_code_of(int *status);

/* Appends the document. message is UTF-8. */
void td_s3_write_error(struct td_buffer *out, const char *code, const char *message, struct td_text resource,
                       const char *request_id);

#endif
