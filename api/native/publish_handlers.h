/* The handlers of publishing, for the table of their paths and methods. */
#ifndef TD_API_NATIVE_PUBLISH_HANDLERS_H
#define TD_API_NATIVE_PUBLISH_HANDLERS_H

#include "api/call/call.h"
#include "api/native/publish_path.h"
#include "http/body_sink.h"

/* These return a sink for the body, or NULL after they answered. */
struct td_body_sink *td_begin_blob_put(struct td_call *call, const struct td_publish_path *path);
struct td_body_sink *td_begin_blob_check(struct td_call *call, const struct td_publish_path *path);
struct td_body_sink *td_begin_blob_post(struct td_call *call, const struct td_publish_path *path);
struct td_body_sink *td_begin_commit(struct td_call *call, const struct td_publish_path *path);
struct td_body_sink *td_begin_file_put(struct td_call *call, const struct td_publish_path *path);

/* These answer after the body's end. */
void td_end_blob_put(struct td_call *call, const struct td_publish_path *path);
void td_end_blob_check(struct td_call *call, const struct td_publish_path *path);
void td_end_blob_post(struct td_call *call, const struct td_publish_path *path);
void td_end_commit(struct td_call *call, const struct td_publish_path *path);
void td_end_file_put(struct td_call *call, const struct td_publish_path *path);

/* These have no body. */
void td_handle_blob(struct td_call *call, const struct td_publish_path *path);
void td_handle_commits(struct td_call *call, const struct td_publish_path *path);
void td_handle_file_delete(struct td_call *call, const struct td_publish_path *path);
void td_handle_repo_delete(struct td_call *call, const struct td_publish_path *path);

#endif
