/* AWS Signature Version 4 of requests to S3, in the header Authorization or in the query (presigned URLs). Pure: takes
 * the request and the time. Allocates while it verifies. Any thread.
 *
 * Sources: Amazon S3 API Reference, "Authenticating Requests (AWS Signature Version 4)" and "Error responses"; where
 * they leave something open, what S3 answers. Policy:
 *   - The path is neither normalised nor encoded twice. Path and query are decoded and encoded again as S3 encodes
 *     them, so that spellings of the same path ("~", "%7E", "%7e") have the same signature. '+' in a query is a blank,
 *     as for the handlers.
 *   - The host and every field X-Amz-* must be signed. X-Amz-Cf-Id is excepted, which CloudFront adds.
 *   - The digest of the body is signed, and the caller checks it against the body (td_sigv4_read_payload). A GET and a
 *     HEAD have no body, so theirs is that of an empty one, or UNSIGNED-PAYLOAD.
 *   - Any region is right: the server has none, and clients choose one by themselves.
 *   - Session tokens, and the algorithms of versions 2 and 4A are refused. */
#ifndef TD_HTTP_AUTH_SIGV4_H
#define TD_HTTP_AUTH_SIGV4_H

#include "core/digest.h"
#include "http/request.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TD_SIGV4_SKEW_S = 15 * 60,           /* the most that a signature's time may differ from ours */
    TD_SIGV4_MOST_EXPIRES_S = 7 * 86400, /* of a presigned URL */
    TD_SIGV4_TEXT_BYTES = 2048,          /* the most bytes of a presigned URL's own parameters together */
    TD_SIGV4_MESSAGE_BYTES = 320,
    TD_SIGV4_SCOPE_BYTES = 256,
};

/* The kinds of texts that stand for the digest of a body. */
enum td_sigv4_payload {
    TD_SIGV4_UNSIGNED,         /* UNSIGNED-PAYLOAD, or nothing */
    TD_SIGV4_DIGEST,           /* 64 hexadecimal digits */
    TD_SIGV4_UNSIGNED_TRAILER, /* the body is aws-chunked (http/auth/aws_chunked.h), in these three */
    TD_SIGV4_CHUNKS,
    TD_SIGV4_CHUNKS_TRAILER,
};

/* The errors of S3 that a signature can lead to. */
enum td_sigv4_fault {
    TD_SIGV4_ACCESS_DENIED,
    TD_SIGV4_BAD_HEADER, /* AuthorizationHeaderMalformed */
    TD_SIGV4_BAD_QUERY,  /* AuthorizationQueryParametersError */
    TD_SIGV4_BAD_DIGEST, /* XAmzContentSHA256Mismatch */
    TD_SIGV4_INVALID_ARGUMENT,
    TD_SIGV4_INVALID_KEY, /* InvalidAccessKeyId */
    TD_SIGV4_INVALID_REQUEST,
    TD_SIGV4_INVALID_TOKEN,  /* of a session */
    TD_SIGV4_MISMATCH,       /* SignatureDoesNotMatch */
    TD_SIGV4_MISSING_HEADER, /* MissingSecurityHeader */
    TD_SIGV4_NO_MEMORY,
    TD_SIGV4_NOT_IMPLEMENTED,
    TD_SIGV4_SKEWED, /* RequestTimeTooSkewed */
};

/* Why a request is refused. */
struct td_sigv4_refusal {
    enum td_sigv4_fault fault;
    char message[TD_SIGV4_MESSAGE_BYTES]; /* for the client; may hold bytes of the request */
};

/* The parts of a request that concern its signature. The texts are borrowed from the request and from `memory`, so that
 * the struct may not be copied. */
struct td_sigv4 {
    bool is_presigned;
    struct td_text access_key;
    struct td_text scope;          /* date/region/s3/aws4_request */
    struct td_text date, region;   /* of the scope */
    struct td_text signed_headers; /* in lower case, sorted, separated by ';' */
    struct td_text signature;
    struct td_text payload; /* the body's digest as it was signed */
    char time[17];          /* 20130524T000000Z */
    size_t used;
    char memory[TD_SIGV4_TEXT_BYTES];
};

/* Returns the status and S3's word of a fault. The word is static. */
int td_sigv4_status(enum td_sigv4_fault fault);
const char *td_sigv4_code(enum td_sigv4_fault fault);

/* Reads what the request says of its signature, and checks all but the access key and the signature itself: the form,
 * the time (now_s, in seconds since 1970), the scope, and that what must be signed is signed. Returns false, with the
 * reason, for a request without a signature, too. */
bool td_sigv4_parse(const struct td_request *request, int64_t now_s, struct td_sigv4 *out,
                    struct td_sigv4_refusal *refusal);

/* Reads what a request's X-Amz-Content-SHA256 says of its body. sha256 is set for TD_SIGV4_DIGEST. Returns false, with
 * the reason, for other texts. */
bool td_sigv4_read_payload(struct td_text payload, enum td_sigv4_payload *out, uint8_t sha256[TD_SHA256_BYTES],
                           struct td_sigv4_refusal *refusal);

/* Derives the key that signs, from the secret key and the scope. */
void td_sigv4_signing_key(const struct td_sigv4 *signature, struct td_text secret_key, uint8_t key[TD_SHA256_BYTES]);

/* Returns whether the signature of a parsed request is the one by this secret key; compares in constant time. Else sets
 * the reason: TD_SIGV4_MISMATCH, or TD_SIGV4_NO_MEMORY. */
bool td_sigv4_verify(const struct td_sigv4 *signature, const struct td_request *request, struct td_text secret_key,
                     struct td_sigv4_refusal *refusal);

/* Fills in the refusal of an access key that nobody has. Returns false. */
bool td_sigv4_refuse_key(const struct td_sigv4 *signature, struct td_sigv4_refusal *refusal);

#endif
