/* Reads the header of a request from libmicrohttpd, and decides whether it is refused, answered at once, or answered
 * when its body is there. */
#ifndef TD_SERVER_MHD_REQUEST_READER_H
#define TD_SERVER_MHD_REQUEST_READER_H

#include "server/mhd/session.h"

/* Judges a request whose header is complete, in libmicrohttpd's first call for it. MHD_YES: go on; MHD_NO: drop the
 * connection. The connection's thread. */
enum MHD_Result td_request_reader_judge(struct MHD_Connection *mhd, struct td_session *session, const char *method,
                                        const char *version);

#endif
