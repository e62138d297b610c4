/* Plan: route_s3() splits the path into bucket and key and answers the root, a bucket or an object; finish_s3() applies
 * conditions and ranges. A query that names a subresource that is not served is answered 501 instead of the
 * bucket or object.
 *
 * What is hard: clients of S3 judge by details. A request for something in a bucket can come without the bucket when
 * the client puts its name into the host (answer_root); a part number is a range (finish); and a client on the wrong
 * port is sent to the right one (port_hint). */
#include "api/s3/s3.h"

#include "api/call/access.h"
#include "api/call/incoming_call.h"
#include "api/s3/s3_attributes.h"
#include "api/s3/s3_keys.h"
#include "api/s3/s3_list.h"
#include "api/s3/s3_source.h"
#include "api/s3/s3_subresource.h"
#include "api/s3/s3_target.h"
#include "api/s3/s3_write.h"
#include "core/clock.h"
#include "core/utf8.h"
#include "http/auth/sigv4.h"
#include "http/conditional.h"
#include "http/page_token.h"
#include "http/range.h"
#include "http/xml.h"
#include "rank/file_answer.h"

#include <openssl/crypto.h>
#include <string.h>

enum { BUCKETS_MAX = 10000, SHOWN_BYTES = 400 };

/* ---- buckets ------------------------------------------------------------------------------------------- */

static void write_bucket(const struct td_bucket *bucket, struct td_buffer *out)
{
    td_buffer_puts(out, "<Bucket>");
    td_xml_element(out, "Name", td_text_of(bucket->name));
    td_s3_date(out, "CreationDate", bucket->updated_ns);
    td_buffer_puts(out, "</Bucket>");
}

/* Reads the continuation token. Sets *first to the first bucket of the page. Returns false after answering an error. */
static bool read_bucket_token(const struct td_call *call, struct td_text scope, size_t *first)
{
    struct td_buffer last;
    td_buffer_init(&last);
    bool ok = td_call_read_page_token(call, td_uri_parameter(call->uri, "continuation-token"), scope,
                                      "The continuation token provided is incorrect", &last);
    *first = last.len > 0 ? td_buckets_after(call->snapshot, td_buffer_text(&last)) : 0;
    td_buffer_fini(&last);
    return ok;
}

/* ListBuckets. */
static void list_buckets(const struct td_call *call)
{
    const struct td_snapshot *snapshot = call->snapshot;
    const struct td_text *prefix = td_uri_parameter(call->uri, "prefix");
    struct td_text begin = prefix == NULL ? TD_TEXT("") : *prefix;
    struct td_buffer xml;
    size_t i;
    size_t most;
    size_t count = 0;
    const struct td_bucket *last = NULL;
    if (!td_s3_count(call, "max-buckets", 1, BUCKETS_MAX, &most) || !read_bucket_token(call, begin, &i) ||
        !td_call_may_list(call))
        return;
    td_buffer_init(&xml);
    td_xml_begin(&xml);
    td_buffer_puts(&xml, "<ListAllMyBucketsResult xmlns=\"" TD_S3_XMLNS "\"><Buckets>");
    const struct td_buckets *buckets = td_buckets_of(snapshot);
    for (; i < buckets->count && count < most; i++) {
        const struct td_bucket *bucket = &buckets->items[i];
        if (strncmp(bucket->name, begin.p, begin.len) != 0)
            continue;
        write_bucket(bucket, &xml);
        last = bucket;
        count++;
    }
    td_buffer_puts(&xml, "</Buckets>" TD_S3_OWNER);
    if (i < buckets->count && last != NULL) {
        td_buffer_puts(&xml, "<ContinuationToken>");
        td_page_token_write(&xml, begin, td_text_of(last->name));
        td_buffer_puts(&xml, "</ContinuationToken>");
    }
    if (begin.len > 0)
        td_xml_element(&xml, "Prefix", begin);
    td_buffer_puts(&xml, "</ListAllMyBucketsResult>\n");
    td_response_set_text(call->response, TD_XML_TYPE, "no-cache", &xml);
    td_buffer_fini(&xml);
}

/* Answers GetBucketLocation and GetBucketVersioning with an empty document, as for a plain bucket of us-east-1. */
static void answer_empty(const struct td_call *call, const char *name)
{
    struct td_buffer xml;
    td_buffer_init(&xml);
    td_xml_begin(&xml);
    td_buffer_printf(&xml, "<%s xmlns=\"" TD_S3_XMLNS "\"/>\n", name);
    td_response_set_text(call->response, TD_XML_TYPE, "no-cache", &xml);
    td_buffer_fini(&xml);
}

/* Returns whether a call for an object is GetObjectAttributes. */
static bool asks_attributes(const struct td_call *call)
{
    return td_uri_parameter(call->uri, "attributes") != NULL && td_s3_names_attributes(call);
}

/* Returns the subresource that the query asks for; NULL: the bucket or the object itself, or the attributes of an
 * object (is_object). */
static const struct td_s3_subresource *asked_subresource(const struct td_call *call, bool is_object)
{
    static const char *const attributes[] = {"attributes", NULL};
    return td_s3_asked_subresource(call, is_object && asks_attributes(call) ? attributes : NULL);
}

/* Answers HeadBucket. */
static void describe_bucket(const struct td_call *call)
{
    call->response->content_type = TD_XML_TYPE;
    td_response_add_header(call->response, "x-amz-bucket-region", "us-east-1");
}

static void answer_bucket(const struct td_call *call, const struct td_bucket *bucket)
{
    const struct td_s3_subresource *asked = asked_subresource(call, false);
    if (asked != NULL && asked->document == NULL) {
        td_s3_fail_subresource(call, asked);
    } else if (td_text_equals(call->request->method, "HEAD")) {
        describe_bucket(call);
    } else if (asked != NULL) {
        answer_empty(call, asked->document);
    } else {
        call->response->route = TD_ROUTE_S3_LIST;
        if (td_call_may_list(call))
            td_s3_list(call, bucket);
    }
}

/* ---- objects ------------------------------------------------------------------------------------------- */

/* Returns the end of a 404's message, which names the other port to a client that has mixed up the ports. */
static const char *port_hint(const struct td_call *call)
{
    return call->is_for_main_port
               ? "; this is the port for clients of S3, and the other port (--listen) answers such paths"
               : "";
}

/* Checks the query of an object, which has one version and one part. Returns false after answering an error. */
static bool check_object_query(const struct td_call *call)
{
    const struct td_text *version = td_uri_parameter(call->uri, "versionId");
    const struct td_text *part = td_uri_parameter(call->uri, "partNumber");
    const struct td_s3_subresource *asked = asked_subresource(call, true);
    if (asked != NULL)
        td_s3_fail_subresource(call, asked);
    else if (version != NULL && version->len > 0 && !td_text_equals(*version, "null"))
        td_response_fail(call->response, 400, NULL, "Invalid version id specified: objects have no versions");
    else if (part != NULL && !td_text_equals(*part, "1"))
        td_response_fail_as(call->response, 416, "InvalidPartNumber",
                            "The requested partnumber is not satisfiable: objects have one part");
    else
        return true;
    return false;
}

/* Answers with a file of a model for an engine. Returns false when there is no such file (err is TD_OK or TD_NOT_FOUND)
 * or with another error. */
static bool answer_rank_file(const struct td_call *call, const struct td_bucket *bucket, struct td_text key,
                             struct td_error *err)
{
    struct td_s3_rank_files rank_files;
    struct td_repo_item item;
    struct td_arena arena;
    td_arena_init(&arena, 0);
    bool ok = td_s3_rank_files_find(call->snapshot, bucket, key, &arena, &rank_files, err) &&
              key.len > rank_files.base.len &&
              td_repo_view_find(&rank_files.view, td_text_n(key.p + rank_files.base.len, key.len - rank_files.base.len),
                                &arena, &item, err) &&
              td_repo_item_answer(&call->api->ranks, &rank_files.view, &item, call->response, err);
    td_arena_fini(&arena);
    return ok;
}

/* Answers with a file that was published and that lists do not show. Returns as answer_rank_file. */
static bool answer_hidden(const struct td_call *call, struct td_text bucket, struct td_text key, struct td_error *err)
{
    struct td_s3_source source;
    if (!td_s3_source_hidden(call, bucket, key, &source, err))
        return false;
    bool ok = td_body_append(&call->response->body, source.blob, 0, source.size_bytes, err);
    td_s3_source_fini(&source);
    if (!ok)
        return false;
    td_response_describe_bytes(call->response, "application/octet-stream");
    td_response_set_modified(call->response, source.written_ns);
    td_response_set_etag(call->response, source.tag);
    return true;
}

static void answer_object(const struct td_call *call, const struct td_bucket *bucket, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    if (!check_object_query(call))
        return;
    const struct td_entry *entry = td_bucket_find_entry(call->snapshot, bucket, key);
    if (entry != NULL)
        td_incoming_call_note_read(call, td_text_of(entry->path));
    bool ok = entry != NULL ? td_file_answer(call->api->catalog, call->snapshot, entry, call->response, &err)
                            : answer_rank_file(call, bucket, key, &err) ||
                                  (err.code == TD_OK && answer_hidden(call, td_text_of(bucket->name), key, &err));
    const struct td_file *file = entry == NULL ? NULL : entry->file;
    if (ok && asks_attributes(call))
        td_s3_answer_attributes(call, file);
    else if (ok && td_conditional_apply(call->request, call->response)) /* a client would check the body of a 304 */
        td_s3_add_checksum(call, file);
    if (ok)
        return;
    if (err.code == TD_CONFLICT) {
        /* a code of our own: S3's codes for 409 make clients retry, or print a wrong reason (rclone: "Object in
         * GLACIER, restore first") */
        td_response_fail_as(call->response, 409, "GitLfsPointer", "%s", err.message);
        return;
    }
    if (err.code != TD_OK && err.code != TD_NOT_FOUND) {
        td_response_fail_error(call->response, &err);
        return;
    }
    char advice[TD_S3_ADVICE_BYTES];
    td_s3_rank_files_advise(call->snapshot, bucket, key, advice, sizeof advice);
    td_response_fail(call->response, 404, NULL, "bucket \"%s\" has no key \"%.*s\"%s%s", bucket->name,
                     TD_SHOW(key, SHOWN_BYTES), advice, port_hint(call));
}

/* ---- routing ------------------------------------------------------------------------------------------- */

/* Answers with the list of buckets. A query for something in a bucket comes from a client that puts the bucket's name
 * into the host's; this is refused. */
static void answer_root(const struct td_call *call)
{
    if (td_uri_parameter(call->uri, "list-type") == NULL && asked_subresource(call, false) == NULL)
        list_buckets(call);
    else
        td_response_fail(call->response, 400, NULL,
                         "no bucket: the path must name it (/bucket/key, \"path style\"), not the host's name");
}

/* Answers for a bucket without listed files. For HEAD it exists if the caller may write in it: clients ask so before
 * they write. A file that lists do not show may be in it. */
static void answer_no_bucket(const struct td_call *call, struct td_text name, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    bool is_head = td_text_equals(call->request->method, "HEAD");
    if (key.len > 0 && answer_hidden(call, name, key, &err))
        return;
    if (key.len == 0 && is_head && call->api->publish != NULL && td_s3_may_write_bucket(call, name))
        describe_bucket(call);
    else
        td_response_fail_as(call->response, 404, "NoSuchBucket",
                            "The specified bucket \"%.*s\" does not exist; GET / lists them%s",
                            TD_SHOW(name, SHOWN_BYTES), port_hint(call));
}

/* Routes the path, which begins after its first '/'. */
static void route_s3(const struct td_call *call, struct td_text path)
{
    struct td_text key = path;
    struct td_text name = td_text_take_until(&key, '/');
    call->response->route = key.len > 0 ? TD_ROUTE_S3_OBJECT : TD_ROUTE_S3_BUCKET;
    if (!td_call_may_answer(call))
        return;
    if (path.len == 0) {
        answer_root(call);
        return;
    }
    const struct td_bucket *bucket = td_bucket_find(call->snapshot, name);
    if (bucket == NULL)
        answer_no_bucket(call, name, key);
    else if (key.len > 0)
        answer_object(call, bucket, key);
    else
        answer_bucket(call, bucket);
}

/* Returns whether the method reads. Answers 405 otherwise: other methods would write, or are unknown (RFC 9110 section
 * 9). */
static bool is_read(const struct td_call *call)
{
    struct td_text method = call->request->method;
    if (td_text_equals(method, "GET") || td_text_equals(method, "HEAD"))
        return true;
    td_response_fail(call->response, 405, NULL,
                     "The specified method is not allowed against this resource: this server is read-only");
    td_response_add_header(call->response, "Allow", "GET, HEAD");
    return false;
}

/* Applies conditions and ranges. A part of an object is answered as a range, as S3 does: its only part is the whole. */
static void finish_s3(struct td_call *call)
{
    const struct td_header range = {.name = TD_TEXT("Range"), .value = TD_TEXT("bytes=0-")};
    const struct td_request part = {.method = call->request->method, .headers = &range, .header_count = 1};
    bool head = td_text_equals(call->request->method, "HEAD");
    bool is_part = call->response->route == TD_ROUTE_S3_OBJECT && !head &&
                   td_uri_parameter(call->uri, "partNumber") != NULL && !td_request_has_header(call->request, "Range");
    if (is_part && td_conditional_apply(call->request, call->response))
        td_range_apply(&part, call->response);
    call->response->refuses_empty_ranges = true;
    td_call_finish(call, head);
}

/* Lists of buckets and of keys: no key follows the bucket. */
static bool is_text(struct td_text raw_path)
{
    struct td_text key = td_text_skip(raw_path, raw_path.len > 0 ? 1 : 0);
    (void)td_text_take_until(&key, '/');
    return key.len == 0;
}

static void answer_s3(struct td_call *call)
{
    if (call->api->publish != NULL && td_s3_write(call))
        return;
    if (!is_read(call) || !td_call_take_snapshot(call))
        return;
    route_s3(call, td_text_skip(call->uri->path, 1));
    td_call_mend_early(call);
    finish_s3(call);
}

/* ---- the facade ---------------------------------------------------------------------------------------- */

/* Finds the token with the key that signed the request, and verifies the signature. Verifies it for an expired token
 * too, so that the access log has the token's name. */
static bool find_token(const struct td_call *call, const struct td_token **token, struct td_sigv4_refusal *refusal)
{
    const struct td_token_set *set = call->caller.tokens;
    struct td_sigv4 signature;
    char secret_key[TD_S3_SECRET_BYTES];
    int64_t now_s = td_access_now_s(call);
    if (!td_sigv4_parse(call->request, now_s, &signature, refusal))
        return false;
    *token = td_token_set_find_access_key(set, signature.access_key);
    if (*token == NULL)
        return td_sigv4_refuse_key(&signature, refusal);
    td_token_s3_secret(set, *token, secret_key);
    bool ok = td_sigv4_verify(&signature, call->request, td_text_of(secret_key), refusal);
    OPENSSL_cleanse(secret_key, sizeof secret_key);
    if (ok)
        td_access_note_name(call, *token);
    return td_token_has_expired(*token, now_s) ? td_sigv4_refuse_key(&signature, refusal) : ok;
}

/* Authenticates by AWS Signature Version 4 with a token's keys. For td_facade.admit. Where nobody may publish, a
 * request with another method than GET and HEAD is admitted: its handler refuses the method. */
static bool admit_s3(struct td_call *call)
{
    const struct td_token *token = NULL;
    struct td_sigv4_refusal fault;
    struct td_refusal refusal;
    struct td_text method = call->request->method;
    bool reads = td_text_equals(method, "GET") || td_text_equals(method, "HEAD");
    if (!reads && call->api->publish == NULL)
        return true;
    if (!find_token(call, &token, &fault)) {
        td_response_fail_as(call->response, td_sigv4_status(fault.fault), td_sigv4_code(fault.fault), "%s",
                            fault.message);
        return false;
    }
    if (td_access_take_token(call, token, &refusal))
        return true;
    td_response_fail(call->response, 403, NULL, "Access Denied: %s", refusal.message);
    return false;
}

/* Returns S3's code for a status, and sets the status to the one that S3 answers instead. Clients retry a 503 and never
 * a 4xx. */
static const char *code_of(int *status)
{
    static const struct {
        int status, answered;
        const char *code;
    } codes[] = {
        {400, 400, "InvalidArgument"},    {403, 403, "AccessDenied"},       {404, 404, "NoSuchKey"},
        {405, 405, "MethodNotAllowed"},   {409, 409, "OperationAborted"},   {411, 411, "MissingContentLength"},
        {412, 412, "PreconditionFailed"}, {413, 400, "EntityTooLarge"},     {416, 416, "InvalidRange"},
        {422, 400, "InvalidArgument"},    {429, 503, "SlowDown"},           {431, 400, "RequestHeaderSectionTooLarge"},
        {501, 501, "NotImplemented"},     {503, 503, "ServiceUnavailable"}, {507, 507, "StorageFull"},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].status != *status)
            continue;
        *status = codes[i].answered;
        return codes[i].code;
    }
    *status = 500;
    return "InternalError";
}

/* Writes S3's error document (Amazon S3 API Reference, "Error responses"). For td_facade.write_error: when
 * failure->code is NULL, the status decides S3's code. S3 does not have all statuses, so failure->status becomes the
 * one that S3 answers instead. */
static void write_error(struct td_failure *failure, struct td_buffer *out)
{
    char shown[2048];
    const char *code = failure->code != NULL ? failure->code : code_of(&failure->status);
    td_xml_begin(out);
    td_buffer_puts(out, "<Error>");
    td_xml_element(out, "Code", td_text_of(code));
    td_xml_element(out, "Message", td_text_of(failure->message));
    td_utf8_escape(failure->resource, shown, sizeof shown);
    td_xml_element(out, "Resource", td_text_of(shown));
    td_xml_element(out, "RequestId", td_text_of(failure->request_id));
    td_buffer_puts(out, "</Error>\n");
}

/* The body for every connection beyond a limit: S3 has no error code for an address with too many connections. */
static const char slow_down[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your "
    "request rate: there are too many connections</Message><Resource>/</Resource>"
    "<RequestId>0000000000000000</RequestId></Error>\n";

/* The body for a client without TLS, of a port that has it. */
static const char not_tls[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>InvalidRequest</Code><Message>This port speaks HTTPS: "
    "use an endpoint URL with https://</Message><Resource>/</Resource>"
    "<RequestId>0000000000000000</RequestId></Error>\n";

/* The body for a client that speaks TLS on a port without it. */
static const char is_tls[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>InvalidRequest</Code><Message>This port speaks plain "
    "HTTP: use an endpoint URL with http://</Message><Resource>/</Resource>"
    "<RequestId>0000000000000000</RequestId></Error>\n";

static const char *const write_methods[] = {"PUT", "POST", "DELETE", NULL};

const struct td_facade td_s3_facade = {
    .takes_upload = td_s3_takes_upload,
    .begin_upload = td_s3_begin_upload,
    .is_text = is_text,
    .admit = admit_s3,
    .answer = answer_s3,
    .write_error = write_error,
    .error_type = TD_XML_TYPE,
    .query = TD_URI_STRICT,
    .etag_end = TD_S3_ETAG_END,
    .request_id_header = "x-amz-request-id",
    .write_methods = write_methods,
    .busy = slow_down,
    .not_tls = not_tls,
    .is_tls = is_tls,
};
