/* Subresources: parts of a bucket or object that a query can ask for instead of the bucket or object itself. Source:
 * Amazon S3 API Reference. Private to api/s3/. */
#ifndef TD_API_S3_S3_SUBRESOURCE_H
#define TD_API_S3_S3_SUBRESOURCE_H

#include "api/call/call.h"

struct td_s3_subresource {
    const char *name;
    const char *document; /* the empty document that answers it for a bucket; NULL: not served */
};

/* Returns the subresource that the query asks for, an unserved one before a served one; NULL: none. `served`
 * (NULL-terminated, or NULL) names those that count as the resource itself. */
const struct td_s3_subresource *td_s3_asked_subresource(const struct td_call *call, const char *const *served);

/* Answers 501. */
void td_s3_fail_subresource(const struct td_call *call, const struct td_s3_subresource *asked);

#endif
