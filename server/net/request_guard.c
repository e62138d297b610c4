#include "server/net/request_guard.h"

#include "core/digits.h"
#include "http/uri.h"

#include <string.h>

/* Classes of bytes, as bits of a table that is looked up once for each byte. */
enum { IN_TOKEN = 1, IN_TARGET = 2, IN_NAME = 4 };

/* IN_TOKEN: tchar, RFC 9110 section 5.6.2. IN_TARGET: bytes that a request target may hold unencoded, RFC 3986 section
 * 2. IN_NAME: reg-name, RFC 3986 section 3.2.2. Bytes from 0x80 on are in no class. test_request_guard derives the
 * table from the RFCs. */
// clang-format off
static const unsigned char classes[256] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* 00 */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* 10 */
    0, 7, 0, 1, 7, 7, 7, 7, 6, 6, 7, 7, 6, 7, 7, 2, /* 20 */
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 2, 6, 0, 6, 0, 2, /* 30 */
    2, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, /* 40 */
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 2, 0, 2, 1, 7, /* 50 */
    1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, /* 60 */
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 1, 0, 7, 0, /* 70 */
};
// clang-format on

static bool all_in_class(struct td_text text, unsigned class)
{
    for (size_t i = 0; i < text.len; i++)
        if ((classes[(unsigned char)text.p[i]] & class) == 0)
            return false;
    return text.len > 0;
}

/* Returns whether the value holds no control byte but tab (RFC 9110 section 5.5). */
static bool is_field_value(struct td_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return false;
    }
    return true;
}

/* Returns whether the text is host [":" port], where host is a reg-name, IPv4 or [IPv6] (RFC 9112 section 3.2). */
static bool is_host(struct td_text text)
{
    size_t at = 0;
    if (text.len > 0 && text.p[0] == '[') {
        while (at < text.len && text.p[at] != ']')
            at++;
        if (at == text.len || at == 1)
            return false;
        for (size_t i = 1; i < at; i++)
            if (text.p[i] == '\0' || strchr("0123456789abcdefABCDEF:.", text.p[i]) == NULL)
                return false;
        at++;
    } else {
        while (at < text.len && (classes[(unsigned char)text.p[at]] & IN_NAME) != 0)
            at++;
    }
    if (at == text.len)
        return true;
    if (text.p[at++] != ':')
        return false;
    for (; at < text.len; at++)
        if (text.p[at] < '0' || text.p[at] > '9')
            return false;
    return true;
}

/* Returns whether the target begins with a scheme and an authority, such as http://host:port (RFC 9112 section 3.2.2).
 * The scheme may be in upper or lower case; the host must not be empty (RFC 9110 section 4.2.1), and user information
 * is not allowed (section 4.2.4). */
static bool is_absolute_form(struct td_text target)
{
    struct td_text authority = td_uri_authority(target);
    return authority.len > 0 && authority.p[0] != ':' && is_host(authority);
}

static struct td_guard_verdict refuse_request(int status, const char *message)
{
    return (struct td_guard_verdict){.status = status, .message = message};
}

/* The length of the body, as the header fields declare it. */
struct framing {
    size_t lengths, encodings; /* numbers of fields Content-Length and Transfer-Encoding */
    bool is_number;            /* Content-Length is a plain number below 2^64 */
    bool is_zero;              /* Content-Length is a plain 0 */
    bool is_chunked;           /* Transfer-Encoding is chunked */
    uint64_t length;           /* the number, if it is one */
};

/* Records a field if its name begins with the name of a framing field, since libmicrohttpd 0.9.75 appends a folded line
 * (RFC 9112 section 5.2) to the name. */
static void note_framing(const struct td_header *header, struct framing *framing)
{
    if (td_text_begins_ignore_case(header->name, "Transfer-Encoding")) {
        framing->encodings++;
        framing->is_chunked = td_text_equals_ignore_case(header->name, "Transfer-Encoding") &&
                              td_text_equals_ignore_case(header->value, "chunked");
    } else if (td_text_begins_ignore_case(header->name, "Content-Length")) {
        framing->lengths++;
        framing->is_number = td_text_equals_ignore_case(header->name, "Content-Length") &&
                             td_number_read(header->value, UINT64_MAX, &framing->length);
        framing->is_zero = framing->is_number && td_text_equals(header->value, "0");
    }
}

static const char bad_coding[] = "Transfer-Encoding must be chunked alone, in HTTP/1.1, without a Content-Length";
static const char too_long[] = "the body is longer than --max-body-bytes";

/* Returns whether the body is chunked, and its length is not declared in another way. */
static bool is_chunked(const struct framing *framing, bool is_http_1_1)
{
    return framing->encodings == 1 && framing->is_chunked && framing->lengths == 0 && is_http_1_1;
}

/* Judges a request that may have a body, where uploads are taken. A length that libmicrohttpd takes for an unknown one
 * is refused. */
static struct td_guard_verdict judge_write(const struct framing *framing, bool is_http_1_1)
{
    if (is_chunked(framing, is_http_1_1))
        return (struct td_guard_verdict){.body_bytes = TD_BODY_LENGTH_UNKNOWN};
    if (framing->encodings > 0)
        return refuse_request(400, bad_coding);
    if (framing->lengths > 1 || (framing->lengths == 1 && !framing->is_number))
        return refuse_request(400, "there must be one Content-Length, with a plain number");
    if (framing->length > INT64_MAX)
        return refuse_request(413, "the body is longer than any file can be");
    return (struct td_guard_verdict){.body_bytes = framing->length};
}

bool td_guard_is_write(struct td_text method)
{
    return td_text_equals(method, "POST") || td_text_equals(method, "PUT") || td_text_equals(method, "PATCH") ||
           td_text_equals(method, "DELETE");
}

struct td_guard_verdict td_guard_memory_body(struct td_guard_verdict verdict, const struct td_guard_limits *limits)
{
    bool is_too_long = verdict.body_bytes != TD_BODY_LENGTH_UNKNOWN && verdict.body_bytes > limits->max_body_bytes;
    return is_too_long ? refuse_request(413, too_long) : verdict;
}

/* Judges GET, HEAD and POST strictly. A request with another method passes whatever its body is like: the router
 * refuses it, and no byte after its header is read. */
static struct td_guard_verdict judge_framing(const struct framing *framing, struct td_text method, bool is_http_1_1,
                                             uint64_t max_body_bytes)
{
    bool is_post = td_text_equals(method, "POST");
    bool is_read = td_text_equals(method, "GET") || td_text_equals(method, "HEAD");
    if (!is_post && !is_read)
        return (struct td_guard_verdict){.has_unread_body = framing->encodings > 0 || framing->lengths > 1 ||
                                                            (framing->lengths == 1 && !framing->is_zero)};
    if (is_post && is_chunked(framing, is_http_1_1))
        return (struct td_guard_verdict){.body_bytes = TD_BODY_LENGTH_UNKNOWN};
    if (framing->encodings > 0)
        return refuse_request(400, is_post ? bad_coding
                                           : "only POST requests may have a body: Transfer-Encoding is not accepted");
    if (!is_post && (framing->lengths > 1 || (framing->lengths == 1 && !framing->is_zero)))
        return refuse_request(400, "only POST requests may have a body: Content-Length must be absent or one plain 0");
    if (framing->lengths > 1 || (framing->lengths == 1 && !framing->is_number))
        return refuse_request(400, "there must be one Content-Length, with a plain number");
    if (framing->length > max_body_bytes)
        return refuse_request(413, too_long);
    return (struct td_guard_verdict){.body_bytes = framing->length};
}

static struct td_guard_verdict judge_fields(const struct td_request *request, bool is_http_1_1,
                                            const struct td_guard_limits *limits)
{
    size_t bytes = request->target.len;
    size_t hosts = 0;
    struct framing framing = {0};
    for (size_t i = 0; i < request->header_count; i++) {
        const struct td_header *header = &request->headers[i];
        bytes += header->name.len + header->value.len;
        if (!all_in_class(header->name, IN_TOKEN))
            return refuse_request(400, "a header field name contains a byte that is not allowed there");
        if (!is_field_value(header->value))
            return refuse_request(400, "a header field value contains a control byte");
        note_framing(header, &framing);
        if (limits->takes_uploads && td_text_equals_ignore_case(header->name, "Expect") &&
            !td_text_equals_ignore_case(header->value, "100-continue"))
            return refuse_request(417, "the only expectation that is known is 100-continue");
        if (td_text_equals_ignore_case(header->name, "Host") && (++hosts > 1 || !is_host(header->value)))
            return refuse_request(400, "there must be one Host header, with host or host:port");
    }
    if (hosts == 0 && is_http_1_1)
        return refuse_request(400, "the Host header is missing");
    struct td_guard_verdict verdict =
        limits->takes_uploads && td_guard_is_write(request->method)
            ? judge_write(&framing, is_http_1_1)
            : judge_framing(&framing, request->method, is_http_1_1, limits->max_body_bytes);
    if (verdict.status == 0 && bytes > limits->max_header_bytes)
        return refuse_request(431, "the request line and header are too large");
    return verdict;
}

struct td_guard_verdict td_request_guard(const struct td_request *request, const char *version, bool too_many,
                                         const struct td_guard_limits *limits)
{
    bool is_http_1_1 = strcmp(version, "HTTP/1.1") == 0;
    if (!is_http_1_1 && strcmp(version, "HTTP/1.0") != 0)
        return refuse_request(400, "the protocol must be HTTP/1.1 or HTTP/1.0");
    if (!all_in_class(request->method, IN_TOKEN))
        return refuse_request(400, "the method is not a token");
    if (!all_in_class(request->target, IN_TARGET))
        return refuse_request(400, "the request target contains a byte that must be percent-encoded");
    if (request->target.p[0] != '/' && !is_absolute_form(request->target))
        return refuse_request(400, "the request target must begin with '/', or with http:// and a host");
    if (too_many)
        return refuse_request(431, "too many header fields");
    return judge_fields(request, is_http_1_1, limits);
}
