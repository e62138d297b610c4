#include "api/rpc/rpc_form.h"

#include "core/digits.h"
#include "http/uri.h"

#include <string.h>

enum { FLAG_TRAILERS = 0x80 };

/* ---- forms ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    unsigned form;
    bool has_charset; /* a parameter charset may follow */
} types[] = {
    {"application/proto", 0, false},
    {"application/json", TD_RPC_JSON, true},
    {"application/connect+proto", TD_RPC_FRAMES, false},
    {"application/connect+json", TD_RPC_FRAMES | TD_RPC_JSON, true},
    {"application/grpc-web", TD_RPC_FRAMES | TD_RPC_WEB, false},
    {"application/grpc-web+proto", TD_RPC_FRAMES | TD_RPC_WEB, false},
    {"application/grpc-web+json", TD_RPC_FRAMES | TD_RPC_WEB | TD_RPC_JSON, false},
    {"application/grpc", TD_RPC_FRAMES | TD_RPC_GRPC, false},
    {"application/grpc+proto", TD_RPC_FRAMES | TD_RPC_GRPC, false},
    {"application/grpc+json", TD_RPC_FRAMES | TD_RPC_GRPC | TD_RPC_JSON, false},
};

#define TYPES_WITH_TRAILERS                                                                           \
    "application/grpc-web, application/grpc-web+proto, application/grpc-web+json, application/grpc, " \
    "application/grpc+proto, application/grpc+json"

const char *td_rpc_types(bool is_stream)
{
    return is_stream ? "application/connect+proto, application/connect+json, " TYPES_WITH_TRAILERS
                     : "application/proto, application/json, " TYPES_WITH_TRAILERS;
}

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
    if ((form & TD_RPC_FRAMES) != 0)
        return (form & TD_RPC_JSON) != 0 ? "application/connect+json" : "application/connect+proto";
    return (form & TD_RPC_JSON) != 0 ? "application/json" : "application/proto";
}

/* ---- frames --------------------------------------------------------------------------------------------- */

size_t td_rpc_begin_frame(struct td_buffer *out, uint8_t flags)
{
    const uint8_t head[TD_RPC_FRAME_BYTES] = {flags};
    td_buffer_append(out, head, sizeof head);
    return out->len;
}

void td_rpc_write_length(uint8_t head[TD_RPC_FRAME_BYTES], size_t len)
{
    for (size_t i = 1; i < TD_RPC_FRAME_BYTES; i++)
        head[i] = (uint8_t)(len >> 8 * (TD_RPC_FRAME_BYTES - 1 - i));
}

void td_rpc_end_frame(struct td_buffer *out, size_t start)
{
    if (!out->failed)
        td_rpc_write_length((uint8_t *)out->data + start - TD_RPC_FRAME_BYTES, out->len - start);
}

void td_rpc_write_trailers(const struct td_trailers *trailers, struct td_buffer *out)
{
    size_t start = td_rpc_begin_frame(out, FLAG_TRAILERS);
    for (size_t i = 0; i < trailers->count; i++)
        td_buffer_printf(out, "%s: %s\r\n", trailers->fields[i].name, trailers->fields[i].value);
    td_rpc_end_frame(out, start);
}

bool td_rpc_write_end(unsigned form, struct td_buffer *out, struct td_trailers *trailers)
{
    struct td_buffer status;
    if ((form & (TD_RPC_WEB | TD_RPC_GRPC)) == 0) {
        size_t start = td_rpc_begin_frame(out, TD_RPC_FLAG_END);
        td_buffer_puts(out, "{}");
        td_rpc_end_frame(out, start);
        return !out->failed;
    }
    td_buffer_init(&status);
    td_buffer_putc(&status, '0');
    bool ok = td_trailers_add(trailers, "grpc-status", &status);
    td_buffer_fini(&status);
    if (ok && (form & TD_RPC_WEB) != 0) {
        td_rpc_write_trailers(trailers, out);
        td_trailers_fini(trailers);
    }
    return ok && !out->failed;
}

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
    (void)td_rpc_begin_frame(&bytes, 0);
    if (!bytes.failed) /* below 4 GiB: TD_MESSAGE_MOST_BYTES and one item */
        td_rpc_write_length((uint8_t *)bytes.data, (size_t)response->body.total_bytes);
    bool ok =
        append_buffer(&body, &bytes, err) && td_body_cut(&response->body, 0, response->body.total_bytes, &body, err);
    ok = ok && (td_rpc_write_end(response->form, &bytes, &response->trailers) || td_error_no_memory(err));
    ok = ok && (bytes.len == 0 || append_buffer(&body, &bytes, err));
    td_buffer_fini(&bytes);
    if (ok) {
        td_body_fini(&response->body);
        response->body = body;
    } else {
        td_body_fini(&body);
    }
    return ok;
}

/* ---- deadlines ------------------------------------------------------------------------------------------ */

bool td_rpc_deadline(const struct td_request *request, unsigned form, uint64_t *deadline_ns)
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
    *deadline_ns = UINT64_MAX;
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
    if (request->since_ns != 0 && value <= (UINT64_MAX - request->since_ns) / unit_ns)
        *deadline_ns = request->since_ns + value * unit_ns;
    return true;
}
