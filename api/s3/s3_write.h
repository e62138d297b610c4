/* The operations that write, and those of uploads: their table, by method and query. Only while api->publish is set.
 * Private to api/s3/. */
#ifndef TD_API_S3_S3_WRITE_H
#define TD_API_S3_S3_WRITE_H

#include "api/call/call.h"
#include "http/body_sink.h"

/* For td_facade.takes_upload and begin_upload. */
bool td_s3_takes_upload(const struct td_request *request);
struct td_body_sink *td_s3_begin_upload(struct td_call *call);

/* Answers the call if it is one of these operations. Returns false, and answers nothing, for those that read. */
bool td_s3_write(struct td_call *call);

#endif
