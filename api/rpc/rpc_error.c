#include "api/rpc/rpc_error.h"

#include "api/native/native.h"
#include "api/rpc/rpc_form.h"
#include "core/base64.h"
#include "core/message/document.h"
#include "core/message/wire.h"

#include <stdio.h>
#include <string.h>

/* ---- codes ---------------------------------------------------------------------------------------------- */

enum { UNIMPLEMENTED = 12 };

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
    {"UNIMPLEMENTED", UNIMPLEMENTED, 501},
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

/* ---- details -------------------------------------------------------------------------------------------- */

/* Appends google.rpc.ErrorInfo (google/rpc/error_details.proto). */
static bool write_error_info(const struct code *code, const struct td_failure *failure, struct td_buffer *out)
{
    enum { REASON = 1, DOMAIN = 2 };
    (void)failure;
    td_wire_text(out, REASON, td_text_of(code->word));
    td_wire_text(out, DOMAIN, TD_TEXT("tensord"));
    return true;
}

/* Appends google.rpc.RetryInfo with a delay of a second, as Retry-After has it, for errors with that field. */
static bool write_retry_info(const struct code *code, const struct td_failure *failure, struct td_buffer *out)
{
    enum { DELAY = 1, SECONDS = 1 };
    (void)code;
    if (failure->status != 503 && failure->status != 429)
        return false;
    size_t start = td_wire_begin(out, DELAY);
    td_wire_u64(out, SECONDS, 1);
    td_wire_end(out, start);
    return true;
}

/* The details that an error may have. `write` appends the message of this type, or returns false when the error has no
 * such detail. */
static const struct detail {
    const char *type;
    bool (*write)(const struct code *code, const struct td_failure *failure, struct td_buffer *out);
} details[] = {{"google.rpc.ErrorInfo", write_error_info}, {"google.rpc.RetryInfo", write_retry_info}};

enum { DETAILS = sizeof details / sizeof *details };

/* Appends the bytes as base64 without padding. */
static void write_base64(struct td_buffer *out, const struct td_buffer *bytes)
{
    out->failed = out->failed || bytes->failed;
    td_base64_append(out, bytes->data, bytes->len);
    while (!out->failed && out->len > 0 && out->data[out->len - 1] == '=')
        out->len--;
}

/* ---- Connect -------------------------------------------------------------------------------------------- */

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

/* Adds the members "code", "message" and "details" of an error of Connect. */
static void add_connect_error(const struct code *code, const struct td_failure *failure, struct td_document *json)
{
    struct td_buffer detail;
    char word[32];
    size_t len = strlen(code->word);
    for (size_t i = 0; i <= len; i++)
        word[i] = (char)(code->word[i] >= 'A' && code->word[i] <= 'Z' ? code->word[i] - 'A' + 'a' : code->word[i]);
    td_buffer_init(&detail);
    td_document_add_string(json, "code", word);
    td_document_add_string(json, "message", failure->message);
    td_document_begin_array(json, "details");
    for (size_t i = 0; i < DETAILS; i++) {
        td_buffer_clear(&detail);
        if (details[i].write(code, failure, &detail))
            add_detail(json, details[i].type, &detail);
    }
    td_document_end(json);
    td_buffer_fini(&detail);
}

/* Returns the HTTP status of an error of a unary call: the code's. 405, 415, and 404 of an unknown method stay as they
 * are, since they are the protocol's own. */
static int status_of(const struct code *code, const struct td_failure *failure)
{
    const bool is_unknown_method = failure->status == 404 && code->number == UNIMPLEMENTED;
    return failure->status == 405 || failure->status == 415 || is_unknown_method ? failure->status : code->status;
}

/* Writes the body of an error of a unary call. */
static void write_connect_error(const struct code *code, struct td_failure *failure, struct td_buffer *out)
{
    struct td_document json;
    failure->sent_status = status_of(code, failure);
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    add_connect_error(code, failure, &json);
    td_document_end(&json);
}

/* Writes the frame that ends a stream with an error. */
static void write_connect_end(const struct code *code, struct td_failure *failure, struct td_buffer *out)
{
    struct td_document json;
    failure->sent_status = 200;
    failure->type = td_rpc_type(failure->form);
    size_t start = td_rpc_begin_frame(out, TD_RPC_FLAG_END);
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    td_document_begin_object(&json, "error");
    add_connect_error(code, failure, &json);
    td_document_end(&json);
    td_document_end(&json);
    td_rpc_end_frame(out, start);
}

/* ---- gRPC ----------------------------------------------------------------------------------------------- */

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
    enum { CODE = 1, MESSAGE = 2, DETAIL = 3 };
    struct td_buffer detail;
    td_buffer_init(&detail);
    td_wire_u64(out, CODE, (uint64_t)code->number);
    td_wire_text(out, MESSAGE, td_text_of(failure->message));
    for (size_t i = 0; i < DETAILS; i++) {
        td_buffer_clear(&detail);
        if (details[i].write(code, failure, &detail))
            write_any(out, DETAIL, details[i].type, &detail);
        out->failed = out->failed || detail.failed;
    }
    td_buffer_fini(&detail);
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
    td_rpc_write_trailers(&trailers, out);
    td_trailers_fini(&trailers);
}

void td_rpc_write_error(struct td_failure *failure, struct td_buffer *out)
{
    const struct code *code = code_of(failure->code != NULL ? failure->code : td_status_word(failure->status));
    const bool is_protocols = failure->status == 405 || failure->status == 415;
    if ((failure->form & (TD_RPC_WEB | TD_RPC_GRPC)) != 0)
        write_grpc_error(code, failure, out);
    else if ((failure->form & TD_RPC_FRAMES) != 0 && !is_protocols)
        write_connect_end(code, failure, out);
    else
        write_connect_error(code, failure, out);
}

/* ---- refusals ------------------------------------------------------------------------------------------- */

void td_rpc_refuse_path(const struct td_call *call)
{
    struct td_text path = call->uri->path;
    (void)td_text_take_char(&path, '/');
    td_response_fail_as(call->response, 404, "UNIMPLEMENTED", "there is no method \"%.*s\"", TD_SHOW(path, 200));
}

void td_rpc_refuse_verb(struct td_response *response, const char *path)
{
    td_response_fail_as(response, 405, "UNKNOWN", "%s is called by POST", path);
    td_response_add_header(response, "Allow", "POST");
}

void td_rpc_refuse_type(struct td_response *response, const char *path, const char *types)
{
    td_response_fail_as(response, 415, "UNKNOWN", "%s is not called with this Content-Type, but with %s", path, types);
    td_response_add_header(response, "Accept-Post", "%s", types);
}
