/* The operations of S3 that write, for the table in s3_write.c: begin a body, and answer after its end. Source: Amazon
 * S3 API Reference. Private to api/s3/. */
#ifndef TD_API_S3_S3_HANDLERS_H
#define TD_API_S3_S3_HANDLERS_H

#include "api/call/call.h"
#include "http/body_sink.h"

/* These begin a body: return a sink, or NULL after they answered. Bucket and key are
 * borrowed from the call; the key may be empty. */
struct td_body_sink *td_s3_begin_put(struct td_call *call, struct td_text bucket, struct td_text key);
struct td_body_sink *td_s3_begin_copy(struct td_call *call, struct td_text bucket, struct td_text key);
struct td_body_sink *td_s3_begin_part(struct td_call *call, struct td_text bucket, struct td_text key);
struct td_body_sink *td_s3_begin_complete(struct td_call *call, struct td_text bucket, struct td_text key);
struct td_body_sink *td_s3_begin_delete_keys(struct td_call *call, struct td_text bucket, struct td_text key);
struct td_body_sink *td_s3_begin_bucket(struct td_call *call, struct td_text bucket, struct td_text key);

/* These answer, those above after the body's end. */
void td_s3_end_put(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_end_copy(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_end_part(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_end_part_copy(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_end_complete(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_end_delete_keys(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_end_bucket(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_create_upload(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_abort_upload(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_get_tags(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_list_parts(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_list_uploads(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_delete_key(struct td_call *call, struct td_text bucket, struct td_text key);
void td_s3_delete_bucket(struct td_call *call, struct td_text bucket, struct td_text key);

#endif
