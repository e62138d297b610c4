#include "api/rpc/rpc.h"

#include "api/call/access.h"
#include "api/proto/schema.h"
#include "api/rpc/rpc_bytes.h"
#include "api/rpc/rpc_error.h"
#include "api/rpc/rpc_form.h"
#include "api/rpc/rpc_input.h"
#include "api/rpc/rpc_rows.h"
#include "api/rpc/rpc_rules.h"
#include "api/rpc/rpc_stream.h"
#include "api/rpc/rpc_watch.h"
#include "core/base64.h"
#include "core/clock.h"
#include "core/message/decode.h"
#include "core/waiting.h"
#include "http/response.h"

#include <string.h>

static bool owns_rpc_path(struct td_text raw_path)
{
    const struct td_text prefix = TD_TEXT("/tensord.v1.");
    return td_text_begins(raw_path, prefix) && memchr(raw_path.p + 1, '/', raw_path.len - 1) != NULL;
}

static const struct td_method *find_method(struct td_text path)
{
    (void)td_text_take_char(&path, '/');
    for (size_t i = 0; i < TD_SCHEMA_METHODS; i++)
        if (td_text_equals(path, td_schema_methods[i].path))
            return &td_schema_methods[i];
    return NULL;
}

static bool takes_body(const struct td_request *request)
{
    return td_text_equals(request->method, "POST");
}

/* All answers are, but those that have bytes of files in them. */
static bool is_text(struct td_text raw_path)
{
    const struct td_method *method = find_method(raw_path);
    return method == NULL ||
           (method->output != &td_schema_read_tensors_response && method->output != &td_schema_stream_rows_response &&
            method->output != &td_schema_batch_get_rows_response);
}

/* Rescan alone changes something that others see. */
static bool reads_by_post(const struct td_request *request)
{
    const struct td_method *method = find_method(td_uri_raw_path(request->target));
    return method != NULL && method->output != &td_schema_rescan_response;
}

/* GetReadiness is for everybody, as /readyz is. */
static bool admit_rpc(struct td_call *call)
{
    struct td_refusal refusal;
    const struct td_method *method = find_method(call->uri->path);
    bool is_probe = method != NULL && method->output == &td_schema_readiness;
    if (td_access_admit(call, td_access_by_bearer, &refusal) || is_probe)
        return true;
    td_response_fail(call->response, refusal.status, NULL, "%s", refusal.message);
    td_access_add_challenge(call, &refusal);
    return false;
}

/* ---- requests ------------------------------------------------------------------------------------------- */

/* A call as it was read. The texts are in the arena or in the request. */
struct rpc {
    const struct td_method *method;
    struct td_arena arena;
    struct td_record request;
    struct td_document_kind kind;
    uint64_t deadline_ns; /* as td_rpc_deadline */
    struct td_rpc_input input;
};

/* Allows a message that was unpacked as much memory as one that arrived without compression. */
static void allow_unpacked(struct rpc *rpc, struct td_text message)
{
    if (rpc->input.unpacked != NULL)
        rpc->arena.limit_bytes += TD_DECODE_PER_BYTE * message.len;
}

/* Reads the message of a GET: ?connect=v1&encoding=proto&base64=1&message=... Returns false after it answered 400. */
static bool read_query(const struct td_call *call, struct rpc *rpc, struct td_text *message)
{
    const struct td_text *version = td_uri_parameter(call->uri, "connect");
    const struct td_text *encoding = td_uri_parameter(call->uri, "encoding");
    const struct td_text *base64 = td_uri_parameter(call->uri, "base64");
    const struct td_text *compression = td_uri_parameter(call->uri, "compression");
    const struct td_text *text = td_uri_parameter(call->uri, "message");
    const char *wrong = NULL;
    if (version != NULL && !td_text_equals(*version, "v1"))
        wrong = "the parameter \"connect\" must be v1";
    else if (encoding == NULL || (!td_text_equals(*encoding, "proto") && !td_text_equals(*encoding, "json")))
        wrong = "the parameter \"encoding\" must be proto or json";
    else if (text == NULL)
        wrong = "the parameter \"message\" is missing";
    if (wrong != NULL) {
        td_response_fail(call->response, 400, NULL, "%s", wrong);
        return false;
    }
    if (!td_rpc_input_init_get(&rpc->input, call, compression))
        return false;
    *message = *text;
    if (base64 != NULL && td_text_equals(*base64, "1")) {
        char *bytes = td_arena_alloc(&rpc->arena, text->len + 1);
        size_t len = 0;
        if (bytes == NULL)
            return td_call_no_memory(call);
        if (!td_base64_read_any(*text, bytes, &len)) {
            td_response_fail(call->response, 400, NULL, "the parameter \"message\" is not base64");
            return false;
        }
        *message = td_text_n(bytes, len);
    }
    return td_rpc_input_unpack(&rpc->input, message);
}

/* Reads the message of a POST. Returns false after it answered an error. */
static bool read_body(const struct td_call *call, struct rpc *rpc, struct td_text *message)
{
    return td_rpc_input_init(&rpc->input, call) && td_rpc_input_take_only(&rpc->input, message);
}

/* Returns the message that the native interface writes for the method: its own, or the one that it contains. */
static const struct td_message *described_by(const struct td_method *method)
{
    return method->output == &td_schema_watch_model_response ? &td_schema_model : method->output;
}

/* Sets the mask of the answer's fields from read_mask. Returns false after it answered 400. */
static bool read_mask(const struct td_call *call, struct rpc *rpc)
{
    struct td_text names = td_record_text(&rpc->request, "read_mask");
    const struct td_message *message = rpc->kind.message;
    uint64_t mask = 0;
    if (names.len == 0 || td_text_equals(names, "*"))
        return true;
    while (names.len > 0) {
        struct td_text name = td_text_take_until(&names, ',');
        size_t i = 0;
        while (i < message->field_count && !td_text_equals(name, message->fields[i].name))
            i++;
        if (i == message->field_count) {
            td_response_fail(call->response, 400, NULL, "read_mask: %s has no field \"%.*s\"", message->name,
                             TD_SHOW(name, 64));
            return false;
        }
        mask |= UINT64_C(1) << message->fields[i].number;
    }
    rpc->kind.masked = message;
    rpc->kind.mask = mask;
    return true;
}

/* Checks the fields of the protocol. Returns false after it answered an error. */
static bool check_protocol(const struct td_call *call, struct rpc *rpc)
{
    struct td_response *response = call->response;
    bool is_get = !td_text_equals(call->request->method, "POST");
    bool is_stream = rpc->method->is_stream;
    bool is_of_connect = (response->form & (TD_RPC_WEB | TD_RPC_GRPC)) == 0;
    bool is_known = (response->form & TD_RPC_UNKNOWN) == 0 &&
                    (!is_of_connect || ((response->form & TD_RPC_FRAMES) != 0) == is_stream);
    const struct td_header *version = td_request_single_header(call->request, "Connect-Protocol-Version");
    if (is_get && (!rpc->method->only_reads ||
                   !(td_text_equals(call->request->method, "GET") || td_text_equals(call->request->method, "HEAD")))) {
        td_rpc_refuse_verb(response, rpc->method->path);
    } else if (!is_get && !is_known) {
        td_rpc_refuse_type(response, rpc->method->path, td_rpc_types(is_stream));
    } else if (version != NULL && !td_text_equals(version->value, "1")) {
        td_response_fail(response, 400, NULL, "Connect-Protocol-Version must be 1");
    } else if (!td_rpc_deadline(call->request, response->form, &rpc->deadline_ns)) {
        td_response_fail(response, 400, NULL, "the timeout of the call is not valid");
    } else {
        return true;
    }
    return false;
}

/* Reads the message of the call. Returns false after it answered an error. */
static bool read_request(const struct td_call *call, struct rpc *rpc)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_text message;
    bool is_json = (call->response->form & TD_RPC_JSON) != 0;
    rpc->kind = (struct td_document_kind){.form = is_json ? TD_DOCUMENT_PROTO_JSON : TD_DOCUMENT_PROTOBUF,
                                          .message = described_by(rpc->method)};
    if (td_text_equals(call->request->method, "POST") ? !read_body(call, rpc, &message)
                                                      : !read_query(call, rpc, &message))
        return false;
    allow_unpacked(rpc, message);
    bool ok = is_json ? td_record_read_json(&rpc->request, rpc->method->input, message, &rpc->arena, &err)
                      : td_record_read(&rpc->request, rpc->method->input, message, &rpc->arena, &err);
    if (!ok)
        td_response_fail_error(call->response, &err);
    return ok && read_mask(call, rpc);
}

/* ---- answers -------------------------------------------------------------------------------------------- */

/* Copies the fields of the request that the native interface heeds: conditions of a GET, and what proxies add. The
 * message takes the place of all others. Returns their number. */
static size_t copy_fields(const struct td_request *request, struct td_header *out)
{
    static const char *const left_out[] = {"Accept",   "Content-Type",        "Range",
                                           "If-Range", "If-Unmodified-Since", "If-Modified-Since"};
    bool is_post = td_text_equals(request->method, "POST");
    size_t count = 0;
    for (size_t i = 0; i < request->header_count; i++) {
        const struct td_header *header = &request->headers[i];
        bool is_left_out = is_post && td_text_begins_ignore_case(header->name, "If-");
        for (size_t k = 0; k < sizeof left_out / sizeof *left_out; k++)
            is_left_out = is_left_out || td_text_equals_ignore_case(header->name, left_out[k]);
        if (!is_left_out)
            out[count++] = *header;
    }
    return count;
}

/* Answers that the client's time is over, if it is; a wait ends then at the latest. */
static void apply_timeout(const struct td_call *call, const struct rpc *rpc)
{
    struct td_response *response = call->response;
    bool is_incomplete = response->wait_until_ns != 0 || response->status == 503;
    if (is_incomplete && td_clock_ns() >= rpc->deadline_ns)
        td_response_fail_as(response, 504, "DEADLINE_EXCEEDED", "the time that the client allows is over");
    else if (response->wait_until_ns > rpc->deadline_ns)
        response->wait_until_ns = rpc->deadline_ns;
}

/* Gives a 200 answer the form of the call. */
static void lay_out(const struct td_call *call, const struct rpc *rpc, const struct td_rpc_native *native,
                    const struct td_read_results *results)
{
    struct td_response *response = call->response;
    struct td_error err = TD_ERROR_INIT;
    struct td_rpc_row_page page = {.left = 0};
    const bool has_count =
        native->answer == TD_RPC_ROWS && rpc->method->is_stream && td_record_get(&rpc->request, "count") != NULL;
    const uint64_t wanted = has_count ? td_record_number(&rpc->request, "count") : UINT64_MAX;
    bool ok = true;
    if (native->answer == TD_RPC_ROWS && rpc->method->is_stream && td_rpc_has_more_rows(response, wanted, &page)) {
        td_rpc_rows_begin(call, rpc->method, native, &page, rpc->deadline_ns);
        return;
    }
    if (native->answer == TD_RPC_ROWS && !td_rpc_lay_out_rows(call, rpc->method, wanted, &page))
        return;
    if (native->answer == TD_RPC_TENSORS)
        ok = td_rpc_lay_out_tensors(call, rpc->method, results, td_record_number(&rpc->request, "chunk_bytes"), &err);
    if (ok && rpc->method->is_stream) {
        response->cache_control = "no-store";
        response->etag[0] = response->former_etag[0] = '\0';
    } else {
        ok = ok && td_rpc_frame(response, &err);
    }
    response->content_type = td_rpc_type(response->form);
    if (!ok)
        td_response_fail_error(response, &err);
}

/* Has the native interface answer, and gives the answer the form of the call. */
static void answer_native(struct td_call *call, const struct rpc *rpc, const struct td_rpc_native *native,
                          struct td_header *fields)
{
    struct td_response *response = call->response;
    struct td_read_results results = {.count = 0};
    struct td_request request = *call->request;
    request.method = native->is_post ? TD_TEXT("POST") : TD_TEXT("GET");
    request.target = td_buffer_text(&native->target);
    request.body = td_buffer_text(&native->body);
    request.headers = fields;
    request.header_count = copy_fields(call->request, fields);
    td_arena_init_budget(&results.arena, 0, td_shared_budget_of(&call->api->lists, call->request->client));
    td_rpc_ask(call, &request, native, &rpc->kind, &results);
    apply_timeout(call, rpc);
    response->accept_ranges = false;
    if (response->status == 200 && response->wait_until_ns == 0)
        lay_out(call, rpc, native, &results);
    td_arena_fini(&results.arena);
}

static void answer_watch(struct td_call *call, const struct rpc *rpc, const struct td_rpc_native *native)
{
    const struct td_rpc_watch_wish wish = {.method = rpc->method,
                                           .native = native,
                                           .kind = &rpc->kind,
                                           .etag = td_record_text(&rpc->request, "etag"),
                                           .deadline_ns = rpc->deadline_ns};
    td_rpc_watch_begin(call, &wish);
}

static void answer_method(struct td_call *call, struct rpc *rpc)
{
    struct td_rpc_native native;
    struct td_header *fields = td_arena_array(&rpc->arena, call->request->header_count, sizeof *fields);
    if (fields == NULL)
        (void)td_call_no_memory(call);
    else if (check_protocol(call, rpc) && read_request(call, rpc)) {
        if (td_rpc_translate(rpc->method, &rpc->request, call->response, &native)) {
            if (native.answer == TD_RPC_WATCHED)
                answer_watch(call, rpc, &native);
            else
                answer_native(call, rpc, &native, fields);
            call->response->route = native.label;
        }
        td_rpc_native_fini(&native);
    }
}

static void answer_rpc(struct td_call *call)
{
    struct rpc rpc = {.method = find_method(call->uri->path), .deadline_ns = UINT64_MAX};
    const struct td_request *request = call->request;
    call->response->route = TD_ROUTE_RPC;
    if (rpc.method == NULL) {
        td_rpc_refuse_path(call);
        return;
    }
    size_t len = request->body.len > request->target.len ? request->body.len : request->target.len;
    td_arena_init_budget(&rpc.arena, TD_DECODE_FREE_BYTES + TD_DECODE_PER_BYTE * len + request->header_count * 64,
                         td_shared_budget_of(&call->api->lists, request->client));
    answer_method(call, &rpc);
    td_arena_fini(&rpc.arena);
    td_rpc_input_fini(&rpc.input);
}

const struct td_facade td_rpc_facade = {
    .owns = owns_rpc_path,
    .speaks_grpc = true,
    .takes_body = takes_body,
    .reads_by_post = reads_by_post,
    .refuse_coding = td_rpc_refuse_encoding,
    .choose_form = td_rpc_form_of,
    .is_text = is_text,
    .posts_texts = true,
    .admit = admit_rpc,
    .answer = answer_rpc,
    .write_error = td_rpc_write_error,
    .error_type = "application/json",
    .query = TD_URI_REPEATS,
    .etag_end = "",
};
