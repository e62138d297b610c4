/* Authenticates requests to the S3 port of a server that has tokens: AWS Signature Version 4 with a token's keys. */
#ifndef TD_API_S3_S3_ACCESS_H
#define TD_API_S3_S3_ACCESS_H

#include "api/call/call.h"

#include <stdbool.h>

/* Implements td_facade.admit. A request with another method than GET and HEAD is admitted: its handler refuses
 * the method. */
bool td_s3_admit(struct td_call *call);

#endif
