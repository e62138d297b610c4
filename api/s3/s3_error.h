/* S3's error documents. Source: Amazon S3 API Reference, "Error responses". */
#ifndef TD_API_S3_S3_ERROR_H
#define TD_API_S3_S3_ERROR_H

#include "http/facade.h"

/* As td_facade's write_error. Without a code, the status tells S3's code. S3 has not all statuses: the failure's status
 * becomes the one that S3 answers in its place. */
void td_s3_write_error(struct td_failure *failure, struct td_buffer *out);

#endif
