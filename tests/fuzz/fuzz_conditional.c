/* The input is header lines. The conditions in them are applied to an answer with an ETag and a date. When every
 * condition is well-formed, the status is compared with an oracle that follows RFC 9110 section 13 step by step. */
#include "http/conditional.h"

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/request_text.h"

static const char etag[] = "\"abc\"";
static const int64_t date_s = 784111777;

/* The dates that the oracle knows. Of other dates it knows only that they are accepted or ignored. */
static const struct {
    const char *text;
    int64_t seconds;
} dates[] = {
    {"Sun, 06 Nov 1994 08:49:37 GMT", 784111777}, {"Sun, 06 Nov 1994 08:49:36 GMT", 784111776},
    {"Sun, 06 Nov 1994 08:49:38 GMT", 784111778}, {"Sunday, 06-Nov-94 08:49:37 GMT", 784111777},
    {"Sun Nov  6 08:49:37 1994", 784111777},      {"Sun Nov  6 08:49:38 1994", 784111778},
};

/* A field of a request: the number of its lines, and their meaning. */
struct field {
    size_t lines;
    bool known;             /* every line is allowed by the grammar and known to the oracle */
    bool any, strong, weak; /* "*"; a tag that equals the answer's by strong comparison; by weak comparison */
    int64_t seconds;
};

static bool is_tag_byte(unsigned char c)
{
    return c == '!' || (c >= '#' && c <= '~') || c >= 0x80;
}

/* entity-tag = [ "W/" ] DQUOTE *etagc DQUOTE, section 8.8.3. Returns the length, or 0. */
static size_t tag_len(struct td_text text)
{
    size_t at = text.len >= 2 && text.p[0] == 'W' && text.p[1] == '/' ? 2 : 0;
    if (at == text.len || text.p[at] != '"')
        return 0;
    for (at++; at < text.len && is_tag_byte((unsigned char)text.p[at]);)
        at++;
    return at < text.len && text.p[at] == '"' ? at + 1 : 0;
}

/* Reads "*" / #entity-tag. Returns false when the line is neither. */
static bool read_tags(struct field *field, struct td_text text)
{
    if (td_text_equals(text, "*")) {
        field->any = true;
        return true;
    }
    while (text.len > 0) {
        text = request_text_trim(text);
        size_t n = tag_len(text);
        if (n > 0) {
            struct td_text tag = {.p = text.p, .len = n};
            field->strong = field->strong || td_text_equals(tag, etag);
            if (tag.p[0] == 'W')
                tag = td_text_n(tag.p + 2, n - 2);
            field->weak = field->weak || td_text_equals(tag, etag);
        }
        text = request_text_trim(td_text_skip(text, n));
        if (text.len == 0)
            return true;
        if (text.p[0] != ',')
            return false;
        text.p++;
        text.len--;
    }
    return true;
}

static bool read_date(struct field *field, struct td_text text)
{
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
        if (td_text_equals(text, dates[i].text)) {
            field->seconds = dates[i].seconds;
            return true;
        }
    }
    return false;
}

static struct field read_field(const struct td_request *request, const char *name, bool is_date)
{
    struct field field = {.known = true};
    size_t at = 0;
    const struct td_header *header;
    while ((header = td_request_next_header(request, name, &at)) != NULL) {
        field.lines++;
        if (is_date ? !read_date(&field, header->value) : !read_tags(&field, header->value))
            field.known = false;
    }
    if (!is_date && field.any && field.lines > 1)
        field.known = false; /* "*" is no member of a list */
    return field;
}

/* Returns the status by section 13.2.2, or 0 when the oracle does not know it. */
static int wanted_status(const struct td_request *request)
{
    struct field match = read_field(request, "If-Match", false);
    struct field unmodified = read_field(request, "If-Unmodified-Since", true);
    struct field none_match = read_field(request, "If-None-Match", false);
    struct field modified = read_field(request, "If-Modified-Since", true);
    if (!match.known || !none_match.known)
        return 0;
    if ((unmodified.lines == 1 && !unmodified.known) || (modified.lines == 1 && !modified.known))
        return 0;
    if (match.lines > 0 && !match.any && !match.strong)
        return 412;
    if (match.lines == 0 && unmodified.lines == 1 && date_s > unmodified.seconds)
        return 412;
    if (none_match.lines > 0 && (none_match.any || none_match.weak))
        return 304;
    if (none_match.lines == 0 && modified.lines == 1 && date_s <= modified.seconds)
        return 304;
    return 200;
}

static void check_if_range(const struct td_request *request, const struct td_response *response)
{
    size_t at = 0;
    const struct td_header *first = td_request_next_header(request, "If-Range", &at);
    bool more = first != NULL && td_request_next_header(request, "If-Range", &at) != NULL;
    bool allowed = td_conditional_range_allowed(request, response);
    struct field field = {0};
    if (first == NULL)
        FUZZ_CHECK(allowed);
    else if (more)
        FUZZ_CHECK(!allowed);
    else if (tag_len(first->value) == first->value.len && first->value.len > 0)
        FUZZ_CHECK(allowed == td_text_equals(first->value, etag));
    else if (read_date(&field, first->value))
        FUZZ_CHECK(allowed == (field.seconds == date_s));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct request_text text;
    struct td_response response;
    if (size > 4096)
        return 0;
    text.request = (struct td_request){.method = {.p = "GET", .len = 3}, .target = {.p = "/", .len = 1}};
    request_text_headers(&text, td_text_n((const char *)data, size));
    td_response_init(&response);
    response.last_modified_s = date_s;
    response.content_type = "text/plain";
    td_response_set_etag(&response, "abc");
    check_if_range(&text.request, &response);
    int wanted = wanted_status(&text.request);
    bool go_on = td_conditional_apply(&text.request, &response);
    FUZZ_CHECK(response.status == 200 || response.status == 304 || response.status == 412);
    FUZZ_CHECK(go_on == (response.status == 200));
    FUZZ_CHECK(wanted == 0 || response.status == wanted);
    td_response_fini(&response);
    return 0;
}
