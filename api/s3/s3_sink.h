/* The bodies of S3's uploads: decodes aws-chunked, checks signatures, digests and checksums, and passes the content to
 * a blob, to a part of a multipart upload, or into memory. Private to api/s3/. */
#ifndef TD_API_S3_S3_SINK_H
#define TD_API_S3_S3_SINK_H

#include "api/call/call.h"
#include "api/s3/s3_checksum.h"
#include "catalog/publish/publish_parts.h"
#include "catalog/publish/publish_stream.h"
#include "http/auth/aws_chunked.h"
#include "http/auth/sigv4.h"
#include "http/body_sink.h"

struct td_s3_sink {
    struct td_body_sink sink; /* first: on the way back a sink is one of these */
    /* One of these takes the content. When the handler ends the stream or the part, it sets the member to NULL; else
     * releasing the sink abandons it. */
    struct td_publish_stream *stream;
    struct td_part_writer *part;
    struct td_buffer text;
    size_t most_text_bytes; /* 0: the body must be empty, unless there is a stream or a part */
    uint64_t content_bytes; /* as it was announced, decoded */

    enum td_sigv4_payload payload;
    uint8_t sha256[TD_SHA256_BYTES]; /* of TD_SIGV4_DIGEST */
    bool has_chain;
    struct td_sigv4_chain chain;
    struct td_aws_chunked decoder;
    struct td_digest *digest; /* of the content, if nobody else hashes it and payload is TD_SIGV4_DIGEST */
    struct td_s3_checksums checksums;
    enum td_s3_algorithm echoed; /* the checksum that the answer repeats; TD_S3_NO_ALGORITHM: none */
    struct td_budget *budget;    /* of the text */
    size_t taken_bytes;
    bool is_too_long;    /* the text */
    struct td_error err; /* why the stream or the part has failed */
};

/* Makes a sink without a destination from the request's header fields. default_algorithm: is computed, if the request
 * names no checksum; or TD_S3_NO_ALGORITHM. Returns NULL after it answered: 400, 411, 501 for fields that cannot be
 * followed; 503. */
struct td_s3_sink *td_s3_sink_make(const struct td_call *call, enum td_s3_algorithm default_algorithm);

/* Makes a sink for a document about an object: of the checksums, Content-MD5 alone is that of the body, the others are
 * the object's. Returns NULL after it answered. */
struct td_s3_sink *td_s3_sink_make_document(const struct td_call *call);

/* Refuses fields that ask for something that is not done here, and would be missed. Returns false after it answered. */
bool td_s3_check_fields(const struct td_call *call);

/* Lets the sink compute the SHA-256 of the content, if the request says it: for a part. A stream computes it itself.
 * Returns false after it answered 503. */
bool td_s3_sink_hash(const struct td_call *call, struct td_s3_sink *sink);

/* Sends the content into sink->text and checks its SHA-256, if the request says it. most_bytes: bound on the content;
 * 0: there must be none. Takes over the sink; NULL, of a failed td_s3_sink_make, is allowed. Returns it for the server;
 * NULL after it or td_s3_sink_make answered. */
struct td_body_sink *td_s3_sink_take_text(const struct td_call *call, struct td_s3_sink *sink, size_t most_bytes);

/* Returns the sink of a call whose body has ended. */
struct td_s3_sink *td_s3_sink_of(const struct td_call *call);

/* Checks all that the request says of the body, after its end. Returns false after it answered. Then the content is
 * right, but for the SHA-256 of a stream, which td_s3_sink_end_stream checks. */
bool td_s3_sink_check(const struct td_call *call, struct td_s3_sink *sink);

/* Ends the stream. Returns false after it answered. */
bool td_s3_sink_end_stream(const struct td_call *call, struct td_s3_sink *sink, struct td_publish_sum *sum);

/* Adds the checksum that the client has sent, and its type, to the answer. */
void td_s3_sink_echo(const struct td_call *call, const struct td_s3_sink *sink);

#endif
