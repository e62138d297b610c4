#include "storage/fetch/fetch_answer.h"

#include "core/digits.h"
#include "core/json/json.h"
#include "storage/fetch/fetch_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>
#include <time.h>

/* ---- headers ------------------------------------------------------------------------------------------- */

static const char blanks[] = " \t\r\n";

enum { MAX_RETRY_AFTER_S = 3600, MAX_BODY_BYTES = 64 * 1024, MAX_REASON_BYTES = 4096 };

void td_fetch_answer_init(struct td_fetch_answer *answer)
{
    memset(answer, 0, sizeof *answer);
}

/* Copies the text with a NUL. Returns false, with an empty copy, when the text does not fit or holds a NUL. */
static bool copy_text(struct td_text text, char *out, size_t capacity)
{
    bool fits = text.len < capacity && memchr(text.p, '\0', text.len) == NULL;
    if (fits)
        memcpy(out, text.p, text.len);
    out[fits ? text.len : 0] = '\0';
    return fits;
}

/* Copies a message; one that is cut ends with three dots. */
static void copy_message(struct td_fetch_answer *answer, struct td_text text)
{
    static const char dots[] = "...";
    size_t most = sizeof answer->message - sizeof dots;
    bool fits = text.len <= most + sizeof dots - 1;
    size_t shown = fits ? text.len : td_text_shown(text, most);
    if (copy_text(td_text_n(text.p, shown), answer->message, sizeof answer->message) && !fits)
        memcpy(answer->message + shown, dots, sizeof dots);
}

/* Reads a strong entity tag (RFC 9110 section 8.8.3). A weak tag does not promise equal bytes, so it counts as no
 * tag. */
static void read_etag(struct td_fetch_answer *answer, struct td_text value)
{
    bool is_strong = value.len >= 2 && value.p[0] == '"' && value.p[value.len - 1] == '"';
    for (size_t i = 1; is_strong && i + 1 < value.len; i++)
        is_strong = (unsigned char)value.p[i] > 0x20 && value.p[i] != '"' && value.p[i] != 0x7F;
    if (!is_strong || !copy_text(value, answer->etag, sizeof answer->etag))
        answer->etag[0] = '\0';
}

/* Reads "bytes FIRST-LAST/TOTAL" (RFC 9110 section 14.4). An answer of 416 has "bytes * /TOTAL", which is not a
 * range. */
static void read_range(struct td_fetch_answer *answer, struct td_text value)
{
    uint64_t first;
    uint64_t last;
    uint64_t total;
    if (!td_text_begins_ignore_case(value, "bytes "))
        return;
    value = td_text_trim(td_text_skip(value, sizeof "bytes " - 1), blanks);
    struct td_text from = td_text_take_until(&value, '-');
    struct td_text to = td_text_take_until(&value, '/');
    if (!td_number_read(from, INT64_MAX, &first) || !td_number_read(to, INT64_MAX, &last) ||
        !td_number_read(value, INT64_MAX, &total) || first > last || last >= total)
        return;
    answer->is_wrong = answer->is_wrong || answer->has_range;
    answer->has_range = true;
    answer->first = first;
    answer->last = last;
    answer->total = total;
}

/* Reads seconds or a date of HTTP (RFC 9110 section 10.2.3). */
static void read_retry_after(struct td_fetch_answer *answer, struct td_text value)
{
    uint64_t seconds = 0;
    char date[64];
    if (!td_number_read(value, UINT64_MAX, &seconds) && copy_text(value, date, sizeof date)) {
        time_t then = curl_getdate(date, NULL);
        time_t now = time(NULL);
        seconds = then > now ? (uint64_t)(then - now) : 0;
    }
    answer->retry_after_s = seconds < MAX_RETRY_AFTER_S ? seconds : MAX_RETRY_AFTER_S;
}

/* Reads the links of one field (RFC 8288) and keeps the one whose relation is "next". */
static void read_link(struct td_fetch_answer *answer, struct td_text value)
{
    while (td_text_take_char(&value, '<')) {
        struct td_text target = td_text_take_until(&value, '>');
        const char *end = value.len == 0 ? NULL : memchr(value.p, '<', value.len); /* of the next link */
        struct td_text parameters = td_text_n(value.p, end == NULL ? value.len : (size_t)(end - value.p));
        value = td_text_skip(value, parameters.len);
        while (parameters.len > 0) {
            struct td_text one = td_text_trim(td_text_take_until(&parameters, ';'), blanks);
            while (one.len > 0 && (one.p[one.len - 1] == ',' || one.p[one.len - 1] == ' '))
                one.len--;
            if ((td_text_equals_ignore_case(one, "rel=\"next\"") || td_text_equals_ignore_case(one, "rel=next")) &&
                !copy_text(target, answer->next, sizeof answer->next))
                answer->is_wrong = true;
        }
    }
}

static void read_length(struct td_fetch_answer *answer, struct td_text value)
{
    uint64_t length;
    if (!td_number_read(value, INT64_MAX, &length) || (answer->has_length && answer->length != length)) {
        answer->is_wrong = true;
        return;
    }
    answer->has_length = true;
    answer->length = length;
}

static void read_field(struct td_fetch_answer *answer, struct td_text name, struct td_text value)
{
    if (td_text_equals_ignore_case(name, "ETag"))
        read_etag(answer, value);
    else if (td_text_equals_ignore_case(name, "Content-Range"))
        read_range(answer, value);
    else if (td_text_equals_ignore_case(name, "Content-Length"))
        read_length(answer, value);
    else if (td_text_equals_ignore_case(name, "Retry-After"))
        read_retry_after(answer, value);
    else if (td_text_equals_ignore_case(name, "Link"))
        read_link(answer, value);
    else if (td_text_equals_ignore_case(name, "X-Error-Message"))
        copy_message(answer, value);
    else if (td_text_equals_ignore_case(name, "X-Tensord-Version"))
        (void)copy_text(value, answer->version, sizeof answer->version);
    else if (td_text_equals_ignore_case(name, "Content-Encoding"))
        answer->is_coded = answer->is_coded || !td_text_equals_ignore_case(value, "identity");
    else if (td_text_equals_ignore_case(name, "Content-Type"))
        answer->is_coded = answer->is_coded || td_text_begins_ignore_case(value, "multipart/");
}

/* Begins a new answer with a status line, "HTTP/1.1 200 OK"; header bytes of earlier answers stay counted. */
static void begin_answer(struct td_fetch_answer *answer, struct td_text line)
{
    size_t bytes = answer->header_bytes;
    bool is_redirected = answer->is_redirected || answer->status / 100 == 3;
    uint64_t status = 0;
    td_fetch_answer_init(answer);
    answer->header_bytes = bytes;
    answer->is_redirected = is_redirected;
    (void)td_text_take_until(&line, ' ');
    line = td_text_trim(line, blanks);
    (void)td_number_read(td_text_take_until(&line, ' '), 999, &status);
    answer->status = (unsigned)status;
}

bool td_fetch_answer_take_line(struct td_fetch_answer *answer, struct td_text line)
{
    if (line.len > TD_FETCH_MAX_HEADER_BYTES - answer->header_bytes)
        return false;
    answer->header_bytes += line.len;
    line = td_text_trim(line, blanks);
    if (td_text_begins_ignore_case(line, "HTTP/")) {
        begin_answer(answer, line);
        return true;
    }
    if (line.len == 0 || memchr(line.p, ':', line.len) == NULL)
        return true;
    struct td_text name = td_text_take_until(&line, ':');
    read_field(answer, name, td_text_trim(line, blanks));
    return true;
}

/* ---- reasons ------------------------------------------------------------------------------------------- */

/* Keeps the reader's next value as the message, if it is a string; control characters become spaces. */
static void keep_reason(struct td_fetch_answer *answer, struct td_json *json)
{
    char text[MAX_REASON_BYTES];
    size_t len;
    if (!td_json_string(json, text, sizeof text, &len))
        return;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F)
            text[i] = ' ';
    copy_message(answer, td_text_n(text, len));
}

void td_fetch_answer_take_reason(struct td_fetch_answer *answer, struct td_text body)
{
    struct td_json json;
    if (answer->status < 400 || answer->message[0] != '\0' || body.len == 0 || body.len > MAX_BODY_BYTES)
        return;
    td_json_init(&json, body, 0, NULL);
    if (td_json_next(&json) != TD_JSON_OBJECT_BEGIN || !td_json_seek(&json, "error"))
        return;
    enum td_json_token token = td_json_next(&json);
    if (token == TD_JSON_OBJECT_BEGIN && td_json_seek(&json, "message"))
        token = td_json_next(&json);
    if (token == TD_JSON_STRING)
        keep_reason(answer, &json);
}

/* ---- failures ------------------------------------------------------------------------------------------ */

static enum td_code code_of(CURLcode code, const char *text)
{
    switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
        return TD_PERMISSION_DENIED;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS:
        return TD_FAILED_PRECONDITION;
    case CURLE_OUT_OF_MEMORY:
        return TD_RESOURCE_EXHAUSTED;
    default: /* a server sends an alert to refuse a wrong or missing certificate */
        return strstr(text, " alert ") != NULL ? TD_PERMISSION_DENIED : TD_UNAVAILABLE;
    }
}

/* Returns whether libcurl has ended the request because a header line has more than 100 KB. Versions up to 8.6 report
 * that as "out of memory"; after the answer has begun, this code is taken to mean the long line. */
static bool is_endless_line(CURL *easy, CURLcode code)
{
    curl_off_t began_us = 0;
    return code == CURLE_OUT_OF_MEMORY &&
           curl_easy_getinfo(easy, CURLINFO_STARTTRANSFER_TIME_T, &began_us) == CURLE_OK && began_us > 0;
}

bool td_fetch_fault_of_code(void *easy, int code, const char *text, const char *what, struct td_error *err)
{
    CURLcode curl = (CURLcode)code;
    if (is_endless_line(easy, curl))
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s: a line in the header of the answer is too long", what);
    const char *why = text[0] != '\0' ? text : curl_easy_strerror(curl);
    if (curl == CURLE_SSL_CONNECT_ERROR && strstr(text, "wrong version number") != NULL)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s: this port does not speak TLS: use http://", what);
    return td_error_set(err, code_of(curl, text), "%s: %s", what, why);
}

bool td_fetch_fault_may_pass(const struct td_fetch_answer *answer)
{
    unsigned status = answer->status;
    if (status == 507)
        return answer->retry_after_s > 0;
    return status >= 500 || status == 408 || status == 425 || status == 429;
}

static enum td_code code_of_answer(const struct td_fetch_answer *answer)
{
    unsigned status = answer->status;
    if (td_fetch_fault_may_pass(answer))
        return TD_UNAVAILABLE;
    if (status == 401 || status == 403)
        return TD_PERMISSION_DENIED;
    if (status == 507)
        return TD_RESOURCE_EXHAUSTED;
    return status == 404 || status == 410 ? TD_NOT_FOUND : TD_FAILED_PRECONDITION;
}

bool td_fetch_fault_of_answer(const struct td_fetch_answer *answer, const char *advice, const char *what,
                              struct td_error *err)
{
    if (advice == NULL && answer->status == 401)
        advice = "a token is needed: none that may read it was given";
    struct td_error why = TD_ERROR_INIT;
    (void)td_error_set(&why, code_of_answer(answer), "%s: the server answered %u%s%s%s%s%s", what, answer->status,
                       advice != NULL ? " (" : "", advice != NULL ? advice : "", advice != NULL ? ")" : "",
                       answer->message[0] != '\0' ? ", " : "", answer->message);
    why.sys = why.code == TD_RESOURCE_EXHAUSTED ? EFBIG : 0;
    return td_error_copy(err, &why);
}

bool td_fetch_fault_never_fits(const struct td_error *why)
{
    return why->sys == EFBIG;
}
