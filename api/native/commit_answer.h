/* Answers about commits, for the routes that make them. */
#ifndef TD_API_NATIVE_COMMIT_ANSWER_H
#define TD_API_NATIVE_COMMIT_ANSWER_H

#include "api/call/call.h"
#include "catalog/publish/publish_commit.h"
#include "catalog/publish/publish_upload.h"
#include "core/message/document.h"

/* Answers with a commit that was made, or that is unchanged. */
void td_commit_answer(const struct td_call *call, struct td_text id, const struct td_commit_order *order,
                      const struct td_commit_result *result, int status);

/* Adds "missing": [[first, last], ...], the ranges of bytes that the blob lacks. */
void td_commit_answer_add_missing(struct td_document *json, const struct td_publish_blob *blob);

/* Answers 412 with the commit that the revision is at, which is not the parent that was given. */
void td_commit_answer_parent(const struct td_call *call, const char *revision, const char *commit);

#endif
