/* Plan: a response starts as an empty 200 and is filled in by a handler. A failure at any point drops the
 * representation (response_reset) and writes an error body in the form of the facade. The set_* functions make a buffer
 * the body and hash its bytes as validator.
 *
 * What is hard: a failure while memory is short must still answer, so an error without memory for its body becomes an
 * empty 503; and what belongs to the request (route, facade, resource, number) must survive the reset, field by field.
 */
#include "http/response.h"

#include "core/clock.h"
#include "core/digest.h"
#include "core/json/json.h"
#include "core/utf8.h"
#include "http/cors.h"
#include "http/facade.h"
#include "http/http_date.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const char json_type[] = "application/json";

const char *td_route_name(enum td_route route)
{
#define ROUTE_LABEL(value, label) [value] = (label),
    static const char *const names[TD_ROUTE_COUNT] = {TD_ROUTES(ROUTE_LABEL)};
#undef ROUTE_LABEL
    return names[route];
}

void td_response_init(struct td_response *response)
{
    response->status = 200;
    response->sent_status = 0;
    response->form = 0;
    response->route = TD_ROUTE_NONE;
    response->content_type = NULL;
    response->owned_type = NULL;
    response->etag[0] = '\0';
    response->former_etag[0] = '\0';
    response->last_modified_s = -1;
    response->cache_control = NULL;
    response->accept_ranges = false;
    response->refuses_empty_ranges = false;
    response->close = false;
    response->changed = false;
    response->has_document = false;
    response->is_timed = false;
    response->planning_ns = 0;
    response->header_count = 0;
    response->allow_origin = NULL;
    response->varies_by_origin = false;
    response->announced_bytes = 0;
    response->wait_until_ns = 0;
    response->asks_body = true;
    response->is_for_browser = false;
    response->kept = TD_TEXT("");
    response->is_of_kept = false;
    response->facade = NULL;
    response->cancel = NULL;
    response->resource = TD_TEXT("");
    response->request_id[0] = '\0';
    response->token[0] = '\0';
    td_body_init(&response->body);
    response->trailers.count = 0;
    response->stream = NULL;
}

/* Adds the request's id, if there is one and a field is free, as the field that the facade has for it. */
static void add_request_id(struct td_response *response)
{
    const char *name = response->facade == NULL ? NULL : response->facade->request_id_header;
    if (response->request_id[0] != '\0' && response->header_count < TD_RESPONSE_HEADERS)
        td_response_add_header_text(response, name != NULL ? name : "X-Request-Id", td_text_of(response->request_id));
}

/* Adds the field that all answers of the facade have. */
static void add_facade_field(struct td_response *response)
{
    if (response->facade != NULL && response->facade->field_name != NULL)
        td_response_add_header_text(response, response->facade->field_name, td_text_of(response->facade->field_value));
}

/* Adds the field by which caches keep the answers for pages of different origins apart. */
static void add_vary_by_origin(struct td_response *response)
{
    if (response->varies_by_origin)
        td_response_add_header_text(response, "Vary", TD_TEXT("Origin"));
}

void td_response_init_for(struct td_response *response, const struct td_request *request)
{
    const char *query = request->target.len == 0 ? NULL : memchr(request->target.p, '?', request->target.len);
    td_response_init(response);
    response->facade = request->facade;
    response->cancel = request->cancel;
    response->asks_body = !td_text_equals(request->method, "HEAD");
    if (request->facade != NULL && request->facade->choose_form != NULL)
        response->form = request->facade->choose_form(request);
    response->is_for_browser = request->facade != NULL && request->facade->write_error_page != NULL &&
                               td_request_accepts(request, "text/html");
    response->resource = request->target;
    if (query != NULL)
        response->resource.len = (size_t)(query - request->target.p);
    response->allow_origin = td_cors_allowed(request);
    response->varies_by_origin = td_cors_varies(request->cors);
    add_facade_field(response);
    add_vary_by_origin(response);
    if (request->facade == NULL || request->facade->request_id_header == NULL)
        return;
    td_request_id_choose(request, response->request_id);
    add_request_id(response);
}

void td_response_note_subject(struct td_response *response, struct td_text path)
{
    const size_t len = response->kept.len;
    if (len > 0 && td_text_begins(path, response->kept) && (path.len == len || path.p[len] == '/'))
        response->is_of_kept = true;
}

void td_response_fini(struct td_response *response)
{
    free(response->owned_type);
    response->owned_type = NULL;
    td_body_fini(&response->body);
    td_trailers_fini(&response->trailers);
    td_stream_destroy(response->stream);
    response->stream = NULL;
}

/* Returns the next free field, or NULL after making the answer a 500. */
static struct td_response_header *next_header(struct td_response *response, const char *name)
{
    if (response->header_count == TD_RESPONSE_HEADERS) {
        td_response_fail(response, 500, NULL, "no room for the answer's header field %s", name);
        return NULL;
    }
    struct td_response_header *header = &response->headers[response->header_count++];
    header->name = name;
    header->value[0] = '\0';
    return header;
}

/* Returns the field "Vary" of the answer, if it has one and `name` is "Vary"; else NULL. */
static struct td_response_header *present_vary(struct td_response *response, const char *name)
{
    static const char vary[] = "Vary";
    for (size_t i = 0; strcmp(name, vary) == 0 && i < response->header_count; i++)
        if (strcmp(response->headers[i].name, vary) == 0)
            return &response->headers[i];
    return NULL;
}

void td_response_add_header(struct td_response *response, const char *name, const char *format, ...)
{
    char value[TD_HEADER_VALUE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(value, sizeof value, format, args);
    va_end(args);
    td_response_add_header_text(response, name, td_text_of(value));
}

void td_response_add_header_text(struct td_response *response, const char *name, struct td_text value)
{
    struct td_response_header *header = present_vary(response, name);
    if (header == NULL)
        header = next_header(response, name);
    if (header == NULL)
        return;
    size_t used = strlen(header->value);
    (void)snprintf(header->value + used, sizeof header->value - used, "%s%.*s", used > 0 ? ", " : "", (int)value.len,
                   value.len > 0 ? value.p : "");
}

/* Writes a metric with its time in milliseconds, cut to tenths. */
static void write_metric(char *out, size_t capacity, const char *name, uint64_t ns)
{
    uint64_t tenths = ns / 100000;
    (void)snprintf(out, capacity, "%s;dur=%" PRIu64 ".%" PRIu64, name, tenths / 10, tenths % 10);
}

void td_response_add_timing(struct td_response *response, uint64_t took_ns)
{
    char total[48];
    char planning[48] = "";
    if (response->header_count == TD_RESPONSE_HEADERS)
        return;
    write_metric(total, sizeof total, "total", took_ns);
    if (response->planning_ns > 0)
        write_metric(planning, sizeof planning, ", plan", response->planning_ns);
    td_response_add_header(response, "Server-Timing", "%s%s", total, planning);
    response->is_timed = true;
}

void td_response_add_request_id(struct td_response *response, const struct td_request *request)
{
    if (response->request_id[0] != '\0')
        return;
    td_request_id_choose(request, response->request_id);
    add_request_id(response);
}

static void write_etag(char etag[TD_ETAG_BYTES], const struct td_facade *facade, const char *text)
{
    const char *end = facade == NULL ? "" : facade->etag_end;
    const size_t end_len = strlen(end);
    const size_t most = TD_ETAG_BYTES - 3 - end_len; /* of the text, beside two quotes and a NUL */
    size_t len = strlen(text);
    if (len > most)
        len = most;
    etag[0] = '"';
    memcpy(etag + 1, text, len);
    memcpy(etag + 1 + len, end, end_len);
    memcpy(etag + 1 + len + end_len, "\"", 2);
}

void td_response_set_etag(struct td_response *response, const char *text)
{
    write_etag(response->etag, response->facade, text);
}

void td_response_set_former_etag(struct td_response *response, const char *text)
{
    write_etag(response->former_etag, response->facade, text);
}

void td_response_set_modified(struct td_response *response, int64_t mtime_ns)
{
    int64_t modified_s = td_wall_of_ns(mtime_ns).seconds;
    /* The clock of libmicrohttpd's Date, which is up to a tick behind td_wall_now(). */
    int64_t now_s = (int64_t)time(NULL);
    response->last_modified_s = modified_s < now_s ? modified_s : now_s;
}

void td_response_describe(struct td_response *response, const char *content_type)
{
    response->content_type = content_type;
    response->cache_control = "no-cache";
    response->accept_ranges = true;
}

void td_response_describe_bytes(struct td_response *response, const char *content_type)
{
    td_response_describe(response, content_type);
    td_response_add_header_text(response, "X-Content-Type-Options", TD_TEXT("nosniff"));
}

/* Drops everything of the representation that will not be sent. */
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
    response->cancel = old.cancel;
    response->asks_body = old.asks_body;
    response->form = old.form;
    response->is_for_browser = old.is_for_browser;
    response->kept = old.kept;
    response->is_of_kept = old.is_of_kept;
    response->resource = old.resource;
    response->allow_origin = old.allow_origin;
    response->varies_by_origin = old.varies_by_origin;
    memcpy(response->request_id, old.request_id, sizeof response->request_id);
    memcpy(response->token, old.token, sizeof response->token);
    add_facade_field(response);
    add_vary_by_origin(response);
    add_request_id(response);
}

void td_response_add_page_headers(struct td_response *response)
{
    td_response_add_header(response, "Content-Security-Policy", "%s",
                           "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                           "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'");
    td_response_add_header(response, "X-Content-Type-Options", "nosniff");
    td_response_add_header(response, "Referrer-Policy", "no-referrer");
}

/* Writes the error in the form of the facade; without a facade, the message alone. Returns the media type. */
static const char *write_error(const struct td_response *response, struct td_failure *failure, struct td_buffer *out)
{
    const struct td_facade *facade = response->facade;
    if (facade == NULL) {
        td_buffer_puts(out, failure->message);
        return "text/plain; charset=utf-8";
    }
    if (response->is_for_browser) {
        facade->write_error_page(failure, out);
        return "text/html; charset=utf-8";
    }
    failure->type = facade->error_type;
    facade->write_error(failure, out);
    return failure->type;
}

/* Makes the response an error with the message that the format and its arguments give. */
static void write_failure(struct td_response *response, int status, const char *code, const char *details,
                          const char *format, va_list args) __attribute__((format(printf, 5, 0)));

static void write_failure(struct td_response *response, int status, const char *code, const char *details,
                          const char *format, va_list args)
{
    char message[1024];
    char shown[2048];
    struct td_failure failure = {.status = status,
                                 .form = response->form,
                                 .code = code,
                                 .details = details,
                                 .message = shown,
                                 .resource = response->resource,
                                 .request_id = response->request_id};
    struct td_buffer text;
    (void)vsnprintf(message, sizeof message, format, args);
    td_utf8_escape(td_text_of(message), shown, sizeof shown); /* the message may have been cut within a character */
    td_buffer_init(&text);
    const char *type = write_error(response, &failure, &text);
    status = failure.status;
    response_reset(response, status);
    response->sent_status = failure.sent_status;
    response->content_type = type;
    response->cache_control = "no-store";
    if (response->is_for_browser)
        td_response_add_page_headers(response);
    if (status == 503 || status == 429)
        td_response_add_header(response, "Retry-After", "1");
    response->trailers = failure.trailers;
    if (failure.trailers.count > 0) {
        td_buffer_fini(&text);
        return;
    }
    size_t len;
    char *data = td_buffer_release(&text, &len);
    struct td_error err = TD_ERROR_INIT;
    if (data == NULL || !td_body_append_heap(&response->body, data, len, &err)) {
        /* no memory even for this: an empty 503 */
        response_reset(response, 503);
        response->cache_control = "no-store";
        td_response_add_header(response, "Retry-After", "1");
    }
}

void td_response_fail(struct td_response *response, int status, const char *details, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_failure(response, status, NULL, details, format, args);
    va_end(args);
}

void td_response_set_retry_after(struct td_response *response, unsigned seconds)
{
    for (size_t i = 0; i < response->header_count; i++)
        if (strcmp(response->headers[i].name, "Retry-After") == 0)
            (void)snprintf(response->headers[i].value, sizeof response->headers[i].value, "%u",
                           seconds < 1 ? 1 : seconds);
}

void td_response_fail_as(struct td_response *response, int status, const char *code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_failure(response, status, code, NULL, format, args);
    va_end(args);
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

void td_response_set_json_from(struct td_response *response, struct td_buffer *text, struct td_budget *budget)
{
    struct td_error err = TD_ERROR_INIT;
    char tag[TD_TAG_BYTES];
    struct td_blob *blob = NULL;
    size_t len;
    size_t taken = text->budget == NULL ? text->len : 0;   /* the bytes that the buffer does not return itself */
    const bool is_empty = text->len == 0 && !text->failed; /* a message whose fields all have no value */
    char *data = td_buffer_release(text, &len);
    if (data == NULL && !is_empty) {
        if (budget != NULL)
            td_budget_give(budget, taken);
        (void)td_error_no_memory(&err);
        td_response_fail_error(response, &err);
        return;
    }
    bool tagged = td_digest_tag(is_empty ? "" : data, len, tag) || td_error_no_memory(&err);
    bool ok = (budget == NULL ? td_blob_from_heap(data, len, &blob, &err)
                              : td_blob_from_budget(data, len, budget, &blob, &err)) &&
              td_body_append(&response->body, blob, 0, len, &err);
    td_blob_unref(blob);
    if (!ok || !tagged) {
        td_response_fail_error(response, &err);
        return;
    }
    td_response_describe(response, json_type);
    td_response_set_etag(response, tag);
}

void td_response_set_json(struct td_response *response, struct td_buffer *json)
{
    td_response_set_json_from(response, json, NULL);
}

void td_response_set_text(struct td_response *response, const char *type, const char *cache_control,
                          struct td_buffer *text)
{
    struct td_error err = TD_ERROR_INIT;
    size_t len;
    const bool is_empty = text->len == 0 && !text->failed;
    char *data = td_buffer_release(text, &len);
    if (data == NULL && !is_empty)
        (void)td_error_no_memory(&err);
    else
        (void)td_body_append_heap(&response->body, data, len, &err);
    if (err.code != TD_OK) {
        td_response_fail_error(response, &err);
        return;
    }
    response->content_type = type;
    response->cache_control = cache_control;
}

size_t td_response_list_fields(const struct td_response *response, char date[TD_RESPONSE_DATE_BYTES],
                               struct td_response_field fields[TD_RESPONSE_FIELDS])
{
    static const char any_date[TD_RESPONSE_DATE_BYTES] = "Sun, 06 Nov 1994 08:49:37 GMT";
    size_t count = 0;
    if (response->content_type != NULL)
        fields[count++] = (struct td_response_field){"Content-Type", response->content_type};
    if (response->etag[0] != '\0')
        fields[count++] = (struct td_response_field){"ETag", response->etag};
    if (response->accept_ranges)
        fields[count++] = (struct td_response_field){"Accept-Ranges", "bytes"};
    if (response->cache_control != NULL)
        fields[count++] = (struct td_response_field){"Cache-Control", response->cache_control};
    if (response->last_modified_s >= 0) {
        if (date != NULL)
            td_http_date_format(response->last_modified_s, date);
        fields[count++] = (struct td_response_field){"Last-Modified", date != NULL ? date : any_date};
    }
    for (size_t i = 0; i < response->header_count; i++)
        fields[count++] = (struct td_response_field){response->headers[i].name, response->headers[i].value};
    if (response->allow_origin != NULL) {
        fields[count++] = (struct td_response_field){"Access-Control-Allow-Origin", response->allow_origin};
        fields[count++] = (struct td_response_field){"Access-Control-Expose-Headers", td_cors_exposed};
    }
    for (size_t i = 0; i < response->trailers.count && response->body.total_bytes == 0; i++)
        fields[count++] =
            (struct td_response_field){response->trailers.fields[i].name, response->trailers.fields[i].value};
    if (response->close)
        fields[count++] = (struct td_response_field){"Connection", "close"};
    return count;
}
