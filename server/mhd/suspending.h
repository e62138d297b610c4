/* How connections of libmicrohttpd are suspended, for server/serving/jobs.h and server/serving/waiters.h. */
#ifndef TD_SERVER_MHD_SUSPENDING_H
#define TD_SERVER_MHD_SUSPENDING_H

#include "server/serving/jobs.h"

/* Suspends and resumes a struct MHD_Connection. To suspend is allowed in a callback of libmicrohttpd for the
 * connection, which must then return at once. */
extern const struct td_suspending td_mhd_suspending;

#endif
