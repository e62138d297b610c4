#include "http/response.h"

#include "api/s3/s3_error.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/json.h"
#include "core/utf8.h"
#include "http/xml.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char json_type[] = "application/json";

const struct td_header *td_request_next_header(const struct td_request *request, const char *name, size_t *at)
{
    while (*at < request->header_count) {
        const struct td_header *header = &request->headers[(*at)++];
        if (td_text_equals_ignore_case(header->name, name))
            return header;
    }
    return NULL;
}

const struct td_header *td_request_single_header(const struct td_request *request, const char *name)
{
    size_t at = 0;
    const struct td_header *header = td_request_next_header(request, name, &at);
    if (header == NULL || td_request_next_header(request, name, &at) != NULL)
        return NULL;
    return header;
}

const char *td_route_name(enum td_route route)
{
    static const char *const names[TD_ROUTE_COUNT] = {
        "none",    "models",  "model",      "manifest",  "tensor",  "file",     "read",   "plans",
        "plan",    "shard",   "model_file", "hub_file",  "hub_api", "healthz",  "readyz", "metrics",
        "openapi", "version", "rescan",     "s3_bucket", "s3_list", "s3_object"};
    return names[route];
}

void td_response_init(struct td_response *response)
{
    response->status = 200;
    response->route = TD_ROUTE_NONE;
    response->content_type = NULL;
    response->owned_type = NULL;
    response->etag[0] = '\0';
    response->former_etag[0] = '\0';
    response->last_modified_s = -1;
    response->cache_control = NULL;
    response->accept_ranges = false;
    response->close = false;
    response->changed = false;
    response->header_count = 0;
    response->announced_bytes = 0;
    response->facade = TD_FACADE_API;
    response->cancel = NULL;
    response->resource = (struct td_text){.p = "", .len = 0};
    response->request_id[0] = '\0';
    td_body_init(&response->body);
}

/* S3's answers have a number by which they can be asked about: ours tell the time. */
static void make_request_id(char id[TD_REQUEST_ID_BYTES])
{
    struct td_wall now = td_wall_now();
    uint64_t ns = (uint64_t)now.seconds * 1000000000 + now.nanoseconds;
    (void)snprintf(id, TD_REQUEST_ID_BYTES, "%016" PRIX64, ns);
}

void td_response_init_for(struct td_response *response, const struct td_request *request)
{
    td_response_init(response);
    response->facade = request->facade;
    response->cancel = request->cancel;
    if (request->facade != TD_FACADE_S3)
        return;
    const char *query = request->target.len == 0 ? NULL : memchr(request->target.p, '?', request->target.len);
    response->resource = request->target;
    if (query != NULL)
        response->resource.len = (size_t)(query - request->target.p);
    make_request_id(response->request_id);
    td_response_add_header(response, TD_S3_REQUEST_ID, "%s", response->request_id);
}

void td_response_fini(struct td_response *response)
{
    free(response->owned_type);
    response->owned_type = NULL;
    td_body_fini(&response->body);
}

void td_response_add_header(struct td_response *response, const char *name, const char *format, ...)
{
    if (response->header_count == TD_RESPONSE_HEADERS)
        return;
    struct td_response_header *header = &response->headers[response->header_count++];
    header->name = name;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(header->value, sizeof header->value, format, args);
    va_end(args);
}

__attribute__((format(printf, 3, 0))) static void write_etag(char etag[TD_ETAG_BYTES], enum td_facade facade,
                                                             const char *format, va_list args)
{
    const char *end = facade == TD_FACADE_S3 ? TD_S3_ETAG_END "\"" : "\"";
    const size_t capacity = TD_ETAG_BYTES - 1 - strlen(end); /* of the text between, with its NUL */
    etag[0] = '"';
    int n = vsnprintf(etag + 1, capacity, format, args);
    size_t len = n < 0 ? 0 : (size_t)n;
    if (len > capacity - 1)
        len = capacity - 1;
    memcpy(etag + 1 + len, end, strlen(end) + 1);
}

void td_response_set_etag(struct td_response *response, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_etag(response->etag, response->facade, format, args);
    va_end(args);
}

void td_response_set_former_etag(struct td_response *response, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_etag(response->former_etag, response->facade, format, args);
    va_end(args);
}

void td_response_set_modified(struct td_response *response, int64_t mtime_ns)
{
    int64_t modified_s = td_wall_of_ns(mtime_ns).seconds;
    int64_t now_s = td_wall_now().seconds;
    response->last_modified_s = modified_s < now_s ? modified_s : now_s;
}

void td_response_describe(struct td_response *response, const char *content_type)
{
    response->content_type = content_type;
    response->cache_control = "no-cache";
    response->accept_ranges = true;
}

const char *td_status_word(int status)
{
    switch (status) {
    case 400:
    case 411:
        return "INVALID_ARGUMENT";
    case 401:
        return "UNAUTHENTICATED";
    case 403:
        return "PERMISSION_DENIED";
    case 404:
        return "NOT_FOUND";
    case 405:
        return "UNIMPLEMENTED";
    case 409:
    case 412:
    case 422:
        return "FAILED_PRECONDITION";
    case 413:
    case 414:
    case 429:
    case 431:
        return "RESOURCE_EXHAUSTED";
    case 416:
        return "OUT_OF_RANGE";
    case 503:
        return "UNAVAILABLE";
    default:
        return "INTERNAL";
    }
}

/* Empties everything that belonged to the representation that is not sent. */
static void response_reset(struct td_response *response, int status)
{
    struct td_response old = *response;
    td_response_fini(response);
    td_response_init(response);
    response->status = status;
    response->route = old.route;
    response->close = old.close;
    response->changed = old.changed;
    response->facade = old.facade;
    response->resource = old.resource;
    memcpy(response->request_id, old.request_id, sizeof response->request_id);
    if (response->request_id[0] != '\0')
        td_response_add_header(response, TD_S3_REQUEST_ID, "%s", response->request_id);
}

static void write_json(struct td_buffer *json, int status, const char *details, const char *message)
{
    td_buffer_printf(json, "{\"error\":{\"code\":%d,\"status\":\"%s\",\"message\":", status, td_status_word(status));
    td_json_write_cstring(json, message);
    td_buffer_printf(json, ",\"details\":%s}}\n", details == NULL ? "{}" : details);
}

/* The Hub's form: its clients show `error` as it is. */
static void write_hub_json(struct td_buffer *json, const char *message)
{
    td_buffer_puts(json, "{\"error\":");
    td_json_write_cstring(json, message);
    td_buffer_puts(json, "}\n");
}

/* In the form of the response's facade. */
static void write_error(const struct td_response *response, const char *code, const char *details, const char *message,
                        struct td_buffer *out)
{
    switch (response->facade) {
    case TD_FACADE_API:
        write_json(out, response->status, details, message);
        break;
    case TD_FACADE_HUB:
        write_hub_json(out, message);
        break;
    case TD_FACADE_S3:
        td_s3_write_error(out, code, message, response->resource, response->request_id);
        break;
    }
}

/* code: S3's, or NULL. */
static void fail(struct td_response *response, int status, const char *code, const char *details, const char *message)
{
    char shown[2048];
    td_utf8_escape(td_text_of(message), shown, sizeof shown); /* a cut may have split a character */
    bool is_s3 = response->facade == TD_FACADE_S3;
    if (is_s3 && code == NULL)
        code = td_s3_code_of(&status);
    response_reset(response, status);
    struct td_buffer text;
    td_buffer_init(&text);
    write_error(response, code, details, shown, &text);
    response->content_type = is_s3 ? TD_XML_TYPE : json_type;
    response->cache_control = "no-store";
    if (status == 503 || status == 429)
        td_response_add_header(response, "Retry-After", "1");
    size_t len;
    char *data = td_buffer_release(&text, &len);
    struct td_error err = TD_ERROR_INIT;
    if (data == NULL || !td_body_append_heap(&response->body, data, len, &err)) {
        /* no memory even for this: an empty answer says so by its status */
        response_reset(response, 503);
        response->cache_control = "no-store";
        td_response_add_header(response, "Retry-After", "1");
    }
}

void td_response_fail(struct td_response *response, int status, const char *details, const char *format, ...)
{
    char message[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fail(response, status, NULL, details, message);
}

void td_response_fail_as(struct td_response *response, int status, const char *code, const char *format, ...)
{
    char message[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fail(response, status, code, NULL, message);
}

void td_response_fail_error(struct td_response *response, const struct td_error *err)
{
    static const int statuses[] = {
        [TD_OK] = 500,
        [TD_INVALID_ARGUMENT] = 400,
        [TD_NOT_FOUND] = 404,
        [TD_PERMISSION_DENIED] = 403,
        [TD_FAILED_PRECONDITION] = 422,
        [TD_CONFLICT] = 409,
        [TD_RESOURCE_EXHAUSTED] = 503,
        [TD_UNAVAILABLE] = 503,
        [TD_IO] = 500,
        [TD_INTERNAL] = 500,
    };
    if (err->code == TD_UNAVAILABLE)
        response->changed = true;
    td_response_fail(response, statuses[err->code], NULL, "%s", err->message);
}

/* budget NULL: none. */
static void set_text(struct td_response *response, const char *type, struct td_buffer *text, struct td_budget *budget)
{
    struct td_error err = TD_ERROR_INIT;
    char tag[TD_TAG_BYTES];
    struct td_blob *blob = NULL;
    size_t len;
    size_t taken = text->budget == NULL ? text->len : 0; /* what the buffer does not give back by itself */
    char *data = td_buffer_release(text, &len);
    if (data == NULL) {
        if (budget != NULL)
            td_budget_give(budget, taken);
        (void)td_error_no_memory(&err);
        td_response_fail_error(response, &err);
        return;
    }
    bool tagged = td_digest_tag(data, len, tag) || td_error_no_memory(&err);
    bool ok = (budget == NULL ? td_blob_from_heap(data, len, &blob, &err)
                              : td_blob_from_budget(data, len, budget, &blob, &err)) &&
              td_body_append(&response->body, blob, 0, len, &err);
    td_blob_unref(blob);
    if (!ok || !tagged) {
        td_response_fail_error(response, &err);
        return;
    }
    td_response_describe(response, type);
    td_response_set_etag(response, "%s", tag);
}

void td_response_set_text(struct td_response *response, const char *type, struct td_buffer *text)
{
    set_text(response, type, text, NULL);
}

void td_response_set_json(struct td_response *response, struct td_buffer *json)
{
    set_text(response, json_type, json, NULL);
}

void td_response_set_json_from(struct td_response *response, struct td_buffer *json, struct td_budget *budget)
{
    set_text(response, json_type, json, budget);
}
