/* Commits of single objects, and what the answers to writes have in common. Private to api/s3/. */
#ifndef TD_API_S3_S3_COMMIT_H
#define TD_API_S3_S3_COMMIT_H

#include "api/call/call.h"
#include "api/s3/s3_source.h"
#include "api/s3/s3_target.h"
#include "catalog/publish/publish_stream.h"

#include <stdbool.h>

/* Checks the request's conditions (If-Match, If-None-Match: *) on the object that is there now; before a body is read,
 * so that it need not be sent. td_s3_commit_object checks them again. Returns false after it answered 404, 409, 412 or
 * 501. */
bool td_s3_check_conditions(const struct td_call *call, const struct td_s3_target *target);

/* Makes the blob, which is here, the object, if the request's conditions hold. The answer is then visible on all faces.
 * Returns false after it answered. */
bool td_s3_commit_object(const struct td_call *call, const struct td_s3_target *target,
                         const struct td_publish_sum *sum);

/* Copies bytes of the source into a stream, whose SHA-256 they get. Returns false after it answered. */
bool td_s3_copy_to_stream(const struct td_call *call, const struct td_s3_target *target,
                          const struct td_s3_source *source, struct td_publish_sum *sum);

/* Finds the object that the field x-amz-copy-source names, and checks the conditions on it. Returns false after it
 * answered. */
bool td_s3_open_copy_source(struct td_call *call, struct td_s3_source *source);

/* Returns whether the text, with or without quotes, is the tag of content with this SHA-256. */
bool td_s3_is_tag(struct td_text text, const char *hex);

/* Checks the conditions of a deletion (If-Match) on the object. hex: its SHA-256; NULL: it does not exist.
 * Returns false when it must not be deleted. */
bool td_s3_may_delete(struct td_text etag, const char *hex);

/* Writes the SHA-256 of an object as it is now, in an open repository. Returns false when it is not there. */
bool td_s3_find_now(const struct td_publish_repo *repo, const char *path, char hex[TD_SHA256_TEXT_BYTES]);

/* Answers with this status and no body. */
void td_s3_answer_status(const struct td_call *call, int status);

/* Answers with a document, whose root is begun by td_s3_begin_document. */
void td_s3_begin_document(struct td_buffer *xml, const char *root);
void td_s3_answer_document(const struct td_call *call, struct td_buffer *xml, const char *root);

/* Appends <ETag> with the entity tag of content with this SHA-256. */
void td_s3_write_etag(struct td_buffer *xml, const char *hex);

/* Returns the time in ns since 1970. */
int64_t td_s3_now_ns(void);

#endif
