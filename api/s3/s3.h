/* The facade for clients of S3: path style. */
#ifndef TD_API_S3_S3_H
#define TD_API_S3_S3_H

#include "http/facade.h"

/* The facade. It has a port of its own, because the first segment of any path may be a bucket. */
extern const struct td_facade td_s3_facade;

#endif
