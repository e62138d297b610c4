/* The client describes its body in header fields, in the signature's X-Amz-Content-SHA256, and in the trailer of an
 * aws-chunked body. All of it is checked before the content counts; what cannot be checked is refused.
 *
 * The SHA-256 of a stream is computed by the stream, on a thread of its own. So no second one is computed for it here,
 * and td_s3_sink_end_stream compares. */
#include "api/s3/s3_sink.h"

#include "api/call/publishing.h"
#include "core/clock.h"
#include "core/digits.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_FACTOR = 4 /* memory that a text and what is read from it take, in times of its bytes */ };

static struct td_s3_sink *of(struct td_body_sink *sink)
{
    return (struct td_s3_sink *)(void *)sink;
}

struct td_s3_sink *td_s3_sink_of(const struct td_call *call)
{
    return of(call->request->sink);
}

/* ---- the body ------------------------------------------------------------------------------------------ */

static bool add_text(struct td_s3_sink *self, const char *bytes, size_t len)
{
    if (len > self->most_text_bytes - self->text.len) {
        self->is_too_long = true;
        return false;
    }
    size_t more = len * TEXT_FACTOR;
    if (!td_budget_take(self->budget, more))
        return td_budget_refuse(self->budget, more, &self->err);
    self->taken_bytes += more;
    td_buffer_append(&self->text, bytes, len);
    return !self->text.failed || td_buffer_refuse(&self->text, &self->err);
}

/* Takes decoded content. For td_aws_chunked_write. */
static bool take_content(void *context, const char *bytes, size_t len)
{
    struct td_s3_sink *self = context;
    td_digest_add_content(self->digest, bytes, len);
    td_s3_checksums_write(&self->checksums, bytes, len);
    if (self->stream != NULL)
        return td_publish_stream_write(self->stream, bytes, len, &self->err);
    return self->part != NULL ? td_part_write(self->part, bytes, len, &self->err) : add_text(self, bytes, len);
}

static bool is_chunked(const struct td_s3_sink *self)
{
    return self->payload == TD_SIGV4_UNSIGNED_TRAILER || self->payload == TD_SIGV4_CHUNKS ||
           self->payload == TD_SIGV4_CHUNKS_TRAILER;
}

static bool write_sink(struct td_body_sink *sink, const void *bytes, size_t len)
{
    struct td_s3_sink *self = of(sink);
    return is_chunked(self) ? td_aws_chunked_write(&self->decoder, bytes, len, take_content, self)
                            : take_content(self, bytes, len);
}

static void release_sink(struct td_body_sink *sink)
{
    struct td_s3_sink *self = of(sink);
    uint8_t sum[TD_SHA256_BYTES];
    td_publish_stream_abandon(self->stream);
    td_part_abandon(self->part);
    (void)td_digest_finish_binary(self->digest, sum);
    td_aws_chunked_fini(&self->decoder);
    td_s3_checksums_fini(&self->checksums);
    td_buffer_fini(&self->text);
    if (self->budget != NULL)
        td_budget_give(self->budget, self->taken_bytes);
    if (self->has_chain)
        td_sigv4_chain_end(&self->chain);
    free(self);
}

static const struct td_body_sink_ops ops = {.write = write_sink, .release = release_sink};

/* ---- header fields ------------------------------------------------------------------------------------- */

/* Always returns false. */
static bool fail_as(const struct td_call *call, int status, const char *code, const char *message)
{
    td_response_fail_as(call->response, status, code, "%s", message);
    return false;
}

/* Always returns false. */
static bool refuse_algorithm(const struct td_call *call, struct td_text name)
{
    td_response_fail_as(call->response, 400, "InvalidRequest",
                        "The checksum %.*s is not implemented; CRC32, CRC32C, CRC64NVME, SHA1, SHA256, SHA512 and MD5 "
                        "are",
                        TD_SHOW(name, 64));
    return false;
}

/* Computes and expects the sum that a field has. Returns false after it answered. */
static bool take_sum(const struct td_call *call, struct td_s3_sink *self, enum td_s3_algorithm algorithm,
                     struct td_text name, struct td_text value)
{
    if (algorithm == TD_S3_NO_ALGORITHM)
        return refuse_algorithm(call, name);
    if (self->checksums.is_expected[algorithm]) {
        td_response_fail_as(call->response, 400, "InvalidRequest", "The request has %s twice",
                            td_s3_algorithm_field(algorithm));
        return false;
    }
    if (!td_s3_checksums_add(&self->checksums, algorithm))
        return td_call_no_memory(call);
    if (!td_s3_checksums_expect(&self->checksums, algorithm, value)) {
        bool is_md5 = algorithm == TD_S3_CONTENT_MD5;
        td_response_fail_as(call->response, 400, is_md5 ? "InvalidDigest" : "InvalidRequest",
                            "Value for %s is invalid: it is not the base64 of %zu bytes",
                            td_s3_algorithm_field(algorithm), td_s3_sum_bytes(algorithm));
        return false;
    }
    if (algorithm != TD_S3_CONTENT_MD5)
        self->echoed = algorithm;
    return true;
}

/* Computes the checksums that the header names, in fields and in the announcement of a trailer. */
static bool read_sums(const struct td_call *call, struct td_s3_sink *self, bool is_document)
{
    const struct td_request *request = call->request;
    enum td_s3_algorithm algorithm;
    for (size_t i = 0; i < request->header_count; i++) {
        const struct td_header *header = &request->headers[i];
        if (td_s3_is_checksum_field(header->name, &algorithm) && (!is_document || algorithm == TD_S3_CONTENT_MD5) &&
            !take_sum(call, self, algorithm, header->name, header->value))
            return false;
    }
    const struct td_header *trailer = td_request_single_header(request, "x-amz-trailer");
    struct td_text names = trailer == NULL ? TD_TEXT("") : trailer->value;
    while (names.len > 0) {
        struct td_text name = td_text_trim(td_text_take_until(&names, ','), " \t");
        if (!td_s3_is_checksum_field(name, &algorithm))
            return fail_as(call, 400, "InvalidRequest", "x-amz-trailer must name checksums, and none else is known");
        if (algorithm == TD_S3_NO_ALGORITHM)
            return refuse_algorithm(call, name);
        if (!td_s3_checksums_add(&self->checksums, algorithm))
            return td_call_no_memory(call);
    }
    return true;
}

/* Checks that the request has the sum that x-amz-sdk-checksum-algorithm names, if it names one. */
static bool check_announced_sum(const struct td_call *call, const struct td_s3_sink *self)
{
    const struct td_header *name = td_request_single_header(call->request, "x-amz-sdk-checksum-algorithm");
    if (name == NULL)
        return true;
    enum td_s3_algorithm algorithm = td_s3_algorithm_named(name->value);
    if (algorithm == TD_S3_NO_ALGORITHM)
        return refuse_algorithm(call, name->value);
    return self->checksums.computes[algorithm] ||
           fail_as(call, 400, "InvalidRequest",
                   "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer "
                   "headers were found.");
}

bool td_s3_check_fields(const struct td_call *call)
{
    static const char *const refused[] = {"x-amz-server-side-encryption", "x-amz-tagging", "x-amz-object-lock-",
                                          "x-amz-write-offset-bytes", "x-amz-copy-source-server-side-encryption"};
    for (size_t i = 0; i < call->request->header_count; i++) {
        struct td_text name = call->request->headers[i].name;
        for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
            if (!td_text_begins_ignore_case(name, refused[k]))
                continue;
            td_response_fail_as(call->response, 501, "NotImplemented",
                                "A header you provided implies functionality that is not implemented: %.*s",
                                TD_SHOW(name, 64));
            return false;
        }
    }
    return true;
}

/* Sets what stands for the body's digest. Without signatures the field counts, too: it says how the body is coded. */
static bool read_payload(const struct td_call *call, struct td_s3_sink *self)
{
    struct td_sigv4_refusal refusal;
    const struct td_header *header = td_request_single_header(call->request, "X-Amz-Content-SHA256");
    const struct td_text *parameter = td_uri_parameter(call->uri, "X-Amz-Content-Sha256");
    struct td_text text = header != NULL ? header->value : parameter != NULL ? *parameter : TD_TEXT("");
    if (td_sigv4_read_payload(text, &self->payload, self->sha256, &refusal))
        return true;
    return fail_as(call, td_sigv4_status(refusal.fault), td_sigv4_code(refusal.fault), refusal.message);
}

/* Begins the chain of the chunks' signatures, which the request's own begins. Without tokens nothing is checked. */
static bool begin_chain(const struct td_call *call, struct td_s3_sink *self)
{
    struct td_sigv4 signature;
    struct td_sigv4_refusal refusal;
    char secret_key[TD_S3_SECRET_BYTES];
    if (call->caller.token == NULL || self->payload == TD_SIGV4_UNSIGNED_TRAILER)
        return true;
    if (!td_sigv4_parse(call->request, td_wall_now().seconds, &signature, &refusal))
        return fail_as(call, td_sigv4_status(refusal.fault), td_sigv4_code(refusal.fault), refusal.message);
    td_token_s3_secret(call->caller.tokens, call->caller.token, secret_key);
    td_sigv4_chain_begin(&self->chain, &signature, td_text_of(secret_key));
    OPENSSL_cleanse(secret_key, sizeof secret_key);
    self->has_chain = true;
    return true;
}

/* Sets the length of the content, and begins the decoder of a chunked one. */
static bool begin_content(const struct td_call *call, struct td_s3_sink *self)
{
    const struct td_header *length = td_request_single_header(call->request, "x-amz-decoded-content-length");
    if (!is_chunked(self)) {
        self->content_bytes = call->request->body_bytes;
        return self->content_bytes != TD_BODY_LENGTH_UNKNOWN ||
               fail_as(call, 411, "MissingContentLength", "You must provide the Content-Length HTTP header");
    }
    if (length == NULL)
        return fail_as(call, 411, "MissingContentLength",
                       "You must provide the x-amz-decoded-content-length HTTP header");
    if (!td_number_read(length->value, INT64_MAX, &self->content_bytes))
        return fail_as(call, 400, "InvalidArgument", "x-amz-decoded-content-length must be a number");
    if (!begin_chain(call, self))
        return false;
    td_aws_chunked_begin(&self->decoder, self->payload != TD_SIGV4_UNSIGNED_TRAILER, self->payload != TD_SIGV4_CHUNKS,
                         self->has_chain ? &self->chain : NULL, self->content_bytes);
    return true;
}

/* Makes a sink; is_document: the checksums of the header are not those of the body. */
static struct td_s3_sink *make_sink(const struct td_call *call, bool is_document,
                                    enum td_s3_algorithm default_algorithm)
{
    struct td_s3_sink *self = calloc(1, sizeof *self);
    if (self == NULL) {
        (void)td_call_no_memory(call);
        return NULL;
    }
    self->sink.ops = &ops;
    self->echoed = TD_S3_NO_ALGORITHM;
    td_error_init(&self->err);
    td_buffer_init(&self->text);
    td_s3_checksums_init(&self->checksums);
    bool ok = td_s3_check_fields(call) && read_payload(call, self) && read_sums(call, self, is_document) &&
              (is_document || check_announced_sum(call, self)) && begin_content(call, self);
    if (ok && default_algorithm != TD_S3_NO_ALGORITHM && !td_s3_checksums_add(&self->checksums, default_algorithm))
        ok = td_call_no_memory(call);
    if (ok)
        return self;
    release_sink(&self->sink);
    return NULL;
}

struct td_s3_sink *td_s3_sink_make(const struct td_call *call, enum td_s3_algorithm default_algorithm)
{
    return make_sink(call, false, default_algorithm);
}

struct td_s3_sink *td_s3_sink_make_document(const struct td_call *call)
{
    return make_sink(call, true, TD_S3_NO_ALGORITHM);
}

bool td_s3_sink_hash(const struct td_call *call, struct td_s3_sink *sink)
{
    if (sink->payload != TD_SIGV4_DIGEST)
        return true;
    sink->digest = td_digest_create();
    return sink->digest != NULL || td_call_no_memory(call);
}

struct td_body_sink *td_s3_sink_take_text(const struct td_call *call, struct td_s3_sink *sink, size_t most_bytes)
{
    if (sink == NULL)
        return NULL;
    sink->most_text_bytes = most_bytes;
    sink->budget = td_shared_budget_of(&call->api->commits, td_call_client(call));
    if (td_s3_sink_hash(call, sink))
        return &sink->sink;
    release_sink(&sink->sink);
    return NULL;
}

/* ---- after the body ------------------------------------------------------------------------------------ */

static bool fail_chunked(const struct td_call *call, const struct td_s3_sink *self)
{
    switch (self->decoder.fault) {
    case TD_AWS_CHUNKED_LENGTH:
        return fail_as(call, 400, "IncompleteBody",
                       "The chunks of the body do not have the number of bytes of x-amz-decoded-content-length");
    case TD_AWS_CHUNKED_SIGNATURE:
        return fail_as(call, 403, "SignatureDoesNotMatch",
                       "The signature of a chunk of the body, or of its trailer, does not match");
    case TD_AWS_CHUNKED_NO_MEMORY:
        return td_call_no_memory(call);
    default:
        return fail_as(call, 400, "InvalidRequest", "The body is not in the form of aws-chunked");
    }
}

/* Answers why the sink has failed while the body came. */
static bool fail_body(const struct td_call *call, const struct td_s3_sink *self)
{
    if (is_chunked(self) && self->decoder.fault != TD_AWS_CHUNKED_OK && self->decoder.fault != TD_AWS_CHUNKED_STOPPED)
        return fail_chunked(call, self);
    if (self->is_too_long && self->most_text_bytes == 0)
        return fail_as(call, 400, "InvalidRequest", "This request has no body");
    if (self->is_too_long)
        return fail_as(call, 400, "MalformedXML", "The XML you provided is longer than is allowed");
    if (self->err.code == TD_NOT_FOUND)
        return fail_as(call, 404, "NoSuchUpload", self->err.message);
    td_publishing_fail(call, &self->err, 400);
    return false;
}

/* Expects the sums of the trailer. */
static bool take_trailer(const struct td_call *call, struct td_s3_sink *self)
{
    struct td_text rest = td_aws_chunked_trailer(&self->decoder), name, value;
    while (td_aws_chunked_next_field(&rest, &name, &value)) {
        enum td_s3_algorithm algorithm;
        bool is_sum = td_s3_is_checksum_field(name, &algorithm);
        if (!is_sum || (algorithm != TD_S3_NO_ALGORITHM && !self->checksums.computes[algorithm])) {
            td_response_fail_as(call->response, 400, "InvalidRequest",
                                "The trailer has %.*s, which x-amz-trailer does not announce", TD_SHOW(name, 64));
            return false;
        }
        if (!take_sum(call, self, algorithm, name, value))
            return false;
    }
    return true;
}

/* Checks that the trailer has all fields that were announced. */
static bool check_trailer(const struct td_call *call, const struct td_s3_sink *self)
{
    const struct td_header *trailer = td_request_single_header(call->request, "x-amz-trailer");
    struct td_text names = trailer == NULL ? TD_TEXT("") : trailer->value;
    while (names.len > 0) {
        enum td_s3_algorithm algorithm;
        struct td_text name = td_text_trim(td_text_take_until(&names, ','), " \t");
        if (td_s3_is_checksum_field(name, &algorithm) && algorithm != TD_S3_NO_ALGORITHM &&
            !self->checksums.is_expected[algorithm])
            return fail_as(call, 400, "InvalidRequest", "The trailer lacks a field that x-amz-trailer announces");
    }
    return true;
}

bool td_s3_sink_check(const struct td_call *call, struct td_s3_sink *self)
{
    uint8_t sum[TD_SHA256_BYTES];
    if (!call->request->is_whole && call->request->sink != NULL)
        return fail_body(call, self);
    if (is_chunked(self)) {
        bool ok = td_aws_chunked_end(&self->decoder);
        if (!ok)
            return fail_chunked(call, self);
        if (!take_trailer(call, self) || !check_trailer(call, self))
            return false;
    }
    enum td_s3_algorithm wrong = td_s3_checksums_end(&self->checksums);
    if (wrong != TD_S3_NO_ALGORITHM) {
        td_response_fail_as(call->response, 400, "BadDigest", "The %s you specified did not match what we received",
                            td_s3_algorithm_field(wrong));
        return false;
    }
    if (self->digest == NULL)
        return true;
    bool ok = td_digest_finish_binary(self->digest, sum) && memcmp(sum, self->sha256, sizeof sum) == 0;
    self->digest = NULL;
    return ok || fail_as(call, 400, "XAmzContentSHA256Mismatch",
                         "The provided 'x-amz-content-sha256' header does not match what was computed");
}

bool td_s3_sink_end_stream(const struct td_call *call, struct td_s3_sink *self, struct td_publish_sum *sum)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_stream *stream = self->stream;
    const uint8_t *payload = self->payload == TD_SIGV4_DIGEST ? self->sha256 : NULL;
    self->stream = NULL;
    if (td_publish_stream_end(stream, payload, sum, &err))
        return true;
    if (err.code == TD_FAILED_PRECONDITION)
        return fail_as(call, 400, "XAmzContentSHA256Mismatch",
                       "The provided 'x-amz-content-sha256' header does not match what was computed");
    if (err.code == TD_INVALID_ARGUMENT)
        return fail_as(call, 400, "IncompleteBody", err.message);
    td_publishing_fail(call, &err, 400);
    return false;
}

void td_s3_sink_echo(const struct td_call *call, const struct td_s3_sink *self)
{
    char text[TD_S3_SUM_TEXT_BYTES];
    if (self->echoed == TD_S3_NO_ALGORITHM)
        return;
    td_s3_write_sum(self->echoed, self->checksums.sums[self->echoed], text);
    td_response_add_header(call->response, td_s3_algorithm_field(self->echoed), "%s", text);
    td_response_add_header(call->response, "x-amz-checksum-type", "FULL_OBJECT");
}
