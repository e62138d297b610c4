/* The field Repr-Digest of a request (RFC 9530 section 3), which says the SHA-256 that the body must have. */
#ifndef TD_HTTP_REPR_DIGEST_H
#define TD_HTTP_REPR_DIGEST_H

#include "core/digest.h"
#include "http/request.h"
#include "http/response.h"

#include <stdbool.h>

struct td_repr_digest {
    bool has_sha256;
    uint8_t sha256[TD_SHA256_BYTES];
};

/* Reads the field. Passes over digests of other algorithms. Returns false after it answered 400: for a sha-256 that is
 * no digest in base64 between colons. */
bool td_repr_digest_read(const struct td_request *request, struct td_repr_digest *out, struct td_response *response);

#endif
