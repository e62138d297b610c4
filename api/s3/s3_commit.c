#include "api/s3/s3_commit.h"

#include "api/call/joint_commit.h"
#include "api/call/publishing.h"
#include "api/s3/s3_list.h"
#include "catalog/publish/publish_refs.h"
#include "core/clock.h"
#include "core/digits.h"
#include "http/http_date.h"
#include "http/uri.h"
#include "http/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- answers ------------------------------------------------------------------------------------------- */

void td_s3_answer_status(const struct td_call *call, int status)
{
    call->response->status = status;
    call->response->content_type = NULL;
    call->response->cache_control = "no-cache";
}

void td_s3_begin_document(struct td_buffer *xml, const char *root)
{
    td_buffer_init(xml);
    td_xml_begin(xml);
    td_buffer_printf(xml, "<%s xmlns=\"" TD_S3_XMLNS "\">", root);
}

void td_s3_answer_document(const struct td_call *call, struct td_buffer *xml, const char *root)
{
    td_buffer_printf(xml, "</%s>\n", root);
    td_response_set_text(call->response, TD_XML_TYPE, "no-cache", xml);
    td_buffer_fini(xml);
}

void td_s3_write_etag(struct td_buffer *xml, const char *hex)
{
    td_buffer_printf(xml, "<ETag>&quot;%s" TD_S3_ETAG_END "&quot;</ETag>", hex);
}

int64_t td_s3_now_ns(void)
{
    struct td_wall now = td_wall_now();
    return now.seconds * TD_NS_PER_S + now.nanoseconds;
}

/* ---- conditions ---------------------------------------------------------------------------------------- */

bool td_s3_is_tag(struct td_text text, const char *hex)
{
    text = td_text_trim(text, " \t");
    bool is_quoted = text.len >= 2 && text.p[0] == '"' && text.p[text.len - 1] == '"';
    if (is_quoted)
        text = td_text_n(text.p + 1, text.len - 2);
    struct td_text end = td_text_of(TD_S3_ETAG_END);
    size_t len = strlen(hex);
    return text.len == len + end.len && memcmp(text.p, hex, len) == 0 && memcmp(text.p + len, end.p, end.len) == 0;
}

/* Returns whether a list of tags has the one, or is "*". */
static bool lists_tag(struct td_text list, const char *hex)
{
    while (list.len > 0) {
        struct td_text tag = td_text_trim(td_text_take_until(&list, ','), " \t");
        if (td_text_equals(tag, "*") || td_s3_is_tag(tag, hex))
            return true;
    }
    return false;
}

bool td_s3_may_delete(struct td_text etag, const char *hex)
{
    return etag.len == 0 || (hex != NULL && lists_tag(etag, hex));
}

bool td_s3_find_now(const struct td_publish_repo *repo, const char *path, char hex[TD_SHA256_TEXT_BYTES])
{
    uint8_t sha256[TD_SHA256_BYTES];
    if (!td_publish_find_file(repo, "main", path, sha256))
        return false;
    td_hex_write(sha256, sizeof sha256, hex);
    return true;
}

/* Checks the conditions in an open repository. */
static bool check_now(const struct td_call *call, const struct td_publish_repo *repo, const char *path)
{
    char hex[TD_SHA256_TEXT_BYTES];
    const struct td_header *match = td_request_single_header(call->request, "If-Match");
    const struct td_header *none = td_request_single_header(call->request, "If-None-Match");
    bool has_match = td_request_has_header(call->request, "If-Match");
    bool has_none = td_request_has_header(call->request, "If-None-Match");
    if (!has_match && !has_none)
        return true;
    bool exists = td_s3_find_now(repo, path, hex);
    if ((has_match && match == NULL) || (has_none && (none == NULL || !td_text_equals(none->value, "*")))) {
        td_response_fail_as(call->response, 501, "NotImplemented",
                            "A header you provided implies functionality that is not implemented: conditions are one "
                            "If-Match, or If-None-Match: *");
        return false;
    }
    if (match != NULL && !exists) {
        td_response_fail(call->response, 404, NULL, "The specified key does not exist");
        return false;
    }
    if ((match != NULL && !lists_tag(match->value, hex)) || (none != NULL && exists)) {
        td_response_fail(call->response, 412, NULL, "At least one of the pre-conditions you specified did not hold: %s",
                         none != NULL ? "If-None-Match" : "If-Match");
        return false;
    }
    return true;
}

bool td_s3_check_conditions(const struct td_call *call, const struct td_s3_target *target)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_repo repo;
    if (!td_publish_repo_look(&call->api->publish->disk, &target->name, &repo, &err)) {
        td_publishing_fail(call, &err, 500);
        return false;
    }
    bool ok = check_now(call, &repo, target->path);
    td_publish_repo_look_end(&repo);
    return ok;
}

/* ---- commits ------------------------------------------------------------------------------------------- */

/* The context of check_again. */
struct committing {
    const struct td_call *call;
    const char *path;
};

static bool check_again(void *context, const struct td_publish_repo *repo)
{
    const struct committing *committing = context;
    return check_now(committing->call, repo, committing->path);
}

bool td_s3_commit_object(const struct td_call *call, const struct td_s3_target *target,
                         const struct td_publish_sum *sum)
{
    struct committing committing = {.call = call, .path = target->path};
    struct td_joint_file file = {.name = &target->name,
                                 .path = target->path,
                                 .sum = sum,
                                 .allows_hidden = true,
                                 .renews_times = true,
                                 .check = check_again,
                                 .context = &committing};
    struct td_commit_result result;
    if (!td_joint_commit(call, &file, &result))
        return false;
    if (result.verdict != TD_COMMIT_LACKS_BLOBS)
        return true;
    /* somebody has removed the repository since */
    td_response_fail(call->response, 503, NULL, "The model was removed while the object arrived; try again");
    return false;
}

/* ---- copies -------------------------------------------------------------------------------------------- */

bool td_s3_copy_to_stream(const struct td_call *call, const struct td_s3_target *target,
                          const struct td_s3_source *source, struct td_publish_sum *sum)
{
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_publish_stream_copy(call->api->publish, &target->name, source->blob,
                                     source->has_sha256 ? source->sha256 : NULL, sum, &err);
    if (!ok)
        td_publishing_fail(call, &err, 503);
    return ok;
}

/* Sets *field to the request's field of this name, or to NULL. Returns false after it answered 400 for two of them. */
static bool read_condition(const struct td_call *call, const char *name, const struct td_header **field)
{
    *field = td_request_single_header(call->request, name);
    if (*field != NULL || !td_request_has_header(call->request, name))
        return true;
    td_response_fail_as(call->response, 400, "InvalidRequest", "The request has %s twice", name);
    return false;
}

/* Checks the conditions on the source of a copy. */
static bool check_source(const struct td_call *call, const struct td_s3_source *source)
{
    const struct td_header *match, *none, *since, *unmodified;
    int64_t seconds;
    if (!read_condition(call, "x-amz-copy-source-if-match", &match) ||
        !read_condition(call, "x-amz-copy-source-if-none-match", &none) ||
        !read_condition(call, "x-amz-copy-source-if-modified-since", &since) ||
        !read_condition(call, "x-amz-copy-source-if-unmodified-since", &unmodified))
        return false;
    int64_t written_s = source->written_ns / TD_NS_PER_S;
    bool ok = match == NULL || lists_tag(match->value, source->tag);
    if (match == NULL && unmodified != NULL && td_http_date_parse(unmodified->value, &seconds))
        ok = written_s <= seconds;
    if (none != NULL)
        ok = ok && !lists_tag(none->value, source->tag);
    else if (since != NULL && td_http_date_parse(since->value, &seconds))
        ok = ok && written_s > seconds;
    if (!ok)
        td_response_fail(call->response, 412, NULL,
                         "At least one of the pre-conditions you specified did not hold: x-amz-copy-source-if-...");
    return ok;
}

/* Splits the field "/bucket/key?versionId=null", which is percent-encoded. The texts live in the buffer. */
static bool read_copy_source(const struct td_call *call, struct td_buffer *memory, struct td_text *bucket,
                             struct td_text *key)
{
    const struct td_header *field = td_request_single_header(call->request, "x-amz-copy-source");
    struct td_text version = field == NULL ? TD_TEXT("") : field->value;
    struct td_text path = td_text_take_until(&version, '?');
    size_t len;
    if (!td_buffer_reserve(memory, path.len + 1))
        return td_call_no_memory(call);
    bool ok = path.len > 0 && td_uri_decode(path, false, TD_URI_TARGET, memory->data, &len, NULL);
    *key = ok ? td_text_n(memory->data, len) : TD_TEXT("");
    (void)td_text_take_char(key, '/');
    *bucket = td_text_take_until(key, '/');
    if (ok && bucket->len > 0 && key->len > 0 && (version.len == 0 || td_text_equals(version, "versionId=null")))
        return true;
    td_response_fail_as(call->response, 400, "InvalidArgument",
                        "x-amz-copy-source must be \"BUCKET/KEY\", percent-encoded; objects have no versions");
    return false;
}

bool td_s3_open_copy_source(struct td_call *call, struct td_s3_source *source)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer memory;
    struct td_text bucket = TD_TEXT(""), key = TD_TEXT("");
    td_buffer_init(&memory);
    bool ok = (call->snapshot != NULL || td_call_take_snapshot(call)) && read_copy_source(call, &memory, &bucket, &key);
    if (ok && !td_s3_source_open(call, bucket, key, source, &err)) {
        ok = false;
        if (err.code == TD_OK || err.code == TD_NOT_FOUND)
            td_response_fail(call->response, 404, NULL, "The specified key does not exist: the source of the copy");
        else
            td_response_fail_error(call->response, &err);
    } else if (ok && !check_source(call, source)) {
        td_s3_source_fini(source);
        ok = false;
    }
    td_buffer_fini(&memory);
    return ok;
}
