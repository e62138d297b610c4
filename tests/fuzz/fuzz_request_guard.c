/* The input is a version, a line end and a request. The guard's verdict is compared with the grammars, which are
 * followed symbol by symbol. */
#include "server/net/request_guard.h"

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/request_text.h"

#include <ctype.h>
#include <stdbool.h>

enum { MOST_BYTES = 300 };

static const struct td_guard_limits most = {.max_header_bytes = MOST_BYTES, .max_body_bytes = 1000};

static bool one_of(char c, const char *list)
{
    return c != '\0' && strchr(list, c) != NULL;
}

static bool is_ascii_alnum(char c)
{
    return (unsigned char)c < 0x80 && isalnum((unsigned char)c) != 0;
}

static bool all(struct td_text text, const char *others)
{
    for (size_t i = 0; i < text.len; i++)
        if (!is_ascii_alnum(text.p[i]) && !one_of(text.p[i], others))
            return false;
    return true;
}

/* token = 1*tchar, RFC 9110 section 5.6.2 */
static bool is_token(struct td_text text)
{
    return text.len > 0 && all(text, "!#$%&'*+-.^_`|~");
}

static bool is_digits(struct td_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
    return true;
}

static bool same_name(struct td_text text, const char *name)
{
    for (size_t i = 0; i < text.len; i++)
        if (name[i] == '\0' || tolower((unsigned char)text.p[i]) != tolower((unsigned char)name[i]))
            return false;
    return name[text.len] == '\0';
}

/* libmicrohttpd 0.9.75 appends a folded line to the name, so a name that begins like a framing field counts as one. */
static bool begins_like(struct td_text text, const char *name)
{
    size_t n = strlen(name);
    return text.len >= n && same_name(td_text_n(text.p, n), name);
}

/* Host = uri-host [ ":" port ], RFC 9110 section 7.2; of IP literals only the characters are checked. */
static bool is_host(struct td_text text)
{
    size_t host = text.len;
    for (size_t i = 0; i < text.len; i++) { /* the last colon that is not within brackets */
        if (text.p[i] == ']')
            host = text.len;
        else if (text.p[i] == ':' && host == text.len)
            host = i;
    }
    if (text.len > 0 && text.p[0] == '[') {
        const char *close = memchr(text.p, ']', text.len);
        if (close == NULL)
            return false;
        host = (size_t)(close - text.p) + 1;
        struct td_text inner = {.p = text.p + 1, .len = host - 2};
        if (inner.len == 0)
            return false;
        for (size_t i = 0; i < inner.len; i++)
            if (!(isxdigit((unsigned char)inner.p[i]) != 0 || one_of(inner.p[i], ":.")))
                return false;
    } else if (!all(td_text_n(text.p, host), "-._~!$&'()*+,;=%")) {
        return false;
    }
    if (host == text.len)
        return true;
    return text.p[host] == ':' && is_digits(td_text_skip(text, host + 1));
}

/* origin-form or absolute-form, RFC 9112 section 3.2; bytes by RFC 3986 section 2 */
static bool is_target(struct td_text text)
{
    if (text.len == 0 || !all(text, "-._~:/?[]@!$&'()*+,;=%"))
        return false;
    if (text.p[0] == '/')
        return true;
    size_t scheme = text.len >= 7 && same_name(td_text_n(text.p, 7), "http://")    ? 7
                    : text.len >= 8 && same_name(td_text_n(text.p, 8), "https://") ? 8
                                                                                   : 0;
    size_t end = scheme;
    while (end < text.len && text.p[end] != '/' && text.p[end] != '?')
        end++;
    struct td_text authority = {.p = text.p + scheme, .len = end - scheme};
    return scheme > 0 && authority.len > 0 && authority.p[0] != ':' && is_host(authority);
}

/* RFC 9110 section 5.5 */
static bool is_value(struct td_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c != '\t' && (c < ' ' || c == 0x7F))
            return false;
    }
    return true;
}

static bool is_longer(struct td_text digits, const char *than)
{
    size_t n = strlen(than);
    while (digits.len > 1 && digits.p[0] == '0') {
        digits.p++;
        digits.len--;
    }
    return digits.len > n || (digits.len == n && memcmp(digits.p, than, n) > 0);
}

/* 1*DIGIT, below 2^64 */
static bool is_length(struct td_text text)
{
    return text.len > 0 && is_digits(text) && !is_longer(text, "18446744073709551615");
}

/* Returns 400 or 0, without regard to sizes; 413 for a body (RFC 9110 section 15.5.14). Sets *unread to whether the
 * router gets a request of another method with a body that nobody reads, and *in_chunks to whether the body is chunked.
 */
static int status_of(const struct td_request *request, bool is_1_1, bool *unread, bool *in_chunks)
{
    size_t hosts = 0;
    size_t lengths = 0;
    size_t encodings = 0;
    bool chunked = false;
    bool post = td_text_equals(request->method, "POST");
    bool other = !post && !td_text_equals(request->method, "GET") && !td_text_equals(request->method, "HEAD");
    bool is_zero = false;
    struct td_text length = {.p = "0", .len = 1};
    bool ok = is_token(request->method) && is_target(request->target);
    for (size_t i = 0; i < request->header_count; i++) {
        const struct td_header *header = &request->headers[i];
        ok = ok && is_token(header->name) && is_value(header->value);
        if (same_name(header->name, "Host")) {
            hosts++;
            ok = ok && is_host(header->value);
        } else if (begins_like(header->name, "Content-Length")) {
            lengths++;
            length = header->value;
            is_zero = same_name(header->name, "Content-Length") && td_text_equals(header->value, "0");
            ok = ok &&
                 (other || (post ? same_name(header->name, "Content-Length") && is_length(header->value) : is_zero));
        } else if (begins_like(header->name, "Transfer-Encoding")) {
            encodings++;
            chunked = same_name(header->name, "Transfer-Encoding") && same_name(header->value, "chunked");
        }
    }
    ok = ok && (hosts == 1 || (hosts == 0 && !is_1_1));
    *unread = other && ok && (encodings > 0 || lengths > 1 || (lengths == 1 && !is_zero));
    if (other)
        return ok ? 0 : 400;
    ok = ok && lengths <= 1;
    if (!ok || (encodings > 0 && !(post && encodings == 1 && chunked && lengths == 0 && is_1_1)))
        return 400;
    *in_chunks = encodings > 0;
    return is_longer(length, "1000") ? 413 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct request_text text;
    char version[16];
    struct td_text rest = {.p = (const char *)data, .len = size};
    struct td_text line = request_text_line(&rest);
    if (line.len >= sizeof version || memchr(line.p, '\0', line.len) != NULL)
        return 0;
    memcpy(version, line.p, line.len);
    version[line.len] = '\0';
    request_text_read(&text, (const uint8_t *)rest.p, rest.len);
    struct td_guard_verdict verdict = td_request_guard(&text.request, version, false, &most);
    size_t bytes = text.request.target.len;
    for (size_t i = 0; i < text.request.header_count; i++)
        bytes += text.headers[i].name.len + text.headers[i].value.len;
    bool is_1_1 = strcmp(version, "HTTP/1.1") == 0;
    bool spoken = is_1_1 || strcmp(version, "HTTP/1.0") == 0;
    bool unread = false;
    bool in_chunks = false;
    int wanted = spoken ? status_of(&text.request, is_1_1, &unread, &in_chunks) : 400;
    if (wanted == 0 && bytes > MOST_BYTES)
        wanted = 431;
    FUZZ_CHECK(verdict.status == wanted);
    FUZZ_CHECK((verdict.message == NULL) == (wanted == 0));
    FUZZ_CHECK(wanted != 0 || verdict.has_unread_body == unread);
    FUZZ_CHECK(wanted != 0 || (verdict.body_bytes == TD_BODY_LENGTH_UNKNOWN) == in_chunks);
    return 0;
}
