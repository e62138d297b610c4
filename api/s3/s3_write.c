#include "api/s3/s3_write.h"

#include "api/s3/s3_handlers.h"
#include "api/s3/s3_subresource.h"
#include "core/waiting.h"

#include <string.h>

struct operation {
    const char *method;
    bool has_key;          /* else the path names a bucket alone */
    const char *parameter; /* that the query must have; NULL: none */
    bool is_copy;          /* the request has x-amz-copy-source; of PUT with a key alone */
    enum td_route route;
    struct td_body_sink *(*begin)(struct td_call *call, struct td_text bucket, struct td_text key); /* NULL: no body */
    void (*answer)(struct td_call *call, struct td_text bucket, struct td_text key);
};

static const struct operation operations[] = {
    {"PUT", true, "uploadId", true, TD_ROUTE_S3_OBJECT, td_s3_begin_copy, td_s3_end_part_copy},
    {"PUT", true, "uploadId", false, TD_ROUTE_S3_OBJECT, td_s3_begin_part, td_s3_end_part},
    {"PUT", true, NULL, true, TD_ROUTE_S3_OBJECT, td_s3_begin_copy, td_s3_end_copy},
    {"PUT", true, NULL, false, TD_ROUTE_S3_OBJECT, td_s3_begin_put, td_s3_end_put},
    {"PUT", false, NULL, false, TD_ROUTE_S3_BUCKET, td_s3_begin_bucket, td_s3_end_bucket},
    {"POST", true, "uploads", false, TD_ROUTE_S3_OBJECT, NULL, td_s3_create_upload},
    {"POST", true, "uploadId", false, TD_ROUTE_S3_OBJECT, td_s3_begin_complete, td_s3_end_complete},
    {"POST", false, "delete", false, TD_ROUTE_S3_BUCKET, td_s3_begin_delete_keys, td_s3_end_delete_keys},
    {"DELETE", true, "uploadId", false, TD_ROUTE_S3_OBJECT, NULL, td_s3_abort_upload},
    {"DELETE", true, NULL, false, TD_ROUTE_S3_OBJECT, NULL, td_s3_delete_key},
    {"DELETE", false, NULL, false, TD_ROUTE_S3_BUCKET, NULL, td_s3_delete_bucket},
    {"GET", true, "tagging", false, TD_ROUTE_S3_OBJECT, NULL, td_s3_get_tags},
    {"GET", true, "uploadId", false, TD_ROUTE_S3_OBJECT, NULL, td_s3_list_parts},
    {"GET", false, "uploads", false, TD_ROUTE_S3_LIST, NULL, td_s3_list_uploads},
};

/* The bucket and the key of a decoded path. */
struct place {
    struct td_text bucket, key;
};

static struct place place_of(const struct td_uri *uri)
{
    struct place place = {.key = td_text_skip(uri->path, 1)};
    place.bucket = td_text_take_until(&place.key, '/');
    return place;
}

/* Returns the operation of a request; NULL for one that only reads, and for methods that S3 does not have. */
static const struct operation *find_operation(const struct td_request *request, const struct td_uri *uri)
{
    struct place place = place_of(uri);
    bool is_copy = td_request_has_header(request, "x-amz-copy-source");
    if (place.bucket.len == 0)
        return NULL;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const struct operation *operation = &operations[i];
        if (td_text_equals(request->method, operation->method) && operation->has_key == (place.key.len > 0) &&
            (!operation->is_copy || is_copy) &&
            (operation->parameter == NULL || td_uri_parameter(uri, operation->parameter) != NULL))
            return operation;
    }
    return NULL;
}

bool td_s3_takes_upload(const struct td_request *request)
{
    struct td_uri uri;
    const struct operation *operation = NULL;
    if (td_uri_parse(&uri, request->target, TD_URI_STRICT, NULL))
        operation = find_operation(request, &uri);
    td_uri_fini(&uri);
    return operation != NULL && operation->begin != NULL;
}

/* Refuses queries that name a part of the bucket or object that cannot be written. Returns false after it answered. */
static bool check_query(const struct td_call *call, const struct operation *operation)
{
    const char *const served[] = {operation->parameter, NULL};
    const struct td_s3_subresource *asked = td_s3_asked_subresource(call, served);
    if (asked != NULL)
        td_s3_fail_subresource(call, asked);
    return asked == NULL;
}

struct td_body_sink *td_s3_begin_upload(struct td_call *call)
{
    struct place place = place_of(call->uri);
    const struct operation *operation = find_operation(call->request, call->uri);
    if (operation == NULL || operation->begin == NULL) { /* cannot be: the server has asked before */
        td_response_fail(call->response, 405, NULL, "The specified method is not allowed against this resource");
        return NULL;
    }
    call->response->route = operation->route;
    return check_query(call, operation) ? operation->begin(call, place.bucket, place.key) : NULL;
}

/* Answers a method that writes, and that has no operation here. */
static void refuse_write(const struct td_call *call)
{
    const struct td_s3_subresource *asked = td_s3_asked_subresource(call, NULL);
    if (asked != NULL) {
        td_s3_fail_subresource(call, asked);
        return;
    }
    td_response_fail(call->response, 405, NULL, "The specified method is not allowed against this resource");
    td_response_add_header(call->response, "Allow", "GET, HEAD, PUT, DELETE");
}

bool td_s3_write(struct td_call *call)
{
    struct td_text method = call->request->method;
    struct place place = place_of(call->uri);
    const struct operation *operation = find_operation(call->request, call->uri);
    if (operation == NULL && (td_text_equals(method, "GET") || td_text_equals(method, "HEAD")))
        return false;
    if (operation == NULL) {
        refuse_write(call);
        return true;
    }
    call->response->route = operation->route;
    if (!td_may_wait(NULL) || !check_query(call, operation))
        return true;
    if (operation->begin == NULL && call->request->body_bytes != 0 && td_text_equals(method, "DELETE"))
        td_response_fail_as(call->response, 400, "InvalidRequest", "This request has no body");
    else if (operation->begin != NULL && call->request->sink == NULL)
        (void)td_call_no_memory(call); /* that the server had when it asked whether the request has a body to take */
    else
        operation->answer(call, place.bucket, place.key);
    return true;
}
