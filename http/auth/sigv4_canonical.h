/* The canonical request of AWS Signature Version 4 as S3 makes it. Source: Amazon S3 API Reference, "Signature
 * Calculations for the Authorization Header", task 1, and the same for query parameters. Pure; any thread. */
#ifndef TD_HTTP_AUTH_SIGV4_CANONICAL_H
#define TD_HTTP_AUTH_SIGV4_CANONICAL_H

#include "core/buffer.h"
#include "http/request.h"

#include <stdbool.h>

enum { TD_SIGV4_PARAMETERS = 64 }; /* the most query parameters of a signed request */

/* Returns whether the names of two header fields are equal, in any case of ASCII letters. */
bool td_sigv4_same_name(struct td_text a, struct td_text b);

/* Appends the canonical request to `out`; out->failed is set when memory is short. Leaves the query parameter
 * X-Amz-Signature out. signed_headers: names in lower case, separated by ';'. payload: the digest of the body, or the
 * text that stands for it. Returns false with *missing set to the name of a signed field that the request lacks, or to
 * the empty text when there are more than TD_SIGV4_PARAMETERS query parameters. */
bool td_sigv4_write_canonical(const struct td_request *request, struct td_text signed_headers, struct td_text payload,
                              struct td_buffer *out, struct td_text *missing);

#endif
