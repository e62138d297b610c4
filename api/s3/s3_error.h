/* S3's error documents. Source: Amazon S3 API Reference, "Error responses". */
#ifndef TD_API_S3_S3_ERROR_H
#define TD_API_S3_S3_ERROR_H

#include "http/facade.h"

/* Implements td_facade.write_error. When failure->code is NULL, the status decides S3's code. S3 does not have all
 * statuses, so failure->status becomes the one that S3 answers instead. */
void td_s3_write_error(struct td_failure *failure, struct td_buffer *out);

#endif
