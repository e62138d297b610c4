/* Plan: td_sigv4_parse finds out where the signature stands, takes it apart into td_sigv4, and then checks what can be
 * checked without the secret key, each rule in a function of its own. td_sigv4_verify writes the canonical request
 * (sigv4_canonical.h), hashes it into the string to sign, and signs that by a key derived from secret key and scope.
 *
 * What is hard: clients show their users S3's code and message and nothing else, so that each mistake has to have the
 * code that S3 gives it, and a message that says what to do. */
#include "http/auth/sigv4.h"

#include "core/buffer.h"
#include "core/digest.h"
#include "core/digits.h"
#include "http/auth/sigv4_canonical.h"
#include "http/http_date.h"
#include "http/uri.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ALGORITHM "AWS4-HMAC-SHA256"
#define UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

enum { SIGNATURE_CHARS = 2 * TD_SHA256_BYTES, SECRET_KEY_BYTES = 128 };

static const struct {
    int status;
    const char *code;
} faults[] = {
    [TD_SIGV4_ACCESS_DENIED] = {403, "AccessDenied"},
    [TD_SIGV4_BAD_HEADER] = {400, "AuthorizationHeaderMalformed"},
    [TD_SIGV4_BAD_QUERY] = {400, "AuthorizationQueryParametersError"},
    [TD_SIGV4_BAD_DIGEST] = {400, "XAmzContentSHA256Mismatch"},
    [TD_SIGV4_INVALID_ARGUMENT] = {400, "InvalidArgument"},
    [TD_SIGV4_INVALID_KEY] = {403, "InvalidAccessKeyId"},
    [TD_SIGV4_INVALID_REQUEST] = {400, "InvalidRequest"},
    [TD_SIGV4_INVALID_TOKEN] = {400, "InvalidToken"},
    [TD_SIGV4_MISMATCH] = {403, "SignatureDoesNotMatch"},
    [TD_SIGV4_MISSING_HEADER] = {400, "MissingSecurityHeader"},
    [TD_SIGV4_NO_MEMORY] = {503, "ServiceUnavailable"},
    [TD_SIGV4_NOT_IMPLEMENTED] = {501, "NotImplemented"},
    [TD_SIGV4_SKEWED] = {403, "RequestTimeTooSkewed"},
};

int td_sigv4_status(enum td_sigv4_fault fault)
{
    return faults[fault].status;
}

const char *td_sigv4_code(enum td_sigv4_fault fault)
{
    return faults[fault].code;
}

/* Always returns false. */
static bool refuse_signature(struct td_sigv4_refusal *refusal, enum td_sigv4_fault fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool refuse_signature(struct td_sigv4_refusal *refusal, enum td_sigv4_fault fault, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    refusal->fault = fault;
    (void)vsnprintf(refusal->message, sizeof refusal->message, format, args);
    va_end(args);
    return false;
}

/* Returns the fault of a malformed signature, which depends on where the signature stands. */
static enum td_sigv4_fault malformed(const struct td_sigv4 *signature)
{
    return signature->is_presigned ? TD_SIGV4_BAD_QUERY : TD_SIGV4_BAD_HEADER;
}

/* ---- where the signature stands ------------------------------------------------------------------------ */

/* Returns how often the query has the parameter, and sets *value, which is not decoded, to the last one's. */
static size_t find_parameter(const struct td_request *request, const char *name, struct td_text *value)
{
    struct td_text query = td_uri_raw_query(request->target);
    size_t count = 0;
    *value = TD_TEXT("");
    while (query.len > 0) {
        struct td_text rest = td_text_take_until(&query, '&');
        if (!td_text_equals(td_text_take_until(&rest, '='), name))
            continue;
        *value = rest;
        count++;
    }
    return count;
}

static bool has_parameter(const struct td_request *request, const char *name)
{
    struct td_text value;
    return find_parameter(request, name, &value) > 0;
}

static bool refuse_version_2(struct td_sigv4_refusal *refusal)
{
    return refuse_signature(
        refusal, TD_SIGV4_INVALID_REQUEST,
        "The authorization mechanism you have provided is not supported. Please use " ALGORITHM
        " (signature version 4): boto3 with Config(signature_version=\"s3v4\"), aws after aws configure set "
        "default.s3.signature_version s3v4");
}

/* Decides between the header and the query. Refuses requests with both, with neither, or with a session token. */
static bool find_place(const struct td_request *request, struct td_sigv4 *out, struct td_sigv4_refusal *refusal)
{
    bool in_header = td_request_has_header(request, "Authorization");
    bool is_version_2 = has_parameter(request, "AWSAccessKeyId") || has_parameter(request, "Signature");
    out->is_presigned = has_parameter(request, "X-Amz-Algorithm") || has_parameter(request, "X-Amz-Credential") ||
                        has_parameter(request, "X-Amz-Signature");
    if (in_header + is_version_2 + out->is_presigned > 1)
        return refuse_signature(
            refusal, TD_SIGV4_INVALID_ARGUMENT,
            "Only one auth mechanism allowed: the Authorization header or the X-Amz-Signature parameter");
    if (is_version_2)
        return refuse_version_2(refusal);
    if (!in_header && !out->is_presigned)
        return refuse_signature(
            refusal, TD_SIGV4_ACCESS_DENIED,
            "Access Denied: the request is not signed; give the client a token's access key and secret key");
    if (td_request_has_header(request, "X-Amz-Security-Token") || has_parameter(request, "X-Amz-Security-Token"))
        return refuse_signature(
            refusal, TD_SIGV4_INVALID_TOKEN,
            "The provided token is malformed or otherwise invalid: there are no session tokens here "
            "(AWS_SESSION_TOKEN)");
    return true;
}

/* Takes KEY/DATE/REGION/s3/aws4_request apart. */
static bool read_credential(struct td_text credential, struct td_sigv4 *out, struct td_sigv4_refusal *refusal)
{
    struct td_text key = credential;
    struct td_text terminal = td_text_take_last(&key, '/');
    struct td_text service = td_text_take_last(&key, '/');
    out->region = td_text_take_last(&key, '/');
    out->date = td_text_take_last(&key, '/');
    out->access_key = key;
    if (key.len == 0)
        return refuse_signature(refusal, malformed(out),
                                "Error parsing the credential; it must be \"ACCESS_KEY/DATE/REGION/s3/aws4_request\"");
    if (!td_text_equals(service, "s3"))
        return refuse_signature(
            refusal, malformed(out),
            "Error parsing the credential; incorrect service \"%.*s\". This endpoint belongs to \"s3\"",
            TD_SHOW(service, 32));
    if (!td_text_equals(terminal, "aws4_request"))
        return refuse_signature(
            refusal, malformed(out),
            "Error parsing the credential; incorrect terminal \"%.*s\". This endpoint uses \"aws4_request\"",
            TD_SHOW(terminal, 32));
    out->scope = td_text_skip(credential, key.len + 1);
    if (out->scope.len > TD_SIGV4_SCOPE_BYTES)
        return refuse_signature(refusal, malformed(out), "Error parsing the credential; the region is too long");
    return true;
}

/* Refuses algorithms that are not served. */
static bool check_algorithm(struct td_text algorithm, const struct td_sigv4 *out, struct td_sigv4_refusal *refusal)
{
    if (td_text_equals(algorithm, ALGORITHM))
        return true;
    if (td_text_equals(algorithm, "AWS") || td_text_begins(algorithm, TD_TEXT("AWS4-")))
        return refuse_version_2(refusal);
    if (td_text_equals_ignore_case(algorithm, "Bearer"))
        return refuse_signature(
            refusal, TD_SIGV4_INVALID_ARGUMENT,
            "Unsupported Authorization Type: this port is for S3 clients, which need a token's access key "
            "and secret key; a token itself, and HF_ENDPOINT, want the main port, that of --listen");
    return refuse_signature(
        refusal, out->is_presigned ? TD_SIGV4_BAD_QUERY : TD_SIGV4_INVALID_ARGUMENT,
        "Unsupported Authorization Type: S3 clients need a token's access key and secret key, and sign "
        "by " ALGORITHM);
}

/* ---- the header ---------------------------------------------------------------------------------------- */

/* Reads the list "Credential=..., SignedHeaders=..., Signature=...", where each part must occur once. */
static bool read_components(struct td_text list, struct td_text *credential, struct td_sigv4 *out)
{
    const struct {
        const char *name;
        struct td_text *value;
    } components[] = {
        {"Credential", credential},
        {"SignedHeaders", &out->signed_headers},
        {"Signature", &out->signature},
    };
    unsigned seen = 0;
    while (list.len > 0) {
        struct td_text value = td_text_trim(td_text_take_until(&list, ','), " \t");
        struct td_text name = td_text_take_until(&value, '=');
        size_t i = 0;
        while (i < 3 && !td_text_equals(name, components[i].name))
            i++;
        if (i == 3 || (seen & 1U << i) != 0)
            return false;
        *components[i].value = value;
        seen |= 1U << i;
    }
    return seen == 7;
}

/* Sets the time from X-Amz-Date or Date, in the form of X-Amz-Date. */
static bool read_header_time(const struct td_request *request, struct td_sigv4 *out, struct td_sigv4_refusal *refusal)
{
    const struct td_header *header = td_request_single_header(request, "X-Amz-Date");
    int64_t seconds;
    struct tm tm;
    if (header == NULL)
        header = td_request_single_header(request, "Date");
    if (header != NULL && header->value.len == sizeof out->time - 1) {
        memcpy(out->time, header->value.p, sizeof out->time - 1);
        out->time[sizeof out->time - 1] = '\0';
        return true;
    }
    time_t time_s = header != NULL && td_http_date_parse(header->value, &seconds) ? (time_t)seconds : -1;
    if (time_s >= 0 && gmtime_r(&time_s, &tm) != NULL &&
        strftime(out->time, sizeof out->time, "%Y%m%dT%H%M%SZ", &tm) == sizeof out->time - 1)
        return true;
    return refuse_signature(refusal, TD_SIGV4_ACCESS_DENIED,
                            "AWS authentication requires a valid Date or x-amz-date header");
}

static bool read_header(const struct td_request *request, struct td_sigv4 *out, struct td_sigv4_refusal *refusal)
{
    const struct td_header *header = td_request_single_header(request, "Authorization");
    const struct td_header *payload = td_request_single_header(request, "X-Amz-Content-SHA256");
    struct td_text credential;
    if (header == NULL)
        return refuse_signature(refusal, TD_SIGV4_INVALID_ARGUMENT, "There must be one Authorization header");
    struct td_text list = header->value;
    struct td_text algorithm = td_text_take_until(&list, ' ');
    if (!check_algorithm(algorithm, out, refusal))
        return false;
    if (!read_components(list, &credential, out))
        return refuse_signature(refusal, TD_SIGV4_BAD_HEADER,
                                "The authorization header is malformed; it must be \"" ALGORITHM
                                " Credential=..., SignedHeaders=..., Signature=...\"");
    if (payload == NULL)
        return refuse_signature(refusal, TD_SIGV4_MISSING_HEADER,
                                "Missing required header for this request: x-amz-content-sha256");
    out->payload = payload->value;
    return read_credential(credential, out, refusal) && read_header_time(request, out, refusal);
}

/* ---- the query ----------------------------------------------------------------------------------------- */

/* Decodes a parameter of a presigned URL into out->memory. Returns false when it is not there exactly once, cannot be
 * decoded, or is too long. */
static bool take_parameter(const struct td_request *request, const char *name, struct td_sigv4 *out,
                           struct td_text *value)
{
    struct td_text raw;
    char *room = out->memory + out->used;
    size_t len;
    if (find_parameter(request, name, &raw) != 1 || raw.len > sizeof out->memory - out->used ||
        !td_uri_decode(raw, true, TD_URI_TARGET, room, &len, NULL))
        return false;
    *value = td_text_n(room, len);
    out->used += len;
    return true;
}

static bool read_expires(struct td_text text, uint64_t *expires_s, struct td_sigv4_refusal *refusal)
{
    if (td_number_read(text, TD_SIGV4_MOST_EXPIRES_S, expires_s) && *expires_s > 0)
        return true;
    return refuse_signature(refusal, TD_SIGV4_BAD_QUERY,
                            "X-Amz-Expires must be a number from 1 to %d (a week), in seconds",
                            TD_SIGV4_MOST_EXPIRES_S);
}

/* Finds the text that stands for the body's digest; presigned URLs may lack it. */
static bool read_query_payload(const struct td_request *request, struct td_sigv4 *out)
{
    const struct td_header *header = td_request_single_header(request, "X-Amz-Content-SHA256");
    out->payload = header != NULL ? header->value : TD_TEXT(UNSIGNED_PAYLOAD);
    return header != NULL || !has_parameter(request, "X-Amz-Content-Sha256") ||
           take_parameter(request, "X-Amz-Content-Sha256", out, &out->payload);
}

static bool read_query(const struct td_request *request, struct td_sigv4 *out, uint64_t *expires_s,
                       struct td_sigv4_refusal *refusal)
{
    struct td_text algorithm, credential, time, expires;
    out->used = 0;
    if (!take_parameter(request, "X-Amz-Algorithm", out, &algorithm) ||
        !take_parameter(request, "X-Amz-Credential", out, &credential) ||
        !take_parameter(request, "X-Amz-Date", out, &time) ||
        !take_parameter(request, "X-Amz-Expires", out, &expires) ||
        !take_parameter(request, "X-Amz-SignedHeaders", out, &out->signed_headers) ||
        !take_parameter(request, "X-Amz-Signature", out, &out->signature) || !read_query_payload(request, out))
        return refuse_signature(
            refusal, TD_SIGV4_BAD_QUERY,
            "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, "
            "X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters, each once");
    if (time.len != sizeof out->time - 1)
        return refuse_signature(refusal, TD_SIGV4_BAD_QUERY,
                                "X-Amz-Date must be in the ISO8601 format \"yyyyMMdd'T'HHmmss'Z'\"");
    memcpy(out->time, time.p, sizeof out->time - 1);
    out->time[sizeof out->time - 1] = '\0';
    return check_algorithm(algorithm, out, refusal) && read_credential(credential, out, refusal) &&
           read_expires(expires, expires_s, refusal);
}

/* ---- rules --------------------------------------------------------------------------------------------- */

/* Reads "20130524T000000Z". Returns false for any other form and for times that no calendar has. */
static bool read_time(const char text[17], int64_t *seconds)
{
    struct tm tm = {0};
    char again[17];
    const char *end = strptime(text, "%Y%m%dT%H%M%SZ", &tm);
    if (end == NULL || *end != '\0')
        return false;
    time_t time_s = timegm(&tm);
    if (gmtime_r(&time_s, &tm) == NULL || strftime(again, sizeof again, "%Y%m%dT%H%M%SZ", &tm) != sizeof again - 1 ||
        strcmp(text, again) != 0)
        return false;
    *seconds = time_s;
    return true;
}

/* Checks the time of the signature, and that the scope has its date. */
static bool check_time(const struct td_sigv4 *signature, uint64_t expires_s, int64_t now_s,
                       struct td_sigv4_refusal *refusal)
{
    int64_t time_s;
    if (!read_time(signature->time, &time_s))
        return refuse_signature(refusal, signature->is_presigned ? TD_SIGV4_BAD_QUERY : TD_SIGV4_ACCESS_DENIED,
                                "X-Amz-Date must be in the ISO8601 format \"yyyyMMdd'T'HHmmss'Z'\"");
    if (signature->date.len != 8 || memcmp(signature->date.p, signature->time, 8) != 0)
        return refuse_signature(refusal, malformed(signature),
                                "Invalid credential date \"%.*s\". This date is not the same as X-Amz-Date: \"%.8s\"",
                                TD_SHOW(signature->date, 32), signature->time);
    if (signature->is_presigned) {
        if (time_s - now_s > TD_SIGV4_SKEW_S)
            return refuse_signature(refusal, TD_SIGV4_ACCESS_DENIED, "Request is not valid yet: it begins at %s",
                                    signature->time);
        if (now_s - time_s > (int64_t)expires_s)
            return refuse_signature(refusal, TD_SIGV4_ACCESS_DENIED,
                                    "Request has expired: it was valid for %" PRIu64 " s from %s on", expires_s,
                                    signature->time);
        return true;
    }
    if (time_s - now_s > TD_SIGV4_SKEW_S || now_s - time_s > TD_SIGV4_SKEW_S)
        return refuse_signature(
            refusal, TD_SIGV4_SKEWED,
            "The difference between the request time and the server's time is too large: the request's is "
            "%s, %" PRId64 " s %s; the most is %d s",
            signature->time, time_s > now_s ? time_s - now_s : now_s - time_s, time_s > now_s ? "ahead" : "behind",
            TD_SIGV4_SKEW_S);
    return true;
}

/* Returns whether the list has names in lower case, sorted, each once. */
static bool is_list_of_headers(struct td_text names)
{
    struct td_text last = TD_TEXT("");
    if (names.len == 0)
        return false;
    while (names.len > 0) {
        struct td_text name = td_text_take_until(&names, ';');
        for (size_t i = 0; i < name.len; i++)
            if (name.p[i] >= 'A' && name.p[i] <= 'Z')
                return false;
        if (td_text_compare(last, name) >= 0)
            return false;
        last = name;
    }
    return true;
}

static bool is_signed(struct td_text signed_headers, struct td_text name)
{
    while (signed_headers.len > 0)
        if (td_sigv4_same_name(td_text_take_until(&signed_headers, ';'), name))
            return true;
    return false;
}

/* Checks that the fields are signed which must be. */
static bool check_signed_headers(const struct td_request *request, const struct td_sigv4 *signature,
                                 struct td_sigv4_refusal *refusal)
{
    if (!is_list_of_headers(signature->signed_headers))
        return refuse_signature(refusal, malformed(signature),
                                "SignedHeaders must be names in lower case, sorted and separated by ';'");
    if (!is_signed(signature->signed_headers, TD_TEXT("host")))
        return refuse_signature(refusal, TD_SIGV4_ACCESS_DENIED,
                                "There were headers present in the request which were not signed: host");
    for (size_t i = 0; i < request->header_count; i++) {
        struct td_text name = request->headers[i].name;
        if (!td_text_begins_ignore_case(name, "X-Amz-") || td_text_equals_ignore_case(name, "X-Amz-Cf-Id") ||
            is_signed(signature->signed_headers, name))
            continue;
        return refuse_signature(refusal, TD_SIGV4_ACCESS_DENIED,
                                "There were headers present in the request which were not signed: %.*s",
                                TD_SHOW(name, 64));
    }
    return true;
}

bool td_sigv4_read_payload(struct td_text payload, enum td_sigv4_payload *out, uint8_t sha256[TD_SHA256_BYTES],
                           struct td_sigv4_refusal *refusal)
{
    static const struct {
        const char *text;
        enum td_sigv4_payload payload;
    } words[] = {
        {"", TD_SIGV4_UNSIGNED},
        {UNSIGNED_PAYLOAD, TD_SIGV4_UNSIGNED},
        {"STREAMING-UNSIGNED-PAYLOAD-TRAILER", TD_SIGV4_UNSIGNED_TRAILER},
        {"STREAMING-" ALGORITHM "-PAYLOAD", TD_SIGV4_CHUNKS},
        {"STREAMING-" ALGORITHM "-PAYLOAD-TRAILER", TD_SIGV4_CHUNKS_TRAILER},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!td_text_equals(payload, words[i].text))
            continue;
        *out = words[i].payload;
        return true;
    }
    *out = TD_SIGV4_DIGEST;
    if (td_hex_read_bytes(payload, sha256, TD_SHA256_BYTES))
        return true;
    if (td_text_begins(payload, TD_TEXT("STREAMING-")))
        return refuse_signature(refusal, TD_SIGV4_NOT_IMPLEMENTED,
                                "A header you provided implies functionality that is not implemented: "
                                "x-amz-content-sha256 of chunks that are signed in another way than by " ALGORITHM);
    return refuse_signature(refusal, TD_SIGV4_INVALID_ARGUMENT,
                            "x-amz-content-sha256 must be " UNSIGNED_PAYLOAD
                            ", STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-" ALGORITHM
                            "-PAYLOAD or a valid sha256 value");
}

/* Checks what stands for the digest of the body, which is empty if the method reads. */
static bool check_payload(const struct td_request *request, struct td_text payload, struct td_sigv4_refusal *refusal)
{
    enum td_sigv4_payload kind;
    uint8_t sha256[TD_SHA256_BYTES];
    if (!td_sigv4_read_payload(payload, &kind, sha256, refusal))
        return false;
    bool reads = td_text_equals(request->method, "GET") || td_text_equals(request->method, "HEAD");
    if (!reads || kind == TD_SIGV4_UNSIGNED || td_text_equals(payload, EMPTY_SHA256))
        return true;
    if (kind != TD_SIGV4_DIGEST)
        return refuse_signature(
            refusal, TD_SIGV4_NOT_IMPLEMENTED,
            "A header you provided implies functionality that is not implemented: x-amz-content-sha256 of a "
            "body in signed chunks, for a request that reads");
    return refuse_signature(
        refusal, TD_SIGV4_BAD_DIGEST,
        "The provided 'x-amz-content-sha256' header does not match what was computed: the body is empty");
}

bool td_sigv4_parse(const struct td_request *request, int64_t now_s, struct td_sigv4 *out,
                    struct td_sigv4_refusal *refusal)
{
    uint64_t expires_s = 0;
    return find_place(request, out, refusal) &&
           (out->is_presigned ? read_query(request, out, &expires_s, refusal) : read_header(request, out, refusal)) &&
           check_signed_headers(request, out, refusal) && check_payload(request, out->payload, refusal) &&
           check_time(out, expires_s, now_s, refusal);
}

/* ---- the signature ------------------------------------------------------------------------------------- */

/* (task 3) */
void td_sigv4_signing_key(const struct td_sigv4 *signature, struct td_text secret_key, uint8_t key[TD_SHA256_BYTES])
{
    char first[4 + SECRET_KEY_BYTES] = "AWS4";
    memcpy(first + 4, secret_key.p, secret_key.len);
    td_hmac_sha256(first, 4 + secret_key.len, signature->date.p, signature->date.len, key);
    td_hmac_sha256(key, TD_SHA256_BYTES, signature->region.p, signature->region.len, key);
    td_hmac_sha256(key, TD_SHA256_BYTES, "s3", 2, key);
    td_hmac_sha256(key, TD_SHA256_BYTES, "aws4_request", 12, key);
    OPENSSL_cleanse(first, sizeof first);
}

/* Writes the signature of a canonical request (tasks 2 and 3), in lower-case hexadecimal digits and a NUL. */
static void sign_canonical(const struct td_sigv4 *signature, struct td_text canonical, struct td_text secret_key,
                           char text[SIGNATURE_CHARS + 1])
{
    char string[sizeof ALGORITHM + sizeof signature->time + TD_SIGV4_SCOPE_BYTES + SIGNATURE_CHARS + 8];
    char digest[SIGNATURE_CHARS + 1];
    uint8_t sum[TD_SHA256_BYTES];
    uint8_t key[TD_SHA256_BYTES];
    td_sha256(canonical.p, canonical.len, sum);
    td_hex_write(sum, sizeof sum, digest);
    int len = snprintf(string, sizeof string, ALGORITHM "\n%s\n%.*s\n%s", signature->time, (int)signature->scope.len,
                       signature->scope.p, digest);
    td_sigv4_signing_key(signature, secret_key, key);
    td_hmac_sha256(key, sizeof key, string, (size_t)len, sum);
    td_hex_write(sum, sizeof sum, text);
    OPENSSL_cleanse(key, sizeof key);
}

bool td_sigv4_verify(const struct td_sigv4 *signature, const struct td_request *request, struct td_text secret_key,
                     struct td_sigv4_refusal *refusal)
{
    struct td_buffer canonical;
    struct td_text missing;
    char right[SIGNATURE_CHARS + 1] = "";
    td_buffer_init(&canonical);
    bool ok = td_sigv4_write_canonical(request, signature->signed_headers, signature->payload, &canonical, &missing);
    bool has_memory = !canonical.failed;
    if (ok && has_memory && secret_key.len <= SECRET_KEY_BYTES)
        sign_canonical(signature, td_buffer_text(&canonical), secret_key, right);
    td_buffer_fini(&canonical);
    if (!has_memory)
        return refuse_signature(refusal, TD_SIGV4_NO_MEMORY, "out of memory");
    if (!ok && missing.len > 0)
        return refuse_signature(
            refusal, TD_SIGV4_MISMATCH,
            "The signature covers the header %.*s, which did not arrive; a proxy may have taken it out",
            TD_SHOW(missing, 64));
    if (!ok)
        return refuse_signature(refusal, TD_SIGV4_INVALID_ARGUMENT, "A signed request has at most %d query parameters",
                                TD_SIGV4_PARAMETERS);
    if (right[0] != '\0' && signature->signature.len == SIGNATURE_CHARS &&
        CRYPTO_memcmp(right, signature->signature.p, SIGNATURE_CHARS) == 0)
        return true;
    return refuse_signature(
        refusal, TD_SIGV4_MISMATCH,
        "The request signature we calculated does not match the signature you provided. Check your key and "
        "signing method; a proxy in front must pass path and Host on unchanged");
}

bool td_sigv4_refuse_key(const struct td_sigv4 *signature, struct td_sigv4_refusal *refusal)
{
    return refuse_signature(
        refusal, TD_SIGV4_INVALID_KEY,
        "The AWS Access Key Id you provided (%.*s) does not exist in our records, or its token has expired",
        TD_SHOW(signature->access_key, 64));
}
