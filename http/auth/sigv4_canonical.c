#include "http/auth/sigv4_canonical.h"

#include "core/digits.h"
#include "http/uri.h"

#include <stdlib.h>
#include <strings.h>

bool td_sigv4_same_name(struct td_text a, struct td_text b)
{
    return a.len == b.len && (a.len == 0 || strncasecmp(a.p, b.p, a.len) == 0);
}

/* Appends a raw text, decoded and encoded again, so that all spellings of a text become one. A '%' that begins no
 * escape stands for itself: the handlers refuse it. */
static void append_encoded(struct td_buffer *out, struct td_text raw, bool is_path)
{
    for (size_t i = 0; i < raw.len; i++) {
        char c = raw.p[i];
        int high = c == '%' && raw.len - i > 2 ? td_hex_digit(raw.p[i + 1]) : -1;
        int low = high < 0 ? -1 : td_hex_digit(raw.p[i + 2]);
        if (low >= 0) {
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+' && !is_path) {
            c = ' ';
        }
        td_uri_encode(out, td_text_n(&c, 1), is_path);
    }
}

/* A query parameter within a buffer: its encoded name, and its encoded value right after it. */
struct parameter {
    size_t at, name_len, value_len;
    const char *text; /* set when the buffer is complete */
};

static int compare_parameters(const void *left, const void *right)
{
    const struct parameter *a = left, *b = right;
    int order = td_text_compare(td_text_n(a->text, a->name_len), td_text_n(b->text, b->name_len));
    if (order != 0)
        return order;
    return td_text_compare(td_text_n(a->text + a->name_len, a->value_len),
                           td_text_n(b->text + b->name_len, b->value_len));
}

/* Encodes the parameters of a raw query into `texts`. Returns false when there are too many. */
static bool encode_parameters(struct td_text query, struct td_buffer *texts, struct parameter *parameters,
                              size_t *count)
{
    *count = 0;
    while (query.len > 0) {
        struct td_text value = td_text_take_until(&query, '&');
        struct td_text name = td_text_take_until(&value, '=');
        if ((name.len == 0 && value.len == 0) || td_text_equals(name, "X-Amz-Signature"))
            continue;
        if (*count == TD_SIGV4_PARAMETERS)
            return false;
        struct parameter *parameter = &parameters[(*count)++];
        parameter->at = texts->len;
        append_encoded(texts, name, false);
        parameter->name_len = texts->len - parameter->at;
        append_encoded(texts, value, false);
        parameter->value_len = texts->len - parameter->at - parameter->name_len;
    }
    return true;
}

/* Appends the query, sorted by encoded names and then values. Returns false when there are too many parameters. */
static bool append_query(struct td_buffer *out, struct td_text query)
{
    struct parameter parameters[TD_SIGV4_PARAMETERS];
    size_t count;
    struct td_buffer texts;
    td_buffer_init(&texts);
    bool ok = encode_parameters(query, &texts, parameters, &count);
    out->failed = out->failed || texts.failed;
    if (ok && !texts.failed && count > 0) {
        for (size_t i = 0; i < count; i++)
            parameters[i].text = texts.data + parameters[i].at;
        qsort(parameters, count, sizeof *parameters, compare_parameters);
        for (size_t i = 0; i < count; i++) {
            td_buffer_puts(out, i > 0 ? "&" : "");
            td_buffer_append(out, parameters[i].text, parameters[i].name_len);
            td_buffer_putc(out, '=');
            td_buffer_append(out, parameters[i].text + parameters[i].name_len, parameters[i].value_len);
        }
    }
    td_buffer_fini(&texts);
    return ok;
}

/* Appends a field's value without surrounding blanks; blanks within become one. */
static void append_value(struct td_buffer *out, struct td_text value)
{
    bool is_begun = false;
    bool has_blank = false;
    for (size_t i = 0; i < value.len; i++) {
        bool is_blank = value.p[i] == ' ' || value.p[i] == '\t';
        if (!is_blank && is_begun && has_blank)
            td_buffer_putc(out, ' ');
        if (!is_blank)
            td_buffer_putc(out, value.p[i]);
        is_begun = is_begun || !is_blank;
        has_blank = is_blank;
    }
}

/* Appends the field of this name: "name:value", with several lines' values separated by ','. The host of a target in
 * absolute-form replaces the field Host (RFC 9112 section 3.2.2). Returns false when the request has no such field. */
static bool append_field(struct td_buffer *out, const struct td_request *request, struct td_text name)
{
    size_t found = 0;
    struct td_text authority = td_uri_authority(request->target);
    td_buffer_append(out, name.p, name.len);
    if (authority.p != NULL && td_sigv4_same_name(name, TD_TEXT("host"))) {
        td_buffer_putc(out, ':');
        td_buffer_append(out, authority.p, authority.len);
        td_buffer_putc(out, '\n');
        return true;
    }
    for (size_t i = 0; i < request->header_count; i++) {
        if (!td_sigv4_same_name(request->headers[i].name, name))
            continue;
        td_buffer_putc(out, found++ == 0 ? ':' : ',');
        append_value(out, request->headers[i].value);
    }
    td_buffer_putc(out, '\n');
    return found > 0;
}

bool td_sigv4_write_canonical(const struct td_request *request, struct td_text signed_headers, struct td_text payload,
                              struct td_buffer *out, struct td_text *missing)
{
    struct td_text path = td_uri_raw_path(request->target);
    struct td_text names = signed_headers;
    *missing = TD_TEXT("");
    td_buffer_append(out, request->method.p, request->method.len);
    td_buffer_putc(out, '\n');
    append_encoded(out, path.len == 0 ? TD_TEXT("/") : path, true);
    td_buffer_putc(out, '\n');
    if (!append_query(out, td_uri_raw_query(request->target)))
        return false;
    td_buffer_putc(out, '\n');
    while (names.len > 0) {
        struct td_text name = td_text_take_until(&names, ';');
        if (append_field(out, request, name))
            continue;
        *missing = name;
        return false;
    }
    td_buffer_putc(out, '\n');
    td_buffer_append(out, signed_headers.p, signed_headers.len);
    td_buffer_putc(out, '\n');
    td_buffer_append(out, payload.p, payload.len);
    return true;
}
