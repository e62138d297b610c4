/* The facade for clients of S3: read-only, path style. Private to api/. */
#ifndef TD_API_S3_S3_H
#define TD_API_S3_S3_H

#include "api/handlers.h"

/* Answers a request of the S3 port. What call->snapshot becomes is the caller's reference. */
void td_s3_handle(struct td_call *call);

#endif
