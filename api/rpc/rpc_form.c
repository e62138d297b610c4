#include "api/rpc/rpc_form.h"

#include "api/native/native.h"
#include "core/base64.h"
#include "core/digits.h"
#include "core/message/document.h"
#include "core/message/wire.h"
#include "http/uri.h"

#include <stdio.h>
#include <string.h>

enum { FRAME_BYTES = 5, FLAG_COMPRESSED = 1, FLAG_TRAILERS = 0x80 };

/* ---- forms ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    unsigned form;
    bool has_charset; /* a parameter charset may follow */
} types[] = {
    {"application/proto", 0, false},
    {"application/json", TD_RPC_JSON, true},
    {"application/grpc-web", TD_RPC_FRAMES | TD_RPC_WEB, false},
    {"application/grpc-web+proto", TD_RPC_FRAMES | TD_RPC_WEB, false},
    {"application/grpc-web+json", TD_RPC_FRAMES | TD_RPC_WEB | TD_RPC_JSON, false},
    {"application/grpc", TD_RPC_FRAMES | TD_RPC_GRPC, false},
    {"application/grpc+proto", TD_RPC_FRAMES | TD_RPC_GRPC, false},
    {"application/grpc+json", TD_RPC_FRAMES | TD_RPC_GRPC | TD_RPC_JSON, false},
};

const char td_rpc_types[] = "application/proto, application/json, application/grpc-web, application/grpc-web+proto, "
                            "application/grpc-web+json, application/grpc, application/grpc+proto, "
                            "application/grpc+json";

static unsigned form_of_type(struct td_text value)
{
    struct td_text type = td_text_trim(td_text_take_until(&value, ';'), " \t");
    bool is_utf8 = true;
    while (value.len > 0) {
        struct td_text parameter = td_text_trim(td_text_take_until(&value, ';'), " \t");
        is_utf8 = td_text_equals_ignore_case(parameter, "charset=utf-8");
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (td_text_equals_ignore_case(type, types[i].type))
            return types[i].has_charset && !is_utf8 ? TD_RPC_UNKNOWN : types[i].form;
    return TD_RPC_UNKNOWN;
}

unsigned td_rpc_form_of(const struct td_request *request)
{
    if (td_text_equals(request->method, "POST")) {
        const struct td_header *type = td_request_single_header(request, "Content-Type");
        return type == NULL ? TD_RPC_UNKNOWN : form_of_type(type->value);
    }
    struct td_text query = td_uri_raw_query(request->target);
    while (query.len > 0)
        if (td_text_equals(td_text_take_until(&query, '&'), "encoding=json"))
            return TD_RPC_JSON;
    return 0;
}

const char *td_rpc_type(unsigned form)
{
    if ((form & TD_RPC_GRPC) != 0)
        return (form & TD_RPC_JSON) != 0 ? "application/grpc+json" : "application/grpc+proto";
    if ((form & TD_RPC_WEB) != 0)
        return (form & TD_RPC_JSON) != 0 ? "application/grpc-web+json" : "application/grpc-web+proto";
    return (form & TD_RPC_JSON) != 0 ? "application/json" : "application/proto";
}

/* ---- errors --------------------------------------------------------------------------------------------- */

/* The codes of gRPC (https://grpc.github.io/grpc/core/md_doc_statuscodes.html), their numbers there, and the statuses
 * that Connect gives them. */
static const struct code {
    const char *word;
    int number, status;
} codes[] = {
    {"CANCELED", 1, 499},
    {"UNKNOWN", 2, 500},
    {"INVALID_ARGUMENT", 3, 400},
    {"DEADLINE_EXCEEDED", 4, 504},
    {"NOT_FOUND", 5, 404},
    {"ALREADY_EXISTS", 6, 409},
    {"PERMISSION_DENIED", 7, 403},
    {"RESOURCE_EXHAUSTED", 8, 429},
    {"FAILED_PRECONDITION", 9, 400},
    {"ABORTED", 10, 409},
    {"OUT_OF_RANGE", 11, 400},
    {"UNIMPLEMENTED", 12, 501},
    {"INTERNAL", 13, 500},
    {"UNAVAILABLE", 14, 503},
    {"DATA_LOSS", 15, 500},
    {"UNAUTHENTICATED", 16, 401},
};

static const struct code *code_of(const char *word)
{
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strcmp(codes[i].word, word) == 0)
            return &codes[i];
    return &codes[1]; /* UNKNOWN */
}

/* Appends google.rpc.ErrorInfo (google/rpc/error_details.proto). */
static void write_error_info(const char *reason, struct td_buffer *out)
{
    enum { REASON = 1, DOMAIN = 2 };
    td_wire_text(out, REASON, td_text_of(reason));
    td_wire_text(out, DOMAIN, TD_TEXT("tensord"));
}

/* Appends google.rpc.RetryInfo with a delay of a second, which Retry-After has. */
static void write_retry_info(struct td_buffer *out)
{
    enum { DELAY = 1, SECONDS = 1 };
    size_t start = td_wire_begin(out, DELAY);
    td_wire_u64(out, SECONDS, 1);
    td_wire_end(out, start);
}

static bool has_retry(int status)
{
    return status == 503 || status == 429;
}

/* Appends the bytes as base64 without padding. */
static void write_base64(struct td_buffer *out, const struct td_buffer *bytes)
{
    out->failed = out->failed || bytes->failed;
    td_base64_append(out, bytes->data, bytes->len);
    while (!out->failed && out->len > 0 && out->data[out->len - 1] == '=')
        out->len--;
}

/* Adds a detail of an error: a message as base64, and the name of its type. */
static void add_detail(struct td_document *json, const char *type, const struct td_buffer *message)
{
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "type", type);
    if (td_document_begin_text(json, "value")) {
        write_base64(json->out, message);
        td_document_end_text(json);
    }
    td_document_end(json);
}

/* Writes {"code", "message", "details"}. */
static void write_connect_error(const struct code *code, const struct td_failure *failure, struct td_buffer *out)
{
    struct td_document json;
    struct td_buffer detail;
    char word[32];
    size_t len = strlen(code->word);
    for (size_t i = 0; i <= len; i++)
        word[i] = (char)(code->word[i] >= 'A' && code->word[i] <= 'Z' ? code->word[i] - 'A' + 'a' : code->word[i]);
    td_buffer_init(&detail);
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    td_document_add_string(&json, "code", word);
    td_document_add_string(&json, "message", failure->message);
    td_document_begin_array(&json, "details");
    write_error_info(code->word, &detail);
    add_detail(&json, "google.rpc.ErrorInfo", &detail);
    if (has_retry(failure->status)) {
        td_buffer_clear(&detail);
        write_retry_info(&detail);
        add_detail(&json, "google.rpc.RetryInfo", &detail);
    }
    td_document_end(&json);
    td_document_end(&json);
    td_buffer_fini(&detail);
}

/* Appends the text with all but printable ASCII escaped by percent (PROTOCOL-HTTP2.md, Percent-Encoded). */
static void write_percent_encoded(struct td_text text, struct td_buffer *out)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c >= 0x20 && c < 0x7F && c != '%')
            td_buffer_putc(out, (char)c);
        else
            td_buffer_printf(out, "%%%02X", c);
    }
}

/* Appends a field of a google.protobuf.Any with a message of this type. */
static void write_any(struct td_buffer *out, uint32_t number, const char *type, const struct td_buffer *message)
{
    enum { TYPE_URL = 1, VALUE = 2 };
    char url[80];
    int len = snprintf(url, sizeof url, "type.googleapis.com/%s", type);
    size_t start = td_wire_begin(out, number);
    td_wire_text(out, TYPE_URL, td_text_n(url, (size_t)len));
    td_wire_text(out, VALUE, td_buffer_text(message));
    td_wire_end(out, start);
}

/* Appends google.rpc.Status. */
static void write_status(const struct code *code, const struct td_failure *failure, struct td_buffer *out)
{
    enum { CODE = 1, MESSAGE = 2, DETAILS = 3 };
    struct td_buffer detail;
    td_buffer_init(&detail);
    td_wire_u64(out, CODE, (uint64_t)code->number);
    td_wire_text(out, MESSAGE, td_text_of(failure->message));
    write_error_info(code->word, &detail);
    write_any(out, DETAILS, "google.rpc.ErrorInfo", &detail);
    if (has_retry(failure->status)) {
        td_buffer_clear(&detail);
        write_retry_info(&detail);
        write_any(out, DETAILS, "google.rpc.RetryInfo", &detail);
    }
    out->failed = out->failed || detail.failed;
    td_buffer_fini(&detail);
}

/* Appends the head of a frame, whose length td_rpc_end_frame fills in. */
static size_t begin_frame(struct td_buffer *out, uint8_t flags)
{
    const uint8_t head[FRAME_BYTES] = {flags};
    td_buffer_append(out, head, sizeof head);
    return out->len;
}

static void write_length(uint8_t head[FRAME_BYTES], size_t len)
{
    for (size_t i = 1; i < FRAME_BYTES; i++)
        head[i] = (uint8_t)(len >> 8 * (FRAME_BYTES - 1 - i));
}

static void end_frame(struct td_buffer *out, size_t start)
{
    if (!out->failed)
        write_length((uint8_t *)out->data + start - FRAME_BYTES, out->len - start);
}

/* Adds the trailers of an error of gRPC. Returns false when memory is short. */
static bool add_trailers(const struct code *code, const struct td_failure *failure, struct td_trailers *out)
{
    struct td_buffer status, value;
    td_buffer_init(&status);
    td_buffer_init(&value);
    td_buffer_printf(&value, "%d", code->number);
    bool ok = td_trailers_add(out, "grpc-status", &value);
    write_percent_encoded(td_text_of(failure->message), &value);
    ok = ok && td_trailers_add(out, "grpc-message", &value);
    write_status(code, failure, &status);
    write_base64(&value, &status);
    ok = ok && td_trailers_add(out, "grpc-status-details-bin", &value);
    td_buffer_fini(&status);
    td_buffer_fini(&value);
    return ok;
}

/* Writes the frame of trailers of gRPC-Web. */
static void write_frame_of(const struct td_trailers *trailers, struct td_buffer *out)
{
    size_t start = begin_frame(out, FLAG_TRAILERS);
    for (size_t i = 0; i < trailers->count; i++)
        td_buffer_printf(out, "%s: %s\r\n", trailers->fields[i].name, trailers->fields[i].value);
    end_frame(out, start);
}

/* Writes an error of gRPC, whose trailers gRPC-Web has in a frame. */
static void write_grpc_error(const struct code *code, struct td_failure *failure, struct td_buffer *out)
{
    struct td_trailers trailers = {.count = 0};
    failure->sent_status = 200;
    failure->type = td_rpc_type(failure->form);
    out->failed = !add_trailers(code, failure, &trailers);
    if ((failure->form & TD_RPC_WEB) == 0 && !out->failed) {
        failure->trailers = trailers;
        return;
    }
    write_frame_of(&trailers, out);
    td_trailers_fini(&trailers);
}

void td_rpc_write_error(struct td_failure *failure, struct td_buffer *out)
{
    const struct code *code = code_of(failure->code != NULL ? failure->code : td_status_word(failure->status));
    if ((failure->form & (TD_RPC_WEB | TD_RPC_GRPC)) != 0) {
        write_grpc_error(code, failure, out);
        return;
    }
    /* 405 and 415 are the protocol's own */
    failure->sent_status = failure->status == 405 || failure->status == 415 ? failure->status : code->status;
    write_connect_error(code, failure, out);
}

/* ---- frames --------------------------------------------------------------------------------------------- */

/* Moves the buffer's bytes to the end of the body. */
static bool append_buffer(struct td_body *body, struct td_buffer *bytes, struct td_error *err)
{
    size_t len;
    char *data = td_buffer_release(bytes, &len);
    return data == NULL ? td_error_no_memory(err) : td_body_append_heap(body, data, len, err);
}

bool td_rpc_frame(struct td_response *response, struct td_error *err)
{
    struct td_body body;
    struct td_buffer bytes;
    if ((response->form & TD_RPC_FRAMES) == 0)
        return true;
    td_body_init(&body);
    td_buffer_init(&bytes);
    (void)begin_frame(&bytes, 0);
    if (!bytes.failed) /* below 4 GiB: TD_MESSAGE_MOST_BYTES and one item */
        write_length((uint8_t *)bytes.data, (size_t)response->body.total_bytes);
    bool ok =
        append_buffer(&body, &bytes, err) && td_body_cut(&response->body, 0, response->body.total_bytes, &body, err);
    td_buffer_putc(&bytes, '0');
    ok = ok && (td_trailers_add(&response->trailers, "grpc-status", &bytes) || td_error_no_memory(err));
    if (ok && (response->form & TD_RPC_WEB) != 0) {
        write_frame_of(&response->trailers, &bytes);
        td_trailers_fini(&response->trailers);
        ok = append_buffer(&body, &bytes, err);
    }
    td_buffer_fini(&bytes);
    if (ok) {
        td_body_fini(&response->body);
        response->body = body;
    } else {
        td_body_fini(&body);
    }
    return ok;
}

bool td_rpc_unframe(struct td_response *response, struct td_text *message)
{
    struct td_text rest = *message;
    const uint8_t *p = (const uint8_t *)rest.p;
    if ((response->form & TD_RPC_FRAMES) == 0)
        return true;
    if (rest.len == 0) {
        td_response_fail_as(response, 501, "UNIMPLEMENTED", "the request has no message; this method takes one");
        return false;
    }
    size_t len =
        rest.len < FRAME_BYTES ? SIZE_MAX : (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | (size_t)p[4];
    if (rest.len < FRAME_BYTES || len > rest.len - FRAME_BYTES) {
        td_response_fail(response, 400, NULL, "the body ends within a frame");
        return false;
    }
    if ((p[0] & FLAG_COMPRESSED) != 0) {
        td_response_fail(response, 500, NULL, "a frame is marked as compressed, but the request names no encoding");
        return false;
    }
    if (p[0] != 0) {
        td_response_fail(response, 400, NULL, "a frame has flags that are not known");
        return false;
    }
    if (len < rest.len - FRAME_BYTES) {
        td_response_fail_as(response, 501, "UNIMPLEMENTED", "the request has several messages; this method takes one");
        return false;
    }
    *message = td_text_skip(rest, FRAME_BYTES);
    return true;
}

/* ---- deadlines ------------------------------------------------------------------------------------------ */

bool td_rpc_timeout(const struct td_request *request, unsigned form, uint64_t *ns)
{
    static const struct {
        char unit;
        uint64_t ns;
    } units[] = {{'H', UINT64_C(3600000000000)},
                 {'M', UINT64_C(60000000000)},
                 {'S', UINT64_C(1000000000)},
                 {'m', 1000000},
                 {'u', 1000},
                 {'n', 1}};
    enum { CONNECT_DIGITS = 10, GRPC_DIGITS = 8 };
    bool is_grpc = (form & (TD_RPC_WEB | TD_RPC_GRPC)) != 0;
    const char *name = is_grpc ? "grpc-timeout" : "Connect-Timeout-Ms";
    uint64_t value, unit_ns = 1000000;
    *ns = UINT64_MAX;
    if (!td_request_has_header(request, name))
        return true;
    const struct td_header *header = td_request_single_header(request, name);
    if (header == NULL || header->value.len == 0)
        return false;
    struct td_text digits = header->value;
    if (is_grpc) {
        char unit = digits.p[--digits.len];
        size_t i = 0;
        while (i < sizeof units / sizeof *units && units[i].unit != unit)
            i++;
        if (i == sizeof units / sizeof *units)
            return false;
        unit_ns = units[i].ns;
    }
    if (digits.len > (is_grpc ? GRPC_DIGITS : CONNECT_DIGITS) || !td_number_read(digits, UINT64_MAX, &value))
        return false;
    *ns = value > UINT64_MAX / unit_ns ? UINT64_MAX : value * unit_ns;
    return true;
}
