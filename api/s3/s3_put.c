/* PutObject, CopyObject, CreateBucket, and GetObjectTagging, which the AWS command line asks for when it copies. */
#include "api/call/access.h"
#include "api/call/publishing.h"
#include "api/s3/s3_commit.h"
#include "api/s3/s3_documents.h"
#include "api/s3/s3_handlers.h"
#include "api/s3/s3_list.h"
#include "api/s3/s3_sink.h"
#include "catalog/publish/publish_upload.h"
#include "core/digits.h"

#include <string.h>

enum { BUCKET_DOCUMENT_BYTES = 64 * 1024 };

/* The SHA-256 of no bytes: the tag of a key that stands for a folder. */
static const char empty_sha256[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/* Answers 200 with the entity tag of the object that was written. */
static void answer_written(const struct td_call *call, const char *hex)
{
    td_s3_answer_status(call, 200);
    td_response_set_etag(call->response, hex);
}

/* ---- PutObject ----------------------------------------------------------------------------------------- */

struct td_body_sink *td_s3_begin_put(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_s3_target target;
    if (!td_s3_target_begin(call, bucket, key, &target) ||
        (!target.is_folder && !td_s3_check_conditions(call, &target)))
        return NULL;
    struct td_s3_sink *sink = td_s3_sink_make(call, TD_S3_NO_ALGORITHM);
    if (sink == NULL)
        return NULL;
    if (target.is_folder)
        return td_s3_sink_take_text(call, sink, 0);
    if (td_publish_stream_begin(call->api->publish, &target.name, sink->content_bytes, &sink->stream, &err))
        return &sink->sink;
    td_publishing_fail(call, &err, 500);
    sink->sink.ops->release(&sink->sink);
    return NULL;
}

void td_s3_end_put(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_s3_target target;
    struct td_publish_sum sum;
    char hex[TD_SHA256_TEXT_BYTES];
    struct td_s3_sink *sink = td_s3_sink_of(call);
    if (!td_s3_target_begin(call, bucket, key, &target) || !td_s3_sink_check(call, sink))
        return;
    if (target.is_folder) {
        answer_written(call, empty_sha256);
        return;
    }
    if (!td_s3_sink_end_stream(call, sink, &sum) || !td_s3_commit_object(call, &target, &sum))
        return;
    td_hex_write(sum.sha256, sizeof sum.sha256, hex);
    answer_written(call, hex);
    td_s3_sink_echo(call, sink);
}

/* ---- CopyObject ---------------------------------------------------------------------------------------- */

struct td_body_sink *td_s3_begin_copy(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_s3_target target;
    if (!td_s3_target_begin(call, bucket, key, &target))
        return NULL;
    return td_s3_sink_take_text(call, td_s3_sink_make(call, TD_S3_NO_ALGORITHM), 0);
}

/* Gives the target's repository the blob of the source: it may have it already. */
static bool bring_blob(const struct td_call *call, const struct td_s3_target *target, const struct td_s3_source *source,
                       struct td_publish_sum *sum)
{
    if (!source->has_sha256 || !td_publish_has_blob(call->api->publish, &target->name, source->sha256))
        return td_s3_copy_to_stream(call, target, source, sum);
    memcpy(sum->sha256, source->sha256, sizeof sum->sha256);
    sum->size_bytes = source->size_bytes;
    return true;
}

static void answer_copied(const struct td_call *call, const char *root, const char *hex)
{
    struct td_buffer xml;
    td_s3_begin_document(&xml, root);
    td_s3_date(&xml, "LastModified", td_s3_now_ns());
    td_s3_write_etag(&xml, hex);
    td_s3_answer_document(call, &xml, root);
}

void td_s3_end_copy(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_s3_target target;
    struct td_s3_source source;
    struct td_publish_sum sum;
    char hex[TD_SHA256_TEXT_BYTES];
    if (!td_s3_target_begin(call, bucket, key, &target) || !td_s3_sink_check(call, td_s3_sink_of(call)))
        return;
    if (target.is_folder) {
        answer_copied(call, "CopyObjectResult", empty_sha256);
        return;
    }
    if (!td_s3_open_copy_source(call, &source))
        return;
    bool ok = bring_blob(call, &target, &source, &sum) && td_s3_commit_object(call, &target, &sum);
    td_s3_source_fini(&source);
    if (!ok)
        return;
    td_hex_write(sum.sha256, sizeof sum.sha256, hex);
    answer_copied(call, "CopyObjectResult", hex);
}

/* ---- GetObjectTagging ---------------------------------------------------------------------------------- */

/* Answers that the object has no tags. */
void td_s3_get_tags(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_s3_source source;
    struct td_buffer xml;
    if (!td_call_take_snapshot(call))
        return;
    if (td_s3_source_open(call, bucket, key, &source, &err)) {
        td_s3_source_fini(&source);
        td_s3_begin_document(&xml, "Tagging");
        td_buffer_puts(&xml, "<TagSet/>");
        td_s3_answer_document(call, &xml, "Tagging");
    } else if (err.code == TD_OK || err.code == TD_NOT_FOUND) {
        td_response_fail(call->response, 404, NULL, "The specified key does not exist");
    } else {
        td_response_fail_error(call->response, &err);
    }
}

/* ---- CreateBucket -------------------------------------------------------------------------------------- */

struct td_body_sink *td_s3_begin_bucket(struct td_call *call, struct td_text bucket, struct td_text key)
{
    (void)key;
    if (!td_s3_may_write_bucket(call, bucket))
        return NULL;
    return td_s3_sink_take_text(call, td_s3_sink_make(call, TD_S3_NO_ALGORITHM), BUCKET_DOCUMENT_BYTES);
}

/* Adds the bucket's path, as the client wrote it. */
static void add_location(const struct td_call *call)
{
    td_response_add_header_text(call->response, "Location", call->uri->raw_path);
}

void td_s3_end_bucket(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_s3_sink *sink = td_s3_sink_of(call);
    (void)key;
    if (!td_s3_may_write_bucket(call, bucket) || !td_s3_sink_check(call, sink))
        return;
    if (!td_s3_is_bucket_configuration(td_buffer_text(&sink->text))) {
        td_response_fail_as(call->response, 400, "MalformedXML", "The XML you provided was not well-formed");
        return;
    }
    td_s3_answer_status(call, 200);
    add_location(call);
}
